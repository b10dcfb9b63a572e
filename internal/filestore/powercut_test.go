package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/stretchr/testify/require"
)

// rig is a database whose log and archive live on the crash file system and whose bbolt file is real. bbolt's own syncs
// are its makers' to test; where its commit stands between those of the log is tested by copies of the file.
type rig struct {
	path  string
	fs    *dbtest.FS
	opts  Options
	files filestore.Options

	snapshots int // lives that began from a snapshot of the columns
}

func newRig(t *testing.T, opts Options, files ...filestore.Options) *rig {
	r := &rig{path: dbtest.MemoryPath(t), fs: dbtest.NewFS(), opts: opts, files: append(files, filestore.Options{})[0]}
	dir := filepath.Dir(r.path)
	require.NoError(t, r.fs.MkdirAll(dir, 0o700))
	for ; ; dir = filepath.Dir(dir) {
		require.NoError(t, r.fs.SyncDir(dir))
		if dir == filepath.Dir(dir) { // the root, also that of a volume of Windows, whose name this file system keeps in "."
			require.NoError(t, r.fs.SyncDir("."))
			return r
		}
	}
}

func (r *rig) open() (*DB, error) {
	opts, files := r.opts, r.files
	files.FS, opts.WorkingSet = r.fs, -1
	return openOver(r.path, opts, files)
}

// lateHook gives the rig a hook that does nothing until set says what: the engine takes its hook when it is opened.
func (r *rig) lateHook() (set func(func(step string) error)) {
	var hook atomic.Pointer[func(string) error]
	r.files.Hook = func(step string) error {
		if do := hook.Load(); do != nil {
			return (*do)(step)
		}
		return nil
	}
	return func(do func(string) error) { hook.Store(&do) }
}

// image is what a crash leaves: a clone of the file system, and a copy of bbolt's file.
type image struct {
	fs   *dbtest.FS
	bolt boltCopy
}

// boltCopy is a copy of bbolt's file without the unused space behind its last page.
type boltCopy struct {
	used []byte
	size int64
}

func copyBolt(path string) (c boltCopy) {
	f, err := os.Open(path)
	if err != nil {
		return c // not there yet
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return c
	}
	used := st.Size()
	if m, err := names.Newest(f, used); err == nil {
		used = min(used, int64(m.High)*m.PageSize)
	}
	c.used, c.size = make([]byte, used), st.Size()
	if _, err := io.ReadFull(f, c.used); err != nil {
		panic(err)
	}
	return c
}

func (c boltCopy) write(path string) error {
	if c.used == nil {
		return os.RemoveAll(path)
	}
	return errors.Join(os.WriteFile(path, c.used, 0o600), os.Truncate(path, c.size))
}

// cut is a power cut at this moment: of what was not synced, each sector survives with a probability of keep percent.
func (r *rig) cut(seed uint64, keep int) image {
	return image{r.fs.CrashClone(seed, keep), copyBolt(r.path)}
}

// restart ends a handle without letting it write any more, and puts an image in the place of its files.
func (r *rig) restart(db *DB, im image) error {
	r.fs.Inject(dbtest.Fault{Err: dbtest.ErrCrashed, Sticky: true})
	if db != nil {
		_ = db.Close() // it says what it met: the crash
	}
	r.fs = im.fs
	return im.bolt.write(r.path)
}

// cutLife writes, is cut, recovers and is looked at, a few times over. It returns how many lives began from a snapshot of the
// columns, and the first broken promise.
func cutLife(t *testing.T, seed uint64, noSync bool) (snapshots int, err error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	r := newRig(t, Options{AuditSync: seed%2 == 1}, filestore.Options{NoSync: noSync, Rotate: int64(seed%3) * 4096, Columns: int(seed/2%2)*2 - 1})
	state := &laneState{}
	for range 4 {
		if rng.IntN(3) == 0 { // the power may go in the middle of anything, of a recovery, too
			r.fs.Inject(dbtest.Fault{N: 1 + rng.IntN(80), Err: dbtest.ErrCrashed, Sticky: true, Short: rng.IntN(3000)})
		}
		im, db, err := r.live(state, rng)
		if err != nil {
			return r.snapshots, errors.Join(err, r.restart(db, im))
		}
		if err := r.restart(db, im); err != nil {
			return r.snapshots, err
		}
	}
	db, err := r.open()
	if err != nil {
		return r.snapshots, err
	}
	err = state.verify(db)
	problems, cerr := db.Admin().Check(context.Background(), nil)
	if err = errors.Join(err, cerr); len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("check: %+v", problems))
	}
	return r.snapshots, errors.Join(err, db.Close())
}

