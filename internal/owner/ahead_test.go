package owner

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// The client that an owner tells of its end has read the files before it takes them over, and has everything. The control: the
// first owner had nobody to read after.
func TestNextOwnerReadsAhead(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{announce: time.Minute})
	put(t, first, "page-0")
	var is atomic.Pointer[guest]
	var opened, ahead atomic.Int64
	opts := Options{}
	opts.Files.Hook = func(step string) error {
		if step == "opened system row" {
			opened.Add(1)
			if is.Load().ahead.Load() != nil {
				ahead.Add(1)
			}
		}
		return nil
	}
	next := open(t, path, opts).(*guest)
	is.Store(next)
	for n := range 50 {
		put(t, next, fmt.Sprint("page-", n+1))
	}
	require.Eventually(t, func() bool { return first.(*Host).server.Announce(time.Minute) }, time.Minute, time.Millisecond, "the client waits for the end")
	require.NoError(t, first.Close())
	put(t, next, "last")
	require.True(t, owns(next))
	require.EqualValues(t, 1, opened.Load())
	require.EqualValues(t, 1, ahead.Load())
	for n := range 51 {
		has(t, next, fmt.Sprint("page-", n))
	}
	has(t, next, "last")
	require.NoError(t, next.Close())
	require.Nil(t, next.ahead.Load(), "it is not kept")
}
