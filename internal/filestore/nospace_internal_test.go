package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// fullOnce lets one write, or one sync, meet the end of the disk: of log, archive and copies, and of bbolt's file.
type fullOnce struct {
	wal.FS
	mu      sync.Mutex
	writes  int // so many were asked for
	syncs   int
	write   int // the one that fails; 0: none
	sync    int
	swallow bool // the control: what fails says that it did not
	hit     string
}

// fails counts a write, or a sync.
func (f *fullOnce) fails(sync bool, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, at := &f.writes, f.write
	if sync {
		n, at = &f.syncs, f.sync
	}
	if *n++; *n != at {
		return false
	}
	f.hit = name
	return true
}

func (f *fullOnce) err(op, name string) error {
	if f.swallow {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
}

func (f *fullOnce) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	if _, err := os.Lstat(name); err != nil && flag&os.O_CREATE != 0 && !f.swallow && f.fails(false, "create "+name) {
		return nil, f.err("create", name)
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fullFile{file, f, name}, nil
}

func (f *fullOnce) SyncDir(dir string) error {
	if f.fails(true, "directory "+dir) {
		return f.err("sync", dir)
	}
	return f.FS.SyncDir(dir)
}

type fullFile struct {
	wal.File
	f    *fullOnce
	name string
}

// WriteAt fails with half of the bytes written, or none.
func (f *fullFile) WriteAt(b []byte, off int64) (int, error) {
	if !f.f.fails(false, f.name) {
		return f.File.WriteAt(b, off)
	}
	n := 0
	if !f.f.swallow && f.f.write%2 == 0 {
		n, _ = f.File.WriteAt(b[:len(b)/2], off)
	}
	if err := f.f.err("write", f.name); err != nil {
		return n, err
	}
	return len(b), nil
}

func (f *fullFile) Sync() error {
	if f.f.fails(true, f.name) {
		return f.f.err("sync", f.name)
	}
	return f.File.Sync()
}

// bolt takes the writes of bbolt, which has no seam for them. A write that fails has written nothing, or all: then the sync
// behind it is what failed.
func (f *fullOnce) bolt(db *bbolt.DB) {
	at := reflect.ValueOf(db).Elem().FieldByName("ops").FieldByName("writeAt")
	write := (*func([]byte, int64) (int, error))(unsafe.Pointer(at.UnsafeAddr()))
	do := *write
	*write = func(b []byte, off int64) (int, error) {
		if !f.fails(false, db.Path()) {
			return do(b, off)
		}
		if !f.swallow && f.write%2 == 0 {
			_, _ = do(b, off)
		}
		if err := f.err("write", db.Path()); err != nil {
			return 0, err
		}
		return len(b), nil
	}
}

// script is a life of a database on such a disk, and what must be in it.
type script struct {
	t      *testing.T
	f      *fullOnce
	path   string
	st     *Store
	texts  map[string]string // "": deleted
	unsure string            // id of the step under way, whose outcome may be unknown
	extra  int
	ticks  int64
	failed int // steps that met the end of the disk
}

func (s *script) now() time.Time {
	s.ticks++
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s.ticks) * time.Millisecond)
}

func (s *script) open() error {
	st, err := Open(Options{Path: s.path, FS: s.f, Now: s.now, Rotate: 4 << 10, Segment: 512 << 10, onBolt: s.f.bolt})
	if err == nil {
		s.st = st
	}
	return err
}

// batch puts a text, or deletes where it is empty.
func (s *script) batch(id, text string) store.Batch {
	b := liveBatch(s.t, s.st, uint64(s.ticks))
	b.State, b.Deletes, b.Now = nil, nil, s.now()
	b.Puts[0].Artefact.CurrentAsOf = b.Now
	made := must(store.NewID(b.Now, s.st.opts.Rand))(s.t)
	b.ID = made
	if text == "" {
		b.Puts, b.Deletes = nil, []string{id}
		return b
	}
	page := store.NewPage{Text: text, Tokens: len(text) / 4, Hash: store.ContentHash(text)}
	page.Digest = store.SaltedDigest(page.Salt[:], text)
	b.Puts[0].Artefact.ID, b.Puts[0].Pages = id, []store.NewPage{page}
	return b
}

// put is a step that puts or deletes. What it acknowledged is expected from then on; the same batch is tried again.
func (s *script) put(id, text string) error {
	b := s.batch(id, text)
	s.unsure = id
	defer func() { s.unsure = "" }()
	return s.step("put "+id, func() error {
		_, err := s.st.Commit(context.Background(), b)
		if err == nil {
			s.texts[id] = text
		}
		return err
	})
}