// live is one life, up to the image of its end.
func (r *rig) live(state *laneState, rng *rand.Rand) (im image, db *DB, err error) {
	steps := []string{"archived", "before bbolt", "after bbolt", "after cut", ""}
	if r.files.Columns > 0 {
		steps = append(steps, "columns named", "columns written", "columns renamed", "", "")
	}
	stop, seed, keep := steps[rng.IntN(len(steps))], rng.Uint64(), []int{0, 30, 100}[rng.IntN(3)]
	var mu sync.Mutex // a checkpoint in the background calls the hook beside the writer
	taken := false
	r.files.Hook = func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		if step == stop && !taken {
			im, taken = r.cut(seed, keep), true
		}
		return nil
	}
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return taken
	}
	crashed := func(err error) (image, *DB, error) {
		if over() {
			return im, db, nil
		}
		if !errors.Is(err, dbtest.ErrCrashed) {
			return im, db, err
		}
		return r.cut(seed, keep), db, nil
	}
	if db, err = r.open(); err != nil {
		return crashed(err)
	}
	if st, err := storeOf(db).Stat(context.Background()); err == nil && st.ColumnsRead {
		r.snapshots++
	}
	was := state.head
	if err := state.verify(db); err != nil {
		return crashed(err)
	}
	if over() { // the head that it took may be of a moment after the image
		state.head = was
		return im, db, nil
	}
	ctx, s := context.Background(), db.Scope("acme", WithActor("writer"))
	for range 2 + rng.IntN(25) {
		lane := rng.IntN(lanes)
		if err := writeStep(ctx, s, lane, state.acked[lane]+1); err != nil {
			return crashed(err)
		}
		if over() { // this step may have come after the image
			return im, db, nil
		}
		state.acked[lane]++
		if rng.IntN(8) == 0 {
			if _, err := db.Admin().Checkpoint(ctx); err != nil {
				return crashed(err)
			}
			if r.files.Columns > 0 {
				filestore.KeepColumns(storeOf(db))
			}
		}
	}
	if over() {
		return im, db, nil
	}
	return r.cut(seed, keep), db, nil
}

// TestPowerCut loses what was not synced. The log, the archive and their directories are on a file system that keeps
// only what was synced, or random sectors of the rest; the cuts come anywhere, also in the windows between the sync of
// the log, the commit of bbolt and the cut of the log, and in a recovery.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	snapshots := 0
	for seed := range uint64(dbtest.Times(6, 24, 240)) {
		n, err := cutLife(t, seed, false)
		require.NoError(t, err, "seed %d", seed)
		snapshots += n
	}
	require.NotZero(t, snapshots, "no life began from a snapshot of the columns")
}

// TestPowerCutControl: without syncs the same must fail.
func TestPowerCutControl(t *testing.T) {
	t.Parallel()
	failed := 0
	for seed := range uint64(12) {
		if _, err := cutLife(t, seed, true); err != nil {
			failed++
		}
	}
	require.GreaterOrEqual(t, failed, 8, "lives without syncs that lost something, of 12")
}

// window is the image of a moment, and what must be there.
type window struct {
	name  string
	im    image
	state laneState
}

