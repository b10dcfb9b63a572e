package filestore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

var errInjected = errors.New("injected")

// openFiles counts this process's open files: a failed Open must not leave any.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no list of open files on this system: %v", err)
	}
	return len(entries)
}

// states are the three kinds of files that Open meets.
func states(t *testing.T) map[string]func() (*rig, laneState) {
	return map[string]func() (*rig, laneState){
		"new": func() (*rig, laneState) { return newRig(t, Options{}), laneState{} },
		"closed": func() (*rig, laneState) {
			r, state, db := writtenRig(t)
			require.NoError(t, db.Close())
			return r, state
		},
		"killed": func() (*rig, laneState) {
			r, state, db := writtenRig(t)
			require.NoError(t, r.restart(db, r.cut(1, 0)))
			return r, state
		},
	}
}

// writtenRig is a database of a few steps, part of them checkpointed.
func writtenRig(t *testing.T) (*rig, laneState, *DB) {
	r, state := newRig(t, Options{}, filestore.Options{Rotate: 1}), laneState{}
	db := must(r.open())(t)
	for n := 1; n <= 6; n++ {
		require.NoError(t, writeStep(context.Background(), db.Scope("acme", WithActor("writer")), 0, n))
		state.acked[0] = n
		if n == 4 {
			must(db.Admin().Checkpoint(context.Background()))(t)
		}
	}
	return r, state, db
}

// TestOpenFails makes Open fail at each of its file operations and after each of its stages, and opens again: nothing
// is locked, nothing is left open, nothing is lost.
func TestOpenFails(t *testing.T) {
	for name, make := range states(t) {
		t.Run(name, func(t *testing.T) {
			r, state := make()
			im := r.cut(1, 0)
			before := r.fs.Ops()
			require.NoError(t, r.reopened(state))
			ops := r.fs.Ops() - before
			require.Greater(t, ops, 3)
			files := openFiles(t)
			failed := 0
			for n := 1; n <= ops; n++ {
				require.NoError(t, r.restart(nil, image{im.fs.Clone(), im.bolt}))
				r.fs.Inject(dbtest.Fault{N: n})
				db, err := r.open()
				if err == nil { // the operation comes after Open, or Open does without it
					err = db.Close()
				}
				if err != nil {
					failed++
				}
				r.fs.Heal()
				require.NoError(t, r.reopened(state), "after a fault at operation %d", n)
			}
			require.Positive(t, failed, "no fault was met")
			for _, stage := range []string{"opened bbolt", "opened system row", "opened catalogue", "opened archive", "opened log"} {
				require.NoError(t, r.restart(nil, image{im.fs.Clone(), im.bolt}))
				r.files.Hook = func(step string) error {
					if step == stage {
						return errInjected
					}
					return nil
				}
				require.ErrorIs(t, errOf(r.open()), errInjected, stage)
				r.files.Hook = nil
				require.NoError(t, r.reopened(state), stage)
			}
			require.Equal(t, files, openFiles(t), "files are left open")
		})
	}
}

// reopened opens, verifies and closes.
func (r *rig) reopened(state laneState) error {
	db, err := r.open()
	if err != nil {
		return err
	}
	return errors.Join(state.verify(db), db.Close())
}

// TestPanicInBolt: bbolt panics on a damaged page while it holds its locks. Open says that the file is damaged, and the
// next Open in this process is answered, too, and at once.
func TestPanicInBolt(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	good := must(os.ReadFile(path))(t)
	f := must(os.Open(path))(t)
	defer f.Close()
	m := must(names.Newest(f, int64(len(good))))(t)
	pages := map[string]uint64{"root": m.Root, "free list": m.Freelist}
	for id := uint64(2); id < m.High; id++ {
		pages[fmt.Sprint("page ", id)] = id
	}
	refused := 0
	for name, id := range pages {
		bad := append([]byte(nil), good...)
		for i := range m.PageSize { // bytes that make no sense anywhere
			bad[int64(id)*m.PageSize+i] = 0xA5
		}
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		for range 2 {
			start := time.Now()
			db, err := Open(path, Options{})
			if err == nil {
				require.NoError(t, ignoreDamage(db.Close()), name)
				continue
			}
			refused++
			require.ErrorIs(t, err, store.ErrCorrupt, name)
			require.Less(t, time.Since(start), time.Minute, name)
		}
		require.NoError(t, os.WriteFile(path, good, 0o600))
	}
	require.Greater(t, refused, 4)
	db := openTest(t, path, Options{})
	require.NoError(t, db.Close())
}

