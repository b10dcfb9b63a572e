package freshness

import (
	"context"
	"fmt"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A look at a file that began late has not failed when the time of all looks is over: the file is probed by itself. Only
// the first looks had all that time.
func TestLateLookIsNoFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	w := newWorld(t, nil)
	files := w.s.Files
	require.NoError(t, files.AddRoot(filepath.Dir(path)))
	files.now = time.Now
	w.s.Sources, w.s.Timeout = map[string]store.Source{"file": files}, time.Hour
	known := must(files.Probe(t.Context(), path, store.Validator{}))(t)
	heads := make([]*store.Head, 10_000)
	for i := range heads {
		heads[i] = &store.Head{Scope: "acme", Artefact: store.Artefact{ID: fmt.Sprint(i), Source: "file:" + path}, Source: known}
	}
	hung := 0
	for range 1000 {
		out, open := make([]Finding, len(heads)), []int(nil)
		looking, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			open = w.s.glance(looking, heads, 0, out)
		}()
		time.Sleep(3 * time.Millisecond)
		files.mu.Lock() // in the middle of the looks, whoever begins the next one hangs
		time.Sleep(3 * time.Millisecond)
		end()
		select {
		case <-done:
		case <-time.After(time.Second): // it had not begun
		}
		files.mu.Unlock()
		<-done
		for i := maxProbes; i < len(heads); i++ {
			require.Equal(t, Finding{}, out[i], i)
		}
		if same := len(heads) - len(open); same >= maxProbes && len(open) > maxProbes { // those who found them same went on to late ones
			if hung++; hung == 10 {
				return
			}
		}
	}
	t.Fatal("no look hung in the middle of the others")
}
