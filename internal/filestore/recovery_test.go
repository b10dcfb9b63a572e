package filestore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// brokenReader is a source of randomness that fails.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

// TestRecoveredIsToldLater: an open that recovered and could not say so is no clean end; the next open says it.
func TestRecoveredIsToldLater(t *testing.T) {
	told := func(db *DB) (n int) {
		require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
			if r.Type == manifest.TypeRecovered {
				n++
			}
			return nil
		}))
		return n
	}
	r := newRig(t, Options{})
	db := must(r.open())(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "text"}))(t)
	require.NoError(t, r.restart(db, r.cut(1, 0)))

	r.opts.Rand = brokenReader{}
	require.ErrorContains(t, errOf(r.open()), "no randomness")
	r.opts.Rand = nil
	db = must(r.open())(t)
	require.Equal(t, 1, told(db))
	require.NoError(t, db.Close())
	db = must(r.open())(t)
	require.Equal(t, 1, told(db), "the end was clean: there is nothing to tell")
	require.NoError(t, db.Close())
}

// TestCreationCut: whatever a power cut leaves of bbolt's first write into a new file, the database is made anew; of any
// other small file not a byte is touched.
func TestCreationCut(t *testing.T) {
	for _, size := range []int{names.PageSize, os.Getpagesize()} { // older programs made pages as the machine has them
		t.Run(fmt.Sprint("pages of ", size), func(t *testing.T) { creationCut(t, size) })
	}
}

func creationCut(t *testing.T, pageSize int) {
	path := dbtest.MemoryPath(t)
	raw, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize})
	require.NoError(t, err)
	require.NoError(t, raw.Close())
	first := must(os.ReadFile(path))(t)
	require.Equal(t, first, names.FirstPages(pageSize), "what bbolt writes")
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		left := bytes.Clone(first)
		for at := 0; at < len(left); at += names.Sector {
			if n < 2 || rng.IntN(2) == 0 {
				clear(left[at : at+names.Sector])
			}
		}
		if n%2 == 1 {
			left = left[:rng.IntN(len(left))]
		}
		require.NoError(t, os.WriteFile(path, left, 0o600))
		db := openTest(t, path, Options{})
		require.NoError(t, db.Close())
		for _, suffix := range append(names.Files[:], ".lock") {
			require.NoError(t, os.RemoveAll(path+suffix))
		}
	}
	// What creation never leaves: begun as a database, it is one that is damaged; else a log or an audit tells, for they
	// are made when the first write is on the disk.
	begun, other := bytes.Clone(first), make([]byte, 8192)
	begun[5000], other[5000] = 1, 1
	clear(begun[pageSize:][:names.MetaHead+names.MetaSize])
	clear(begun[names.MetaHead+8:][:8]) // both meta pages: neither is one that can be read
	for _, c := range []struct {
		name, beside string
		left         []byte
		want         error
		says         string
	}{
		{"begun as a database", "", begun, store.ErrCorrupt, "move the file away"},
		{"another file", "", other, store.ErrNotDatabase, "name another path"},
		{"another file beside a log", "-wal", other, store.ErrCorrupt, "Salvage"},
		{"another file beside an audit", "-manifest", other, store.ErrCorrupt, "Salvage"},
		{"a cut first write beside a log", "-wal", first[:5000], store.ErrCorrupt, "Salvage"},
	} {
		require.NoError(t, os.WriteFile(path, c.left, 0o600))
		if c.beside != "" {
			require.NoError(t, os.CopyFS(path+c.beside, os.DirFS(closedDatabase(t)+c.beside)))
		}
		_, err = Open(path, Options{})
		require.ErrorIs(t, err, c.want, c.name)
		require.ErrorContains(t, err, c.says, c.name)
		require.Equal(t, c.left, must(os.ReadFile(path))(t), c.name)
		for _, suffix := range append(names.Files[:], ".lock") {
			require.NoError(t, os.RemoveAll(path+suffix))
		}
	}
}

