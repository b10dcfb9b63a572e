package filestore_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longLog opens a database and writes steps, and then so much that a clean end cuts the log.
func (r *rig) longLog(t *testing.T) (*DB, laneState) {
	state := laneState{}
	db := must(r.open())(t)
	s := db.Scope("acme", WithActor("writer"))
	for range 4 {
		for lane := range lanes {
			require.NoError(t, writeStep(ctx, s, lane, state.acked[lane]+1))
			state.acked[lane]++
		}
	}
	for range 2 { // each of bbolt's meta pages has a database
		must(db.Admin().Checkpoint(ctx))(t)
	}
	must(s.Put(ctx, Artefact{ID: "long", Text: strings.Repeat("many words of one page\n\n", 15_000)}))(t)
	must(s.Get(ctx, laneID(0, "a")))(t)
	require.Greater(t, must(db.Stats(ctx))(t).LogBytes, int64(300<<10))
	return db, state
}

// closeWindows ends such a database cleanly and keeps an image of each step of its checkpoints, of the end, and of each again
// with the meta page damaged that bbolt wrote last.
func closeWindows(t *testing.T, r *rig) (out []window) {
	setHook := r.lateHook()
	db, state := r.longLog(t)
	add := func(name string) {
		im := r.cut(1, 0)
		out = append(out, window{name, im, state}, window{name + ", newest meta page damaged", image{im.fs, im.bolt.damageMeta(t)}, state})
	}
	setHook(func(step string) error {
		add(fmt.Sprint(len(out)/2, " ", step))
		return nil
	})
	require.NoError(t, db.Close())
	setHook(func(string) error { return nil })
	add("closed")
	return out
}

// TestCloseCutsTheLog: after a clean end the next open reads little of the log, and nothing is lost wherever the end was
// interrupted.
func TestCloseCutsTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	windows := closeWindows(t, r)
	require.Greater(t, len(windows), 10, "the log was cut by one checkpoint")
	for _, w := range windows {
		require.NoError(t, r.recovers(w, 0), w.name)
	}
	require.NoError(t, r.restart(nil, windows[len(windows)-2].im))
	db := must(r.open())(t)
	require.Less(t, must(db.Stats(ctx))(t).LogBytes, int64(16<<10))
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// TestCloseCutsTheLogControl: a segment that an older meta page needs is missed.
func TestCloseCutsTheLogControl(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for _, w := range closeWindows(t, r) {
		segments := must(w.im.fs.ReadDir(r.path + "-wal"))(t)
		if len(segments) < 2 || !strings.HasSuffix(w.name, "damaged") {
			continue
		}
		w.im.fs.RemoveFile(filepath.Join(r.path+"-wal", segments[0]))
		require.ErrorIs(t, r.recovers(w, 0), store.ErrCorrupt)
		return
	}
	t.Fatal("no window between two checkpoints")
}

// TestKilledWhileClosing dies at operations of a clean end that cuts the log.
func TestKilledWhileClosing(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	_, died := r.killedClosing(t, 0, false)
	require.False(t, died)
	for n, stride := 1, dbtest.Size(3, 1); ; n += stride {
		err, died := r.killedClosing(t, n, false)
		require.NoError(t, err, "killed at operation %d", n)
		if !died {
			require.Greater(t, n, 15)
			return
		}
	}
}

// TestKilledWhileClosingControl: without syncs the same loses something.
func TestKilledWhileClosingControl(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		err, died := newRig(t, Options{}, filestore.Options{NoSync: true}).killedClosing(t, n, true)
		if err != nil {
			return
		}
		require.True(t, died, "nothing was lost at any operation")
	}
}

// killedClosing dies at the nth operation of an end; 0: at none. all: what was not synced is gone.
func (r *rig) killedClosing(t *testing.T, n int, all bool) (err error, died bool) {
	r = newRig(t, r.opts, r.files)
	db, state := r.longLog(t)
	if n > 0 {
		r.fs.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true, Short: 100})
	}
	died = db.Close() != nil
	keep := 30
	if all {
		keep = 0
	}
	if err := r.restart(nil, r.cut(uint64(n), keep)); err != nil {
		return err, died
	}
	if db, err = r.open(); err == nil {
		err = state.verify(db)
		require.NoError(t, db.Close())
	}
	return err, died
}

// A database that is only read from does not grow its log, nor the leaves it holds in memory, forever; and what was
// let go of is in the archive.
func TestReadsAloneCutTheLog(t *testing.T) {
	path := dbtest.Path(t)
	db := openTest(t, path, Options{}, filestore.Options{Rotate: 64 << 10})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "a", Text: "read again and again"}))(t)
	for range 4 {
		for range 1500 {
			must(s.Get(ctx, "a"))(t)
		}
		must(db.Admin().Checkpoint(ctx))(t)
	}
	st := must(db.Stats(ctx))(t)
	require.EqualValues(t, 6001, st.Leaves)
	require.Equal(t, st.Leaves, st.Archived)
	require.Less(t, st.LogBytes, int64(500<<10), "four rounds of reads are about 800 KiB of log; two are kept at most")
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	must(db.Scope("acme").Get(ctx, "a"))(t)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

