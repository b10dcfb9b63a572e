package ctxpage_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

var ctx = context.Background()

// clock is the time of a test: it moves only when it is told to.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// seeded is randomness that repeats.
func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

// open opens a database of its own for a test. When the test ends it is checked and closed.
func open(t testing.TB, opts Options) *DB {
	t.Helper()
	return openAt(t, dbtest.MemoryPath(t), opts)
}

func openAt(t testing.TB, path string, opts Options) *DB {
	t.Helper()
	elsewhere := OwnedElsewhere(t, path, opts)
	db := must(Open(path, Patient(opts)))(t)
	elsewhere(db)
	t.Cleanup(func() { checkAndClose(t, db) })
	return db
}

// checkAndClose walks the invariants; a database that the test closed itself was walked before.
func checkAndClose(t require.TestingT, db *DB) {
	problems, err := db.Admin().Check(ctx, nil)
	if err == nil {
		counted, listed := db.FrameBytes()
		require.Equal(t, counted, listed, "bytes of the working set")
		require.Zero(t, must(db.Stats(ctx))(t).Table.Pinned, "pins left behind")
		require.NoError(t, db.Close())
	} else {
		require.ErrorIs(t, err, store.ErrClosed)
	}
	require.Empty(t, problems)
}

// reopen closes a database, clean, and opens it again.
func reopen(t testing.TB, db *DB, opts Options) *DB {
	t.Helper()
	path := db.Path()
	checkAndClose(t, db)
	return openAt(t, path, opts)
}

func put(t testing.TB, s *Scope, a Artefact) Ref {
	t.Helper()
	return must(s.Put(ctx, a))(t)
}

func get(t testing.TB, s *Scope, id string, opts ...ReadOption) *Version {
	t.Helper()
	return must(s.Get(ctx, id, opts...))(t)
}

func assemble(t testing.TB, s *Scope, q Query) *Assembly {
	t.Helper()
	if q.Budget == 0 {
		q.Budget = 4000
	}
	return must(s.Assemble(ctx, q))(t)
}

func begin(t testing.TB, s *Scope, opts ...TxnOption) *Txn {
	t.Helper()
	return must(s.Begin(ctx, opts...))(t)
}

// ids are the artefacts of an assembly, in its order.
func ids(a *Assembly) []string {
	out := []string{}
	for _, b := range a.Blocks {
		out = append(out, b.Ref.ID)
	}
	return out
}

// left returns the reasons for which an artefact was left out of an assembly.
func left(a *Assembly, id string) []string {
	var out []string
	for _, l := range a.Left {
		if l.Ref.ID == id {
			out = append(out, l.Reason)
		}
	}
	return out
}

// hitsOf are the hits of a search, for tests that ask nothing else of it.
func hitsOf(f Found, err error) ([]Hit, error) { return f.Hits, err }

func hitIDs(hits []Hit) []string {
	out := []string{}
	for _, h := range hits {
		out = append(out, h.Ref.ID)
	}
	return out
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// words is n words of prose, different for each seed.
func words(seed, n int) string {
	list := strings.Fields("account address agent amount archive branch carrier change charge claim client contract courier credit damage " +
		"date delay delivery deposit dispute document estimate evidence express failure freight gateway handle import invoice journal label " +
		"ledger letter limit manager market message method notice number order package parcel partner payment period person policy price " +
		"process product promise quarter receipt record region report request reserve result return review route sample schedule service")
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[r.IntN(len(list))])
		if i%11 == 10 {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// These names stand at the top level of the repository. They are promised: other files may stand beside them.
func TestTopLevel(t *testing.T) {
	for _, name := range strings.Fields("go.mod go.sum db.go page.go pagetable.go lru.go txn.go README.md SECURITY.md CONTRIBUTING.md .github/workflows/release.yml") {
		require.FileExists(t, name)
	}
	for _, name := range strings.Fields("wal manifest cmd bench adapters tools") {
		require.DirExists(t, name)
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