func (s *script) job(job store.Job) error {
	return s.step(fmt.Sprint("job ", job.Kind), func() error {
		_, err := s.st.Maintain(context.Background(), job, nil)
		return err
	})
}

// step does what may meet the end of the disk, once, and is told so in the right way. Then what was acknowledged is there,
// deletes and gc go through, and so does the step itself: on the same handle, or after an open where the error says so.
func (s *script) step(name string, do func() error) error {
	err := do()
	if err == nil {
		return nil
	}
	s.failed++
	if !errors.Is(err, store.ErrNoSpace) && !errors.Is(err, store.ErrOutcomeUnknown) {
		return fmt.Errorf("%s: no ErrNoSpace: %w", name, err)
	}
	if !strings.Contains(err.Error(), filepath.Dir(s.path)) {
		return fmt.Errorf("%s: it does not name the file: %w", name, err)
	}
	again := strings.Contains(err.Error(), "open it again") || strings.Contains(err.Error(), "reopen the database")
	if s.st != nil && !again && s.st.eng.Failure() != nil {
		return fmt.Errorf("%s: it does not say to open it again: %w", name, err)
	}
	if s.st != nil && again {
		_ = s.st.Close()
		if err := s.open(); err != nil {
			return fmt.Errorf("%s: open after it: %w", name, err)
		}
	} else if errors.Is(err, store.ErrNoSpace) && !strings.Contains(err.Error(), "free") {
		return fmt.Errorf("%s: it does not say what to do: %w", name, err)
	}
	if s.st != nil && !s.st.eng.Closed() {
		if err := s.works(); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s, once more: %w", name, err)
	}
	return nil
}

// works deletes, collects and puts.
func (s *script) works() error {
	if err := s.holds(); err != nil {
		return err
	}
	s.extra++
	id := fmt.Sprint("extra", s.extra)
	for _, text := range []string{"words to go", ""} {
		if _, err := s.st.Commit(ctx, s.batch(id, text)); err != nil {
			return fmt.Errorf("put or delete %q: %w", text, err)
		}
	}
	_, err := s.st.Maintain(ctx, gcAll, nil)
	return err
}

var gcAll = store.Job{Kind: store.JobGC, GC: &store.GCJob{By: "test", KeepRecords: 4, KeepNames: 1024}}

