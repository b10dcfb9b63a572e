package ctxpage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// openGC opens a database whose clock the test moves.
func openGC(t *testing.T) (*DB, *clock, Options) {
	t.Helper()
	clk := newClock()
	opts := Options{Clock: clk.now}
	return open(t, opts), clk, opts
}

// history puts texts of an artefact one after the other, an hour apart.
func history(t *testing.T, clk *clock, s *Scope, id string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		put(t, s, Artefact{ID: id, Text: text})
		clk.add(time.Hour)
	}
}

// gc plans a run and makes it. KeepFor 0 is none here.
func gc(t *testing.T, db *DB, o GCOptions) store.GCReport {
	t.Helper()
	if o.KeepFor == 0 {
		o.KeepFor = -1
	}
	dry := o
	dry.DryRun = true
	plan := must(db.Admin().GC(ctx, dry))(t)
	st := must(db.Stats(ctx))(t)
	rep := must(db.Admin().GC(ctx, o))(t)
	after := must(db.Stats(ctx))(t)
	require.True(t, plan.DryRun)
	require.Equal(t, st.PageVersions-plan.Dropped.Pages, after.PageVersions)
	plan.DryRun, plan.Trace = false, rep.Trace
	require.Equal(t, plan, rep, "a dry run says what the run will do")
	return rep
}

// because returns what a report says stays, by reason.
func because(rep store.GCReport) map[string][]string {
	out := map[string][]string{}
	for _, k := range rep.Kept {
		out[k.Reason] = refStrings(k.Nearest)
	}
	return out
}

func refStrings(refs []Ref) []string {
	out := []string{}
	for _, r := range refs {
		out = append(out, r.String())
	}
	return out
}

func TestGCDrops(t *testing.T) {
	db, clk, opts := openGC(t)
	s := db.Scope("acme")
	history(t, clk, s, "a", "zebra one", "zebra two", "violin three")
	history(t, clk, s, "b", "harbour")
	require.NoError(t, s.Delete(ctx, "b"))

	rep := gc(t, db, GCOptions{})
	require.Equal(t, []string{"acme:a@1", "acme:a@2", "acme:b@1"}, refStrings(rep.Refs))
	require.Equal(t, store.GCTally{Versions: 3, Pages: 3, Bytes: int64(len("zebra one" + "zebra two" + "harbour"))}, rep.Dropped)
	require.Equal(t, []string{"deleted", "superseded"}, []string{rep.Reasons[0].Reason, rep.Reasons[1].Reason})
	require.Empty(t, rep.Kept)

	look := func(db *DB) {
		s := db.Scope("acme")
		require.Equal(t, "violin three", get(t, s, "a").Text)
		for _, r := range []Ref{{Scope: "acme", ID: "a", Version: 1}, {Scope: "acme", ID: "a", Version: 2, Page: 1}, {Scope: "acme", ID: "b", Version: 1}} {
			_, err := s.Recall(ctx, r)
			require.ErrorIs(t, err, store.ErrGone)
			require.NotErrorIs(t, err, store.ErrNotFound)
			require.ErrorContains(t, err, r.String())
			require.ErrorContains(t, err, rep.Trace)
		}
		for _, r := range []Ref{{Scope: "acme", ID: "a", Version: 4}, {Scope: "acme", ID: "c", Version: 1}} {
			_, err := s.Recall(ctx, r)
			require.ErrorIs(t, err, store.ErrNotFound)
			require.NotErrorIs(t, err, store.ErrGone)
		}
		hits := must(hitsOf(s.Search(ctx, "zebra", 10)))(t)
		require.Empty(t, hits, "the words of what is gone find nothing, not what came after either")
		hs := must(loop.Collect(s.Versions(ctx, "a")))(t)
		require.Equal(t, []bool{false, true, true}, []bool{hs[0].Gone, hs[1].Gone, hs[2].Gone})
		require.Equal(t, []string{"", rep.Trace, rep.Trace}, []string{hs[0].GoneBy, hs[1].GoneBy, hs[2].GoneBy})
		require.Empty(t, hs[1].Actor)
		st := must(db.Stats(ctx))(t)
		require.Equal(t, []int{1, 1, 1}, []int{st.Artefacts, st.Pages, st.PageVersions})
	}
	look(db)
	require.Empty(t, gc(t, db, GCOptions{}).Refs, "again there is nothing to do")
	db = reopen(t, db, opts)
	look(db)
	require.Empty(t, gc(t, db, GCOptions{}).Refs)
	require.Equal(t, Ref{Scope: "acme", ID: "b", Version: 3}, put(t, db.Scope("acme"), Artefact{ID: "b", Text: "harbour"}), "versions go on where they were")

	leaves := must(db.Manifests().ByTrace(ctx, rep.Trace))(t)
	require.Len(t, leaves, 1)
	require.Equal(t, manifest.TypeGC, leaves[0].Type)
	require.Len(t, leaves[0].Writes, 3)
	require.Equal(t, manifest.Write{Num: 1, Ref: "acme:a@1", Version: 1, Gone: true}, leaves[0].Writes[0])
	_, written, err := db.Manifests().Written(ctx, 1, 1)
	require.NoError(t, err)
	require.NotEmpty(t, written.Digest, "of the put, not of the drop")
}

