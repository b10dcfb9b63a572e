package conversation

import (
	"fmt"
	"runtime"
	"testing"
	"time"

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
