// Package bpe counts tokens exactly for the encodings whose vocabulary is public. The vocabularies are compiled in, so
// it works offline and adds some megabytes to a program; that is why it is apart from package token.
package bpe

import (
	"sync"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/token"
)

// Each encoding is built on first use, which takes tens of milliseconds, and never changes after.
var (
	o200k  = sync.OnceValue(func() token.Counter { return counter{token.O200k, nextO200k, load(token.O200k)} })
	cl100k = sync.OnceValue(func() token.Counter { return counter{token.CL100k, nextCL100k, load(token.CL100k)} })
)

// O200k counts as GPT-4o and later models do. Its name is "o200k_base".
func O200k() token.Counter { return o200k() }

// CL100k counts as GPT-4 and GPT-3.5 do. Its name is "cl100k_base".
func CL100k() token.Counter { return cl100k() }

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

// counter splits a text into pieces and counts the tokens of each: no token reaches beyond the end of a piece. It is
// only read, so one serves any number of goroutines.
type counter struct {
	name string
	next func(text string) int // the length of the first piece of a text that is not empty
	vocabulary
}

func (c counter) Name() string { return c.name }

func (c counter) Label() token.Label { return token.Exact }

// Count takes text as it is: markers of special tokens in it are ordinary text. A byte that is not UTF-8 counts as the
// replacement character, which is what JSON makes of it on its way to the model.
func (c counter) Count(text string) int {
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	var m merger
	n := 0
	for len(text) > 0 {
		end := c.next(text)
		n += m.count(c.vocabulary, text[:end])
		text = text[end:]
	}
	return n
}