// Each reason for which a version stays, and that it goes without it. TestModel has these rules in other combinations.
func TestGCKeeps(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		opts         GCOptions
		// keep makes acme:a@1 a version that ended, and something that keeps it; loosen takes that away.
		keep   func(t *testing.T, db *DB, clk *clock, s *Scope) (loosen func())
		loosen GCOptions
	}{
		{"one of the newest", "among the newest versions", GCOptions{KeepVersions: 2}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one", "two")
			return func() {}
		}, GCOptions{KeepVersions: 1}},
		{"young", "ended too recently", GCOptions{KeepFor: time.Hour + time.Microsecond}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one", "two")
			return func() {}
		}, GCOptions{KeepFor: time.Hour}},
		{"expired", "expired, which was not asked for", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			put(t, s, Artefact{ID: "a", Text: "one", TTL: time.Minute})
			clk.add(time.Hour)
			return func() {}
		}, GCOptions{Expired: true}},
		{"the parent of a held draft", "named by a held batch", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one", "two")
			tx := begin(t, s)
			require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "mine", DerivedFrom: []Ref{{Scope: "acme", ID: "a", Version: 1}}}))
			var held *store.HeldError
			require.ErrorAs(t, tx.Commit(ctx, Verdict{}), &held)
			return func() {
				must(db.Review().Reject(ctx, held.Batch, "anna", ""))(t)
			}
		}, GCOptions{}},
		{"a parent", "a live artefact is derived from it", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one")
			put(t, s, Artefact{ID: "sum", Kind: store.KindSummary, Text: "in short", DerivedFrom: []Ref{{ID: "a"}}})
			history(t, clk, s, "a", "two")
			return func() { require.NoError(t, s.Delete(ctx, "sum")) }
		}, GCOptions{KeepVersions: 0}},
		{"a source", "the source of a live artefact", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one")
			put(t, s, Artefact{ID: "copy", Source: "page:acme:a@1"})
			history(t, clk, s, "a", "two")
			return func() { require.NoError(t, s.Delete(ctx, "copy")) }
		}, GCOptions{}},
		{"seen by a resumed transaction", "in use by a transaction or a read", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one")
			a := assemble(t, s, Query{Text: "one"})
			history(t, clk, s, "a", "two")
			tx := must(s.Resume(ctx, a.Trace))(t)
			return func() { require.NoError(t, tx.Rollback()) }
		}, GCOptions{}},
		{"in an update", "in use by a transaction or a read", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			history(t, clk, s, "a", "one")
			in, out, done := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				done <- s.Update(ctx, func(tx *Txn) error { close(in); <-out; return nil })
			}()
			<-in
			history(t, clk, s, "a", "two")
			return func() { close(out); require.NoError(t, <-done) }
		}, GCOptions{}},
		{"judged by a session", "named by a session", GCOptions{}, func(t *testing.T, db *DB, clk *clock, s *Scope) func() {
			chat := s.Session("chat")
			must(chat.Append(ctx, Turn{ID: "a", Role: "user", Text: "one"}, Turn{ID: "b", Role: "user", Text: "the last"}))(t)
			must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"one"}}))(t)
			clk.add(time.Hour)
			put(t, s, Artefact{ID: "a", Kind: store.KindMessage, Role: "user", Group: "chat", Seq: 1, Text: "two"})
			clk.add(time.Hour)
			return func() {
				for i := range 40 { // verdicts are kept for 32 passes
					must(chat.Pass(ctx, session.PassQuery{Keywords: []string{fmt.Sprint("other", i)}}))(t)
				}
			}
		}, GCOptions{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, clk, _ := openGC(t)
			s := db.Scope("acme", WithActor("agent"))
			loosen := c.keep(t, db, clk, s)
			rep := gc(t, db, c.opts)
			require.Equal(t, []string{"acme:a@1"}, because(rep)[c.reason], "%+v", rep)
			require.Empty(t, rep.Refs)
			_, err := s.Recall(ctx, Ref{Scope: "acme", ID: "a", Version: 1})
			if c.name != "expired" {
				require.NoError(t, err)
			}
			loosen()
			require.Contains(t, refStrings(gc(t, db, c.loosen).Refs), "acme:a@1")
			require.ErrorIs(t, errOf(s.Recall(ctx, Ref{Scope: "acme", ID: "a", Version: 1})), store.ErrGone)
		})
	}
}