func ignoreDamage(err error) error {
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrOutcomeUnknown) {
		return nil
	}
	return err
}

// closedDatabase is a small database that was closed.
func closedDatabase(t *testing.T) string {
	path := dbtest.Path(t)
	db := openTest(t, path, Options{})
	for n := range 5 {
		must(db.Scope("acme").Put(context.Background(), Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("text ", n)}))(t)
	}
	require.NoError(t, db.Close())
	return path
}

// TestLocked: a second opener that wants the file for itself learns who has it, from this process or another, and gets it when that one is gone.
func TestLocked(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	started := time.Now().Add(-time.Second)
	check := func(pid int) {
		for _, opts := range []Options{{Exclusive: true}, {Exclusive: true, ReadOnly: true}, {Exclusive: true, LockTimeout: 20 * time.Millisecond}} {
			_, err := Open(path, opts)
			require.ErrorIs(t, err, store.ErrLocked)
			var locked *store.LockedError
			require.ErrorAs(t, err, &locked)
			require.Equal(t, pid, locked.PID)
			require.Equal(t, filepath.Base(os.Args[0]), locked.Program)
			require.WithinRange(t, locked.Since, started, time.Now())
			require.Contains(t, err.Error(), fmt.Sprintf("pid %d (%s, since ", pid, locked.Program))
		}
	}
	db := openTest(t, path, Options{})
	check(os.Getpid())
	require.NoError(t, db.Close())

	cmd := childCommand("holder", path)
	in := must(cmd.StdinPipe())(t)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	must(out.Read(make([]byte, 16)))(t) // it has opened
	check(cmd.Process.Pid)

	waited := make(chan error)
	go func() {
		db, err := Open(path, Options{Exclusive: true, LockTimeout: 30 * time.Second})
		if err == nil {
			err = db.Close()
		}
		waited <- err
	}()
	must(fmt.Fprintln(in, "go"))(t)
	require.NoError(t, cmd.Wait())
	require.NoError(t, <-waited)

	cmd = childCommand("holder", path)
	must(cmd.StdinPipe())(t)
	out = must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	must(out.Read(make([]byte, 16)))(t)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	db = openTest(t, path, Options{})
	require.NoError(t, db.Close())
}

// TestReadersShare: readers open beside each other, and beside nobody who writes.
func TestReadersShare(t *testing.T) {
	path := closedDatabase(t)
	a := openTest(t, path, Options{ReadOnly: true})
	b := openTest(t, path, Options{ReadOnly: true})
	for _, db := range []*DB{a, b} {
		require.Equal(t, "text 3", must(db.Scope("acme").Get(context.Background(), "page-3"))(t).Text)
		require.ErrorIs(t, errOf(db.Scope("acme").Put(context.Background(), Artefact{ID: "x", Text: "x"})), store.ErrReadOnly)
	}
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrLocked)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	db := openTest(t, path, Options{})
	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(a.Scope("acme").Get(context.Background(), "page-3")), store.ErrClosed)
	require.ErrorIs(t, errOf(db.Scope("acme").Get(context.Background(), "page-3")), store.ErrClosed)
	require.NoError(t, db.Close(), "it is closed, as asked")
}

