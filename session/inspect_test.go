package session

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

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
		l = strings.TrimSpace(oneLine(l))
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

func BenchmarkInspect(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields(`the session fetches each file again when it was changed and then tells what became of them for the others to
		see so that nobody waits in vain while another worker is still writing into it`)
	var text strings.Builder
	for i := range 200 {
		text.WriteString(words[r.IntN(len(words))])
		text.WriteByte(" \n"[min(i%12/11, 1)])
	}
	for b.Loop() {
		Inspect(text.String())
	}
}
