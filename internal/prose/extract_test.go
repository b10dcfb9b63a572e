package prose

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

var (
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/]+`)
	dataImage = regexp.MustCompile(`data:image/`)
)

// encoded says what [A-Za-z0-9+/]{256,}|data:image/ says; the count in it makes an expression slow, one of 256 states.
func encoded(text string) bool {
	long := func(run string) bool { return len(run) >= 256 }
	return slices.ContainsFunc(base64Run.FindAllString(text, -1), long) || dataImage.MatchString(text)
}

// The looks that stand before the expressions, or for one, never change what these say.
func looksAgree(t *testing.T, text string) {
	t.Helper()
	looked := append(strings.Split(text, "\n"), text, strings.TrimSpace(text))
	for _, l := range slices.Compact(looked) { // most texts are their only line
		same := func(want, got bool) {
			if got != want {
				t.Fatalf("expected %t, got %t: %q", want, got, l)
			}
		}
		same(logLine().MatchString(l), isLog(l))
		same(errorLine().MatchString(l), failed(l))
		same(diffLine().MatchString(l), isDiff(l))
		same(encoded(l), isEncoded(l))
		same(ack().MatchString(l), isAck(l))
	}
}

// pieces are what the expressions look for, whole and spoiled, in both cases,
// and with the letters beyond ASCII that fold to s and k.
var pieces = strings.Split("trace|debug|info|notice|warn|warning|error|fatal|[|]| |:|\n|\r\n|2026-11-20T12:00|12:00:01|1|٣|"+
	"panic|exception|traceback|TraceBac\u212A|fail|failed|failure|Error:|xException:|exit code 1|exit \u017Ftatus 2|exit  code|EXIT CODE 9|er|ror|_|é|\u00A0|"+
	"diff --git |diff --git|@@ -1 +1|@@ -12,3 +4|@@ -|--- a/|--- b/|data:image/|data:image|+|/|=|-|"+
	"ok|o\u212A|okay|yes|sure|\u017Fure|thanks|thank|thank you|great|got it|done|understood|perfect|nice|cool|alright|sounds good|\u017Founds good|"+
	"will do|you're welcome|,|.|!|\t|the|a|I|\xff|\u017F|\u212A|word", "|")

func TestLooksBeforeExpressions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched := map[bool]int{}
	for range 20_000 {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			p := pieces[r.IntN(len(pieces))]
			switch r.IntN(12) {
			case 0:
				p = strings.ToUpper(p)
			case 1:
				p = strings.Repeat("a+/Z9", 49+r.IntN(6)) + p
			}
			b.WriteString(p)
		}
		looksAgree(t, b.String())
		matched[Inspect(b.String()) != 0]++
	}
	require.Greater(t, matched[true], 2000)
	require.Greater(t, matched[false], 2000)
	for _, n := range []int{255, 256, 257, 511, 512, 1000} {
		for _, before := range []string{"", "-", "a-", strings.Repeat("b", 200) + " "} {
			looksAgree(t, before+strings.Repeat("x", n))
			looksAgree(t, before+strings.Repeat("x", n)+"-"+before)
		}
	}
}

func FuzzInspect(f *testing.F) {
	for _, p := range pieces {
		f.Add(p)
		f.Add("x " + p + " y")
		f.Add(strings.ToUpper(p) + "\n" + p)
	}
	f.Fuzz(func(t *testing.T, text string) {
		looksAgree(t, text)
		require.LessOrEqual(t, len([]rune(Title(text))), 80)
	})
}

// A title is the first 79 characters and a mark where there are more than 80.
func TestTitleIsCut(t *testing.T) {
	for n := 75; n < 90; n++ {
		for _, letter := range []string{"a", "ä", "語"} {
			text := strings.Repeat(letter, n)
			want := text
			if r := []rune(text); n > 80 {
				want = string(r[:79]) + "…"
			}
			require.Equal(t, want, Title("--\n"+text+"\nmore"))
		}
	}
}

// plainTitle is the rule for titles, which looks at the whole line.
func plainTitle(text string) string {
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(OneLine(l))
		if strings.IndexFunc(l, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) < 0 {
			continue
		}
		if r := []rune(l); len(r) > 80 {
			return string(r[:79]) + "…"
		}
		return l
	}
	return ""
}

func TestTitleAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	parts := []string{"word", "ä", "語", " ", "\t", "\r", "\u2028", "\u202e", "\u00a0", "\u0085", "\x00", "\x1b", "\xff", "\xff\xfe", "\n", "-", "\ufffd", "7", "🙂"}
	long := 0
	for range 20_000 {
		var b strings.Builder
		for range r.IntN(130) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		for range r.IntN(3) * 50 {
			b.WriteString(parts[r.IntN(6)])
		}
		require.Equal(t, plainTitle(b.String()), Title(b.String()), "%q", b.String())
		if strings.HasSuffix(Title(b.String()), "…") {
			long++
		}
	}
	require.Greater(t, long, 1000)
}

func TestInspect(t *testing.T) {
	logs := strings.Repeat("2026-11-20T12:00:00Z info started worker\n", 5)
	for text, want := range map[string]Traits{
		logs:                                     TraitLog,
		logs + "ERROR: disk full\n":              TraitLog | TraitError,
		"diff --git a/x b/x\n--- a/x\n+++ b/x":   TraitDiff,
		"see data:image/png;base64,AAAA":         TraitBinary,
		strings.Repeat("QUJD", 80):               TraitBinary,
		"Traceback (most recent call last):":     TraitError,
		"TypeError: x is undefined":              TraitError,
		"make: *** [all] Error 2\nexit status 2": TraitError,
		"Ok, thanks!":                            TraitAck,
		"Got it. Done.":                          TraitAck,
		"Ok, I will delete the table":            0,
		"There was an error in my reasoning":     0,
		"plain text":                             0,
		"":                                       0,
	} {
		require.Equal(t, want, Inspect(text), "%.60q", text)
	}
}

func TestTrimSaysWhatItDropped(t *testing.T) {
	text := "start\n12:00:01 info worker a came up\n12:00:02 info worker b came up\n12:00:03 error: disk full\nthe same again\nthe same again\nthe same again\n\n\nend"
	require.Equal(t, "start\n[2 lines dropped]\n12:00:03 error: disk full\nthe same again\n[2 lines dropped]\n\nend", Trim(text))
	require.Equal(t, "a\nb", Trim("a\nb"))
	require.Equal(t, "a\na", Trim("a\na"), "the notice would be longer")
}

func TestExtractKeepsFailuresWithinTheLimit(t *testing.T) {
	count := func(s string) int { return len(strings.Fields(s)) }
	text := "build of the project\none two three\nfour five six\nerror: no such file\nseven eight nine\nten"
	for limit := 1; limit < 40; limit++ {
		got := Extract(text, limit, count)
		require.LessOrEqual(t, count(got), limit)
		if limit >= 10 {
			require.Contains(t, got, "error: no such file")
			require.True(t, strings.HasPrefix(got, "build of the project"))
		}
	}
	require.Equal(t, text, Extract(text, 40, count))
	require.Equal(t, "build of", strings.TrimSpace(Extract(text, 2, count)))
	require.Equal(t, "", Extract("", 5, count))
}

func TestStubText(t *testing.T) {
	require.Equal(t, "[paged s:m-1#0@2 digest ab 40 tokens] Hello  there", StubText("s:m-1#0@2", "ab", 40, "\n--\n  Hello\u202e there\nmore"))
	require.Len(t, []rune(Title(strings.Repeat("ä", 100))), 80)
	require.Empty(t, Title("---\n"))
}

func TestLowerFollowsPython(t *testing.T) {
	for in, want := range map[string]string{
		"\u0130":       "i\u0307",
		"ΑΣ":           "ας",
		"ΣΑ":           "σα",
		"Σ":            "σ",
		"ΑΣ'":          "ας'", // the apostrophe is passed over
		"ΑΣ.Α":         "ασ.α",
		"ΑΣ\u0387Α":    "ασ\u0387α",
		"ΑΣ Β":         "ας β",
		"1Σ":           "1σ",
		"ẞ\u1E9E":      "ßß",
		"\xed\xa0\x80": "\xed\xa0\x80",
	} {
		require.Equal(t, want, Lower(in), "%q", in)
	}
}
