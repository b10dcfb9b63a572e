package remote

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBell: listeners at which nobody connects share one goroutine, each connection is served, also one after the goroutine that
// accepted the first has gone, and nothing is left after close. The control is run, which keeps a goroutine for each.
func TestBell(t *testing.T) {
	dir := must(os.MkdirTemp("/tmp", "bell"))(t) // short: the paths of sockets are bounded
	defer os.RemoveAll(dir)
	const n = 20
	for _, quiet := range []bool{true, false} {
		before := runtime.NumGoroutine()
		a := &acceptor{serve: func(c net.Conn) { _, _ = io.Copy(c, c) }}
		paths := make([]string, n)
		for i := range paths {
			paths[i] = filepath.Join(dir, strconv.Itoa(i))
			l := must(Listen(paths[i]))(t)
			if quiet {
				a.attend(l)
			} else {
				go func() { _ = a.run(l) }()
			}
		}
		soon := func(cond func() bool) { require.Eventually(t, cond, time.Minute, time.Millisecond) }
		talk := func(path string) {
			c := must(net.Dial("unix", path))(t)
			defer c.Close()
			must(c.Write([]byte("x")))(t)
			must(io.ReadFull(c, make([]byte, 1)))(t)
		}
		if quiet {
			require.LessOrEqual(t, runtime.NumGoroutine(), before+1, "before anybody connects")
		} else {
			soon(func() bool { return runtime.NumGoroutine() >= before+n })
		}
		for range 2 {
			for _, path := range paths {
				talk(path)
			}
			if quiet {
				soon(func() bool { return runtime.NumGoroutine() <= before+2 }) // Eventually has one, too
			}
		}
		require.NoError(t, a.close())
		soon(func() bool { return runtime.NumGoroutine() <= before+1 })
		theBell.mu.Lock()
		require.Nil(t, theBell.epoll)
		require.Empty(t, theBell.ropes)
		theBell.mu.Unlock()
	}
}