// checkpointWindows writes steps and checkpoints and keeps an image of each window of the third checkpoint: the log
// synced and bbolt not begun; bbolt's pages written and its meta page not; all of bbolt committed and the log not cut;
// the log cut; and that again with the meta page damaged that bbolt wrote last, after which it silently uses the one
// before.
func checkpointWindows(t *testing.T, r *rig) (out []window) {
	ctx, state := context.Background(), laneState{}
	shots := map[string]image{}
	setHook := r.lateHook()
	setHook(func(step string) error {
		shots[step] = r.cut(1, 0)
		return nil
	})
	db := must(r.open())(t)
	for range 3 {
		for range 4 {
			for lane := range lanes {
				require.NoError(t, writeStep(ctx, db.Scope("acme", WithActor("writer")), lane, state.acked[lane]+1))
				state.acked[lane]++
			}
		}
		before := inside(db).Log.First()
		must(db.Admin().Checkpoint(ctx))(t)
		if state.acked[0] == 12 {
			require.Greater(t, inside(db).Log.First(), before, "the log was not cut: the window is none")
		}
	}
	setHook(func(string) error { return nil }) // the shots are taken
	require.NoError(t, r.restart(db, shots["after cut"]))
	add := func(name string, fs *dbtest.FS, bolt boltCopy) {
		out = append(out, window{name, image{fs, bolt}, state})
	}
	p, q, end := shots["before bbolt"], shots["after bbolt"], shots["after cut"]
	add("log synced, bbolt not begun", p.fs, p.bolt)
	add("bbolt's pages written, its meta page not", p.fs, q.bolt.withMetas(p.bolt))
	add("bbolt committed, log not cut", q.fs, q.bolt)
	add("log cut", end.fs, end.bolt)
	add("newest meta page damaged", end.fs, end.bolt.damageMeta(t))
	return out
}

// withMetas takes the two meta pages of another copy.
func (c boltCopy) withMetas(from boltCopy) boltCopy {
	used := slices.Clone(c.used)
	copy(used[:2*names.PageSize], from.used)
	return boltCopy{used, c.size}
}

func (c boltCopy) damageMeta(t *testing.T) boltCopy {
	used := slices.Clone(c.used)
	m := must(names.Newest(bytes.NewReader(used), int64(len(used))))(t)
	clear(used[int64(m.Txid%2)*m.PageSize+names.MetaHead:][:names.MetaSize])
	return boltCopy{used, c.size}
}

// TestCheckpointWindows: a crash in any window of a checkpoint loses nothing, and neither does one in the recovery from
// it, at any of its operations. Every run tries each third operation, another third in each window; the long form tries
// all of them.
func TestCheckpointWindows(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, filestore.Options{Rotate: 1})
	stride := 3
	if dbtest.Long {
		stride = 1
	}
	for i, w := range checkpointWindows(t, r) {
		t.Run(w.name, func(t *testing.T) {
			require.NoError(t, r.recovers(w, 0))
			ops := r.fs.Ops() // of the recovery, and of what looked at it
			for n := 1 + i%stride; n <= ops; n += stride {
				require.NoError(t, r.recovers(w, n), "crash at operation %d of %d", n, ops)
			}
		})
	}
}

// recovers opens an image, dies at the nth operation if n is not 0, and opens what that left.
func (r *rig) recovers(w window, n int) error {
	state := w.state
	if err := r.restart(nil, image{w.im.fs.Clone(), w.im.bolt}); err != nil {
		return err
	}
	if n > 0 {
		r.fs.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true, Short: 100})
		db, err := r.open()
		if err == nil {
			err = state.verify(db)
		}
		if err != nil && !errors.Is(err, dbtest.ErrCrashed) {
			return err
		}
		if err := r.restart(db, r.cut(uint64(n), 30)); err != nil {
			return err
		}
	}
	db, err := r.open()
	if err != nil {
		return err
	}
	return errors.Join(state.verify(db), db.Close())
}

// TestCheckpointWindowsControl: with the log of two checkpoints missing, the older meta page must be found out.
func TestCheckpointWindowsControl(t *testing.T) {
	r := newRig(t, Options{}, filestore.Options{Rotate: 1})
	windows := checkpointWindows(t, r)
	w := windows[len(windows)-1]
	names := must(w.im.fs.ReadDir(r.path + "-wal"))(t)
	w.im.fs.RemoveFile(filepath.Join(r.path+"-wal", names[0]))
	require.ErrorIs(t, r.recovers(w, 0), store.ErrCorrupt)
}