// TestCreationCrash: the power may go at any operation of the making of log and archive; the next open makes them.
func TestCreationCrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	db := must(r.open())(t)
	ops := r.fs.Ops()
	require.NoError(t, r.restart(db, image{newRig(t, Options{}).fs, boltCopy{}}))
	require.Greater(t, ops, 10)
	for n := 1; n <= ops; n++ {
		for _, keep := range []int{0, 30, 100} {
			r := newRig(t, Options{})
			r.fs.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true, Short: n * 7})
			db, err := r.open()
			if err != nil {
				require.ErrorIs(t, err, dbtest.ErrCrashed)
			}
			require.NoError(t, r.restart(db, r.cut(uint64(n), keep)))
			db, err = r.open()
			require.NoError(t, err, "operation %d of %d, %d %% kept", n, ops, keep)
			must(db.Scope("acme").Put(context.Background(), Artefact{ID: "page", Text: "text"}))(t)
			require.NoError(t, db.Close())
		}
	}
}

// TestStrangersFile: a bbolt file of another program is not made a database of ours.
func TestStrangersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "theirs.db")
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, raw.Close())
	before := must(os.ReadFile(path))(t)
	for _, opts := range []Options{{}, {ReadOnly: true}} {
		_, err = Open(path, opts)
		require.ErrorIs(t, err, store.ErrNotDatabase)
		require.NotErrorIs(t, err, store.ErrCorrupt)
	}
	require.Equal(t, before, must(os.ReadFile(path))(t))
	require.NoDirExists(t, path+"-wal")
}

// TestSparseGiant: a file that is large by its name only, with a high-water mark to match, is refused before anything is
// mapped or made in its size; one that merely grew ahead is not.
func TestSparseGiant(t *testing.T) {
	path := closedDatabase(t)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 1<<32)) // ahead of its pages
	require.NoError(t, openTest(t, path, Options{}).Close())

	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40))
	setHigh(t, path, 1<<40/uint64(names.PageSize))
	bytesBefore := allocated()
	for _, opts := range []Options{{}, {ReadOnly: true}} {
		_, err = Open(path, opts)
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, "holes")
	}
	require.Less(t, allocated()-bytesBefore, uint64(32<<20))
	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, openTest(t, path, Options{}).Close())
}

// setHigh forges the high-water mark of both meta pages.
func setHigh(t *testing.T, path string, high uint64) {
	f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	st := must(f.Stat())(t)
	m := must(names.Newest(f, st.Size()))(t)
	for id := range int64(2) {
		b := make([]byte, names.MetaSize)
		must(f.ReadAt(b, id*m.PageSize+names.MetaHead))(t)
		binary.NativeEndian.PutUint64(b[40:], high)
		h := fnv.New64a()
		h.Write(b[:names.MetaSize-8])
		binary.NativeEndian.PutUint64(b[names.MetaSize-8:], h.Sum64())
		must(f.WriteAt(b, id*m.PageSize+names.MetaHead))(t)
	}
}

// textAt says which text a database answers with. Its files must be of one piece.
func textAt(path string, opts Options) (string, error) {
	db, err := Open(path, opts)
	if err != nil {
		return "", err
	}
	text, err := textOf(db.Scope("acme"), "page")
	problems, cerr := db.Admin().Check(context.Background(), nil)
	if len(problems) > 0 {
		cerr = fmt.Errorf("check: %+v", problems)
	}
	return text, errors.Join(err, cerr, db.Close())
}

