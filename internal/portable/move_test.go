package portable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// tenant is the scope that moves.
const tenant = "acme"

// load is a product whose writers go on while a tenant moves. Each writer has artefacts and a conversation of its own.
type load struct {
	mu    sync.Mutex
	cond  *sync.Cond
	at    *ctxpage.DB // where the tenant is, as the product believes
	stop  bool
	most  int                 // writes that each writer may make so far: the work must not depend on who is faster
	done  []int               // answered writes, by writer
	acked map[string][]string // the versions of each artefact that were answered, by their texts; "": deleted
	turns []string
	late  int // writes that the old side refused
	ended chan error
}

func begin(ctx context.Context, at *ctxpage.DB, writers int) *load {
	l := &load{at: at, done: make([]int, writers), acked: map[string][]string{}, ended: make(chan error, writers)}
	l.cond = sync.NewCond(&l.mu)
	for w := range writers {
		go func() {
			err := l.write(ctx, w)
			l.mu.Lock()
			l.done[w] = 1 << 30 // nobody waits for it
			l.cond.Broadcast()
			l.mu.Unlock()
			l.ended <- err
		}()
	}
	return l
}

// write repeats a refused write where the tenant is now, and waits for the move to end.
func (l *load) write(ctx context.Context, w int) error {
	for i := 0; ; i++ {
		l.mu.Lock()
		for l.done[w] >= l.most && !l.stop {
			l.cond.Wait()
		}
		db, stop := l.at, l.stop
		l.mu.Unlock()
		if stop {
			return nil
		}
		var over *store.QuotaError
		err := l.one(ctx, db, w, i)
		for errors.As(err, &over) && over.What == "closed" {
			l.mu.Lock()
			l.late++
			l.cond.Broadcast()
			for l.at == db && !l.stop {
				l.cond.Wait()
			}
			db, stop = l.at, l.stop
			l.mu.Unlock()
			if stop {
				return nil
			}
			over, err = nil, l.one(ctx, db, w, i)
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.done[w]++
		l.cond.Broadcast()
		l.mu.Unlock()
	}
}

// one is the write number i of a writer: three artefacts, a turn, and a delete of the first.
func (l *load) one(ctx context.Context, db *ctxpage.DB, w, i int) error {
	s, text := db.Scope(tenant), fmt.Sprintf("writer %d says %d", w, i)
	id := fmt.Sprintf("w%d-%d", w, i%15)
	switch i % 5 {
	case 3:
		_, err := s.Session(fmt.Sprintf("talk-%d", w)).Append(ctx, ctxpage.Turn{Role: "user", Text: text})
		if err == nil {
			l.mu.Lock()
			l.turns = append(l.turns, text)
			l.mu.Unlock()
		}
		return err
	case 4:
		id, text = fmt.Sprintf("w%d-%d", w, i%15-4), ""
		if err := s.Delete(ctx, id); err != nil {
			return err
		}
	default:
		if _, err := s.Put(ctx, ctxpage.Artefact{ID: id, Text: text}); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.acked[id] = append(l.acked[id], text)
	l.mu.Unlock()
	return nil
}

// more waits until each writer has got n more answers. They go on for another 100 beside what comes next.
func (l *load) more(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := slices.Clone(l.done)
	l.most = slices.Max(want) + n + 100
	l.cond.Broadcast()
	for slices.ContainsFunc(want, func(int) bool {
		for w := range want {
			if l.done[w] < want[w]+n {
				return true
			}
		}
		return false
	}) {
		l.cond.Wait()
	}
}

// refused waits until the old side has refused each writer.
func (l *load) refused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = 1 << 30
	l.cond.Broadcast()
	for l.late < len(l.done) && !slices.Contains(l.done, 1<<30) { // one that failed says so to wait
		l.cond.Wait()
	}
}

// moved tells the writers where the tenant is now; nil: they stop.
func (l *load) moved(to *ctxpage.DB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop = to == nil; to != nil {
		l.at = to
	}
	l.cond.Broadcast()
}

func (l *load) wait(t *testing.T) {
	t.Helper()
	for range l.done {
		require.NoError(t, <-l.ended)
	}
}

// lost returns the artefacts and turns that a database does not have exactly as they were answered, each version once.
func (l *load) lost(t *testing.T, db *ctxpage.DB) (list []string) {
	t.Helper()
	has, said := map[string][]string{}, map[string]int{}
	for _, line := range bytes.Split(export(t, db, portable.ExportOptions{Scope: tenant}), []byte("\n")) {
		var v struct {
			Type, ID string
			Version  int
			Deleted  bool
			Pages    []struct{ Text *string }
		}
		if !bytes.HasPrefix(line, []byte(`{"type":"version"`)) {
			continue
		}
		require.NoError(t, json.Unmarshal(line, &v))
		text := ""
		for _, p := range v.Pages {
			text += *p.Text
		}
		require.Equal(t, v.Deleted, text == "")
		has[v.ID] = append(has[v.ID], text)
		said[text]++
		require.Len(t, has[v.ID], v.Version, "a version comes once, in its place")
	}
	for id, texts := range l.acked {
		if !slices.Equal(has[id], texts) {
			list = append(list, id)
		}
	}
	for _, text := range l.turns {
		if said[text] != 1 {
			list = append(list, text)
		}
	}
	return list
}

// part exports and imports a part of the tenant, and returns the LSN that the next part begins at.
func part(t *testing.T, from, to *ctxpage.DB, opts portable.ExportOptions) uint64 {
	t.Helper()
	var b bytes.Buffer
	opts.Scope = tenant
	rep := must(from.Admin().Export(t.Context(), &b, opts))(t)
	in := must(to.Admin().Import(t.Context(), bytes.NewReader(b.Bytes()), portable.ImportOptions{By: "operator"}))(t)
	require.Zero(t, in.Versions.Other+in.State.Other+in.Held.Other, in.Others)
	require.EqualValues(t, in.Versions.New, rep.Versions, "a part has what the parts before it do not")
	return rep.LSN
}

// missing compares the tenant in two databases, by times, salts and digests.
func missing(t *testing.T, from, to *ctxpage.DB) *portable.Imported {
	t.Helper()
	return must(to.Admin().Import(t.Context(), bytes.NewReader(export(t, from, portable.ExportOptions{Scope: tenant})), portable.ImportOptions{By: "operator", DryRun: true}))(t)
}

func shut(t *testing.T, db *ctxpage.DB, why string) {
	t.Helper()
	require.NoError(t, db.Admin().Quotas().Set(t.Context(), tenant, store.Quota{Closed: why}, "operator"))
}

// A tenant moves to another database while four writers go on, by the steps of docs/scale.md. Every answered write is there
// afterwards, once, and the old side refuses late ones. Without the catch-up, the same comparison finds lost writes.
func TestMoveTenant(t *testing.T) {
	for _, catchUp := range []bool{true, false} {
		t.Run(fmt.Sprintf("catch up %v", catchUp), func(t *testing.T) { moveTenant(t, catchUp) })
	}
}

func moveTenant(t *testing.T, catchUp bool) {
	ctx, dir := t.Context(), t.TempDir()
	from := open(t, filepath.Join(dir, "old.ctx"), nil, store.Info{})
	to := open(t, filepath.Join(dir, "new.ctx"), nil, store.Info{})
	for _, db := range []*ctxpage.DB{from, to} { // neighbours stay where they are
		must(db.Scope("beta").Put(ctx, ctxpage.Artefact{ID: "w0-0", Text: "a neighbour"}))(t)
	}
	must(from.Scope(tenant).Directives().Step(ctx, "use metric units"))(t)
	tx := must(from.Scope(tenant).Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "guess", Text: "Perhaps $600."}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), &held)

	l := begin(ctx, from, 4)
	l.more(20)
	at := part(t, from, to, portable.ExportOptions{Versions: true})
	l.more(10)
	if catchUp {
		at = part(t, from, to, portable.ExportOptions{Versions: true, Since: at})
		l.more(10)
	}
	shut(t, from, "moved to new.ctx")
	l.refused()
	if !catchUp {
		l.moved(nil)
		l.wait(t)
		require.NotZero(t, missing(t, from, to).Versions.New, "control: the comparison finds them")
		require.NotEmpty(t, l.lost(t, to), "control")
		require.Empty(t, l.lost(t, from), "control: the old side has them")
		return
	}
	part(t, from, to, portable.ExportOptions{Since: at})
	rep := missing(t, from, to)
	require.Zero(t, rep.Versions.New+rep.State.New+rep.Held.New, "nothing is missing")
	require.Zero(t, rep.Versions.Other+rep.State.Other+rep.Held.Other, rep.Others)
	require.Equal(t, versionsOf(t, from), versionsOf(t, to), "numbers, times, writers, salts, digests and texts")
	l.moved(to)
	l.more(10)
	l.moved(nil)
	l.wait(t)
	require.Empty(t, l.lost(t, to))
	require.Equal(t, 4, l.late, "each writer was refused once")
	require.NotEmpty(t, l.lost(t, from), "control: later writes are on the new side only")

	must(to.Review().Approve(ctx, held.Batch, ctxpage.Approval{By: "ann"}))(t)
	must(from.Scope("beta").Put(ctx, ctxpage.Artefact{ID: "b", Text: "a neighbour writes on"}))(t)
	require.NoError(t, errOf(from.Scope(tenant).Get(ctx, "w0-1")), "reads go on")
	done, err := from.Admin().Erase(ctx, ops.Request{Scope: tenant, By: "operator", Reason: "moved"})
	require.NoError(t, err, "the old copy goes, with a receipt")
	require.NotNil(t, done.Done)
	require.Empty(t, l.lost(t, to))
	sound(t, from)
	sound(t, to)
}

