package filestore_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestJudgedBesideCheckpoints commits from several goroutines while checkpoints move state and outcomes into the rows:
// a batch that expects an older state than there is gets a conflict, so no count is lost, and all who commit under one id
// get one answer.
func TestJudgedBesideCheckpoints(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), ctxpage.Options{})
	st := storeOf(db)
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for err := error(nil); ; {
			select {
			case <-quit:
				done <- err
				return
			default:
				if err == nil {
					_, err = db.Admin().Checkpoint(ctx)
				}
			}
		}
	}()
	count := func(row store.StateRow) store.Batch {
		n, _ := strconv.Atoi(string(row.Value)) // 0 if there is none
		return store.Batch{Scope: "acme", Actor: "test", Now: time.Now(), Bound: []byte("sixteen bytes ..."), Leaf: manifest.Record{Type: manifest.TypeCommit},
			State: []store.StateRow{{Key: "n", Value: []byte(strconv.Itoa(n + 1))}}, ExpectState: []store.StatePre{{Key: "n", LSN: row.LSN}}}
	}
	const together = 4
	const rounds = 150
	outs, errs := [2 * together]store.Outcome{}, [2 * together]error{}
	for round := range rounds {
		b := count(must(st.State(ctx, "n"))(t))
		same := must(newID())(t)
		var group sync.WaitGroup
		for i := range outs {
			b := b
			if b.ID = same; i >= together {
				b.ID = must(newID())(t)
			}
			group.Go(func() { outs[i], errs[i] = st.Commit(ctx, b) })
		}
		group.Wait()
		applied := 0
		for i, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, store.ErrConflict)
				continue
			}
			require.Equal(t, store.StatusApplied, outs[i].Status)
			if i == 0 || i >= together {
				applied++
			} else {
				require.Equal(t, outs[0], outs[i], "the same id")
			}
			if i < together {
				require.NoError(t, errors.Join(errs[:together]...), "one of them was applied, so all were")
			}
		}
		require.Equal(t, 1, applied, "of those that expect the same state one is applied")
		require.Equal(t, strconv.Itoa(round+1), string(must(st.State(ctx, "n"))(t).Value))
	}
	close(quit)
	require.NoError(t, <-done)
}
