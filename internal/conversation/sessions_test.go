package conversation

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
)

func (t *Sessions) living() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.alive)
}

// However many sessions a process touches, it keeps the newest, and finding one costs the same.
func TestSessionsAreBounded(t *testing.T) {
	all := NewSessions(Host{Counter: token.Default()})
	const sessions, many, some = 64_000, 16_000, 500
	inUse := make([]*Conversation, 0, sessions) // by callers: all of them are alive
	look := func(n int) time.Duration {
		at := time.Now()
		for range n {
			inUse = append(inUse, all.Of("acme/agent", fmt.Sprint("session ", len(inUse))))
		}
		return time.Since(at)
	}
	quickest := func() time.Duration { // whatever else the machine does meanwhile
		best := time.Hour
		for range 5 {
			best = min(best, look(some))
		}
		return best
	}
	first := quickest()
	look(many - 10*some)
	last := quickest()
	t.Logf("%d looks: %v, among %d sessions %v", some, first, many, last)
	require.Less(t, last, 10*first+30*time.Millisecond, "a look costs the same however many there are")
	look(sessions - many)
	require.Equal(t, sessions, all.living())
	clear(inUse)
	require.Equal(t, Kept, all.recent.Len())
	require.Eventually(t, func() bool {
		runtime.GC()
		return all.living() <= Kept
	}, time.Minute, 10*time.Millisecond)
	runtime.KeepAlive(all)
}

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