// copyAll copies a directory with all below it.
func copyAll(t *testing.T, from string) string {
	to := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// restorable makes a database with a backup in a directory of their own: the backup says early, the database late.
func restorable(t *testing.T) (path, backup string) {
	path = dbtest.MemoryPath(t)
	putText(t, path, "page", "early")
	backup = backupOf(t, path)
	putText(t, path, "page", "late")
	return path, backup
}

// TestRestoreCrash: killed at any step of the swap, or stopped there by an error, a restore leaves a database that opens:
// the old one before the mark, the new one from then on.
func TestRestoreCrash(t *testing.T) {
	t.Parallel()
	path, backup := restorable(t)
	clean := copyAll(t, filepath.Dir(path))
	var steps []string
	left := map[string]string{}
	require.NoError(t, errOf(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true}.Peek(func(step string) error {
		steps = append(steps, step)
		left[step] = filepath.Join(copyAll(t, filepath.Dir(path)), "agent.ctx")
		return nil
	}, nil))))
	require.Len(t, steps, 9)
	for i, step := range steps {
		want := "early"
		if i == 0 {
			want = "late"
		}
		marked := names.Swapping(left[step])
		require.Equal(t, i > 0 && step != "mark removed", marked, step)
		if marked {
			require.ErrorContains(t, errOf(Open(left[step], Options{ReadOnly: true})), "interrupted", step)
			_, _, err := filestore.OpenManifests(ctx, left[step], nil, "")
			require.ErrorContains(t, err, "interrupted", step)
		}
		text, err := textAt(left[step], Options{MustExist: true})
		require.NoError(t, err, step)
		require.Equal(t, want, text, step)
		if marked {
			require.Equal(t, []string{left[step] + ".lock"}, must(filepath.Glob(left[step]+".*"))(t))
		}

		failing := filepath.Join(copyAll(t, clean), "agent.ctx")
		require.ErrorContains(t, errOf(filestore.Restore(ctx, backup, failing, filestore.RestoreOptions{Replace: true}.Peek(func(now string) error {
			if now == step {
				return errors.New("stopped here")
			}
			return nil
		}, nil))), "stopped here")
		if i%2 == 0 { // restoring again comes to the same
			must(filestore.Restore(ctx, backup, failing, filestore.RestoreOptions{Replace: true}))(t)
			want = "early"
		}
		text, err = textAt(failing, Options{})
		require.NoError(t, err, step)
		require.Equal(t, want, text, step)
	}
}

// TestRestorePowerCut: of the renames of a swap any part may have survived. With the mark the new database opens.
// The control is without it: then most of these states are no database.
func TestRestorePowerCut(t *testing.T) {
	t.Parallel()
	path, backup := restorable(t)
	base := ""
	require.NoError(t, errOf(filestore.Restore(context.Background(), backup, path, filestore.RestoreOptions{Replace: true}.Peek(func(step string) error {
		if step == "marked, before path" {
			base = copyAll(t, filepath.Dir(path))
		}
		return nil
	}, nil))))
	broken := 0
	for n := range 27 {
		for _, marked := range []bool{true, false} {
			p := filepath.Join(copyAll(t, base), "agent.ctx")
			for i, suffix := range names.Files {
				state := []int{n % 3, n / 3 % 3, n / 9}[i]
				if state >= 1 {
					require.NoError(t, os.Rename(p+suffix, p+names.Replaced+suffix))
				}
				if state == 2 {
					require.NoError(t, os.Rename(p+names.Restoring+suffix, p+suffix))
				}
			}
			if !marked {
				require.NoError(t, os.Remove(p+names.Swap))
			}
			text, err := textAt(p, Options{MustExist: true})
			if marked {
				require.NoError(t, err, n)
				require.Equal(t, "early", text, n)
			} else if err != nil {
				broken++
			}
		}
	}
	require.Greater(t, broken, 15)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestRestoreTampered: when somebody takes the copy away in the middle of a swap, what was moved aside stays.
func TestRestoreTampered(t *testing.T) {
	path, backup := restorable(t)
	require.ErrorContains(t, errOf(filestore.Restore(context.Background(), backup, path, filestore.RestoreOptions{Replace: true}.Peek(func(step string) error {
		if step == "path is aside" {
			return errors.New("stopped here")
		}
		return nil
	}, nil))), "stopped here")
	names.Remove(path + names.Restoring)
	for range 2 {
		require.ErrorContains(t, errOf(Open(path, Options{})), "move it back")
	}
	require.NoError(t, os.Rename(path+names.Replaced, path))
	require.NoError(t, os.Remove(path+names.Swap))
	require.Equal(t, "late", must(textAt(path, Options{}))(t))
}

// TestLogLost: a file whose log is gone is never taken for an empty database, also before its first checkpoint, when all
// that was ever committed is in the log.
func TestLogLost(t *testing.T) {
	base := dbtest.MemoryPath(t)
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "the only copy"}))(t)
	require.NoError(t, dbtest.Copy(db.Path(), base))
	st, err := db.Stats(ctx)
	require.NoError(t, errors.Join(err, db.Close()))
	require.Zero(t, st.Applied, "a checkpoint ran")
	killed := func() string {
		path := dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(base, path))
		return path
	}
	text, err := textAt(killed(), Options{})
	require.NoError(t, err, "with its log it opens")
	require.Equal(t, "the only copy", text)

	for name, lose := range map[string]func(path string) error{
		"directory": func(path string) error { return os.RemoveAll(path + "-wal") },
		"segment":   func(path string) error { return os.Remove(logFile(t, path)) },
		"all but the file": func(path string) error {
			return errors.Join(os.RemoveAll(path+"-wal"), os.RemoveAll(path+"-manifest"))
		},
	} {
		path := killed()
		require.NoError(t, lose(path))
		before := must(os.ReadFile(path))(t)
		for _, opts := range []Options{{ReadOnly: true}, {}, {}} {
			_, err := Open(path, opts)
			var damage *store.CorruptError
			require.ErrorAs(t, err, &damage, name)
			require.Equal(t, path+"-wal", damage.File)
			require.ErrorContains(t, err, "the log is missing")
			require.ErrorContains(t, err, "put it back; or restore a backup")
		}
		require.Equal(t, before, must(os.ReadFile(path))(t))
		require.Empty(t, must(filepath.Glob(path+"-wal/*.wal"))(t), "a log was made")
	}
}

