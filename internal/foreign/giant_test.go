package foreign_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// peak runs fn and returns by how much the heap grew at most, in bytes.
func peak(fn func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.HeapInuse
	var most atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	fn()
	close(stop)
	<-done
	return max(most.Load(), before) - before
}

// bound is more than any file may take: an item of 64 MiB while its buffer doubles, with what was not collected yet.
const bound = 512 << 20

// Files of 1 GiB that are wrong end with one error that names a line, in bounded memory, whatever they are taken for, and nothing
// of them is written.
func TestGiantFiles(t *testing.T) {
	if dbtest.Race {
		t.Skip("the scanner has one goroutine, and the race detector makes it thirty times as slow")
	}
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	long := os.Getenv("CTXPAGE_LONG") != ""
	for name, g := range map[string]struct{ head, again string }{
		"one string":         {`[{"id":"a","role":"user","name":"`, "x"},
		"one long line":      {"[", " "},
		"lines of nothing":   {"", "\n"},
		"nesting":            {`[{"id":"a","content":`, "["},
		"nested objects":     {`[{"id":"a","content":`, `{"a":`},
		"entries in an item": {`[{"id":"a","role":"user","content":[0`, ",0"},
		"keys of an item":    {`[{"id":"a"`, `,"k":0`},
		"keys of the file":   {`{"a":0`, `,"k":0`},
		"a long key":         {`[{"`, "k"},
		"a long number":      {`[{"id":`, "9"},
		"a billion entries":  {"[0", ",0"},
		"escapes":            {`[{"id":"`, `\u0000`},
		"not JSON":           {"PK\x03\x04", "\x00"},
	} {
		if !dbtest.Full && g.again != "x" && g.again != "[" { // the others are cut by the same scanner
			continue
		}
		formats := append([]foreign.Format{""}, foreign.Formats...)
		if !long { // all are cut into items by the same scanner
			formats = []foreign.Format{foreign.Mem0}
		}
		if !long && (g.again == " " || g.again == "\n") { // read to the end
			continue
		}
		for _, f := range formats {
			var err error
			start := time.Now()
			grew := peak(func() {
				opts := foreign.Options{Format: f, Map: fieldMap}
				if f == "" {
					_, _, err = foreign.Detect(t.Context(), dbtest.Giant(g.head, g.again))
					return
				}
				_, err = foreign.Import(t.Context(), db.Scope("acme"), dbtest.Giant(g.head, g.again), opts)
			})
			var at *portable.LineError
			require.ErrorAs(t, err, &at, "%s as %q", name, f)
			require.Positive(t, at.Line, "%s as %q", name, f)
			require.Less(t, len(err.Error()), 1000, "%s as %q", name, f)
			require.Less(t, grew, uint64(bound), "%s as %q", name, f)
			t.Logf("%s as %q: %v, %d MiB: %v", name, f, time.Since(start).Round(time.Millisecond), grew>>20, err)
		}
	}
	st := must(db.Stats(t.Context()))(t)
	require.Zero(t, st.LSN, "something was written")
}

// A file of good items is read in bounded memory however long it is; the error at its end, which is cut off, names its line.
func TestGiantGoodFile(t *testing.T) {
	if os.Getenv("CTXPAGE_LONG") == "" {
		t.Skip("CTXPAGE_LONG=1 reads 3 GiB")
	}
	for f, g := range map[foreign.Format]struct{ head, again string }{
		foreign.Mem0:       {"[" + `{"id":"a","memory":"x"}`, ",\n" + `{"id":"b","memory":"` + strings.Repeat("long ", 100_000) + `"}`},
		foreign.OpenAIChat: {"", `{"role":"user","content":"` + strings.Repeat("long ", 100_000) + "\"}\n"},
		foreign.JSONL:      {"", `{"key":1,"body":{"text":"` + strings.Repeat("long ", 100_000) + "\"}}\n"},
	} {
		items := 0
		var err error
		grew := peak(func() {
			_, err = foreign.Read(t.Context(), dbtest.Giant(g.head, g.again), foreign.Options{Format: f, Map: fieldMap}, func(store.Artefact, int) error { items++; return nil })
		})
		require.Greater(t, items, 2000, f)
		require.Less(t, grew, uint64(bound), f)
		var at *portable.LineError
		require.ErrorAs(t, err, &at, f)
		require.Greater(t, at.Line, 2000, f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := foreign.Read(ctx, dbtest.Giant("[", `{"id":"a","memory":"x"},`), foreign.Options{Format: foreign.Mem0}, func(store.Artefact, int) error { return nil })
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