// A version between two that stay: what came before it is followed by what came after it.
func TestGCInTheMiddle(t *testing.T) {
	db, clk, opts := openGC(t)
	s := db.Scope("acme")
	history(t, clk, s, "a", "zebra one")
	put(t, s, Artefact{ID: "sum", Kind: store.KindSummary, Text: "in short", DerivedFrom: []Ref{{ID: "a"}}})
	then := assemble(t, s, Query{Text: "zebra"})
	history(t, clk, s, "a", "violin two")
	between := assemble(t, s, Query{Text: "violin"})
	history(t, clk, s, "a", "copper three", "harbour four")
	rep := gc(t, db, GCOptions{})
	require.Equal(t, []string{"acme:a@2", "acme:a@3"}, refStrings(rep.Refs))
	for range 2 {
		s = db.Scope("acme")
		hits := must(hitsOf(s.Search(ctx, "zebra", 10)))(t)
		require.Equal(t, []string{"a"}, hitIDs(hits))
		require.Equal(t, uint32(4), hits[0].Ref.Version)
		require.Contains(t, assemble(t, s, Query{Text: "zebra", AsOf: then.LSN}).Text(), "zebra one")
		past := assemble(t, s, Query{Text: "zebra violin", AsOf: between.LSN})
		require.NotContains(t, past.Text(), "zebra one", "it had ended by then")
		i := slices.IndexFunc(past.Manifest.Excluded, func(e manifest.Exclusion) bool { return e.Reason == "gone" })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, 1, int(past.Manifest.Excluded[i].Count))
		require.Equal(t, []string{"gone"}, left(past, "a"))
		db = reopen(t, db, opts)
	}
}

// Pages that versions share: what a version that stays needs is not taken, also where the versions between go.
func TestGCSharedPages(t *testing.T) {
	clk := newClock()
	opts := Options{Clock: clk.now, PageTokens: 16}
	db := open(t, opts)
	s := db.Scope("acme")
	part := func(word string) string { return strings.Repeat(word+" ", 7) + "\n\n" }
	text := func(words ...string) string {
		var b strings.Builder
		for _, w := range words {
			b.WriteString(part(w))
		}
		return b.String()
	}
	history(t, clk, s, "a", text("zebra", "apple")) // version 1, pages zebra and apple
	require.Len(t, get(t, s, "a").Pages, 2)
	put(t, s, Artefact{ID: "sum", Kind: store.KindSummary, Text: "in short", DerivedFrom: []Ref{{ID: "a"}}})
	history(t, clk, s, "a", text("zebra", "violin"), text("zebra", "harbour"), text("copper", "harbour"), text("copper", "piano"))
	put(t, s, Artefact{ID: "a", Text: text("copper", "piano"), Tags: []string{"new head"}})
	clk.add(time.Hour)

	rep := gc(t, db, GCOptions{})
	// zebra is a page of version 1, which stays; its newest is version 3, so that one stays, with harbour; version 4 has
	// that, too, and copper, which goes on.
	require.Equal(t, []string{"acme:a@2"}, refStrings(rep.Refs))
	require.Equal(t, store.GCTally{Versions: 1, Pages: 1, Bytes: int64(len(part("violin")))}, rep.Dropped)
	require.Equal(t, []string{"acme:a@3", "acme:a@4", "acme:a@5"}, because(rep)["its pages are needed for a version that stays"])
	for range 2 {
		s = db.Scope("acme")
		for v, want := range map[uint32]string{1: text("zebra", "apple"), 3: text("zebra", "harbour"), 4: text("copper", "harbour"), 6: text("copper", "piano")} {
			require.Equal(t, want, must(s.Recall(ctx, Ref{Scope: "acme", ID: "a", Version: v}))(t).Text)
		}
		db = reopen(t, db, opts)
	}
	require.NoError(t, db.Scope("acme").Delete(ctx, "sum"))
	rep = gc(t, db, GCOptions{})
	require.Equal(t, []string{"acme:a@1", "acme:a@3", "acme:a@4", "acme:sum@1"}, refStrings(rep.Refs))
	reopen(t, db, opts)
}

