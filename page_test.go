package ctxpage

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func countWords(s string) int { return len(strings.Fields(s)) }

// counters that a host may bring: exact words, the estimator, one that counts a whole above the sum of its parts, and
// one for which nothing ever fits.
var splitCounters = map[string]func(string) int{
	"words":     countWords,
	"estimate":  token.Default().Count,
	"growing":   func(s string) int { return int(math.Pow(float64(len(s)), 1.3)) },
	"insatiate": func(s string) int { return 1000 * min(len(s), 1) },
}

// splitTexts is split without the counts, which it checks.
func splitTexts(t require.TestingT, text string, max int, count func(string) int) []string {
	var out []string
	for _, p := range split(text, max, count) {
		require.Equal(t, count(p.text), p.tokens)
		out = append(out, p.text)
	}
	return out
}

func TestSplitJoinsBack(t *testing.T) {
	pieces := []string{
		"# Heading\n", "## Second\n\n", "A line of text.\n", "\n\n", "word ", "words and words ", "- item\n", strings.Repeat("x", 200), "ä🐌漢字",
		"\r\n", "\t", "######## no heading\n", "```\ncode\n```\n", "\n", " ", "\u2028", "a\u0301\u0301",
	}
	for name, count := range splitCounters {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 60).Draw(t, "pieces"), "")
				limit := rapid.IntRange(store.MinPageTokens, 60).Draw(t, "max")
				pages := splitTexts(t, text, limit, count)
				require.Equal(t, text, strings.Join(pages, ""))
				for _, p := range pages {
					require.True(t, utf8.ValidString(p), "%q cuts a rune", p)
					require.True(t, p != "" || len(pages) == 1)
					if count(p) > limit && utf8.RuneCountInString(p) > 16 {
						t.Fatalf("a page of %d tokens, %d bytes: %q", count(p), len(p), p)
					}
				}
			})
		})
	}
}

// A page ends at the coarsest place that the limit allows.
func TestSplitPlaces(t *testing.T) {
	ten := strings.Repeat("w ", 9) + "w"
	for name, c := range map[string]struct{ pages []string }{
		"headings":         {[]string{"# a\n" + ten + "\n", "# b\n" + ten + "\n", "## c\n" + ten}},
		"paragraphs":       {[]string{ten + "\n\n", ten + "\n\n", ten}},
		"lines":            {[]string{ten + "\n", ten + "\n", ten}},
		"words":            {[]string{strings.Repeat("w ", 16), strings.Repeat("w ", 16), "w"}},
		"small ones share": {[]string{"# a\nb\n# c\nd\n# e\nf\n", "# g\n" + ten + "\n"}},
	} {
		require.Equal(t, c.pages, splitTexts(t, strings.Join(c.pages, ""), 16, countWords), name)
	}
	require.Equal(t, []string{""}, splitTexts(t, "", 16, countWords))
	require.Equal(t, []string{ten}, splitTexts(t, ten, 16, countWords))
	long := strings.Repeat("漢", 100)
	runes := splitTexts(t, long, 16, utf8.RuneCountInString)
	require.Equal(t, long, strings.Join(runes, ""))
	require.Greater(t, len(runes), 5)
}

// The work is linear in the text: a counter sees each byte a handful of times.
func TestSplitIsLinear(t *testing.T) {
	for name, text := range map[string]string{
		"prose": strings.Repeat("some words of a line\n", 20_000), "one line": strings.Repeat("word ", 80_000), "no place": strings.Repeat("x", 400_000),
		"headings": strings.Repeat("# h\nx\n\n", 50_000),
	} {
		seen := 0
		split(text, 64, func(s string) int { seen += len(s); return len(s) })
		require.LessOrEqual(t, seen, 12*len(text), name)
	}
}

func TestKindDefaults(t *testing.T) {
	for _, c := range []struct {
		a          Artefact
		kind       Kind
		provenance Provenance
		priority   Priority
	}{
		{Artefact{}, KindFact, Validated, PriorityHigh},
		{Artefact{Source: "file:/x"}, KindChunk, Chunk, PriorityMedium},
		{Artefact{Role: "user"}, KindMessage, Chunk, PriorityMedium},
		{Artefact{Role: "assistant"}, KindMessage, Scratch, PriorityMedium},
		{Artefact{Role: "tool", Source: "file:/x"}, KindMessage, Tool, PriorityMedium},
		{Artefact{Kind: KindSystem}, KindSystem, Chunk, PriorityCritical},
		{Artefact{Kind: KindTool}, KindTool, Tool, PriorityMedium},
		{Artefact{Kind: KindScratch}, KindScratch, Scratch, PriorityLow},
		{Artefact{Kind: KindSummary}, KindSummary, Validated, PriorityMedium},
		{Artefact{Kind: KindFact, Provenance: Tool, Priority: PriorityLow}, KindFact, Tool, PriorityLow},
	} {
		a := c.a
		a.KindDefaults()
		require.Equal(t, fmt.Sprint(c.kind, c.provenance, c.priority), fmt.Sprint(a.Kind, a.Provenance, a.Priority), "%+v", c.a)
	}
	for k := KindAuto; k <= KindSummary; k++ {
		text, err := k.MarshalText()
		require.NoError(t, err)
		var back Kind
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, k, back)
	}
	_, err := ParseKind("page")
	require.ErrorIs(t, err, ErrInvalid)
}

// One transaction may write so much and no more; what it replaces of its own is not counted twice.
func TestTransactionLimits(t *testing.T) {
	db, err := Open(t.TempDir()+"/agent.ctx", Options{})
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.Scope("acme").Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("x", 10)}))
	tx.bytes = MaxTxnBytes - 10
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("y", 20)}), "ten of it go")
	require.Equal(t, MaxTxnBytes, tx.bytes)
	require.ErrorIs(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}), ErrInvalid)
	require.NoError(t, tx.Delete(t.Context(), "x"))
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}))
	require.NoError(t, tx.Rollback())

	err = db.Scope("acme").Update(t.Context(), func(tx *Txn) error {
		for i := range MaxTxnWrites {
			require.NoError(t, tx.Put(t.Context(), Artefact{ID: fmt.Sprint(i), Text: "t"}))
		}
		require.NoError(t, tx.Put(t.Context(), Artefact{ID: "0", Text: "again"}), "the same artefact is no more")
		return tx.Put(t.Context(), Artefact{ID: "one more", Text: "t"})
	})
	require.ErrorIs(t, err, ErrInvalid)
}
