package token_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// corpora are texts of each class. Two are made here, since random text does not read well in a file.
func corpora(t testing.TB) map[string]string {
	files, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	texts := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		texts[filepath.Base(f)] = string(b)
	}
	delete(texts, "languages.txt") // these are texts by themselves
	r := rand.New(rand.NewSource(7))
	texts["random ideographs"] = randomRunes(r, 0x4e00, 0x9fa5, 1500)
	texts["random syllables"] = randomRunes(r, 0xac00, 0xd7a3, 1500)
	texts["random digits"] = randomRunes(r, '0', '9', 3000)
	return texts
}

func randomRunes(r *rand.Rand, from, to, n int) string {
	var b strings.Builder
	for range n {
		b.WriteRune(rune(from + r.Intn(to-from+1)))
	}
	return b.String()
}

// languages are texts of about 300 characters in 70 languages and styles, by name.
func languages(t testing.TB) map[string]string {
	b, err := os.ReadFile("testdata/languages.txt")
	require.NoError(t, err)
	texts := map[string]string{}
	for _, p := range strings.Split(string(b), "== ")[1:] {
		name, text, _ := strings.Cut(p, "\n")
		texts[name] = strings.TrimSpace(text)
	}
	return texts
}

// estimates pairs each estimator with the encoding that it bounds.
func estimates() map[token.Counter]token.Counter {
	return map[token.Counter]token.Counter{token.Estimate(token.O200k): bpe.O200k(), token.Estimate(token.CL100k): bpe.CL100k()}
}

// The estimate of a text is never below the encoding, in any language and form, and not far above.
func TestEstimateIsAnUpperBound(t *testing.T) {
	texts := languages(t)
	require.GreaterOrEqual(t, len(texts), 70)
	for name, text := range corpora(t) {
		texts[name] = text
	}
	shift := func(from, to, by rune) func(rune) rune {
		return func(r rune) rune {
			if from <= r && r <= to {
				return r + by
			}
			return r
		}
	}
	forms := map[string]func(string) string{
		"as it is":    func(s string) string { return s },
		"decomposed":  norm.NFD.String,
		"capitals":    strings.ToUpper,
		"small":       strings.ToLower,
		"bold":        func(s string) string { return strings.Map(shift('a', 'z', 0x1d41a-'a'), s) },
		"full width":  func(s string) string { return strings.Map(shift('!', '~', 0xff01-'!'), s) },
		"snake case":  func(s string) string { return strings.ReplaceAll(s, " ", "_") },
		"a word each": func(s string) string { return strings.ReplaceAll(s, " ", "\n") },
		"JSON":        func(s string) string { return fmt.Sprintf("{%q:%q}", "text", s) },
		"escaped":     strconv.QuoteToASCII,
	}
	for estimate, exact := range estimates() {
		for form, f := range forms {
			sum, most, below := 0.0, 0.0, 0
			for name, text := range texts {
				got, want := estimate.Count(f(text)), exact.Count(f(text))
				ratio := float64(got) / float64(want)
				require.GreaterOrEqual(t, got, want, "%s of %s, %s: %.3f", estimate.Name(), name, form, ratio)
				sum, most = sum+ratio, max(most, ratio)
				if token.Raise(estimate, 85).Count(f(text)) < want {
					below++
				}
			}
			t.Logf("%-12s %-11s mean %.3f, at most %.3f", estimate.Name(), form, sum/float64(len(texts)), most)
			require.LessOrEqual(t, sum/float64(len(texts)), 1.3, form)
			require.Greater(t, below, len(texts)/10, "negative control: %s", form)
		}
		for _, name := range []string{"prose-english.txt", "prose-technical.txt", "code-go.txt", "data.json", "English, support"} {
			require.LessOrEqual(t, float64(estimate.Count(texts[name])), 1.1*float64(exact.Count(texts[name])), name)
		}
	}
}

// Nor is it below for any row of 64 characters of Unicode: in order, mixed up, alone, as words, after letters, or repeated.
func TestEstimateOverAllOfUnicode(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	assigned := []*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs, unicode.Co, unicode.Cf}
	for row := rune(' ') / 64 * 64; row <= unicode.MaxRune; row += 64 {
		var runes []rune
		for c := row; c < row+64; c++ {
			if unicode.IsOneOf(assigned, c) {
				runes = append(runes, c)
			}
		}
		if runes == nil || row >= 0x20000 && row%4096 != 0 { // of ideographs and private characters there are thousands
			continue
		}
		if dbtest.Race && row%1024 != 0 { // one goroutine counts
			continue
		}
		joined := func(before, after string) string {
			var b strings.Builder
			for _, c := range runes {
				b.WriteString(before + string(c) + after)
			}
			return b.String()
		}
		var words strings.Builder
		for range 40 {
			for range 1 + r.Intn(8) {
				words.WriteRune(runes[r.Intn(len(runes))])
			}
			words.WriteByte(' ')
		}
		mixed := slices.Clone(runes)
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		one := string(runes[r.Intn(len(runes))])
		for _, text := range []string{string(runes), string(mixed), words.String(), joined("", " "), joined("", "\n"), joined("a", ""), one, strings.Repeat(one, 50)} {
			for estimate, exact := range estimates() {
				if got, want := estimate.Count(text), exact.Count(text); got < want {
					t.Errorf("%s counts %d of %d in row %U: %.60q", estimate.Name(), got, want, row, text)
				}
			}
		}
	}
}

