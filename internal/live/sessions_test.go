package live

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
	const sessions = 64_000
	longest := time.Duration(0)
	for i := range sessions {
		at := time.Now()
		all.Of("acme/agent", fmt.Sprint("session ", i))
		longest = max(longest, time.Since(at))
	}
	t.Logf("longest look: %v", longest)
	require.Equal(t, Kept, all.recent.Len())
	require.Eventually(t, func() bool {
		runtime.GC()
		return all.living() <= Kept
	}, 20*time.Second, 10*time.Millisecond)
	runtime.KeepAlive(all)
}
