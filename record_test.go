package ctxpage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func fillScope(t testing.TB, s *Scope, n int, a func(i int) Artefact) {
	t.Helper()
	for i := 0; i < n; {
		require.NoError(t, s.Update(ctx, func(tx *Txn) error {
			for range 500 {
				if i < n {
					if err := tx.Put(ctx, a(i)); err != nil {
						return err
					}
					i++
				}
			}
			return nil
		}))
	}
}

// TestSweepConcurrent: questions of different times, and writes, at once. Each is answered as of its own time.
func TestSweepConcurrent(t *testing.T) {
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	db := must(Open(dbtest.MemoryPath(t), Options{Clock: func() time.Time { return start }}))(t)
	defer db.Close()
	s, st := db.Scope("acme"), db.store
	fillScope(t, s, 2000, func(i int) Artefact { // one expires each second
		return Artefact{ID: fmt.Sprint("p-", i), Kind: store.KindFact, Text: "text", CurrentAsOf: start.Add(time.Duration(i) * time.Microsecond), ExpiresAt: start.Add(time.Duration(i+1) * time.Second)}
	})
	errs := make(chan error)
	for g := range 4 {
		go func() {
			rng := rand.New(rand.NewPCG(7, uint64(g)))
			for range 100 {
				left := rng.IntN(1900)
				q := store.CandidateQuery{Scopes: store.Scopes{"acme"}, Now: start.Add(time.Duration(2000-left) * time.Second), Recent: 10}
				got, err := st.Candidates(ctx, q)
				if want := min(left, 10); err == nil && len(got.Hits) != want {
					err = fmt.Errorf("%d left, %d of the newest 10", left, len(got.Hits))
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	go func() {
		for n := range 50 {
			if _, err := s.Put(ctx, Artefact{ID: fmt.Sprint("gone-", n), Text: "text", ExpiresAt: start.Add(time.Millisecond)}); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for range 5 {
		require.NoError(t, <-errs)
	}
}
