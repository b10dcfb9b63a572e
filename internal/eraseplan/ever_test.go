package eraseplan_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var everSeeds = flag.Uint64("ever", 3, "how many databases TestEverFindsAll fills; CTXPAGE_LONG=1: 300 at least")

// counting is a store that counts the heads it lists.
type counting struct {
	store.Store
	listed int
}

func (c *counting) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := c.Store.Scan(ctx, q)
	if q.What == store.ScanArtefacts {
		c.listed += len(page.Heads)
	}
	return page, err
}

// listsAll is a store that ignores ScanQuery.Ever, as it may.
type listsAll struct{ store.Store }

func (l listsAll) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	q.Ever = nil
	return l.Store.Scan(ctx, q)
}

// forgetful lists what ScanQuery.Ever asks for, but for one thing that it forgets: a control.
type forgetful struct {
	store.Store
	forgets string
}

var forgettable = []string{"subject", "past subject", "deleted subject", "group", "past group", "derived", "past derived", "source", "past source", "packet", "supersedes"}

func (f forgetful) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	e := q.Ever
	if q.Ever = nil; e == nil {
		return f.Store.Scan(ctx, q)
	}
	page, err := f.Store.Scan(ctx, q)
	page.Heads = slices.DeleteFunc(page.Heads, func(newest *store.Head) bool {
		all, herr := f.Store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{newest.Scope}, ID: newest.ID, Limit: 1000})
		err = errors.Join(err, herr)
		return !slices.ContainsFunc(all.Heads, func(h *store.Head) bool { return f.wants(e, h, newest) })
	})
	return page, err
}

func (f forgetful) wants(e *store.Ever, h, newest *store.Head) bool {
	knows := func(what string) bool {
		return f.forgets != what && (f.forgets != "past "+what || h.Version == newest.Version)
	}
	packet, _, _ := handoff.Received(h)
	return knows("subject") && e.Subject != "" && h.Subject == e.Subject && (f.forgets != "deleted subject" || !newest.Deleted) ||
		knows("group") && e.Group != "" && h.Group == e.Group ||
		knows("derived") && len(h.DerivedFrom) > 0 ||
		knows("source") && strings.HasPrefix(h.Artefact.Source, "page:") ||
		knows("packet") && packet != "" ||
		knows("supersedes") && e.Replaces && len(h.Supersedes) > 0
}

// wild is a database whose artefacts change everything from version to version: subject, session, parents, source.
type wild struct {
	dice
	t    *testing.T
	path string
	key  []byte
	now  time.Time
	st   *filestore.Store
	db   *ctxpage.DB
	done map[string]int
}

const wildIDs = 12

func (w *wild) clock() time.Time { return w.now }

func (w *wild) open(columns int) {
	w.t.Helper()
	var err error
	w.st, err = filestore.Open(filestore.Options{Path: w.path, Key: w.key, Now: w.clock, NoSync: true, State: ctxpage.StateKinds(), Columns: columns})
	require.NoError(w.t, err)
	w.db, err = ctxpage.Open(w.path, ctxpage.Options{Store: w.st, Clock: w.clock})
	require.NoError(w.t, err)
}

func (w *wild) scope() string { return w.one("acme", "acme/ann", "acme/bob") }

func (w *wild) ref() store.Ref {
	return store.Ref{Scope: w.scope(), ID: fmt.Sprint("a", w.IntN(wildIDs))}
}

// oneIn is true once in n times.
func (w *wild) oneIn(n int) bool { return w.IntN(n) == 0 }

func (w *wild) put() error {
	at := w.ref()
	a := ctxpage.Artefact{ID: at.ID, Text: fmt.Sprint("kettle ", w.IntN(2)), Kind: store.KindFact} // often the text of the version before: its page goes on
	if w.oneIn(4) {
		a.Text = strings.Repeat(fmt.Sprint("a long text of the kettle, ", w.IntN(3), ". "), 900) // several pages
	}
	if w.oneIn(3) {
		a.Subject = w.one("ann", "bob")
	}
	if w.oneIn(3) {
		a.Group = w.one("talk", "chat")
		a.Kind = []store.Kind{store.KindFact, store.KindMessage, store.KindScratch}[w.IntN(3)]
	}
	if w.oneIn(5) {
		a.DerivedFrom = []store.Ref{w.ref()}
		if w.oneIn(2) {
			a.Kind = store.KindSummary
		}
	}
	if w.oneIn(6) {
		a.Text, a.Source = "", w.one("page:"+w.ref().String(), "page:"+w.ref().ID)
	}
	if w.oneIn(8) {
		a.Supersedes = []string{w.ref().ID}
	}
	if w.oneIn(6) {
		a.Kind, a.Group, a.Meta = store.KindScratch, "talk", map[string]string{"handoff": w.one("packet", "brief"), "from": w.one("acme:talk", "acme/ann:chat")}
	}
	if w.oneIn(4) {
		a.Tags = []string{w.one("x", "y")}
	}
	_, err := w.db.Scope(at.Scope).Put(ctx, a)
	if err == nil || errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "not found") { // it supersedes itself, or is made from nothing
		return nil
	}
	return err
}