// clockCalls are the calls that keep a time, or answer by it. They get what prepare made.
func clockCalls(db *DB, trace, held string) map[string]func(ctx context.Context) error {
	s := db.Scope("acme", WithActor("writer"))
	chat := s.Session("chat")
	drop := func(_ any, err error) error { return err }
	return map[string]func(ctx context.Context) error{
		"Put":      func(ctx context.Context) error { return drop(s.Put(ctx, Artefact{ID: "new", Text: "text"})) },
		"Delete":   func(ctx context.Context) error { return s.Delete(ctx, "page") },
		"Get":      func(ctx context.Context) error { return drop(s.Get(ctx, "page")) },
		"Search":   func(ctx context.Context) error { return drop(s.Search(ctx, "text", 5)) },
		"Assemble": func(ctx context.Context) error { return drop(s.Assemble(ctx, Query{Text: "text", Budget: 1000})) },
		"Begin":    func(ctx context.Context) error { return drop(s.Begin(ctx)) },
		"Resume":   func(ctx context.Context) error { return drop(s.Resume(ctx, trace)) },
		"Recall":   func(ctx context.Context) error { return drop(s.Recall(ctx, Ref{ID: "page"})) },
		"Export":   func(ctx context.Context) error { return drop(s.Export(ctx, &bytes.Buffer{})) },
		"Step":     func(ctx context.Context) error { return drop(s.Directives().Step(ctx, "use zerolog")) },
		"Window":   func(ctx context.Context) error { return chat.SetWindow(ctx, session.Config{Total: 64_000}) },
		"Append": func(ctx context.Context) error {
			return drop(chat.Append(ctx, Turn{Role: "user", Text: "another"}))
		},
		"Record":  func(ctx context.Context) error { return chat.Record(ctx, session.Notes{Goal: "a goal"}) },
		"Handoff": func(ctx context.Context) error { return drop(chat.Handoff(ctx, "next")) },
		"Verified": func(ctx context.Context) error {
			return drop(db.Admin().PutVerified(ctx, "acme", "ann", Artefact{ID: "fact", Text: "a fact"}))
		},
		"Approve": func(ctx context.Context) error { return drop(db.Review().Approve(ctx, held, Approval{By: "ann"})) },
		"Reject":  func(ctx context.Context) error { return drop(db.Review().Reject(ctx, held, "ann", "")) },
		"GC":      func(ctx context.Context) error { return drop(db.Admin().GC(ctx, GCOptions{})) },
		"Head":    func(ctx context.Context) error { return drop(db.Head(ctx)) },
	}
}

// TestClockOutOfRange: a clock that shows what cannot be kept is named by every call that asks it, and nothing is written.
// What needs no clock goes on.
func TestClockOutOfRange(t *testing.T) {
	path := dbtest.CheckedMemoryPath(t, openChecked)
	good := time.Date(9999, 12, 1, 0, 0, 0, 0, time.UTC)
	var now atomic.Pointer[time.Time]
	now.Store(&good)
	clock := func() time.Time { return *now.Load() }
	db := openTest(t, path, Options{Clock: clock})
	s := db.Scope("acme", WithActor("writer"))
	_, err := s.Put(ctx, Artefact{ID: "page", Text: "text"})
	require.NoError(t, err)
	must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: "question"}))(t)
	a := must(s.Assemble(ctx, Query{Text: "text", Budget: 1000}))(t)
	held := hold(t, s, "draft", "a draft")
	begun := func() *Txn {
		now.Store(&good)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "later", Text: "put while the clock was right"}))
		return tx
	}
	require.ErrorIs(t, begun().Put(ctx, Artefact{ID: "ttl", Text: "too late", TTL: 100 * 24 * time.Hour}), store.ErrInvalid)
	size := dbtest.SizeOf(db.Manifests())

	bad := []time.Time{good.AddDate(1, 0, 0), good.AddDate(5000, 0, 0), {}, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC).In(time.FixedZone("east", 14*3600))}
	for i := range bad {
		open := begun()
		now.Store(&bad[i])
		for name, call := range clockCalls(db, a.Trace, held) {
			var invalid *store.InvalidError
			if assert.ErrorAs(t, call(ctx), &invalid, "%s at %v", name, bad[i]) {
				assert.Contains(t, invalid.Field, "Clock", name)
			}
		}
		assert.ErrorIs(t, open.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), store.ErrInvalid)
		for name, call := range map[string]func() error{
			"Open":     func() error { _, err := Open(path+"2", Options{Clock: clock}); return err },
			"OpenRead": func() error { _, err := Open(path, Options{Clock: clock, ReadOnly: true}); return err },
			"Restore": func() error {
				_, err := filestore.Restore(ctx, path, path+"2", filestore.RestoreOptions{Clock: clock})
				return err
			},
			"Salvage": func() error {
				_, err := Salvage(ctx, path, path+"2", filestore.SalvageOptions{Clock: clock})
				return err
			},
		} {
			assert.ErrorIs(t, call(), store.ErrInvalid, name)
		}
		_, err = db.Admin().Checkpoint(ctx)
		assert.NoError(t, err)
		problems, err := db.Admin().Check(ctx, nil)
		assert.NoError(t, err)
		assert.Empty(t, problems)
	}
	require.Equal(t, size, dbtest.SizeOf(db.Manifests()), "nothing was written")
	require.Empty(t, must(filepath.Glob(path+"2*"))(t))

	now.Store(&good)
	calls := clockCalls(db, a.Trace, held)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if name != "Reject" && name != "Delete" { // the control; what is approved cannot be rejected
			require.NoError(t, calls[name](ctx), name)
		}
	}
	require.NoError(t, calls["Delete"](ctx))
	require.NoError(t, db.Close())
}
