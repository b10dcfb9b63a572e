package embed

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// TestDatabase: a Client is the Embedder of a database, which keeps the vectors.
func TestDatabase(t *testing.T) {
	ctx := context.Background()
	e := newEndpoint(t, Options{MaxRetries: -1, CacheBytes: -1})
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Embedder: e.c}))(t)
	defer db.Close()
	s := db.Scope("acme")
	for i := range 5 {
		must(s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint(i), Text: fmt.Sprintf("refund case %d", i)}))(t)
	}
	ask := func(text string) *ctxpage.Assembly {
		t.Helper()
		a := must(s.Assemble(ctx, ctxpage.Query{Text: text, Budget: 1000}))(t)
		require.Len(t, a.Blocks, 5)
		return a
	}
	a := ask("which refund?")
	require.Equal(t, "test-model", a.Manifest.Embedder)
	require.EqualValues(t, 2, e.c.Stats().Calls, "the question, then the pages in one request")
	require.EqualValues(t, 6, e.c.Stats().Texts)
	ask("which refund?")
	require.EqualValues(t, 2, e.c.Stats().Calls)

	e.before = fail(http.StatusServiceUnavailable, "", `{"error":"loading which refund?"}`)
	a = ask("another refund")
	require.Contains(t, a.Degraded, "loading which refund?")
	require.Equal(t, "relevance by words alone: embedder test-model failed", a.Manifest.Note, "no content enters the audit")
	e.before = nil
	require.Empty(t, ask("another refund").Degraded)
	require.EqualValues(t, 4, e.c.Stats().Calls)
}
