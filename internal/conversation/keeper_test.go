package conversation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
)

// slowStates is a store whose State does not answer before it is told to.
type slowStates struct {
	store.Store
	asked  chan string
	answer chan struct{}
}

func (s *slowStates) State(_ context.Context, key string) (store.StateRow, error) {
	s.asked <- key
	<-s.answer
	return store.StateRow{Key: key}, nil
}

// A look that takes long holds up no other session, until lookWorkers of them do.
func TestSlowLookHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowStates{asked: make(chan string, 2*lookWorkers), answer: make(chan struct{})}
		all := NewSessions(Host{Store: st, Counter: token.Default(), Clock: time.Now, Owns: func() bool { return true }})
		k := &keeper{t: all, looks: map[[2]string]*looked{}, started: map[[2]string]*started{}}
		k.ctx, k.stop = context.WithCancel(t.Context())
		defer k.stop()
		for i := range lookWorkers + 1 {
			k.enqueue([2]string{"acme", string(rune('a' + i))}, true, false)
			k.dispatch()
			synctest.Wait()
			require.Len(t, st.asked, min(i+1, lookWorkers))
		}
		close(st.answer)
		synctest.Wait()
		require.Len(t, st.asked, lookWorkers+1)
		require.Zero(t, k.workers)
		require.Empty(t, k.looks, "all are at rest")
	})
}
