package filestore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

var copyTrials = flag.Int("copies", 0, "copies of a live database that TestCopyWhileWritten makes; 0: those of 5 seconds")

const (
	liveArts = 40 // artefacts a live database goes round
	liveRows = 20 // state rows likewise
)

// live is a database that is written to: commit n puts one artefact and two state rows, and drops a third now and then, so
// that its LSN, n, says all that must be in it.
type live struct {
	*Store
	path  string
	acked atomic.Uint64
	stop  chan struct{}
	done  sync.WaitGroup
	once  sync.Once
}

func liveText(n uint64) string {
	return fmt.Sprintf("commit %d says %s", n, strings.Repeat("word"+strconv.FormatUint(n%97, 10)+" ", int(1+n*n%50)))
}

func liveBatch(t testing.TB, st *Store, n uint64) store.Batch {
	id := must(store.NewID(time.Now(), st.opts.Rand))(t)
	text := liveText(n)
	page := store.NewPage{Text: text, Tokens: len(text) / 4, Hash: store.ContentHash(text)}
	page.Salt[0] = byte(n)
	page.Digest = store.SaltedDigest(page.Salt[:], text)
	value := []byte(strconv.FormatUint(n, 10))
	return store.Batch{
		ID: id, Scope: "acme", Actor: "test", Now: time.Now(), Leaf: manifest.Record{Type: manifest.TypeCommit},
		Puts: []store.Put{{Artefact: store.Artefact{ID: fmt.Sprintf("a%d", n%liveArts), Kind: store.KindFact, Provenance: store.Tool, CurrentAsOf: time.Now()}, Pages: []store.NewPage{page}}},
		State: []store.StateRow{{Key: "n", Value: value}, {Key: fmt.Sprintf("k%d", n%liveRows), Value: value},
			{Key: fmt.Sprintf("k%d", (n+7)%liveRows)}},
	}
}

// newLive makes one and starts to write to it and to checkpoint it.
func newLive(t *testing.T) *live {
	path := dbtest.MemoryPath(t)
	st := must(Open(Options{Path: path, NoSync: true, Rotate: 16 << 10, Segment: 256 << 10}))(t)
	l := &live{Store: st, path: path, stop: make(chan struct{})}
	run := func(step func(n uint64) error, wait time.Duration) {
		defer l.done.Done()
		for n := uint64(1); ; n++ {
			select {
			case <-l.stop:
				return
			case <-time.After(wait):
			}
			if err := step(n); err != nil {
				t.Errorf("step %d: %v", n, err)
				return
			}
		}
	}
	l.done.Add(2)
	go run(func(n uint64) error {
		out, err := st.Commit(context.Background(), liveBatch(t, st, n))
		if err == nil && out.LSN != n {
			err = fmt.Errorf("commit %d has LSN %d", n, out.LSN)
		}
		l.acked.Store(n)
		if err == nil && n%8 == 0 {
			err = st.note(context.Background(), store.Written, &manifest.Record{Type: manifest.TypeSearch, Scope: "acme", Question: liveText(n)})
		}
		return err
	}, 500*time.Microsecond)
	go run(func(uint64) error { _, err := st.checkpoint(context.Background()); return err }, 2*time.Millisecond)
	t.Cleanup(l.halt) // of a test that fails before it ends
	require.Eventually(t, func() bool { return l.acked.Load() > 50 }, time.Minute, time.Millisecond)
	return l
}

func (l *live) halt() {
	l.once.Do(func() { close(l.stop) })
	l.done.Wait()
}

func (l *live) end(t *testing.T) {
	l.halt()
	require.NoError(t, l.Close())
}