// A page of a dropped version that later ones have can be named by it still, and is kept by that: also where a commit
// names it between the plan and the drop.
func TestGCPageOfADroppedVersion(t *testing.T) {
	AloneHere(t, "progress comes to a client beside the job, not in the middle of it")
	for _, when := range []string{"", "what names versions", "versions"} {
		clk := newClock()
		opts := Options{Clock: clk.now, PageTokens: 16}
		db := open(t, opts)
		s := db.Scope("acme")
		text := func(words ...string) (out string) {
			for _, w := range words {
				out += strings.Repeat(w+" ", 8) + "\n\n"
			}
			return out
		}
		history(t, clk, s, "a", text("zebra", "apple"), text("violin", "apple"))
		require.Equal(t, []string{"acme:a@1"}, refStrings(gc(t, db, GCOptions{}).Refs))
		history(t, clk, s, "a", text("violin", "copper"))
		name := func() { put(t, s, Artefact{ID: "b", Source: "page:acme:a#2@1"}) }
		if when == "" {
			name()
		}
		rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, Progress: func(what string, done, total uint64) {
			if what == when && done == total {
				name()
			}
		}}))(t)
		require.Empty(t, rep.Refs, when)
		require.Equal(t, []string{"acme:a@2"}, because(rep)["the source of a live artefact"])
		require.Equal(t, text("apple"), get(t, s, "b").Text)
		require.NoError(t, s.Delete(ctx, "b"))
		require.Equal(t, []string{"acme:a@2", "acme:b@1"}, refStrings(gc(t, db, GCOptions{}).Refs), "it was b that kept it")
		reopen(t, db, opts)
	}
}

// What is told of a context of which a version is gone.
func TestGCReplay(t *testing.T) {
	db, clk, opts := openGC(t)
	s := db.Scope("acme", WithActor("agent"))
	history(t, clk, s, "a", "zebra one")
	history(t, clk, s, "b", "zebra too")
	past := assemble(t, s, Query{Text: "zebra"})
	history(t, clk, s, "a", "violin two")
	now := assemble(t, s, Query{Text: "zebra"})
	before, err := db.Why(ctx, past.Trace, Ref{ID: "a"})
	require.NoError(t, err)
	rep := gc(t, db, GCOptions{})
	for range 2 {
		s = db.Scope("acme", WithActor("agent"))
		_, err = db.Replay(ctx, past.Trace)
		require.ErrorIs(t, err, store.ErrGone)
		require.ErrorContains(t, err, "acme:a#1@1, dropped by gc "+rep.Trace+" at 2026-03-01T12:00:00Z")
		require.True(t, must(db.Replay(ctx, now.Trace))(t).Same)
		require.Equal(t, before, must(db.Why(ctx, past.Trace, Ref{ID: "a"}))(t))
		require.Equal(t, "acme:a#1@1", db.RefOf(ctx, 1))

		// An answer to the old context is still one to a context that has changed.
		tx := must(s.Resume(ctx, past.Trace))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "so it is " + fmt.Sprint(clk.now())}))
		var held *store.HeldError
		require.ErrorAs(t, tx.Commit(ctx, good), &held)
		require.Equal(t, store.ReasonStaleContext, held.Reason)
		require.Equal(t, []string{"acme:a#1@1"}, refStrings(held.Stale))
		must(db.Review().Approve(ctx, held.Batch, Approval{By: "anna", Stale: true}))(t)
		clk.add(time.Hour)
		db = reopen(t, db, opts)
	}
}

