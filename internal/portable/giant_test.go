package portable_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// repeated is a file of 1 GiB that nobody stored: a beginning, and then the same over and over.
type repeated struct {
	head, again string
	read        int64
	at          int
	heap        uint64 // the most that was in use while it was read
}

func (g *repeated) Read(p []byte) (n int, err error) {
	if g.read >= 1<<30 {
		return 0, io.EOF
	}
	for n < len(p) {
		from := g.again
		if len(g.head) > 0 {
			from = g.head
		}
		k := copy(p[n:], from[g.at:])
		n, g.at = n+k, g.at+k
		if g.at == len(from) {
			g.head, g.at = "", 0
		}
	}
	if was := g.read; was>>24 != (was+int64(n))>>24 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.heap = max(g.heap, m.HeapInuse)
	}
	g.read += int64(n)
	return n, nil
}

// Exports of 1 GiB that are wrong end with one error that names a line, in bounded memory, and nothing of them is written.
func TestGiantExports(t *testing.T) {
	if os.Getenv("CTXPAGE_LONG") == "" {
		t.Skip("CTXPAGE_LONG=1 reads lines of 128 MiB")
	}
	head := `{"type":"header","format":"ctxpage-export","version":1,"database":"01ARZ3NDEKTSV4RRFFQ69G5FAV","lsn":9,"at":"2026-03-01T09:00:00Z"}` + "\n"
	to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for name, g := range map[string]struct {
		head, again string
		line        int
	}{
		"no header":         {"", "x", 1},
		"one long line":     {head + `{"type":"version","scope":"`, "x", 2},
		"nesting":           {head + `{"type":"version","artefact":`, "[", 2},
		"entries":           {head + `{"type":"version","pages":[{}`, ",{}", 2},
		"many erasures":     {`{"type":"header","format":"ctxpage-export","version":1,"erasures":["a"`, `,"a"`, 1},
		"lines of nothing":  {head, "\n", 2},
		"lines of no type":  {head, "{}\n", 2},
		"lines of no value": {head, `{"type":"state"}` + "\n", 2},
	} {
		r := &repeated{head: g.head, again: g.again}
		_, err := to.Admin().Import(t.Context(), r, portable.ImportOptions{By: "operator"})
		var at *portable.LineError
		require.ErrorAs(t, err, &at, name)
		require.Equal(t, g.line, at.Line, "%s: %v", name, err)
		require.Less(t, len(err.Error()), 1000, name)
		grew := max(r.heap, m.HeapInuse) - m.HeapInuse
		require.Less(t, grew, uint64(900<<20), name)
		t.Logf("%s: %d MiB: %v", name, grew>>20, err)
	}
	st := must(to.Stats(t.Context()))(t)
	require.Zero(t, st.LSN, "something was written")
}