// fingerprint is every byte and name of a database but the lock.
func fingerprint(t *testing.T, path string) string {
	var out strings.Builder
	for _, pattern := range []string{"", "-wal/*", "-manifest/*"} {
		for _, name := range must(filepath.Glob(path + pattern))(t) {
			b := must(os.ReadFile(name))(t)
			fmt.Fprintf(&out, "%s %x\n", name, sha256.Sum256(b))
		}
	}
	return out.String()
}

// TestReadOnlyChangesNothing: not one byte, whether the database was closed or killed.
func TestReadOnlyChangesNothing(t *testing.T) {
	path := closedDatabase(t)
	db := openTest(t, path, Options{})
	must(db.Scope("acme").Put(context.Background(), Artefact{ID: "late", Text: "in the log only"}))(t)
	killed := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, dbtest.Copy(path, killed))
	require.NoError(t, db.Close())
	for _, p := range []string{path, killed} {
		before := fingerprint(t, p)
		db := openTest(t, p, Options{ReadOnly: true})
		require.Equal(t, "in the log only", must(db.Scope("acme").Get(context.Background(), "late"))(t).Text)
		require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
		require.NoError(t, db.Close())
		require.Equal(t, before, fingerprint(t, p))
	}
}

// TestNewerFormat: a file of a later release is refused by its version, in each of its parts, and left as it is; a
// damaged version is not a later one.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	setFormat := func(change func(v []byte)) {
		raw := must(bbolt.Open(path, 0o600, nil))(t)
		require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(names.Sys)
			v := append([]byte(nil), b.Get(names.SysKey)...)
			change(v)
			return b.Put(names.SysKey, v)
		}))
		require.NoError(t, raw.Close())
	}
	refuses := func(want error, names ...string) {
		before := fingerprint(t, path)
		for _, opts := range []Options{{}, {ReadOnly: true}} {
			_, err := Open(path, opts)
			require.ErrorIs(t, err, want)
			for _, n := range names {
				require.ErrorContains(t, err, n)
			}
			require.False(t, errors.Is(err, store.ErrCorrupt) && errors.Is(err, store.ErrNewerFormat), err)
		}
		require.Equal(t, before, fingerprint(t, path))
	}
	setFormat(func(v []byte) { v[7], v[11] = filestore.FormatVersion+1, ^byte(filestore.FormatVersion+1) })
	refuses(store.ErrNewerFormat, "format 2", "up to 1")
	setFormat(func(v []byte) { v[11] = ^byte(filestore.FormatVersion) })
	refuses(store.ErrCorrupt) // not the complement of that version
	setFormat(func(v []byte) { v[7] = filestore.FormatVersion })
	db := openTest(t, path, Options{})
	require.NoError(t, db.Close())

	for _, part := range []struct {
		glob  string
		off   int64
		bytes []byte
	}{{"-wal/*.wal", 8, []byte{9, 0, 0, 0, 0xf6, 0xff, 0xff, 0xff}}, {"-manifest/mark", 4, []byte{9, 0}}} {
		names := must(filepath.Glob(path + part.glob))(t)
		name := names[len(names)-1]
		good := must(os.ReadFile(name))(t)
		bad := append([]byte(nil), good...)
		copy(bad[part.off:], part.bytes)
		if part.off == 4 { // the header of an archive's file has a sum of its own
			binary.LittleEndian.PutUint64(bad[16:], xxhash.Sum64(bad[:16]))
		}
		require.NoError(t, os.WriteFile(name, bad, 0o600))
		refuses(store.ErrNewerFormat)
		require.NoError(t, os.WriteFile(name, good, 0o600))
	}
}

