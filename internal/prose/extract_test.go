package prose

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/internal/lexical"
)

func sentencesOf(text string) []string {
	var out []string
	for _, r := range sentenceRanges(text) {
		out = append(out, text[r[0]:r[1]])
	}
	return out
}

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string // joined they are the text
	}{
		{"plain", []string{"One here. ", "Two there! ", "Three? ", "And four…"}},
		{"abbreviation", []string{"Ask Dr. Lund, e.g. by mail. ", "She answers."}},
		{"initials", []string{"Signed J. R. Smith of the U.S. branch. ", "Done."}},
		{"lower case after a dot", []string{"See sec. two of no. 3 etc. and so on. ", "Next."}},
		{"a sentence may end in etc", []string{"Bring pens etc. ", "Then wait."}},
		{"numbers", []string{"It costs 3.50 and v1.2 is out. ", "Pay."}},
		{"quotes", []string{`He said "stop." `, "(It was late.) ", "They stopped."}},
		{"list", []string{"Steps:\n", "1. Find it.\n", "2. Check it. ", "Twice.\n", "- Then go\n"}},
		{"code", []string{"Run this:\n", "```\n", "a.b(); c.d. E\n", "```\n", "    x. Y\n", "Good."}},
		{"blank lines", []string{"A line\n\n\n", "another\n"}},
		{"leading blank", []string{"\n  \nA line\n", "b"}},
		{"no end", []string{"words without an end"}},
		{"other scripts", []string{"Ärger mit Öl. ", "Über Nacht gelöst."}},
	} {
		require.Equal(t, c.want, sentencesOf(strings.Join(c.want, "")), c.name)
	}
	require.Empty(t, sentencesOf(""))
	for _, s := range sentencesOf(strings.Repeat("word and more, ", 200)) {
		require.LessOrEqual(t, len(s), cutUnit)
	}
}

const policyText = "# Refunds\n\nThis page tells how refunds are made at the desk. " +
	"Mr. Lund wrote it in May. The coffee machine is on the second floor. " +
	"A refund goes back to the card that was charged. The refund limit for agents is $400 per case. " +
	"Above the limit a manager decides about the refund. Lunch is at noon. " +
	"Please water the plants on Fridays. Refunds are booked the same day. Parking is free on Sundays. " +
	"The printer needs paper of the heavier kind.\n"

func TestExtract(t *testing.T) {
	an := lexical.NewAnalyzer()
	cut := ShowParts(policyText, extract(policyText, an, "what is the refund limit?"))
	require.Contains(t, cut, "The refund limit for agents is $400 per case.")
	require.NotContains(t, cut, "coffee")
	require.NotContains(t, cut, "Lunch")
	require.Contains(t, cut, "[…]")

	other := ShowParts(policyText, extract(policyText, an, "when do I water plants?"))
	require.Contains(t, other, "plants")

	plain := ShowParts(policyText, extract(policyText, an, ""))
	require.Contains(t, plain, "refund", "without a question the centre of the text is kept")
	require.NotContains(t, plain, "Parking")

	require.Nil(t, extract("Short. Text.", an, "text"))
	long := "The same thing is said about the parcel. " + strings.Repeat("The same thing is said about the parcel! ", 40) + "The gate opens at nine."
	require.Contains(t, ShowParts(long, extract(long, an, "")), "gate", "what only repeats is not taken twice")
}

// Cuts are ranges in order, on sentence borders, of at most a third of the text unless one sentence is more; and the
// same every time.
func TestExtractProperty(t *testing.T) {
	an := lexical.NewAnalyzer()
	piece := rapid.SampledFrom([]string{"the refund ", "limit is ", "$400. ", "Dr. ", "e.g. ", "\n", "\n\n", "- item ", "3. ", "```\n", "    code()\n", "Käse? ", "“Hm.” ", "end! ", "\t", "x", "日本。", "\xff", "etc. "})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 300).Draw(t, "text"), "")
		sentences := sentenceRanges(text)
		at, longest := uint32(0), 0
		for _, r := range sentences {
			require.Equal(t, at, r[0])
			require.Greater(t, r[1], r[0])
			at, longest = r[1], max(longest, int(r[1]-r[0]))
		}
		require.Equal(t, len(text), int(at), "sentences joined are the text")
		cuts := extract(text, an, "refund limit")
		require.Equal(t, cuts, extract(text, an, "refund limit"))
		require.True(t, InRanges(cuts, len(text)))
		n := 0
		for _, r := range cuts {
			n += int(r[1] - r[0])
		}
		require.LessOrEqual(t, n, max(len(text)/CutShare, longest))
	})
}

func FuzzSentences(f *testing.F) {
	f.Add(policyText)
	f.Add("1. a\n```\nx. y\n")
	f.Fuzz(func(t *testing.T, text string) {
		require.Equal(t, text, strings.Join(sentencesOf(text), ""))
	})
}

// extract cuts a text down to the sentences that answer the question and those the rest of the text turns around.
// Ranges are half-open and in bytes; nil when the text is too short to be cut.
func extract(text string, an *lexical.Analyzer, question string) [][2]uint32 {
	return PartsOf(text, an).Extract(QuestionTerms(an, question), len(text))
}