// The bound above means something only if a plain rule of thumb breaks it.
func TestFourCharactersPerTokenBreaksTheBound(t *testing.T) {
	broken := 0
	for _, text := range corpora(t) {
		if len([]rune(text))/4 < bpe.O200k().Count(text) {
			broken++
		}
	}
	require.GreaterOrEqual(t, broken, 5)
}

func TestEstimateProperties(t *testing.T) {
	c := token.Default()
	require.Zero(t, c.Count(""))
	require.Equal(t, "est/2", c.Name())
	require.Equal(t, token.Estimated, token.LabelOf(c))
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		n := c.Count(s)
		if s != "" && n <= 0 || n > 4*len(s)+1 || n != c.Count(s) {
			t.Fatalf("%q counts %d", s, n)
		}
	})
}

// Stored counts are valid while the counter has the same name, so one name never counts otherwise. The figures are those
// of the first program that counted by it.
func TestCountsOfOneName(t *testing.T) {
	require.Equal(t, "est/2", token.Default().Name())
	r := rand.New(rand.NewSource(3))
	runes := []rune("aZbQ zé ÉǅΩщ漢字かカ한국 \n\r\t  01239٣.,;:<>/\"'{}=_-()[]…—“” 👩\u200d💻\u0301\u00a0\u2028\ufffdſ")
	texts := corpora(t)
	sum := map[string]int{}
	for range 20_000 {
		ascii, mixed, broken := make([]byte, r.Intn(60)), make([]rune, r.Intn(25)), make([]byte, r.Intn(12))
		for i := range ascii {
			ascii[i] = byte(9 + r.Intn(119))
		}
		for i := range mixed {
			mixed[i] = runes[r.Intn(len(runes))]
		}
		r.Read(broken)
		sum["ascii"] += token.Default().Count(string(ascii))
		sum["mixed"] += token.Default().Count(string(mixed))
		sum["broken"] += token.Default().Count(string(broken))
	}
	for _, name := range []string{"prose-english.txt", "prose-german.txt", "code-go.txt", "data.json", "cjk-chinese.txt", "cjk-korean.txt", "other-thai.txt", "digits.txt"} {
		sum[name] = token.Default().Count(texts[name])
	}
	require.Equal(t, map[string]int{
		"ascii": 531325, "mixed": 241393, "broken": 104891, "prose-english.txt": 371, "prose-german.txt": 292, "code-go.txt": 328,
		"data.json": 421, "cjk-chinese.txt": 252, "cjk-korean.txt": 144, "other-thai.txt": 135, "digits.txt": 255,
	}, sum)
}

func FuzzEstimate(f *testing.F) {
	for _, s := range []string{"", "Hello, world", "a\xffb", "日本語 text 12", " \t\n\r\n x", "ǅǅ'ſ", "👩‍💻🇩🇪", "don't HTTPServer x1y2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n := token.Default().Count(s); (n == 0) != (s == "") || n > 4*len(s)+1 {
			t.Fatalf("%q counts %d", s, n)
		}
	})
}

type fixed struct{ n int }

func (fixed) Name() string       { return "fixed" }
func (f fixed) Count(string) int { return f.n }

func TestRaise(t *testing.T) {
	for _, c := range []struct{ n, percent, want int }{
		{100, 135, 135}, {101, 135, 137}, {0, 135, 0}, {7, 100, 7}, {7, 0, 7}, {7, -5, 7}, {math.MaxInt, 135, math.MaxInt}, {1, 80, 1},
	} {
		require.Equal(t, c.want, token.Raise(fixed{c.n}, c.percent).Count("x"), "%+v", c)
	}
	require.Equal(t, "fixed*135%", token.Raise(fixed{}, 135).Name())
	require.Equal(t, token.Estimated, token.LabelOf(token.Raise(bpe.O200k(), 135)))
	require.Equal(t, token.Estimated, token.LabelOf(fixed{}))
}