// versionsOf are the versions of the tenant in a database, without what is of that database.
func versionsOf(t *testing.T, db *ctxpage.DB) (list []string) {
	t.Helper()
	for _, line := range same(t, export(t, db, portable.ExportOptions{Scope: tenant})) {
		var is struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(line), &is))
		if is.Type == "version" {
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return list
}

// A write to the old side after the last part is refused with words that say where to write, or it would be lost.
func TestMoveWithoutClosing(t *testing.T) {
	for _, close := range []bool{true, false} {
		from, to := small(t, t.TempDir(), 3), open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
		if close {
			shut(t, from, "moved to to.ctx")
		}
		part(t, from, to, portable.ExportOptions{})
		_, err := from.Scope(tenant+"/below").Put(t.Context(), ctxpage.Artefact{ID: "late", Text: "It is late."})
		if !close {
			require.NoError(t, err)
			require.EqualValues(t, 1, missing(t, from, to).Versions.New, "control: the late write is lost")
			continue
		}
		require.ErrorIs(t, err, store.ErrQuota)
		require.ErrorContains(t, err, "acme is closed for writes: moved to to.ctx. Nothing was written: write where the scope is now")
		require.Zero(t, missing(t, from, to).Versions.New)

		// back again: what was written there meanwhile comes as a part, too
		must(to.Scope(tenant).Put(t.Context(), ctxpage.Artefact{ID: "a0001", Text: "It was changed there."}))(t)
		shut(t, to, "moved back")
		must(from.Admin().Import(t.Context(), bytes.NewReader(export(t, to, portable.ExportOptions{Scope: tenant})), portable.ImportOptions{By: "operator"}))(t)
		require.Zero(t, missing(t, to, from).Versions.New)
		shut(t, from, "")
		must(from.Scope(tenant).Put(t.Context(), ctxpage.Artefact{ID: "a0002", Text: "It is open again."}))(t)
	}
}