// holds says what of that which was acknowledged is not there.
func (s *script) holds() error {
	for id, want := range s.texts {
		if id == s.unsure {
			continue
		}
		at, err := s.st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{Scope: "acme", ID: id})
		if want == "" {
			if !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("%s was deleted, and is there: %w", id, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		got, err := s.st.Load(ctx, store.Scopes{"acme"}, at.Pages, store.WantText)
		if err != nil || len(got) != 1 || got[0].Err != nil || got[0].Text != want {
			return fmt.Errorf("%s is not what was put: %w", id, err)
		}
	}
	return nil
}

func (s *script) sound() error {
	var rep store.JobReport
	err := s.step("check", func() (err error) {
		rep, err = s.st.Maintain(context.Background(), store.Job{Kind: store.JobCheck}, nil)
		return err
	})
	if err == nil && len(rep.Problems) > 0 {
		err = fmt.Errorf("check: %v", rep.Problems)
	}
	return errors.Join(s.holds(), err)
}

// reopen ends the database and opens it again.
func (s *script) reopen() error {
	if err := s.st.Close(); err != nil && !errors.Is(err, store.ErrNoSpace) && !errors.Is(err, store.ErrOutcomeUnknown) {
		return fmt.Errorf("close: no ErrNoSpace: %w", err)
	} else if err != nil {
		s.failed++
	}
	return s.step("open", s.open)
}

func scriptText(n int) string { return fmt.Sprint(n, " ", strings.Repeat("some words of a text ", 40)) }

func (s *script) run() error {
	s.texts = map[string]string{}
	if err := s.step("open", s.open); err != nil {
		return err
	}
	id := 0
	put := func() error { id++; return s.put(fmt.Sprint("a", id), scriptText(id)) }
	checkpoint := func() error { return s.job(store.Job{Kind: store.JobCheckpoint}) }
	backup, restored := s.path+".backup", s.path+".restored"
	for _, step := range []func() error{
		put, put, checkpoint, put, func() error { return s.put("a1", "another text") }, func() error { return s.put("a2", "") },
		func() error {
			return s.step("note", func() error {
				return s.st.note(ctx, store.Synced, &manifest.Record{Type: manifest.TypeSearch, Scope: "acme", Question: "which words?"})
			})
		},
		func() error { return s.job(gcAll) }, checkpoint, put, checkpoint, s.reopen, put,
		func() error { return s.job(store.Job{Kind: store.JobBackup, Path: backup}) },
		func() error {
			return s.step("restore", func() error {
				_, err := Restore(ctx, backup, restored, RestoreOptions{Clock: s.now, fs: s.f})
				return err
			})
		},
		s.reopen, put, s.sound, s.reopen, s.holds,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := s.st.Close(); err != nil && !errors.Is(err, store.ErrNoSpace) {
		return err
	}
	s.f = &fullOnce{FS: wal.OS()} // what comes now only looks
	for _, path := range []string{backup, restored} {
		delete(s.texts, "a5") // put behind the backup, but for the first
		s.path = path
		if err := s.open(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		delete(s.texts, "a6")
		if err := errors.Join(s.sound(), s.st.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// fullLife runs the script with one write or sync that fails, and gives the counts of both.
func fullLife(t *testing.T, dir string, write, sync int, swallow bool) (f *fullOnce, failed int, err error) {
	f = &fullOnce{FS: wal.OS(), write: write, sync: sync, swallow: swallow}
	require.NoError(t, os.Mkdir(dir, 0o700))
	defer os.RemoveAll(dir)
	s := &script{t: t, f: f, path: filepath.Join(dir, "agent.ctx")}
	defer func() {
		if s.st != nil {
			_ = s.st.Close()
		}
	}()
	err = s.run()
	return f, s.failed, err
}

// TestNoSpaceAtEachWrite: the n-th write, or the n-th sync, of a life finds the disk full, for every n: of log, archive,
// bbolt's file, a backup and a restore. Each step that meets it says so as ErrNoSpace, by the file, with what to do, or as an
// unknown outcome that an open settles; nothing acknowledged is lost, deletes and gc go through, and the step itself once
// there is space. In the control a write that fails is taken for one that did not. Each n is for the long form; otherwise it
// is every third.
func TestNoSpaceAtEachWrite(t *testing.T) {
	dir := filepath.Dir(dbtest.MemoryPath(t))
	f, failed, err := fullLife(t, filepath.Join(dir, "none"), 0, 0, false)
	require.NoError(t, err)
	require.Zero(t, failed)
	every := 3
	switch {
	case dbtest.Long:
		every = 1
	case dbtest.Race || testing.Short():
		every = 7
	}
	met, places := 0, map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	try := func(write, sync int) {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			one, failed, err := fullLife(t, filepath.Join(dir, fmt.Sprint("at", write, "-", sync)), write, sync, false)
			mu.Lock()
			defer mu.Unlock()
			met += failed
			places[kindOf(one.hit)] += failed
			if err != nil {
				errs = append(errs, fmt.Errorf("write %d, sync %d, of %s: %w", write, sync, one.hit, err))
			}
		})
	}
	for n := 1; n <= f.writes; n += every {
		try(n, 0)
	}
	for n := 1; n <= f.syncs; n += every {
		try(0, n)
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	t.Logf("%d writes and %d syncs, %d of them told: %v", f.writes, f.syncs, met, places)
	require.Greater(t, met, (f.writes+f.syncs)/every/4)
	for _, place := range []string{"log", "archive", "file", "backup", "restore"} {
		require.Positive(t, places[place], place)
	}
	lost := 0
	for n := 1; n <= f.writes && lost == 0; n++ {
		if _, _, err := fullLife(t, filepath.Join(dir, fmt.Sprint("swallowed", n)), n, 0, true); err != nil {
			t.Logf("the control, write %d: %v", n, err)
			lost++
		}
	}
	require.Positive(t, lost, "the control")
}

// kindOf says what a path is a part of.
func kindOf(path string) string {
	for _, k := range [][2]string{{".restor", "restore"}, {".backup", "backup"}, {"-wal", "log"}, {"-manifest", "archive"}} {
		if strings.Contains(path, k[0]) {
			return k[1]
		}
	}
	return "file"
}

// A job that holds ckptMu does not wait for a checkpoint when its leaf finds the log full: that would wait for the job. The
// control has no mark, and waits until the job is over.
func TestJobDoesNotRelieveItself(t *testing.T) {
	st := must(Open(Options{Path: dbtest.MemoryPath(t), NoSync: true}))(t)
	require.NoError(t, st.mustJob())
	require.ErrorIs(t, st.relieve(inJob(ctx)), engine.ErrLogFull)
	control := make(chan error, 1)
	go func() { control <- st.relieve(ctx) }()
	select {
	case err := <-control:
		t.Fatal("the control did not wait:", err)
	case <-time.After(50 * time.Millisecond):
	}
	st.ckptMu.Unlock()
	require.NoError(t, <-control)
	require.NoError(t, st.Close())
}
