// Package bpe counts tokens exactly for the encodings whose vocabulary is public. The vocabularies are compiled in, so
// it works offline and adds some megabytes to a program; that is why it is apart from package token.
package bpe

import (
	"sync"

	"github.com/tiktoken-go/tokenizer"

	"github.com/ctxpage/ctxpage/token"
)

// Each encoding is built on first use, which takes tens of milliseconds, and never changes after.
var (
	o200k  = sync.OnceValue(func() token.Counter { return load(tokenizer.O200kBase) })
	cl100k = sync.OnceValue(func() token.Counter { return load(tokenizer.Cl100kBase) })
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

// load builds a counter. Both encodings are part of the tokenizer, so the error cannot occur; a counter without a codec
// still errs high.
func load(e tokenizer.Encoding) token.Counter {
	codec, err := tokenizer.Get(e)
	if err != nil {
		return counter{name: string(e)}
	}
	return counter{string(e), codec}
}

// counter wraps a codec. Counting only reads the codec, so one serves any number of goroutines.
type counter struct {
	name  string
	codec tokenizer.Codec
}

func (c counter) Name() string { return c.name }

func (c counter) Label() token.Label { return token.Exact }

// Count takes text as it is: markers of special tokens in it are ordinary text. Should the tokenizer fail, the number
// of bytes is an upper bound, since no token is shorter than one.
func (c counter) Count(text string) int {
	if c.codec == nil {
		return len(text)
	}
	n, err := c.codec.Count(text)
	if err != nil {
		return len(text)
	}
	return n
}
