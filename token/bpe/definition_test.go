package bpe

import (
	"encoding/base64"
	"fmt"
	"math/rand"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token"
)

// definition counts by what is published of an encoding and by nothing else: its expressions, its vocabulary, and that
// of the pairs with the least rank the leftmost is merged first.
type definition struct {
	split *regexp.Regexp
	ranks map[string]int
}

const (
	blank    = `\s\v\x{85}\p{Z}` // \s is ASCII in package regexp
	endings  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	capitals = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	smalls   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	others   = `|\p{N}{1,3}| ?[^` + blank + `\p{L}\p{N}]+`
	gaps     = `|[` + blank + `]*[\r\n]+|[` + blank + `]+`
)

var expressions = map[string]string{
	token.CL100k: endings + `|[^\r\n\p{L}\p{N}]?\p{L}+` + others + `[\r\n]*` + gaps,
	token.O200k: `[^\r\n\p{L}\p{N}]?` + capitals + `*` + smalls + `+` + endings +
		`?|[^\r\n\p{L}\p{N}]?` + capitals + `+` + smalls + `*` + endings + `?` + others + `[\r\n/]*` + gaps,
}

var definitions = map[string]func() definition{
	token.CL100k: sync.OnceValue(func() definition { return define(token.CL100k) }),
	token.O200k:  sync.OnceValue(func() definition { return define(token.O200k) }),
}

func define(name string) definition {
	d := definition{regexp.MustCompile(`^(?:` + expressions[name] + `)`), map[string]int{}}
	file, _ := assets.Assets.ReadFile(name + ".tiktoken")
	for rank, line := range strings.Split(strings.TrimSpace(string(file)), "\n") {
		code, _, _ := strings.Cut(line, " ")
		b, _ := base64.StdEncoding.DecodeString(code)
		d.ranks[string(b)] = rank // a line each, in order
	}
	return d
}

// count does by hand what package regexp cannot: \s+(?!\S) gives the last space back to what follows.
func (d definition) count(text string) (n int) {
	for _, piece := range d.pieces(text) {
		n += d.merged(piece)
	}
	return n
}

func (d definition) pieces(text string) (out []string) {
	for len(text) > 0 {
		piece := d.split.FindString(text)
		if _, last := utf8.DecodeLastRuneInString(piece); strings.TrimSpace(piece) == "" && !strings.ContainsAny(piece, "\r\n") && last < len(piece) && len(piece) < len(text) {
			piece = piece[:len(piece)-last]
		}
		out = append(out, piece)
		text = text[len(piece):]
	}
	return out
}

func (d definition) merged(piece string) int {
	if _, ok := d.ranks[piece]; ok {
		return 1
	}
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		at, least := -1, len(d.ranks)
		for i := range len(parts) - 1 {
			if r, ok := d.ranks[parts[i]+parts[i+1]]; ok && r < least {
				at, least = i, r
			}
		}
		if at < 0 {
			return len(parts)
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
}

func requireDefined(t *testing.T, text string) {
	t.Helper()
	for _, c := range []*counter{o200k, cl100k} {
		d := definitions[c.name]()
		rest := text
		for _, want := range d.pieces(text) {
			n := c.next(rest)
			if rest[:n] != want {
				t.Fatalf("%s: the piece at byte %d of %q is %q, want %q", c.name, len(text)-len(rest), text, rest[:n], want)
			}
			rest = rest[n:]
		}
		if got, want := c.Count(text), d.count(text); got != want {
			t.Fatalf("%s counts %d in %q, want %d", c.name, got, text, want)
		}
	}
}

// runes stand for what the expressions tell apart, several times where that makes a word of more than one.
var runes = []rune("aZbQ zé ÉǅΩщ漢字かカ한국ًक् \n\r\t\v\f  01239٣½.,;:<>/\"''''sTreVeLlmD{}=_-()[]…—“” 👩\u200d💻\u0301\u0336\u00a0\u0085\u2028\u200b\ufeff\ufffd\x00\x7fſʰ")

func TestCountIsTheDefinition(t *testing.T) {
	right := definitions[token.O200k]()
	wrong := definition{regexp.MustCompile(strings.Replace(right.split.String(), `\p{N}{1,3}`, `\p{N}{1,2}`, 1)), right.ranks}
	apart := 0
	r := rand.New(rand.NewSource(4))
	for range 3000 {
		text := make([]rune, r.Intn(40))
		for i := range text {
			text[i] = runes[r.Intn(len(runes))]
		}
		requireDefined(t, string(text))
		if wrong.count(string(text)) != right.count(string(text)) {
			apart++
		}
	}
	require.NotZero(t, apart, "another definition is told apart")
}

// Every character is of the kind that the expressions see in it: the first and the last of each run of one kind.
func TestKindsAreTheDefinition(t *testing.T) {
	kind := func(c rune) [6]bool {
		return [6]bool{unicode.IsLetter(c), unicode.IsNumber(c), unicode.IsMark(c), unicode.IsSpace(c), unicode.Is(unicode.Ll, c), unicode.In(c, unicode.Lu, unicode.Lt)}
	}
	edges := 0
	for c := rune(1); c < 0x40000; c++ {
		if kind(c) != kind(c-1) {
			edges++
			requireDefined(t, fmt.Sprintf("a%cB a%cB", c-1, c))
		}
	}
	require.Greater(t, edges, 3000)
}

func FuzzCount(f *testing.F) {
	for _, s := range []string{"Hello, World's END", "a\n  \n\tb  c", "日本語 text 12345", "x'LLy'S 'ſ", "</div>\n//\n", "e\u0301\u0302A\u0301", "👩‍💻🇩🇪", "\x7f", "a\n    \nb", "\u0301AB \u0301\u0302AB's"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { requireDefined(t, strings.ToValidUTF8(s, "")) })
}
