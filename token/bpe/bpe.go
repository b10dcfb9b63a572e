// Package bpe counts tokens exactly for the encodings whose vocabulary is public. The vocabularies are compiled in, so
// it works offline and adds 1.5 MB to a program; that is why it is apart from package token.
package bpe

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/token"
)

// A vocabulary is unpacked at the first count, which takes tens of milliseconds, and never changes afterwards.
var (
	o200k  = &counter{token.O200k, token.NextPiece(token.O200k), sync.OnceValue(func() vocabulary { return load(packedO200k) })}
	cl100k = &counter{token.CL100k, token.NextPiece(token.CL100k), sync.OnceValue(func() vocabulary { return load(packedCL100k) })}
)

// O200k counts as GPT-4o and later models do. Its name is "o200k_base".
func O200k() token.Counter { return o200k }

// CL100k counts as GPT-4 and GPT-3.5 do. Its name is "cl100k_base".
func CL100k() token.Counter { return cl100k }

// Find returns the counter of an encoding by name; its form fits token.Profile.Counter.
func Find(encoding string) (token.Counter, bool) {
	switch encoding {
	case token.O200k:
		return O200k(), true
	case token.CL100k:
		return CL100k(), true
	}
	return nil, false
}

// Named returns the counter of a name: "o200k_base" or "cl100k_base"; a model, or a family of models, of token.Builtin, such
// as "gpt-4", "claude" or "gemini"; the name of token.Default or token.Estimate; or one of these with a percentage, as token.Raise and
// token.Calibration name theirs ("o200k_base*125%"). The error of any other name lists what is expected.
func Named(name string) (token.Counter, error) {
	base, percent := name, 100
	if at := strings.LastIndexByte(name, '*'); at >= 0 {
		digits, ok := strings.CutSuffix(name[at+1:], "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > maxPercent {
			return nil, fmt.Errorf("token counter %.40q: expected a percentage of 1%% to %d%% behind *, as in o200k_base*125%%", name, maxPercent)
		}
		base, percent = name[:at], n
	}
	if c, ok := Find(base); ok {
		return token.Raise(c, percent), nil
	}
	for _, c := range []token.Counter{token.Default(), token.Estimate(token.CL100k)} {
		if base == c.Name() {
			return token.Raise(c, percent), nil
		}
	}
	if p, ok := token.Builtin().Find(base); ok {
		return token.Raise(p.Counter(Find), percent), nil
	}
	return nil, fmt.Errorf("token counter %.40q is not known; expected %s, %s, %s, %s, or a model such as gpt-4, claude or gemini", name, token.O200k, token.CL100k, token.Default().Name(), token.Estimate(token.CL100k).Name())
}

// maxPercent is the highest percentage of a name.
const maxPercent = 1000

// counter splits a text into pieces and counts the tokens of each: no token reaches beyond the end of a piece. It is
// only read, so one serves any number of goroutines.
type counter struct {
	name string
	next func(text string) int // the length of the first piece of a text that is not empty
	load func() vocabulary
}

func (c *counter) Name() string { return c.name }

func (c *counter) Label() token.Label { return token.Exact }

// Count takes text as it is: markers of special tokens in it are ordinary text. A byte that is not UTF-8 counts as the
// replacement character, as JSON encodes it on its way to the model.
func (c *counter) Count(text string) int {
	n, _ := c.Part(text)
	return n
}

// Part and Total count a text in parts that no piece joins.
func (c *counter) Part(text string) (sum, cut int) {
	if text == "" {
		return 0, 0
	}
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	var m merger
	v := c.load()
	for len(text) > 0 {
		end := c.next(text)
		sum += m.count(v, text[:end])
		text = text[end:]
	}
	return sum, 0
}

func (c *counter) Total(sum, _ int) int { return sum }
