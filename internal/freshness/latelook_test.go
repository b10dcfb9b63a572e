package freshness

import (
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
	const timeout = aheadTimeout
	w := newWorld(t, nil)
	files := w.s.Files
	require.NoError(t, files.AddRoot(filepath.Dir(path)))
	files.now = time.Now
	w.s.Sources, w.s.Timeout = map[string]store.Source{"file": files}, time.Hour // of a probe by itself
	known := must(files.Probe(t.Context(), path, store.Validator{}))(t)
	heads := make([]*store.Head, 10_000)
	for i := range heads {
		heads[i] = &store.Head{Scope: "acme", Artefact: store.Artefact{ID: fmt.Sprint(i), Source: "file:" + path}, Source: known}
	}
	for cut := false; !cut; {
		var out []Finding
		var took time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			start := time.Now()
			out = w.s.Freshen(t.Context(), heads, 0)
			took = time.Since(start)
		}()
		time.Sleep(3 * time.Millisecond)
		files.mu.Lock() // in the middle of the looks, whoever begins the next one hangs
		time.Sleep(timeout + 100*time.Millisecond)
		files.mu.Unlock()
		<-done
		cut = took > timeout // else all was done before it
		for i := maxProbes; i < len(heads); i++ {
			require.Equal(t, Finding{}, out[i], i)
		}
	}
}
