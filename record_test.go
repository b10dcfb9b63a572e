package ctxpage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/listing"
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
		return Artefact{ID: fmt.Sprint("p-", i), Kind: KindFact, Text: "text", CurrentAsOf: start.Add(time.Duration(i) * time.Microsecond), ExpiresAt: start.Add(time.Duration(i+1) * time.Second)}
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

// BenchmarkExcluded is what an assembly costs in a scope of a hundred live pages and as many excluded ones as named.
func BenchmarkExcluded(b *testing.B) {
	for _, what := range []string{"none", "expired", "superseded", "turns", "scratch"} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("%s=%d", what, n), func(b *testing.B) {
				now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
				db := must(Open(dbtest.MemoryPath(b), Options{Clock: func() time.Time { return now }}))(b)
				defer db.Close()
				s := db.Scope("acme")
				fillScope(b, s, 100, func(i int) Artefact { return Artefact{ID: fmt.Sprint("live-", i), Text: fmt.Sprint("needle ", i)} })
				_, err := s.Put(ctx, Artefact{ID: "turn", Kind: KindMessage, Role: "user", Group: "s-0", Seq: -1, Text: "a turn"}) // the session is there
				require.NoError(b, err)
				now = now.Add(time.Second)
				switch what {
				case "expired":
					fillScope(b, s, n, func(i int) Artefact {
						return Artefact{ID: fmt.Sprint("x-", i), Text: fmt.Sprint("hay ", i), ExpiresAt: now.Add(time.Minute)}
					})
				case "superseded":
					fillScope(b, s, n, func(i int) Artefact { return Artefact{ID: fmt.Sprint("x-", i), Text: fmt.Sprint("hay ", i)} })
					fillScope(b, s, n/100, func(i int) Artefact {
						a := Artefact{ID: fmt.Sprint("new-", i), Text: "needle new"}
						for j := range 100 {
							a.Supersedes = append(a.Supersedes, fmt.Sprint("x-", i*100+j))
						}
						return a
					})
				case "turns":
					fillScope(b, s, n, func(i int) Artefact {
						return Artefact{ID: fmt.Sprint("x-", i), Kind: KindMessage, Role: "assistant", Provenance: Tool, Group: fmt.Sprint("s-", i/100), Seq: int64(i), Text: fmt.Sprint("hay ", i)}
					})
				case "scratch":
					fillScope(b, s, n, func(i int) Artefact {
						return Artefact{ID: fmt.Sprint("x-", i), Kind: KindScratch, Text: fmt.Sprint("hay ", i)}
					})
				}
				now = now.Add(time.Hour)
				for _, session := range []string{"", "s-0"} {
					b.Run("session="+session, func(b *testing.B) {
						for b.Loop() {
							a := must(s.Assemble(ctx, Query{Text: "needle", Budget: 2000, Session: session}))(b)
							require.NotEmpty(b, a.Blocks)
						}
					})
				}
			})
		}
	}
}

// BenchmarkHeld is the review of a database with ten thousand held batches.
func BenchmarkHeld(b *testing.B) {
	db := must(Open(dbtest.MemoryPath(b), Options{}))(b)
	defer db.Close()
	s := db.Scope("acme", WithActor("writer"))
	for n := range 10_000 {
		tx := must(s.Begin(ctx))(b)
		require.NoError(b, tx.Put(ctx, Artefact{ID: fmt.Sprint("draft-", n), Text: fmt.Sprint("held ", n)}))
		require.ErrorIs(b, tx.Commit(ctx, Verdict{}), ErrHeld)
	}
	must(db.Admin().Checkpoint(ctx))(b)
	b.Run("stat", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.Equal(b, 10_000, must(db.Stats(ctx))(b).Held)
		}
	})
	b.Run("list=20", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.Len(b, must(listing.Collect(db.Review().Batches(ctx, "", false, AtMost(20, "", nil))))(b), 20)
		}
	})
}
