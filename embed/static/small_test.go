package static_test

import (
	"context"
	_ "embed"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed/static"
)

// paraphrases has a fact and a question about it in other words on each line, behind a tab. They were written by hand, before
// the model was made; the model has not seen them.
//
//go:embed testdata/paraphrases.tsv
var paraphrases string

// TestSmallFindsParaphrases: by the small model, a search finds a tenth more of the facts that are asked for in other words,
// at the least. Words alone are the control.
func TestSmallFindsParaphrases(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(paraphrases), "\n")
	require.Len(t, lines, 200)
	found := func(e ctxpage.Embedder) (first, five float64) {
		db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Embedder: e})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		s := db.Scope("facts")
		for _, l := range lines {
			fact, _, ok := strings.Cut(l, "\t")
			require.True(t, ok, l)
			_, err := s.Put(t.Context(), ctxpage.Artefact{ID: fact, Text: fact})
			require.NoError(t, err)
		}
		r, err := s.Search(t.Context(), "a mascot, a hedgehog", 5)
		require.NoError(t, err)
		require.Equal(t, "Our mascot is a hedgehog.", r.Hits[0].Ref.ID, "the control: words find a fact by its words")
		for _, l := range lines {
			fact, question, _ := strings.Cut(l, "\t")
			r, err := s.Search(t.Context(), question, 5)
			require.NoError(t, err)
			require.NotRegexp(t, "by meaning|by words alone", r.Degraded) // words may be read as others
			for i, h := range r.Hits {
				if h.Ref.ID == fact {
					five++
					if i == 0 {
						first++
					}
				}
			}
		}
		return first / 200, five / 200
	}
	wordsFirst, words := found(nil)
	first, five := found(static.Small())
	t.Logf("found first, and among five: by words %.3f, %.3f; with the small model %.3f, %.3f", wordsFirst, words, first, five)
	require.GreaterOrEqual(t, first, wordsFirst+.1)
	require.GreaterOrEqual(t, five, words+.1)
}

// TestSmall: the model in the program is whole, names itself by its content, and puts what means the same near to each other.
func TestSmall(t *testing.T) {
	m := static.Small()
	require.Same(t, m, static.Small())
	require.Regexp(t, `^small-128@[0-9a-f]{16}$`, m.Model())
	v, err := m.Embed(context.Background(), []string{"Allergic to peanuts", "food intolerance", "The train leaves at nine", "", "日本"})
	require.NoError(t, err)
	near := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	require.InDelta(t, 1, near(v[0], v[0]), 1e-5)
	require.Greater(t, near(v[0], v[1]), near(v[0], v[2])+.2)
	for _, unknown := range v[3:] {
		require.Equal(t, make([]float32, 128), unknown)
	}
}