// TestOutcomeUnknown lets the write, or the sync, of a commit fail. The commit's outcome is unknown, the handle is
// good for nothing any more, and after opening again the same id gives the outcome once: applied if it had become
// durable, applied now if not, never twice.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for _, op := range []dbtest.Op{dbtest.OpWrite, dbtest.OpSync} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%s %d", op, seed), func(t *testing.T) {
				r := newRig(t, Options{})
				db := must(r.open())(t)
				s := db.Scope("acme")
				must(s.Put(ctx, Artefact{ID: "page", Text: "before"}))(t)
				id := must(newID())(t)
				put := func(s *Scope) (out store.Outcome, err error) {
					err = s.Update(ctx, func(tx *Txn) error {
						if err := tx.Put(ctx, Artefact{ID: "page", Text: "after"}); err != nil {
							return err
						}
						defer func() { out = tx.Outcome() }()
						return tx.Put(ctx, Artefact{ID: "other", Text: "with it"})
					}, WithID(id.String()))
					return out, err
				}
				r.fs.Inject(dbtest.Fault{Op: op, Name: ".wal", Short: int(seed) * 150})
				_, err := put(s)
				require.ErrorIs(t, err, store.ErrOutcomeUnknown)
				require.ErrorIs(t, err, syscall.EIO)
				r.fs.Heal()
				require.ErrorIs(t, errOf(put(s)), store.ErrOutcomeUnknown, "the handle is poisoned")
				require.ErrorIs(t, errOf(s.Get(ctx, "page")), store.ErrOutcomeUnknown, "a read that cannot be audited fails")
				require.ErrorIs(t, errOf(db.Admin().Checkpoint(ctx)), store.ErrOutcomeUnknown)
				require.ErrorIs(t, errOf(db.Head(ctx)), store.ErrOutcomeUnknown)

				keep := []int{0, 50, 100}[seed%3]
				require.NoError(t, r.restart(db, r.cut(seed, keep)))
				db = must(r.open())(t)
				s = db.Scope("acme")
				survived := must(textOf(s, "page"))(t)
				for range 2 {
					must(put(s))(t)
				}
				v := must(s.Get(ctx, "page"))(t)
				require.Equal(t, "after", v.Text)
				require.Equal(t, uint32(2), v.Version, "found %q after the crash", survived)
				v = must(s.Get(ctx, "other"))(t)
				require.Equal(t, uint32(1), v.Version)
				require.NoError(t, db.Close())
			})
		}
	}
}

// TestOutcomeUnknownInGroup: of many commits that one sync would have carried, each is told that its outcome is unknown,
// and none is left waiting.
func TestOutcomeUnknownInGroup(t *testing.T) {
	r := newRig(t, Options{})
	db := must(r.open())(t)
	const writers = 16
	errs := make(chan error, writers)
	answered := make(chan int, 10_000)
	for w := range writers {
		go func() {
			for n := 1; ; n++ {
				if _, err := db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", w), Text: fmt.Sprint(n)}); err != nil {
					errs <- err
					return
				}
				if n == 3 && w == 0 {
					r.fs.Inject(dbtest.Fault{Op: dbtest.OpSync, Name: ".wal", N: 3})
				}
				answered <- w
			}
		}()
	}
	for range writers {
		require.ErrorIs(t, <-errs, store.ErrOutcomeUnknown)
	}
	close(answered)
	acked := make([]int, writers)
	for w := range answered {
		acked[w]++
	}
	require.NoError(t, r.restart(db, r.cut(1, 0)))
	db = must(r.open())(t)
	for w, n := range acked {
		if n == 0 {
			continue
		}
		v := must(db.Scope("acme").Get(ctx, fmt.Sprint("page-", w)))(t)
		require.Equal(t, fmt.Sprint(n), v.Text, "with nothing unsynced kept, exactly what was acknowledged")
	}
	require.NoError(t, db.Close())
}