// TestForeignParts: a file beside the log, the archive or both of another database is no database; what can be salvaged
// is the file's own.
func TestForeignParts(t *testing.T) {
	make := func(text string) string {
		path := dbtest.MemoryPath(t)
		putText(t, path, "page", text)
		return path
	}
	ours, theirs := make("ours"), make("theirs")
	for _, parts := range [][]string{{"-wal"}, {"-manifest"}, {"-wal", "-manifest"}, {"-wal", "no -manifest"}} {
		path := dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(ours, path))
		for _, p := range parts {
			p, none := strings.CutPrefix(p, "no ")
			require.NoError(t, os.RemoveAll(path+p))
			if !none {
				require.NoError(t, os.CopyFS(path+p, os.DirFS(theirs+p)))
			}
		}
		for _, opts := range []Options{{ReadOnly: true}, {}} {
			require.ErrorIs(t, errOf(Open(path, opts)), store.ErrCorrupt, parts)
		}
		to := dbtest.MemoryPath(t)
		require.NotEmpty(t, must(Salvage(ctx, path, to, filestore.SalvageOptions{Older: true}))(t).Lost)
		require.Equal(t, "ours", must(textAt(to, Options{}))(t), parts)
	}
}

// TestLinks: no link is followed in the place of a part of a database, and a lock that is no file is no lock.
func TestLinks(t *testing.T) {
	dbtest.NeedsPosix(t, "links without a privilege, and named pipes")
	whole := closedDatabase(t)
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("keep"), 0o600))
	for name, put := range map[string]func(path string) error{
		"link for the lock":      func(path string) error { return os.Symlink(victim, path+".lock") },
		"hard link for the lock": func(path string) error { return os.Link(victim, path+".lock") },
		"pipe for the lock":      func(path string) error { return dbtest.Mkfifo(path + ".lock") },
		"link for the log": func(path string) error {
			return errors.Join(os.Rename(path+"-wal", path+".w"), os.Symlink(path+".w", path+"-wal"))
		},
		"link for the archive": func(path string) error {
			return errors.Join(os.Rename(path+"-manifest", path+".m"), os.Symlink(path+".m", path+"-manifest"))
		},
		"file for the log": func(path string) error {
			return errors.Join(os.RemoveAll(path+"-wal"), os.WriteFile(path+"-wal", nil, 0o600))
		},
	} {
		path := dbtest.Path(t)
		require.NoError(t, dbtest.Copy(whole, path))
		require.NoError(t, openTest(t, path, Options{ReadOnly: true}).Close())
		require.NoError(t, put(path))
		for _, opts := range []Options{{ReadOnly: true}, {}} {
			require.ErrorIs(t, errOf(Open(path, opts)), store.ErrInvalid, name)
		}
		if _, _, err := filestore.OpenManifests(context.Background(), path, nil, ""); !strings.HasSuffix(name, "lock") {
			require.ErrorIs(t, err, store.ErrInvalid, name)
		}
	}
	require.Equal(t, "keep", string(must(os.ReadFile(victim))(t)))
}