// TestNotADatabase: what is in the path's place and is none of ours is refused, and left as it is.
func TestNotADatabase(t *testing.T) {
	dbtest.NeedsPosix(t, "links without a privilege, and named pipes")
	dir := t.TempDir()
	real := closedDatabase(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Symlink(real, at("symlink")))
	require.NoError(t, os.Symlink(at("nowhere"), at("dangling")))
	require.NoError(t, os.Link(real, at("hardlink")))
	require.NoError(t, dbtest.Mkfifo(at("fifo")))
	require.NoError(t, os.Mkdir(at("directory"), 0o700))
	require.NoError(t, os.WriteFile(at("notes.txt"), []byte("buy milk\n"), 0o600))
	require.NoError(t, os.WriteFile(at("large"), []byte(strings.Repeat("buy milk\n", 10_000)), 0o600))
	for name, want := range map[string]error{
		"symlink": store.ErrInvalid, "dangling": store.ErrInvalid, "hardlink": store.ErrInvalid, "fifo": store.ErrInvalid, "directory": store.ErrInvalid,
		"notes.txt": store.ErrNotDatabase, "large": store.ErrNotDatabase, "absent/agent.ctx": os.ErrNotExist,
	} {
		for _, opts := range []Options{{}, {ReadOnly: true}, {MustExist: true}} {
			if name == "absent/agent.ctx" && (opts.ReadOnly || opts.MustExist) {
				want = store.ErrNotExist
			}
			require.ErrorIs(t, errOf(Open(at(name), opts)), want, "%s %+v", name, opts)
		}
	}
	require.NoFileExists(t, at("nowhere"))
	require.ErrorContains(t, errOf(Open(at("symlink"), Options{})), "which is a symbolic link, expected a regular file")
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o600))
	for _, opts := range []Options{{ReadOnly: true}, {MustExist: true}} {
		require.ErrorIs(t, errOf(Open(at("empty"), opts)), store.ErrNotExist)
	}
	info := must(os.Stat(at("empty")))(t)
	require.Zero(t, info.Size(), "it is left as it was")
	b := must(os.ReadFile(at("notes.txt")))(t)
	require.Equal(t, "buy milk\n", string(b))
	for _, suffix := range []string{"-wal", "-manifest"} { // a link in the place of a directory's file or of the lock
		require.ErrorIs(t, errOf(os.Lstat(at("notes.txt")+suffix)), os.ErrNotExist)
	}
	require.NoError(t, os.Symlink(at("notes.txt"), at("locked.ctx.lock")))
	require.Error(t, errOf(Open(at("locked.ctx"), Options{})))
	b = must(os.ReadFile(at("notes.txt")))(t)
	require.Equal(t, "buy milk\n", string(b))
}

// lastPage returns the number of the last page that bbolt uses in a file.
func lastPage(t *testing.T, path string) (last int) {
	raw := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true}))(t)
	defer raw.Close()
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		for id := 0; ; id++ {
			p, err := tx.Page(id)
			if p == nil || err != nil {
				return err
			}
			if p.Type != "free" {
				last = id
			}
		}
	}))
	return last
}

// TestHalfMade: a database whose maker was killed is made anew; a file that lost its bytes beside a log is not.
func TestHalfMade(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	whole := must(os.ReadFile(path))(t)
	fresh := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, must(bbolt.Open(fresh, 0o600, &bbolt.Options{PageSize: names.PageSize}))(t).Close())
	first := must(os.ReadFile(fresh))(t)
	for _, n := range []int{0, names.PageSize, 2 * names.PageSize, 3 * names.PageSize, len(first)} {
		require.NoError(t, os.WriteFile(fresh, first[:n], 0o600))
		require.NoError(t, os.Chmod(fresh, 0o644))
		require.ErrorIs(t, errOf(Open(fresh, Options{ReadOnly: true})), store.ErrNotExist, n)
		db := openTest(t, fresh, Options{})
		require.NoError(t, db.Close())
		require.Equal(t, os.FileMode(0o600), must(os.Stat(fresh))(t).Mode(), "whoever made it")
		require.NoError(t, os.RemoveAll(fresh+"-wal"))
		require.NoError(t, os.RemoveAll(fresh+"-manifest"))
	}
	for _, b := range [][]byte{nil, first[:names.PageSize], first, whole[:lastPage(t, path)*names.PageSize], whole[:names.PageSize]} {
		require.NoError(t, os.WriteFile(path, b, 0o600))
		require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrCorrupt, len(b))
		require.Equal(t, len(b), len(must(os.ReadFile(path))(t)), "it was written to")
	}
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrCorrupt)
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.NoError(t, openTest(t, path, Options{}).Close())
	require.NoError(t, os.RemoveAll(path+"-wal"))
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrCorrupt, "the log is gone")
}

