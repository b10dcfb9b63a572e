package token_test

import (
	"encoding/json"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
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

func TestEstimateAgainstO200k(t *testing.T) {
	exact := bpe.O200k()
	for name, text := range corpora(t) {
		ratio := float64(token.Default().Count(text)) / float64(exact.Count(text))
		t.Logf("%-22s %.3f", name, ratio)
		require.GreaterOrEqual(t, ratio, 0.95, name)
		if strings.HasPrefix(name, "prose") {
			require.LessOrEqual(t, ratio, 1.25, name)
		}
	}
}

// The bound above means something only if a plain rule of thumb breaks it.
func TestFourCharactersPerTokenBreaksTheBound(t *testing.T) {
	broken := 0
	for _, text := range corpora(t) {
		if float64(len([]rune(text)))/4 < 0.95*float64(bpe.O200k().Count(text)) {
			broken++
		}
	}
	require.GreaterOrEqual(t, broken, 5)
}

func TestEstimatePiecesOfProse(t *testing.T) {
	for name, text := range corpora(t) {
		if !strings.HasPrefix(name, "prose") {
			continue
		}
		for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
			ratio := float64(token.Default().Count(p)) / float64(bpe.O200k().Count(p))
			require.InDelta(t, 1.12, ratio, 0.15, "%s: %.60s", name, p)
		}
	}
}

func TestEstimateProperties(t *testing.T) {
	c := token.Default()
	require.Zero(t, c.Count(""))
	require.Equal(t, "est/1", c.Name())
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
	require.Equal(t, "est/1", token.Default().Name())
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
		"ascii": 410994, "mixed": 226632, "broken": 137745, "prose-english.txt": 396, "prose-german.txt": 282, "code-go.txt": 376,
		"data.json": 453, "cjk-chinese.txt": 242, "cjk-korean.txt": 131, "other-thai.txt": 153, "digits.txt": 265,
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
	c.Observe("m", "est/2", 1000, 1000)
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
	require.Equal(t, "est/1*135%", claude.Counter(nil).Name())
	require.Equal(t, "est/1*140%", token.Unknown("x").Counter(nil).Name())
	require.Equal(t, "est/1", gpt.Counter(nil).Name())
}

func BenchmarkEstimate(b *testing.B) {
	text := corpora(b)["prose-english.txt"]
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		token.Default().Count(text)
	}
}