func (w *wild) delete() error {
	at := w.ref()
	if err := w.db.Scope(at.Scope).Delete(ctx, at.ID); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

func (w *wild) gc() error {
	_, err := w.db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepRecords: w.IntN(3) - 1, KeepNames: w.IntN(3) - 1})
	return err
}

func (w *wild) erase() error {
	reqs := w.requests()
	req := reqs[w.IntN(len(reqs))]
	if req.Scope == "acme" || req.Subject != "" && w.oneIn(2) {
		return nil
	}
	if _, err := w.db.Admin().Erase(ctx, req); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

func (w *wild) hold() error {
	at := w.ref()
	tx, err := w.db.Scope(at.Scope, ctxpage.WithActor("agent")).Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	a := ctxpage.Artefact{ID: at.ID, Text: "kettle held", Subject: w.one("", "ann", "bob"), DerivedFrom: []store.Ref{w.ref()}}
	if tx.Put(ctx, a) != nil { // it is made from nothing
		return nil
	}
	if err := tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}); !errors.Is(err, store.ErrHeld) {
		return fmt.Errorf("it was not held: %w", err)
	}
	return nil
}

func (w *wild) reopen() error {
	if err := w.db.Close(); err != nil {
		return err
	}
	w.open(w.IntN(2)*2 - 1) // with a snapshot of the columns or without
	return nil
}

func (w *wild) step() error {
	c := w.draw([]call{
		{"put", 40, w.put}, {"delete", 5, w.delete}, {"gc", 2, w.gc}, {"erase", 1, w.erase}, {"hold", 2, w.hold}, {"reopen", 1, w.reopen},
		{"checkpoint", 1, func() error { _, err := w.db.Admin().Checkpoint(ctx); return err }},
	})
	w.done[c.name]++
	return c.do()
}

func (w *wild) requests() (list []ops.Request) {
	for _, r := range []ops.Request{
		{Subject: "ann"}, {Subject: "bob"}, {Scope: "acme/ann"}, {Scope: "acme"}, {Session: store.Ref{Scope: "acme", ID: "talk"}}, {Session: store.Ref{Scope: "acme/ann", ID: "chat"}},
		{Refs: []store.Ref{{Scope: "acme", ID: "a1"}, {Scope: "acme/ann", ID: "a2"}, {Scope: "acme/bob", ID: "none"}, {Scope: "acme/nobody", ID: "a1"}}},
	} {
		for _, names := range []bool{false, true} {
			for _, cascade := range []ops.Cascade{ops.Keep, ops.Erase} {
				r.Names, r.Cascade, r.By, r.Reason = names, cascade, "desk", "asked"
				list = append(list, r)
			}
		}
	}
	return list
}

// compareFound finds with a listing that is narrowed and with one that is not; it says where they differ.
func compareFound(ctx context.Context, narrowed, whole store.Store, reqs []ops.Request) error {
	for _, req := range reqs {
		want, err := eraseplan.Find(ctx, listsAll{whole}, &req)
		if err != nil {
			return err
		}
		got, err := eraseplan.Find(ctx, narrowed, &req)
		if err != nil {
			return err
		}
		if a, b := fmt.Sprintf("%+v", *want), fmt.Sprintf("%+v", *got); a != b {
			return fmt.Errorf("%w: %+v: all artefacts give %s, the narrowed listing %s", errDiffer, req, a, b)
		}
	}
	return nil
}

var (
	errDiffer = errors.New("found something else")
	errEnough = errors.New("other forms are not wanted")
)