// TestModes: nobody but the owner reads an agent's memory, whatever the umask.
func TestModes(t *testing.T) {
	dbtest.NeedsPosix(t, "modes of files")
	defer dbtest.Umask(dbtest.Umask(0))
	path := closedDatabase(t)
	db := openTest(t, path, Options{})
	backup := filepath.Join(t.TempDir(), "copy.ctx")
	must(db.Admin().Backup(context.Background(), backup, nil))(t)
	modes := map[string]os.FileMode{}
	require.NoError(t, dbtest.Again(func() error {
		clear(modes)
		for _, p := range []string{path, backup} {
			for _, name := range must(filepath.Glob(p + "*"))(t) {
				if err := filepath.WalkDir(name, func(name string, e os.DirEntry, err error) error {
					if err != nil {
						return err
					}
					st, err := e.Info()
					if err == nil {
						modes[name] = st.Mode()
					}
					return err
				}); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	for name, mode := range modes {
		want := os.FileMode(0o600)
		switch mode.Type() {
		case os.ModeDir:
			want = os.ModeDir | 0o700
		case os.ModeSocket:
			want |= os.ModeSocket
		}
		require.Equal(t, want, mode, name)
	}
	require.Greater(t, len(modes), 14)
}

// TestReplacedFile: a file that was exchanged while it was open is not written to, for a second writer may have it.
func TestReplacedFile(t *testing.T) {
	path := closedDatabase(t)
	whole := must(os.ReadFile(path))(t)
	db := openTest(t, path, Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "new", Text: "new"}))(t)
	require.NoError(t, os.Rename(path, path+".away"))
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.ErrorIs(t, errOf(db.Admin().Checkpoint(ctx)), store.ErrCorrupt)
	require.Error(t, db.Close())
	require.NoError(t, os.Rename(path+".away", path))
	db = openTest(t, path, Options{})
	require.Equal(t, "new", must(db.Scope("acme").Get(ctx, "new"))(t).Text)
	require.NoError(t, db.Close())
}

// TestReadOnlyPlace: files of mode 0400 in a directory of mode 0500 can be read, and nothing is made there. Root may
// write anywhere, so it runs the test as somebody else.
func TestReadOnlyPlace(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	dir := filepath.Dir(path)
	require.NoError(t, os.Remove(path+".lock"))
	before := fingerprint(t, path)
	program := os.Args[0]
	if os.Getuid() == 0 {
		place := must(os.MkdirTemp("/tmp", "reader"))(t) // a file system in memory may run nothing
		defer os.RemoveAll(place)
		program = filepath.Join(place, "reader")
		require.NoError(t, os.WriteFile(program, must(os.ReadFile(os.Args[0]))(t), 0o755))
		for _, d := range []string{place, filepath.Dir(dir), os.TempDir()} {
			if fi, err := os.Stat(d); err == nil && fi.Mode().Perm() == 0o700 {
				require.NoError(t, os.Chmod(d, 0o755))
			}
		}
		require.NoError(t, os.Chown(dir, nobody, nobody))
	}
	require.NoError(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		mode := os.FileMode(0o400)
		if e.IsDir() {
			mode = 0o500
		}
		if os.Getuid() == 0 {
			err = errors.Join(err, os.Chown(name, nobody, nobody))
		}
		return errors.Join(err, os.Chmod(name, mode))
	}))
	t.Cleanup(func() {
		for _, d := range []string{dir, path + "-wal", path + "-manifest"} {
			_ = os.Chmod(d, 0o700) // so that it can be removed
		}
	})
	cmd := childCommand("reader", path)
	cmd.Path = program
	if os.Getuid() == 0 {
		dbtest.RunAs(cmd, nobody, nobody)
	}
	require.Equal(t, "text 3", string(must(cmd.Output())(t)))
	require.Equal(t, before, fingerprint(t, path))
	require.NoFileExists(t, path+".lock")
}

const nobody = 65534

func readerChild(args []string) error {
	if _, err := Open(args[0], Options{}); !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("open for writing: expected that it is not permitted, got %w", err)
	}
	db, err := Open(args[0], Options{ReadOnly: true})
	if err != nil {
		return err
	}
	v, err := db.Scope("acme").Get(context.Background(), "page-3")
	if err != nil {
		return err
	}
	fmt.Print(v.Text)
	return db.Close()
}

