package bench

import (
	"cmp"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/store"
)

// Whether long pages should enter a context whole or as the extract that answers. Each question of TestKnownDocuments is
// given the pages that Assemble ranks for it, and a context is filled with them by score: whole, or those above some tokens
// as their extract. It tells how many contexts hold a page of the document that is asked for, and how many hold the passage
// that the question was taken from (of a manual page the first paragraph of its description): its first words, and half of
// its words.

// inContext is what one way of filling held.
type inContext struct{ document, begins, half int }

// packing is one way to fill a context: once less than a share of the budget is left, pages above some tokens are cut to
// their extract.
type packing struct {
	name  string
	above int
	left  float64
}

var packings = []packing{
	{"as Assemble fills it", 0, 0}, // not by fill
	{"whole pages", store.MaxPageTokens + 1, 0},
	{"all above 200 cut", 200, 1},
	{"those above 100 cut in the last half", 100, .5}, {"in the last quarter", 100, .25}, {"in the last eighth", 100, .125},
}

// TestKnownContexts takes minutes: CTXPAGE_LONG=1 runs it, KNOWN_MAN as in TestKnownDocuments.
func TestKnownContexts(t *testing.T) {
	questions, passages, texts, of := typeDocs(t)
	asked := dbtest.Times(10, 40, 300)
	got := contexts(t, "Go's types", questions[:asked], passages, texts, of)
	require.Greater(t, got[packings[1]][8192].document, asked*6/10)
	if dir := os.Getenv("KNOWN_MAN"); dir != "" {
		questions, texts := manPages(t, dir)
		var described, passages []string
		var of []int
		for i, text := range texts {
			if passage := description(text); len(strings.Fields(passage)) >= 12 {
				described, passages, of = append(described, questions[i]), append(passages, passage), append(of, i)
			}
		}
		contexts(t, "manual pages", described[:min(300, len(described))], passages, texts, of)
	}
}

// description is the first paragraph of what a manual page describes.
func description(text string) string {
	_, after, _ := strings.Cut(text, "# DESCRIPTION\n")
	paragraph, _, _ := strings.Cut(strings.TrimSpace(after), "\n\n")
	return paragraph
}

func contexts(t *testing.T, name string, questions, passages, texts []string, of []int) map[packing]map[int]*inContext {
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "known.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("docs")
	putDocuments(t, s, texts)
	out := map[packing]map[int]*inContext{}
	for _, p := range packings {
		out[p] = map[int]*inContext{2048: {}, 8192: {}}
	}
	analyzer := lexical.NewAnalyzer()
	for i, q := range questions {
		ranked, err := s.Assemble(context.Background(), ctxpage.Query{Text: q, Budget: 200_000, TopK: 300})
		require.NoError(t, err)
		blocks := slices.Clone(ranked.Blocks)
		slices.SortStableFunc(blocks, func(a, b ctxpage.Block) int { return cmp.Compare(b.Score, a.Score) })
		for _, p := range packings {
			for budget, in := range out[p] {
				filled := p.fill(blocks, q, analyzer, budget)
				if p == packings[0] {
					real, err := s.Assemble(context.Background(), ctxpage.Query{Text: q, Budget: budget})
					require.NoError(t, err)
					filled = real.Blocks
				}
				in.count(filled, strconv.Itoa(of[i]), passages[i], analyzer)
			}
		}
	}
	for _, p := range packings {
		for _, budget := range []int{2048, 8192} {
			in, n := out[p][budget], float64(len(questions))
			t.Logf("%s, %d tokens, %s: document %.3f, its first words %.3f, half of its words %.3f", name, budget, p.name, float64(in.document)/n, float64(in.begins)/n, float64(in.half)/n)
		}
	}
	return out
}

// fill takes blocks in their order while they fit.
func (p packing) fill(blocks []ctxpage.Block, question string, an *lexical.Analyzer, budget int) (taken []ctxpage.Block) {
	asked, left := prose.QuestionTerms(an, question), budget
	for _, b := range blocks {
		if b.Tokens > p.above && float64(left-b.Tokens) < p.left*float64(budget) {
			if ranges := prose.PartsOf(b.Text, an).Extract(asked, len(b.Text)); len(ranges) > 0 {
				text := prose.ShowParts(b.Text, ranges)
				b.Tokens = b.Tokens*len(text)/len(b.Text) + 1
				b.Text = text
			}
		}
		if b.Tokens <= left {
			left -= b.Tokens
			taken = append(taken, b)
		}
	}
	return taken
}

// count looks for a document and a passage of it.
func (in *inContext) count(blocks []ctxpage.Block, id, passage string, an *lexical.Analyzer) {
	var text strings.Builder
	for _, b := range blocks {
		if b.Ref.ID == id {
			text.WriteString(b.Text + "\n")
		}
	}
	if text.Len() == 0 {
		return
	}
	in.document++
	if strings.Contains(firstWords(text.String(), math.MaxInt), firstWords(passage, 6)) {
		in.begins++
	}
	has, held := map[string]bool{}, 0
	for _, c := range an.Analyze(text.String()).Terms {
		has[c.Term] = true
	}
	terms := an.Analyze(passage).Terms
	for _, c := range terms {
		if has[c.Term] {
			held++
		}
	}
	if 2*held >= len(terms) {
		in.half++
	}
}

func firstWords(s string, n int) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(n, len(words))], " ")
}