// fillWild makes a database. It calls also with the store of every form in which it can be opened, until that returns an error.
func fillWild(t *testing.T, seed uint64, key []byte, done map[string]int, also func(form string, st store.Store, reqs []ops.Request) error) error {
	t.Helper()
	w := &wild{
		dice: dice{rand.New(rand.NewPCG(seed, 23))}, t: t, path: filepath.Join(t.TempDir(), "agent.ctx"), key: key, done: done,
		now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
	}
	w.open(1)
	defer func() { _ = w.db.Close() }()
	for range 150 {
		w.now = w.now.Add(time.Duration(w.IntN(60)) * time.Minute)
		if err := w.step(); err != nil {
			return err
		}
	}
	forms := []struct {
		name string
		make func() error
	}{
		{"as it is", func() error { return nil }},
		{"of the log", func() error { // what a kill leaves
			killed := filepath.Join(t.TempDir(), "agent.ctx")
			if err := dbtest.Copy(w.path, killed); err != nil {
				return err
			}
			if err := w.db.Close(); err != nil {
				return err
			}
			w.path = killed
			w.open(1)
			return nil
		}},
		{"of the rows", func() error { err := w.db.Close(); w.open(-1); return err }},
		{"to the snapshot", func() error { err := w.db.Close(); w.open(1); return errors.Join(err, w.put()) }},
		{"of the snapshot", func() error {
			err := w.db.Close()
			w.open(1)
			st, serr := w.st.Stat(ctx)
			if key == nil && !st.ColumnsRead {
				return errors.Join(err, serr, errors.New("the snapshot was not read"))
			}
			return errors.Join(err, serr)
		}},
		{"imported", func() error {
			var b bytes.Buffer
			if _, err := w.db.Admin().Export(ctx, &b, portable.ExportOptions{}); err != nil {
				return err
			}
			if err := w.db.Close(); err != nil {
				return err
			}
			w.path = filepath.Join(t.TempDir(), "agent.ctx")
			w.open(1)
			_, err := w.db.Admin().Import(ctx, &b, portable.ImportOptions{By: "desk"})
			return err
		}},
		{"salvaged", func() error {
			if err := w.db.Close(); err != nil {
				return err
			}
			to := filepath.Join(t.TempDir(), "agent.ctx")
			_, err := filestore.Salvage(ctx, w.path, to, filestore.SalvageOptions{By: "desk", Clock: w.clock, State: ctxpage.StateKinds(), Key: key})
			w.path = to
			w.open(1)
			return err
		}},
	}
	for _, f := range forms {
		if err := f.make(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := also(f.name, w.st, w.requests()); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.db.Admin().Checkpoint(ctx); err != nil { // a check looks at what the file has
			return err
		}
		problems, err := w.db.Admin().Check(ctx, nil)
		if err != nil || len(problems) > 0 {
			return fmt.Errorf("%s: the check finds %+v, %w", f.name, problems, err)
		}
	}
	return nil
}

// An erase finds the same whether the store lists all artefacts or those that ScanQuery.Ever asks for, in a database in which
// versions of one artefact have different subjects, sessions and parents, and are deleted, dropped, forgotten and erased; in
// each form in which a database can be opened.
func TestEverFindsAll(t *testing.T) {
	t.Parallel()
	n, done, listed, all := *everSeeds, map[string]int{}, 0, 0
	if dbtest.Long {
		n = max(n, 300)
	}
	for seed := range n {
		err := fillWild(t, seed, sealedEvery(seed), done, func(_ string, st store.Store, reqs []ops.Request) error {
			narrow, whole := &counting{Store: st}, &counting{Store: st}
			err := compareFound(t.Context(), narrow, whole, reqs)
			listed, all = listed+narrow.listed, all+whole.listed
			return err
		})
		require.NoError(t, err, "seed %d", seed)
	}
	t.Logf("%d of %d artefacts were listed; %v", listed, all, slices.Sorted(maps.Keys(done)))
	require.Less(t, listed, all, "nothing was narrowed")
}

// The control: a store that forgets one of the reasons to list an artefact is told.
func TestEverControl(t *testing.T) {
	if dbtest.Race {
		t.Skip("a control of what one goroutine finds: it runs without the race detector, which makes it ten times slower")
	}
	t.Parallel()
	left := map[string]bool{}
	for _, f := range forgettable {
		left[f] = true
	}
	for seed := uint64(0); seed < 100 && len(left) > 0; seed++ {
		err := fillWild(t, seed, nil, map[string]int{}, func(_ string, st store.Store, reqs []ops.Request) error {
			if err := compareFound(t.Context(), forgetful{st, "nothing"}, st, reqs); err != nil {
				return err
			}
			for f := range maps.Clone(left) {
				err := compareFound(t.Context(), forgetful{st, f}, st, reqs)
				if errors.Is(err, errDiffer) {
					delete(left, f)
				} else if err != nil {
					return err
				}
			}
			return errEnough
		})
		require.ErrorIs(t, err, errEnough)
	}
	t.Logf("all of %v were told", forgettable)
	require.Empty(t, left, "nobody noticed")
}

// TestPromotedCopies: what was promoted goes with its original, by every request that takes the original, and nothing that was put
// in its place later.
func TestPromotedCopies(t *testing.T) {
	ctx := t.Context()
	for name, req := range map[string]ops.Request{
		"scope":   {Scope: "acme/ann"},
		"session": {Session: store.Ref{Scope: "acme/ann", ID: "talk"}},
		"refs":    {Refs: []store.Ref{{Scope: "acme/ann", ID: "t1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			req.By, req.Reason = "desk", "asked"
			st, db := filled(t)
			must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "t1"}, "acme", "op"))(t)
			must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/bob", ID: "b"}, "acme", "op"))(t) // control: it stays
			must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "sum", Kind: store.KindSummary, Text: "kettle", DerivedFrom: []store.Ref{{Scope: "acme", ID: "t1", Version: 1}}}))(t)
			old := must(st.Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{"acme"}, Limit: 100}))(t)
			dry := find(t, st, req)
			rep := must(db.Admin().Erase(ctx, req))(t)
			require.Equal(t, dry.Report.Erased, rep.Erased)
			require.Contains(t, rep.Erased, ops.Item{Ref: "acme:t1", Kind: "message", Versions: 1, Why: "promoted from acme/ann:t1"})
			require.Contains(t, rep.Erased, ops.Item{Ref: "acme:sum", Kind: "summary", Versions: 1, Why: "derived from acme:t1"})
			must(db.Scope("acme").Get(ctx, "b"))(t)

			// an export has no audit, so the receipt names the copy
			info := must(st.Info(ctx))(t)
			e := eraseplan.NewEarlier(info.Secret, []store.EraseReport{*rep.Done})
			for _, h := range old.Heads {
				e.Version(h)
			}
			e.Follow()
			for id, goes := range map[string]bool{"t1": true, "sum": true, "b": false} {
				require.Equal(t, goes, e.Takes(store.Ref{Scope: "acme", ID: id}), id)
			}

			// what has its name now is no copy
			must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "t1", Text: "another thing"}))(t)
			must(db.Scope("acme/ann").Session("talk").Append(ctx, ctxpage.Turn{ID: "t1", Role: "user", Text: "what of the pan?"}))(t)
			rep = must(db.Admin().Erase(ctx, req))(t)
			for _, item := range rep.Erased {
				require.NotEqual(t, "acme:t1", item.Ref)
			}
		})
	}
}