// A scope is one scope, not those below; and another scope's gone version is no more there than any other.
func TestGCScope(t *testing.T) {
	db, clk, _ := openGC(t)
	for _, scope := range []string{"acme", "acme/a", "other"} {
		history(t, clk, db.Scope(scope), "a", "one", "two")
	}
	require.Equal(t, []string{"acme:a@1"}, refStrings(gc(t, db, GCOptions{Scope: "acme"}).Refs))
	require.Empty(t, gc(t, db, GCOptions{Scope: "nowhere"}).Refs)
	_, err := db.Scope("other").Recall(ctx, Ref{Scope: "acme", ID: "a", Version: 1})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NotErrorIs(t, err, store.ErrGone)
	for _, bad := range []GCOptions{{Scope: "/"}, {KeepVersions: -1}, {By: "\x00"}} {
		require.ErrorIs(t, errOf(db.Admin().GC(ctx, bad)), store.ErrInvalid)
	}
}

func TestGCDefaults(t *testing.T) {
	db, clk, opts := openGC(t)
	history(t, clk, db.Scope("acme"), "a", "one", "two")
	rep := must(db.Admin().GC(ctx, GCOptions{}))(t)
	require.Zero(t, rep.Dropped.Versions)
	clk.add(30 * 24 * time.Hour)
	require.NoError(t, db.Close())
	opts.ReadOnly = true
	ro := openAt(t, db.Path(), opts)
	require.ErrorIs(t, errOf(ro.Admin().GC(ctx, GCOptions{})), store.ErrReadOnly)
	rep = must(ro.Admin().GC(ctx, GCOptions{DryRun: true}))(t)
	require.Equal(t, 1, rep.Dropped.Versions)
	require.NoError(t, ro.Close())
	opts.ReadOnly = false
	rep = must(openAt(t, db.Path(), opts).Admin().GC(ctx, GCOptions{}))(t)
	require.Equal(t, 1, rep.Dropped.Versions)
}

// What is free in the file is used again.
func TestGCFreesSpace(t *testing.T) {
	db, clk, opts := openGC(t)
	s := db.Scope("acme")
	size := func() int64 {
		must(db.Admin().Checkpoint(ctx))(t)
		return must(db.Stats(ctx))(t).FileBytes
	}
	fill := func(from int) {
		for i := range 30 {
			history(t, clk, s, "a", strings.Repeat(fmt.Sprint(" zebra", from+i), 4000))
		}
	}
	fill(0)
	first := size()
	for i := range 5 {
		gc(t, db, GCOptions{})
		require.GreaterOrEqual(t, size(), first, "a file of bbolt does not shrink")
		fill(100 * (i + 1))
	}
	require.Less(t, size(), 2*first, "six times as much was written")

	// As the README says: closed, and copied by bbolt, it is smaller, and the database it was.
	gc(t, db, GCOptions{})
	require.NoError(t, db.Close())
	from := must(bbolt.Open(db.Path(), 0o600, nil))(t)
	to := must(bbolt.Open(db.Path()+".small", 0o600, nil))(t)
	require.NoError(t, bbolt.Compact(to, from, 1<<20))
	require.NoError(t, errors.Join(from.Close(), to.Close()))
	require.NoError(t, os.Rename(db.Path()+".small", db.Path()))
	small := openAt(t, db.Path(), opts)
	require.Less(t, must(small.Stats(ctx))(t).FileBytes, first)
	require.Equal(t, uint32(180), get(t, small.Scope("acme"), "a").Version)
}

// openJournals opens a database whose store knows of state rows what kinds say.
func openJournals(t *testing.T, kinds []store.StateKind) (*DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	st := must(filestore.Open(filestore.Options{Path: path, NoSync: true, State: kinds, Now: newClock().now}))(t)
	t.Cleanup(func() { st.Close() })
	return must(Open(path, Options{Store: st, Clock: newClock().now}))(t), path
}

