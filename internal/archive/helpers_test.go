package archive

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const testDir = "/db/agent.ctx-manifest"

// testTrace gives ids that look like ULIDs and sort like them.
func testTrace(i uint64) string { return fmt.Sprintf("01J9ZK4D7Q%016d", i) }

// sampleRecord is a leaf that depends on i alone: every third a commit that
// belongs to the read before it.
func sampleRecord(i uint64) *manifest.Record {
	r := &manifest.Record{
		Type: manifest.TypeAssemble, Trace: testTrace(i), Time: 1_790_000_000_000_000 + int64(i),
		Scope: "acme/support", Actor: "agent-7", LSN: i * 3,
	}
	if i%3 == 2 {
		r.Type, r.Parent, r.Confidence, r.By = manifest.TypeCommit, testTrace(i-1), 0.88, "checker"
		r.Writes = []manifest.Write{{Num: i, Ref: fmt.Sprintf("acme:page-%d@1", i), Version: 1, Digest: manifest.Digest{byte(i), 2, 3}}}
		return r
	}
	r.Budget, r.Tier, r.Tokens = 4000, 1, 120
	for k := range i % 4 {
		r.Pages = append(r.Pages, manifest.Page{Num: i + k, Version: 1, Tokens: 40, Score: manifest.Score(60000 - k), Reason: "score"})
	}
	return r
}

var sampleBodies sync.Map // uint64 to []byte

func sampleBody(t testing.TB, i uint64) []byte {
	b, ok := sampleBodies.Load(i)
	if !ok {
		t.Helper()
		body := must(Encode(sampleRecord(i)))(t)
		b, _ = sampleBodies.LoadOrStore(i, body)
	}
	return bytes.Clone(b.([]byte))
}

// newFS is a file system in memory with the parent of testDir.
func newFS(t testing.TB) *dbtest.FS {
	t.Helper()
	fs := dbtest.NewFS()
	require.NoError(t, fs.MkdirAll("/db", 0o700))
	require.NoError(t, fs.SyncDir("/"))
	return fs
}

func openLog(t testing.TB, fs wal.FS, opts Options) (*Log, Report) {
	t.Helper()
	l, rep, err := Open(context.Background(), testDir, fs, opts)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l, rep
}

// fill adds the sample leaves up to n.
func fill(t testing.TB, l *Log, n uint64) {
	t.Helper()
	for i := l.Size(); i < n; i++ {
		require.NoError(t, l.Add(i, sampleBody(t, i)))
	}
}

// builtArchive is an archive of n sample leaves in small segments, made by
// several runs, and the head over it.
func builtArchive(t testing.TB, n uint64) (*dbtest.FS, manifest.Head) {
	t.Helper()
	fs := newFS(t)
	l, _ := openLog(t, fs, Options{DB: "db1", SegmentSize: 1500})
	for _, upTo := range []uint64{n / 3, n / 2, n} {
		fill(t, l, upTo)
		require.NoError(t, l.Archive(context.Background(), upTo))
	}
	head := must(l.Head(n, 0))(t)
	require.NoError(t, l.Close())
	return fs, head
}

// sampleRoot is the root over the first n sample leaves, made without a Log.
func sampleRoot(t testing.TB, n uint64) manifest.Hash {
	t.Helper()
	f := Frontier{}
	for i := range n {
		f.Add(LeafHash(sampleBody(t, i)))
	}
	return f.Root()
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