// TestBackgroundSyncFails: a sync that nobody waits for fails; the next call learns of it.
func TestBackgroundSyncFails(t *testing.T) {
	r := newRig(t, Options{})
	db := must(r.open())(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "text"}))(t)
	r.fs.Inject(dbtest.Fault{Op: dbtest.OpSync, Sticky: true})
	must(db.Scope("acme").Get(ctx, "page"))(t) // its manifest is synced later
	require.Eventually(t, func() bool { return inside(db).Failure != nil }, time.Minute, 5*time.Millisecond)
	require.ErrorIs(t, errOf(db.Scope("acme").Get(ctx, "page")), store.ErrOutcomeUnknown)
	require.Error(t, db.Close())
	r.fs.Heal()
	db = must(r.open())(t)
	require.NoError(t, db.Close())
}

// TestDiskFull fills the log's disk: commits fail and say so, what is stored can be read and deleted, the end is clean,
// reads fail only when there is no room left for their manifests, and with free space all goes on.
func TestDiskFull(t *testing.T) {
	for name, columns := range map[string]int{"small": 0, "with a snapshot of the columns": 1} {
		for _, words := range []int{60, 300, 500} { // the last put takes part of the reserve
			t.Run(fmt.Sprint(name, ", ", words), func(t *testing.T) { diskFull(t, filestore.Options{Columns: columns}, words) })
		}
	}
}

func diskFull(t *testing.T, files filestore.Options, words int) {
	files.Segment = 64 << 20 // as it is outside tests: the reserve is a share of what is preallocated
	r := newRig(t, Options{}, files)
	db := must(r.open())(t)
	s := db.Scope("acme")
	for n := range 20 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("text ", n)}))(t)
	}
	r.fs.Limit(r.fs.Used() + 1)
	var full error
	for n := 0; full == nil; n++ {
		_, full = s.Put(ctx, Artefact{ID: "filler", Text: fmt.Sprint(n, strings.Repeat(" words of a long text", words))})
	}
	require.ErrorContains(t, full, "disk is full")
	require.NotErrorIs(t, full, store.ErrOutcomeUnknown, "nothing was written, and the handle goes on")
	for n := range 20 {
		require.Equal(t, fmt.Sprint("text ", n), must(textOf(s, fmt.Sprint("page-", n)))(t))
	}
	require.NoError(t, s.Delete(ctx, "page-0"))
	_, err := s.Get(ctx, "page-0")
	require.ErrorIs(t, err, store.ErrNotFound)
	reads := 0
	for err = nil; err == nil; reads++ {
		require.Less(t, reads, 10_000, "reads use up the reserve of deletes")
		_, err = s.Get(ctx, "page-1")
	}
	require.ErrorContains(t, err, "could not be audited")
	require.Greater(t, reads, 50)
	for n := 2; n < 10; n++ {
		require.NoError(t, s.Delete(ctx, fmt.Sprint("page-", n)), "the rest of the reserve is for deletes")
	}
	require.NoError(t, db.Close(), "and for a clean end")

	db, err = r.open() // on the disk that is still full
	require.NoError(t, err)
	require.NoError(t, db.Scope("acme").Delete(ctx, "page-10"))
	r.fs.Heal()
	_, err = db.Scope("acme").Put(ctx, Artefact{ID: "later", Text: "with room again"})
	if err != nil { // the first is told of the fullness that was
		_, err = db.Scope("acme").Put(ctx, Artefact{ID: "later", Text: "with room again"})
	}
	require.NoError(t, err)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
	db = must(r.open())(t)
	for n := range 20 {
		want := fmt.Sprint("text ", n)
		if n == 0 || n >= 2 && n <= 10 {
			want = ""
		}
		require.Equal(t, want, must(textOf(db.Scope("acme"), fmt.Sprint("page-", n)))(t))
	}
	require.NoError(t, db.Close())
}
