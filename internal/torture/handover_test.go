package torture

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ctxpage/ctxpage"
)

// handle is one opener of a database that several share. It is closed and opened again while the others go on.
type handle struct {
	mu sync.RWMutex
	db *ctxpage.DB
}

// several are handles to one database: one owns the files, the others ask it. Calls go to them in turn.
type several struct {
	all  []*handle
	next atomic.Int64
}

func openSeveral(t *testing.T, path string, n int) *several {
	t.Helper()
	s := &several{}
	for range n {
		db, err := ctxpage.Open(path, ctxpage.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.all = append(s.all, &handle{db: db})
	}
	return s
}

func (s *several) do(ctx context.Context, in input) (output, bool, error) {
	h := s.all[int(s.next.Add(1))%len(s.all)]
	h.mu.RLock()
	defer h.mu.RUnlock()
	return database{h.db.Scope("acme", ctxpage.WithActor("agent"))}.do(ctx, in)
}

// replace closes each handle in turn and opens it again: the one that owns the files hands them over.
func (s *several) replace(t *testing.T, path string) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		for ; ctx.Err() == nil; n++ {
			h := s.all[n%len(s.all)]
			h.mu.Lock()
			err := h.db.Close()
			if err == nil {
				h.db, err = ctxpage.Open(path, ctxpage.Options{})
			}
			h.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() int { cancel(); wg.Wait(); return n }
}

func runSeveral(t *testing.T, seed uint64, wrap func(system) system) porcupine.CheckResult {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	s := openSeveral(t, path, 4)
	stop := s.replace(t, path)
	h := history(t, wrap(s), seed, 8, 60)
	replaced := stop()
	for _, h := range s.all {
		if err := h.db.Close(); err != nil {
			t.Error(err)
		}
	}
	result := porcupine.CheckOperationsTimeout(model, h, 20*time.Second)
	t.Logf("seed %d: %d operations, %d handles replaced: %v", seed, len(h), replaced, result)
	return result
}

// TestLinearizableAcrossHandOver: clients of several handles to one database see one database, while its files go from
// one to the next.
func TestLinearizableAcrossHandOver(t *testing.T) {
	results := map[porcupine.CheckResult]int{}
	until := time.Now().Add(12 * time.Second)
	for seed := uint64(1); seed <= 12 && (seed <= 3 || time.Now().Before(until)); seed++ {
		got := runSeveral(t, seed, func(s system) system { return s })
		if results[got]++; got == porcupine.Illegal {
			t.Fatalf("the history of seed %d is not linearizable", seed)
		}
	}
	if results[porcupine.Ok] == 0 {
		t.Fatalf("no history was judged in time: %v", results)
	}
}

// The control: a client that serves stale reads is found out.
func TestLinearizableAcrossHandOverControl(t *testing.T) {
	var got []porcupine.CheckResult
	for seed := range uint64(3) {
		got = append(got, runSeveral(t, seed, func(s system) system { return &stale{system: s, last: map[int]int{}} }))
	}
	if !slices.Contains(got, porcupine.Illegal) {
		t.Fatalf("stale reads were taken for linearizable: %v", got)
	}
}