// journalsAfter runs rounds of the same work on a live set of fixed size, each with gc, and gives the size of the file
// after each round. Premises and keywords are long, so that a few hundred of them are told from the file's spare room.
func journalsAfter(t *testing.T, db *DB, path string, rounds int) (sizes []int64) {
	t.Helper()
	s := db.Scope("acme")
	chat := s.Session("chat")
	if _, err := chat.Append(ctx, Turn{Role: "user", Text: "harbour"}, Turn{Role: "assistant", Text: "a quiet one"}); err != nil {
		require.NoError(t, err)
	}
	for round := range rounds {
		for i := range 50 {
			long := strings.Repeat(fmt.Sprintf("reader%dx%d ", round, i), 300)
			_, err := s.Directives().Step(ctx, "set premise "+long)
			if err == nil && round+i > 0 {
				_, err = s.Directives().Step(ctx, "change premise to "+long)
			}
			require.NoError(t, err)
			must(chat.Pass(ctx, session.PassQuery{Keywords: strings.Fields(long)}))(t)
		}
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
		at := must(os.Stat(path))(t)
		sizes = append(sizes, at.Size())
	}
	return sizes
}

// TestGCBoundsJournals: the records of passes and of directives that newer ones replaced go with gc, so the file stays
// flat; without that rule it grows.
func TestGCBoundsJournals(t *testing.T) {
	t.Parallel()
	const rounds = 12 // the file grows by about a megabyte at once, and when it first does depends on when rows are written
	db, path := openJournals(t, StateKinds())
	sizes := journalsAfter(t, db, path, rounds)
	require.LessOrEqual(t, sizes[rounds-1], 3*sizes[0], "%v", sizes)

	s := db.Scope("acme")
	passes := must(s.Session("chat").Passes(ctx))(t)
	require.Len(t, passes, 32)
	require.EqualValues(t, 50*rounds, passes[31].Number)
	list := must(loop.Collect(s.Directives().Entries(ctx, AtMost(1000, "", nil))))(t)
	require.Len(t, list, 32)
	newest, oldest := list[0].Version, list[31].Version
	require.Equal(t, newest-31, oldest)
	require.NoError(t, s.Directives().Restore(ctx, oldest))
	require.ErrorIs(t, s.Directives().Restore(ctx, oldest-1), store.ErrGone)
	require.ErrorIs(t, s.Directives().Restore(ctx, newest+9), store.ErrNotFound)
	for range 31 { // as far back as verdicts are kept
		must(s.Session("chat").Undo(ctx, 0))(t)
	}
	require.ErrorIs(t, errOf(s.Session("chat").Undo(ctx, 1)), store.ErrGone)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))

	unbounded := StateKinds()
	for i := range unbounded {
		unbounded[i].Journal = nil
	}
	db, path = openJournals(t, unbounded)
	sizes = journalsAfter(t, db, path, rounds)
	require.Greater(t, sizes[rounds-1], 6*sizes[0], "the control: %v", sizes)
}

// TestGCKeepsJournals: records stay for as long as KeepFor says, as many as KeepVersions says, and what an undo comes back
// to stays whatever its age.
func TestGCKeepsJournals(t *testing.T) {
	t.Parallel()
	clock := newClock()
	db := open(t, Options{Clock: clock.now})
	s := db.Scope("acme")
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "harbour"}))(t)
	for i := range 40 {
		must(chat.Pass(ctx, session.PassQuery{Keywords: []string{fmt.Sprint("word", i)}}))(t)
		must(s.Directives().Step(ctx, fmt.Sprint("use tool", i)))(t)
	}
	dropped := func(o GCOptions) int {
		t.Helper()
		return must(db.Admin().GC(ctx, o))(t).Journal
	}
	require.Zero(t, dropped(GCOptions{}), "younger than 30 days")
	require.Zero(t, dropped(GCOptions{KeepFor: -1, KeepVersions: 40}))
	require.Zero(t, dropped(GCOptions{KeepFor: -1, Scope: "acme"}), "a run over all scopes drops them")
	require.Equal(t, 16, dropped(GCOptions{KeepFor: -1, DryRun: true}))
	require.Equal(t, 16, dropped(GCOptions{KeepFor: -1}))
	require.Zero(t, dropped(GCOptions{KeepFor: -1}))
	require.EqualValues(t, 40, must(chat.Inspect(ctx))(t).Force.Number)
}