// TestLogRemoved: a log that is taken away while it is open is noticed by the next checkpoint, which saves what was
// committed; no commit is acknowledged after that.
func TestLogRemoved(t *testing.T) {
	path := closedDatabase(t)
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "new", Text: "new"}))(t)
	must(db.Admin().Checkpoint(ctx))(t)
	must(s.Put(ctx, Artefact{ID: "newer", Text: "newer"}))(t)
	require.NoError(t, os.Rename(path+"-wal", path+".away"))
	require.ErrorIs(t, errOf(db.Admin().Checkpoint(ctx)), store.ErrCorrupt)
	_, err := s.Put(ctx, Artefact{ID: "lost", Text: "lost"})
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "removed or moved")
	require.Error(t, db.Close())
	require.NoError(t, os.Rename(path+".away", path+"-wal"))
	db = openTest(t, path, Options{})
	require.Equal(t, "newer", must(db.Scope("acme").Get(ctx, "newer"))(t).Text)
}

// TestClockBackwards: a clock that is set back decades, and forth again, loses nothing and resurrects nothing.
func TestClockBackwards(t *testing.T) {
	path := dbtest.CheckedMemoryPath[store.Problem](t, openChecked)
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := Options{Clock: func() time.Time { return now }}
	want := map[string]string{}
	var drafts []string
	for round, year := range []int{2027, 1960, 1970, 2031, 2026, 1900, 2027} {
		now = time.Date(year, 6, 1, 0, 0, round, 0, time.UTC)
		db := openTest(t, path, opts)
		s := db.Scope("acme", WithActor("writer"))
		id, text := fmt.Sprint("page-", round), fmt.Sprint("the rule of ", year)
		require.NoError(t, errOf(s.Put(ctx, Artefact{ID: id, Text: text})), year)
		require.NoError(t, errOf(s.Put(ctx, Artefact{ID: "always", Text: text})), year)
		want[id], want["always"] = text, text
		drafts = append(drafts, hold(t, s, "draft", text))
		for id, text := range want {
			require.Equal(t, text, must(s.Get(ctx, id))(t).Text)
		}
		require.Len(t, must(s.Assemble(ctx, Query{Text: "rule", Budget: 4000}))(t).Blocks, len(want))
		if round%2 == 0 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
		require.Len(t, must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(100, "", nil))))(t), len(drafts))
		require.NoError(t, db.Close())
	}
}

// TestLogCutAfterKill: the log of a killed process was cut, at the end of each record and within it: damage, by Open and by
// Check, and Salvage has all artefacts before the cut. The controls: the log as the kill left it opens, and so does one that
// has zeros from there on, as a power cut before the sync would leave it.
func TestLogCutAfterKill(t *testing.T) {
	live, killed := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	db := openTest(t, live, Options{})
	const puts = 12
	for i := range puts {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("a-", i), Text: strings.Repeat("text ", 10+300*(i%3))}))(t)
	}
	require.NoError(t, dbtest.Copy(live, killed))
	require.NoError(t, db.Close())
	var recs []wal.Record
	require.NoError(t, errOf(wal.Scan(ctx, killed+"-wal", nil, func(r wal.Record) error {
		r.Body = bytes.Clone(r.Body)
		recs = append(recs, r)
		return nil
	})))
	commits := 0
	for _, r := range recs {
		if r.Kind != wal.KindCommit {
			continue
		}
		for _, at := range []int64{r.Offset, r.Offset + 20, r.Offset + 40, r.Offset + 39 + int64(len(r.Body))} {
			path := dbtest.MemoryPath(t)
			require.NoError(t, dbtest.Copy(killed, path))
			segment := logFiles(t, path)[0]
			require.NoError(t, os.Truncate(segment, at))
			for _, readOnly := range []bool{true, false} {
				_, err := Open(path, Options{ReadOnly: readOnly})
				require.ErrorIs(t, err, store.ErrCorrupt, "cut at %d", at)
				require.ErrorContains(t, err, "it was cut")
			}
			to := dbtest.MemoryPath(t)
			rep := must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t)
			require.Contains(t, fmt.Sprint(rep.Lost), "it was cut")
			require.Equal(t, commits, count(t, to), "cut at %d", at)

			require.NoError(t, os.Truncate(segment, 1<<20))
			require.Equal(t, commits, count(t, path), "the control, zeros from %d on", at)
		}
		commits++
	}
	require.Equal(t, puts, commits)
	require.Equal(t, puts, count(t, killed), "the control")
}