// A copy that lacks an erase is not continued, and an import never closes a scope.
func TestMoveRefused(t *testing.T) {
	ctx := t.Context()
	from, to := small(t, t.TempDir(), 3), open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
	at := part(t, from, to, portable.ExportOptions{Versions: true})
	require.ErrorIs(t, errOf(from.Admin().Export(ctx, &bytes.Buffer{}, portable.ExportOptions{Scope: tenant, Since: at + 1})), store.ErrInvalid)
	require.NoError(t, errOf(from.Admin().Export(ctx, &bytes.Buffer{}, portable.ExportOptions{Scope: tenant, Since: at})), "control")
	asked := false
	erase := func(string, uint64, uint64) { // while the rest is exported
		if !asked {
			asked = true
			must(from.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: tenant, ID: "a0001"}}, By: "operator", Reason: "asked"}))(t)
		}
	}
	require.ErrorIs(t, errOf(from.Admin().Export(ctx, &bytes.Buffer{}, portable.ExportOptions{Scope: tenant, Since: at, Progress: erase})), store.ErrConflict)
	require.True(t, asked)
	_, err := from.Admin().Export(ctx, &bytes.Buffer{}, portable.ExportOptions{Scope: tenant, Since: at})
	require.ErrorIs(t, err, store.ErrConflict)
	require.ErrorContains(t, err, "erase the copy and export from the beginning")

	require.NoError(t, from.Admin().Quotas().Set(ctx, tenant, store.Quota{Closed: "moved", Pages: 99}, "operator"))
	whole := open(t, filepath.Join(t.TempDir(), "whole.ctx"), nil, store.Info{})
	rep := bring(t, whole, export(t, from, portable.ExportOptions{}))
	require.Equal(t, []string{"quota/ acme, closed: moved"}, rep.Withheld)
	all := must(whole.Admin().Quotas().All(ctx))(t)
	require.Equal(t, store.Quota{Pages: 99}, all[0].Quota)
	must(whole.Scope(tenant).Put(ctx, ctxpage.Artefact{ID: "new", Text: "It is open."}))(t)
}
