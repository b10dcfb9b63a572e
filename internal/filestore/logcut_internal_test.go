package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// logUnderTest is the log of a real database, and the LSN behind each of its records.
type logUnderTest struct {
	path, name string
	data       []byte
	records    []loggedRecord
	bolt       []byte     // bbolt's file, as a crash leaves it
	files      *dbtest.FS // log and archive, likewise
}

type loggedRecord struct {
	end int64 // offset behind its frame
	lsn uint64
}

// openOn opens the database at path with its log and its archive on a file system.
func openOn(path string, files wal.FS) (*Store, error) {
	return Open(Options{Path: path, FS: files, Segment: 8 << 20}) // preallocated in steps of 64 KiB
}

// put writes an artefact, or holds it.
func put(st *Store, action store.Action, a store.Artefact, text string) (store.Outcome, error) {
	now := time.Now()
	id, err := store.NewID(now, st.opts.Rand)
	if err != nil {
		return store.Outcome{}, err
	}
	a.KindDefaults()
	a.CurrentAsOf = now
	p := store.Put{Artefact: a, Counter: "bytes"}
	for piece := range slices.Chunk([]byte(text), 4<<10) {
		np := store.NewPage{Text: string(piece), Tokens: len(piece), Hash: store.ContentHash(string(piece)), Salt: [store.DigestSaltSize]byte(id[:])}
		np.Digest = store.SaltedDigest(np.Salt[:], np.Text)
		p.Pages = append(p.Pages, np)
	}
	b := store.Batch{ID: id, Scope: "acme", Actor: "writer", Now: now, Action: action, Puts: []store.Put{p}, Leaf: manifest.Record{Type: manifest.TypeCommit}}
	if action == store.ActHold {
		b.Reason = "no verdict"
	}
	return st.Commit(context.Background(), b)
}

// makeLog writes commits, leaves of reads, marks and held drafts; no checkpoint comes between.
func makeLog(t *testing.T) *logUnderTest {
	l := &logUnderTest{path: dbtest.MemoryPath(t)}
	files := dbtest.NewFS()
	dir := filepath.Dir(l.path)
	require.NoError(t, files.MkdirAll(dir, 0o700))
	for ; dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, files.SyncDir(dir))
	}
	require.NoError(t, files.SyncDir("/"))
	st := must(openOn(l.path, files))(t)
	for n := 1; st.log.Size() < 64<<10; n++ {
		id := fmt.Sprint("page-", n%3)
		must(put(st, store.ActApply, store.Artefact{ID: id}, fmt.Sprint("number ", n)))(t)
		leaf := &manifest.Record{Type: manifest.TypeGet, Scope: "acme", Actor: "writer", Reason: "get " + id}
		require.NoError(t, st.note(ctx, store.Written, leaf))
		out := must(put(st, store.ActHold, store.Artefact{ID: "draft", Kind: store.KindFact}, fmt.Sprintf("held %d%s", n, strings.Repeat(".", 9000))))(t)
		require.Equal(t, store.StatusHeld, out.Status)
		if n%3 == 0 {
			require.NoError(t, st.line.mark(st.eng.Leaves))
		}
	}
	require.NoError(t, st.log.Sync(ctx, st.log.Last(), nil))
	dir = l.path + "-wal"
	names := must(files.ReadDir(dir))(t)
	require.Len(t, names, 1)
	l.name = filepath.Join(dir, names[0])
	l.data = must(files.ReadFile(l.name))(t)[:st.log.Size()]
	clear(l.data[64:segmentHeader]) // the length, as a power cut may tear it: otherwise each cut is damage
	l.files = files.CrashClone(1, 0)
	l.bolt = must(os.ReadFile(l.path))(t)
	lsn := uint64(0)
	require.NoError(t, errOf(wal.Scan(ctx, dir, files, func(r wal.Record) error {
		if n := len(l.records); n > 0 {
			l.records[n-1].end = r.Offset
		}
		if r.Kind == wal.KindCommit {
			lsn = must(format.DecodeCommit(r.Body))(t).LSN
		}
		l.records = append(l.records, loggedRecord{lsn: lsn})
		return nil
	})))
	l.records[len(l.records)-1].end = int64(len(l.data))
	files.Inject(dbtest.Fault{Err: dbtest.ErrCrashed, Sticky: true})
	_ = st.Close() // it says what it met: the crash
	return l
}

const segmentHeader = 80 // synced before the segment has its name: no crash damages it

// TestLogCut opens databases for writing with a cut log: at every record's end, and at random places. All commits before the cut are
// there, what is left is sound, and can be written to and opened again. Package wal cuts and flips at every byte.
func TestLogCut(t *testing.T) {
	l := makeLog(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2 * len(l.records) {
		at := l.records[i/2].end
		if i%2 == 1 {
			at = segmentHeader + rng.Int64N(int64(len(l.data))-segmentHeader)
		}
		require.NoError(t, os.WriteFile(l.path, l.bolt, 0o600))
		files := l.files.Clone()
		files.WriteFile(l.name, l.data[:at])
		st, err := openOn(l.path, files)
		require.NoError(t, err, "cut at %d", at)
		require.Empty(t, must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t).Problems, "cut at %d", at)
		var want loggedRecord
		for _, r := range l.records {
			if r.end <= at {
				want = r
			}
		}
		require.Equal(t, want.lsn, must(st.Stat(ctx))(t).LSN, "cut at %d", at)
		must(put(st, store.ActApply, store.Artefact{ID: "later"}, "after the cut"))(t)
		require.NoError(t, st.Close())
		st = must(openOn(l.path, files))(t)
		found := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "later"}))(t)
		loaded := must(st.Load(ctx, store.Scopes{"acme"}, found.Pages, store.WantText))(t)
		require.NoError(t, loaded[0].Err)
		require.Equal(t, "after the cut", loaded[0].Text)
		require.Equal(t, want.lsn+1, loaded[0].Head.LSN)
		require.NoError(t, st.Close())
	}
}