// TestFormerSummary: an artefact that was a summary in an earlier version has the words of what it was made from, whatever it is now.
func TestFormerSummary(t *testing.T) {
	ctx := t.Context()
	st, db := filled(t)
	must(db.Scope("acme/ann").Put(ctx, ctxpage.Artefact{ID: "sum", Text: "another thing"}))(t)
	must(db.Scope("acme/ann").Put(ctx, ctxpage.Artefact{ID: "child", Text: "another child"}))(t) // control: it was a fact
	for _, a := range []ctxpage.Artefact{                                                        // control: it was a summary of something else, and derived from it later
		{ID: "other", Kind: store.KindSummary, Text: "pan", DerivedFrom: []store.Ref{{Scope: "acme/ann", ID: "b", Version: 1}}},
		{ID: "other", Text: "kettle and pan", DerivedFrom: []store.Ref{{Scope: "acme/ann", ID: "a", Version: 2}}},
	} {
		must(db.Scope("acme/ann").Put(ctx, a))(t)
	}
	plan := find(t, st, ops.Request{Refs: []store.Ref{{Scope: "acme/ann", ID: "a"}}})
	require.Equal(t, []ops.Item{
		{Ref: "acme/ann:a", Kind: "fact", Versions: 2, Why: "asked for"},
		{Ref: "acme/ann:sum", Kind: "fact", Versions: 2, Why: "derived from acme/ann:a"},
	}, plan.Report.Erased)
}

// TestPromotionOutlivesNames: an erase of names does not take the leaf of a promotion that only has the same id in it.
func TestPromotionOutlivesNames(t *testing.T) {
	ctx := t.Context()
	db := must(openFiles(filepath.Join(t.TempDir(), "agent.ctx"), nil, nil, nil))(t)
	defer db.Close()
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		must(db.Scope(scope).Put(ctx, ctxpage.Artefact{ID: "plan", Text: "kettle of " + scope}))(t)
	}
	must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "plan"}, "acme", "op"))(t)
	erased := func(scope string) (refs []string) {
		rep := must(db.Admin().Erase(ctx, ops.Request{Scope: scope, By: "desk", Reason: "asked", Names: true}))(t)
		for _, item := range rep.Erased {
			refs = append(refs, item.Ref)
		}
		return refs
	}
	require.Equal(t, []string{"acme/bob:plan"}, erased("acme/bob"))
	require.Equal(t, []string{"acme:plan", "acme/ann:plan"}, erased("acme/ann"))
}
