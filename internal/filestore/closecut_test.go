package filestore_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
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