func TestCalibration(t *testing.T) {
	var c token.Calibration
	base := fixed{1000}
	require.Equal(t, base, c.Counter("m", base), "nothing observed")

	c.Observe("m", "fixed", 1000, 900)
	require.Equal(t, 1000, c.Counter("m", base).Count("x"), "one low observation must not lower")
	c.Observe("m", "fixed", 10, 500)
	c.Observe("m", "fixed", 1000, 0)
	c.Observe("m", "fixed", -3, 5)
	require.Equal(t, 1000, c.Counter("m", base).Count("x"), "numbers that teach nothing")

	for i := range 40 {
		c.Observe("m", "fixed", 1000, 1100+i)
	}
	m := c.Counter("m", base)
	require.Equal(t, 1150, m.Count("x"), "upper quantile, in steps of five percent")
	require.Equal(t, token.Calibrated, token.LabelOf(m))
	require.Equal(t, "fixed*115%", m.Name())
	require.Equal(t, base, c.Counter("other", base))

	for range 64 {
		c.Observe("m", "fixed", 1000, 100)
	}
	require.Equal(t, 800, c.Counter("m", base).Count("x"), "clamped below")
	for range 64 {
		c.Observe("m", "fixed", 1000, math.MaxInt)
	}
	require.Equal(t, 3000, c.Counter("m", base).Count("x"), "clamped above")
	c.Observe("m", "est/3", 1000, 1000)
	require.Equal(t, base, c.Counter("m", base), "another counter starts afresh")
}

func TestCalibrationIsStored(t *testing.T) {
	var a, b token.Calibration
	for i := range 100 {
		a.Observe("m", "fixed", 1000, 1200+i)
	}
	data, err := json.Marshal(&a)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &b))
	require.Equal(t, a.Counter("m", fixed{1000}), b.Counter("m", fixed{1000}))
	require.NoError(t, json.Unmarshal([]byte(`{"m":{"counter":"fixed","ratios":[-1,0,99999,150]},"n":null}`), &b))
	require.Equal(t, 1500, b.Counter("m", fixed{1000}).Count("x"))
	require.Error(t, json.Unmarshal([]byte(`{"m":3}`), &b))
}

// Calibrated by its own upper quantile, a counter stays above the truth nearly always.
func TestCalibrationCovers(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var c token.Calibration
	low := 0
	for i := range 2000 {
		estimated := 200 + r.Intn(5000)
		actual := int(float64(estimated) * (1.1 + 0.1*r.NormFloat64()))
		if i >= 100 && c.Counter("m", fixed{estimated}).Count("x") < actual {
			low++
		}
		c.Observe("m", "fixed", estimated, actual)
	}
	require.Less(t, low, 1900*8/100)
}

func TestProfiles(t *testing.T) {
	ps := token.Builtin()
	for model, want := range map[string]string{
		"gpt-4o-mini-2024-07-18":     "gpt-4o",
		"openai/gpt-4.1-nano":        "gpt-4.1",
		"GPT-4":                      "gpt-4",
		"gpt-4-0613":                 "gpt-4",
		"claude-sonnet-4-20250514":   "claude-sonnet-4",
		"anthropic/claude-3-5-haiku": "claude",
		"llama-3.1:70b":              "llama-3.1",
	} {
		p, ok := ps.Find(model)
		require.True(t, ok, model)
		require.Equal(t, want, p.Model, model)
		require.Positive(t, p.Output)
		require.LessOrEqual(t, p.Output, p.Window)
	}
	for _, model := range []string{"", "gpt", "o11", "mycorp/experiment"} {
		_, ok := ps.Find(model)
		require.False(t, ok, model)
	}
	ps = append(ps, token.Profile{Model: "gpt-4o", Window: 1, Output: 1})
	p, _ := ps.Find("gpt-4o")
	require.Equal(t, 1, p.Window, "the host's own entry wins")
	require.NotEqual(t, 1, token.Builtin()[2].Window)
}

func TestProfileCounter(t *testing.T) {
	gpt, _ := token.Builtin().Find("gpt-4")
	claude, _ := token.Builtin().Find("claude-opus-4")
	require.Equal(t, "cl100k_base", gpt.Counter(bpe.Find).Name())
	require.Equal(t, token.Exact, token.LabelOf(gpt.Counter(bpe.Find)))
	require.Equal(t, "o200k_base*135%", claude.Counter(bpe.Find).Name())
	require.Equal(t, "est/2*135%", claude.Counter(nil).Name())
	require.Equal(t, "est/2-cl100k", gpt.Counter(nil).Name())
}

var update = flag.Bool("update", false, "write the filters anew from the vocabularies")

// The filters are made from the published vocabularies.
func TestFiltersAreOfTheVocabularies(t *testing.T) {
	for _, name := range []string{token.O200k, token.CL100k} {
		vocabulary, err := assets.Assets.ReadFile(name + ".tiktoken")
		require.NoError(t, err)
		var tokens []string
		for line := range strings.Lines(string(vocabulary)) {
			code, _, _ := strings.Cut(line, " ")
			b, err := base64.StdEncoding.DecodeString(code)
			require.NoError(t, err)
			tokens = append(tokens, string(b))
		}
		slices.Sort(tokens)
		want := token.NewFilter(tokens)
		if *update {
			require.NoError(t, os.WriteFile(name+".filter", []byte(want), 0o644))
		}
		got, err := os.ReadFile(name + ".filter")
		require.NoError(t, err)
		require.True(t, want == string(got), "%s: write it with go test -run TestFilters ./token -update", name)
	}
}