// TestOlderLogAfterKill: an older copy of the log was put back after a kill. One from before the last checkpoint is damage. One
// from after it has all that the file and the archive name, and looks as it did then: only a head that was kept tells.
func TestOlderLogAfterKill(t *testing.T) {
	live := dbtest.MemoryPath(t)
	db := openTest(t, live, Options{})
	defer func() { require.NoError(t, db.Close()) }()
	copies := map[string]string{}
	for i, when := range []string{"before", "checkpoint", "after", "killed"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("a-", i), Text: "text"}))(t)
		if when == "checkpoint" {
			must(db.Admin().Checkpoint(ctx))(t)
		}
		copies[when] = dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(live, copies[when]))
	}
	head := must(db.Head(ctx))(t)
	replaced := func(by string) string {
		path := dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(copies["killed"], path))
		require.NoError(t, os.RemoveAll(path+"-wal"))
		require.NoError(t, os.CopyFS(path+"-wal", os.DirFS(copies[by]+"-wal")))
		return path
	}
	_, err := Open(replaced("before"), Options{})
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, "log ends at record")
	older := replaced("after")
	require.Equal(t, 3, count(t, older), "what cannot be told")
	older = replaced("after")
	db2 := openTest(t, older, Options{})
	defer func() { require.NoError(t, db2.Close()) }()
	require.Error(t, errOf(db2.Manifests().Verify(ctx, &head, nil)))
}

// count returns how many artefacts of scope acme a database has.
func count(t *testing.T, path string) int {
	t.Helper()
	db := openTest(t, path, Options{})
	defer func() { require.NoError(t, db.Close()) }()
	n := 0
	for i := range 100 {
		if _, err := db.Scope("acme").Get(context.Background(), fmt.Sprint("a-", i)); err == nil {
			n++
		}
	}
	return n
}

// What an open had to redo after a kill goes into the file at once, so that the open after the next kill is not slower still.
// The control: a little is left to the next checkpoint that is due.
func TestRedoneGoesIntoTheFile(t *testing.T) {
	defer filestore.PeekAge(filestore.PeekAge(10 * time.Second)) // so it is not parallel
	for name, puts := range map[string]int{"much": 400, "little": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { redone(t, puts) })
		})
	}
}

// A checkpoint that somebody asked for does this, too: what is put after it waits for its own.
func TestCheckpointTakesWhatWasRedone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openRedone(t, 400)
		must(db.Admin().Checkpoint(t.Context()))(t)
		must(db.Scope("acme").Put(t.Context(), Artefact{ID: "late", Text: "in the log only"}))(t)
		time.Sleep(time.Second)
		synctest.Wait()
		s := must(db.Stats(t.Context()))(t)
		require.Equal(t, s.LSN-1, s.Applied)
	})
}

// openRedone opens the files that a kill left after some puts, none of them in a checkpoint.
func openRedone(t *testing.T, puts int) *DB {
	path, opts := dbtest.MemoryPath(t), Options{Exclusive: true} // a bubble waits forever for what comes by a socket
	db := must(Open(path, opts))(t)
	defer db.Close()
	for n := range puts {
		must(db.Scope("acme").Put(t.Context(), Artefact{ID: fmt.Sprint("page-", n), Text: strings.Repeat("zebra ", 200)}))(t)
	}
	killed := filepath.Join(t.TempDir(), "killed.ctx")
	require.NoError(t, dbtest.Copy(path, killed))

	next := must(Open(killed, opts))(t)
	t.Cleanup(func() { next.Close() })
	return next
}

func redone(t *testing.T, puts int) {
	next := openRedone(t, puts)
	flushed := func(after time.Duration) bool {
		time.Sleep(after)
		synctest.Wait() // what is due has been done
		s := must(next.Stats(t.Context()))(t)
		require.EqualValues(t, puts, s.LSN)
		return s.Applied == s.LSN
	}
	if puts > 100 {
		require.True(t, flushed(time.Second), "before one is due by its age, 10 s")
		return
	}
	require.False(t, flushed(9*time.Second))
	require.True(t, flushed(5*time.Second), "the control: by its age")
}
