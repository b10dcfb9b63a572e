package ctxpage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefOfNamesPagesOfAnyScope(t *testing.T) {
	ctx := context.Background()
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Scope("acme/support").Put(ctx, Artefact{ID: "policy", Text: "refunds"})
	require.NoError(t, err)
	require.Equal(t, "acme/support:policy#1@1", db.RefOf(ctx, 1))
	require.Equal(t, "page 2", db.RefOf(ctx, 2))
}

// The leaf says of a page that found no place what it would have taken.
func TestLeftOutPagesKeepTheirTokens(t *testing.T) {
	ctx := context.Background()
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	for i := range 6 {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("note-", i), Text: strings.Repeat("refund policy of the shop. ", 40)})
		require.NoError(t, err)
	}
	a, err := s.Assemble(ctx, Query{Text: "refund policy", Budget: 500})
	require.NoError(t, err)
	require.NotEmpty(t, a.Manifest.Excluded)
	for _, e := range a.Manifest.Excluded {
		for _, p := range e.Nearest {
			require.Positive(t, p.Tokens, "page %d, %s", p.Num, e.Reason)
		}
	}
}

// What is superseded is told with the name of what answers for it, and a page that an artefact does not have is told apart
// from an artefact that is not there.
func TestWhyNamesWhatItMeans(t *testing.T) {
	ctx := context.Background()
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	for _, a := range []Artefact{{ID: "old", Text: "refunds take ten days"}, {ID: "new", Text: "nothing alike", Supersedes: []string{"old"}}} {
		_, err := s.Put(ctx, a)
		require.NoError(t, err)
	}
	a, err := s.Assemble(ctx, Query{Text: "shipping", Budget: 500})
	require.NoError(t, err)
	told := func(ref Ref) string {
		w, err := db.Why(ctx, a.Trace, ref)
		require.NoError(t, err)
		return strings.Join(w.Steps, "\n")
	}
	require.Contains(t, told(Ref{ID: "old"}), "superseded by acme:new#1@1")
	for _, ref := range []Ref{{ID: "new", Page: 9}, {Scope: "acme", ID: "new", Version: 7}} {
		require.Contains(t, told(ref), "acme:new has no such page or version; its newest is version 1, of 1 pages")
	}
	for _, ref := range []Ref{{ID: "none", Page: 1}, {Scope: "globex", ID: "new", Page: 9}} {
		require.Contains(t, told(ref), "had no such artefact in sight")
	}
}