// TestMadeBefore: a file from before v0.1.0 is refused by one error, whichever part of it is met first, and is not changed. The
// control is a file of today, whose parts begin in another way.
func TestMadeBefore(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "agent.ctx")
	putText(t, fresh, "page", "text")
	for part, change := range map[string]func(path string){
		"file": func(path string) { unpackTo(t, "testdata/before.ctx.gz", path) },
		"log":  func(path string) { rename(t, path+"-wal/*.wal", "ctxpglog", "ctxpgwal") },
		"mark": func(path string) { rename(t, path+"-manifest/mark", "CTXA", "CTXM") },
	} {
		t.Run(part, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.ctx")
			require.NoError(t, dbtest.Copy(fresh, path))
			putText(t, path, "page", "the control: it opens")
			change(path)
			before := fingerprint(t, path)
			for _, opts := range []Options{{}, {ReadOnly: true}} {
				_, err := Open(path, opts)
				require.ErrorIs(t, err, store.ErrOldFormat)
				require.NotErrorIs(t, err, store.ErrCorrupt)
				require.NotErrorIs(t, err, store.ErrNewerFormat)
				require.ErrorContains(t, err, "made before v0.1.0")
			}
			require.Equal(t, before, fingerprint(t, path))
		})
	}
}

// rename replaces the magic of the files that a pattern matches.
func rename(t *testing.T, pattern, from, to string) {
	t.Helper()
	names := must(filepath.Glob(pattern))(t)
	require.NotEmpty(t, names)
	for _, name := range names {
		b := must(os.ReadFile(name))(t)
		require.Equal(t, from, string(b[:len(from)]))
		require.NoError(t, os.WriteFile(name, append([]byte(to), b[len(from):]...), 0o600))
	}
}

func pageSizeOf(t *testing.T, path string) int64 {
	t.Helper()
	f := must(os.Open(path))(t)
	defer f.Close()
	st := must(f.Stat())(t)
	return must(names.Newest(f, st.Size()))(t).PageSize
}

// TestSalvageFindsPageSize: a file of which both meta pages are damaged is salvaged whatever the size of its pages.
func TestSalvageFindsPageSize(t *testing.T) {
	{
		path := dbtest.MemoryPath(t)
		db := openTest(t, path, Options{})
		s := db.Scope("acme/bulk")
		for i := range 60 {
			must(s.Put(ctx, Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprint(i, " words of a text that says something")}))(t)
		}
		must(db.Admin().Checkpoint(ctx))(t)
		require.NoError(t, db.Close())
		size := pageSizeOf(t, path)
		f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
		for id := range int64(2) {
			must(f.WriteAt(make([]byte, names.MetaHead+names.MetaSize), id*size))(t)
		}
		require.NoError(t, f.Close())
		require.NoError(t, os.RemoveAll(path+"-wal"), "the log has all of it, too")
		to := filepath.Join(t.TempDir(), "salvaged.ctx")
		must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t)
		db = openTest(t, to, Options{})
		got, err := textOf(db.Scope("acme/bulk"), "page-7")
		require.NoError(t, err, "pages of %d bytes", size)
		require.Equal(t, "7 words of a text that says something", got)
		require.NoError(t, db.Close())
	}
}