// copySlowly copies a database as cp does, a part after another, each in pieces; others come to write meanwhile.
func copySlowly(from, to string, rnd *rand.Rand) error {
	parts := []string{"", "-wal", "-manifest"}
	rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	chunk, pause := 1<<(13+rnd.IntN(6)), rnd.IntN(2)*(1+rnd.IntN(4))
	for _, part := range parts {
		files := []string{""}
		if part != "" {
			if err := os.Mkdir(to+part, 0o700); err != nil {
				return err
			}
			entries, err := os.ReadDir(from + part)
			if err != nil {
				return err
			}
			files = files[:0]
			for _, e := range entries {
				files = append(files, "/"+e.Name())
			}
			if rnd.IntN(2) == 0 {
				slices.Reverse(files)
			}
		}
		for _, name := range files {
			if err := copyPieces(from+part+name, to+part+name, chunk, pause); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func copyPieces(from, to string, chunk, pause int) error {
	in, err := os.Open(from)
	if err != nil {
		return err // it went since it was listed: cp says so and goes on
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	b := make([]byte, chunk)
	for i := 1; ; i++ {
		n, err := in.Read(b)
		if _, werr := out.Write(b[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if runtime.Gosched(); pause > 0 && i%(4*pause) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

var errFound = errors.New("the check finds")

// whole returns what an open database has that no prefix of the commits has.
func whole(st *Store, acked uint64) error {
	lsn := st.Mark().LSN
	if lsn > acked+1 {
		return fmt.Errorf("lsn %d, %d were acknowledged", lsn, acked)
	}
	state := map[string]string{}
	arts := map[string]uint64{}
	for n := max(lsn, 2*liveArts) - 2*liveArts + 1; n <= lsn; n++ { // what was before is overwritten
		v := strconv.FormatUint(n, 10)
		state["n"], state[fmt.Sprintf("k%d", n%liveRows)] = v, v
		delete(state, fmt.Sprintf("k%d", (n+7)%liveRows))
		arts[fmt.Sprintf("a%d", n%liveArts)] = n
	}
	for _, k := range append([]string{"n"}, rowNames("k", liveRows)...) {
		v, err := st.State(ctx, k)
		if err != nil || string(v.Value) != state[k] {
			return fmt.Errorf("lsn %d: state %s is %q, expected %q (%v)", lsn, k, v.Value, state[k], err)
		}
	}
	for id, n := range arts {
		at, err := st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{Scope: "acme", ID: id})
		if err != nil {
			return fmt.Errorf("lsn %d: %s: %w", lsn, id, err)
		}
		got, err := st.Load(ctx, store.Scopes{"acme"}, at.Pages, store.WantText)
		if err != nil || len(got) != 1 || got[0].Text != liveText(n) {
			return fmt.Errorf("lsn %d: %s is not of commit %d: %v", lsn, id, n, err)
		}
	}
	rep, err := st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil)
	if err == nil && len(rep.Problems) > 0 {
		err = fmt.Errorf("lsn %d: %w %v", lsn, errFound, rep.Problems[0])
	}
	return err
}

func rowNames(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, prefix+strconv.Itoa(i))
	}
	return out
}

// openCopy says how an open of a copy ends, of which acked commits were acknowledged: "whole", "refused", "found" by a check, or
// what is wrong.
func openCopy(t *testing.T, path string, acked uint64, readOnly bool) string {
	f := must(os.Open(path))(t)
	defer f.Close()
	fi := must(f.Stat())(t)
	sound := true
	walkBolt(f, fi.Size(), nil, func(string, ...any) { sound = false })
	if !sound { // pages may lead to each other: bbolt would not come back from them
		return "found"
	}
	st, err := Open(Options{Path: path, NoSync: true, MustExist: true, ReadOnly: readOnly})
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return "refused"
	case err != nil:
		return fmt.Sprintf("open: %v", err)
	}
	rep, err := st.Maintain(context.Background(), store.Job{Kind: store.JobCheck}, nil)
	if err == nil && len(rep.Problems) == 0 {
		err = whole(st, acked)
	}
	_ = st.Close() // of a copy that does not fit together
	switch {
	case err == nil && len(rep.Problems) > 0:
		return "found"
	case err != nil:
		return err.Error()
	}
	return "whole"
}

// TestCopyWhileWritten: a copy of a database that is written to has all of a prefix of its commits, or is refused, or a check
// finds what is wrong with it.
func TestCopyWhileWritten(t *testing.T) {
	l := newLive(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	ends := map[string]int{}
	for i := 0; i < max(*copyTrials, dbtest.Size(10, 40)) || ends["refused"]+ends["found"] == 0 && i < 40; i++ {
		dir := filepath.Join(filepath.Dir(l.path), fmt.Sprintf("copy%d", i))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		to := filepath.Join(dir, "copy.ctx")
		require.NoError(t, copySlowly(l.path, to, rnd))
		end := openCopy(t, to, l.acked.Load(), i%4 == 3)
		ends[end]++
		require.Contains(t, []string{"whole", "refused", "found"}, end, "copy %d", i)
		require.NoError(t, os.RemoveAll(dir))
	}
	t.Logf("%v after %d commits", ends, l.acked.Load())
	require.Positive(t, ends["refused"]+ends["found"], "the control")
	l.end(t)

	to := filepath.Join(filepath.Dir(l.path), "closed.ctx") // a copy of a closed database opens
	require.NoError(t, copySlowly(l.path, to, rnd))
	st := must(Open(Options{Path: to}))(t)
	require.NoError(t, whole(st, l.acked.Load()))
	require.NoError(t, st.Close())
}

// A backup of a database that is written to opens, and so does a plain copy of the backup.
func TestCopyOfBackupOpens(t *testing.T) {
	l := newLive(t)
	dir := filepath.Dir(l.path)
	for i := range 5 {
		to := filepath.Join(dir, fmt.Sprintf("backup%d.ctx", i))
		must(l.Maintain(ctx, store.Job{Kind: store.JobBackup, Path: to}, nil))(t)
		acked := l.acked.Load()
		again := to + ".copy"
		require.NoError(t, copySlowly(to, again, rand.New(rand.NewPCG(3, uint64(i)))))
		for _, path := range []string{to, again} {
			st := must(Open(Options{Path: path, MustExist: true, ReadOnly: i%2 == 1}))(t)
			require.NoError(t, whole(st, acked))
			require.NoError(t, st.Close())
		}
	}
	l.end(t)
}

// TestCopyOfSoundPages: copies of which every page is sound and that do not fit together all the same. An archive ahead of the
// log is refused at once, and so is a mark ahead of both, in whose place new leaves would begin a second history. A row of another moment is found by a check, and by the restore of such a file; the control is the
// copy without it, which is restored.
func TestCopyOfSoundPages(t *testing.T) {
	path := dbtest.MemoryPath(t)
	st := must(Open(Options{Path: path}))(t)
	commit := func(n uint64) {
		must(st.Commit(context.Background(), liveBatch(t, st, n)))(t)
	}
	checkpoint := func() {
		must(st.checkpoint(context.Background()))(t)
	}
	for n := uint64(1); n <= 50; n++ {
		commit(n)
	}
	checkpoint()
	newer, ahead, marked, sound := path+".newer", path+".ahead", path+".marked", path+".sound"
	copyParts := func(to string, parts ...string) {
		for _, part := range parts {
			if part == "" {
				require.NoError(t, copyPieces(path, to, 1<<16, 0))
				continue
			}
			require.NoError(t, os.CopyFS(to+part, os.DirFS(path+part)))
		}
	}
	copyParts(newer, "", "-wal", "-manifest")
	copyParts(sound, "", "-wal", "-manifest")
	copyParts(marked, "", "-wal", "-manifest")
	raw := must(bbolt.Open(newer, 0o600, nil))(t)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error { // as a page of a later checkpoint would have it
		return tx.Bucket(bucketState).Put([]byte("n"), codec.Seal('s', []byte("n"), []byte("51")))
	}))
	require.NoError(t, raw.Close())
	copyParts(ahead, "", "-wal")
	commit(51)
	checkpoint()
	copyParts(ahead, "-manifest")
	later := must(os.ReadFile(filepath.Join(path+"-manifest", "mark")))(t)
	require.NoError(t, os.WriteFile(filepath.Join(marked+"-manifest", "mark"), later, 0o600))
	require.NoError(t, st.Close())
	for _, copied := range []string{ahead, marked} {
		for _, readOnly := range []bool{true, false} {
			_, err := Open(Options{Path: copied, ReadOnly: readOnly})
			require.ErrorIs(t, err, store.ErrMisfit)
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.ErrorContains(t, err, "dbctl backup")
		}
	}

	st = must(Open(Options{Path: newer, ReadOnly: true}))(t)
	require.NotEmpty(t, must(st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil))(t).Problems)
	require.NoError(t, st.Close())
	require.ErrorIs(t, errOf(Restore(t.Context(), newer, path+".restored", RestoreOptions{})), store.ErrCorrupt)
	require.NoFileExists(t, path+".restored")
	require.NoError(t, errOf(Restore(t.Context(), sound, path+".restored", RestoreOptions{})), "the control")
}
