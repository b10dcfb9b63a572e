package lexical

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/kljensen/snowball/english"
)

// maxStems is how many words a cache holds, a power of two.
const maxStems = 1 << 15

// stemCache remembers the stem of lower-case English words: stemming is nine
// tenths of the time of an analysis without it. A word has two places; the one it
// finds taken moves to the other, so that of three words for two places the one
// that was longest there goes. It takes no lock: what stands in a place never changes.
type stemCache [maxStems]atomic.Pointer[stemmed]

type stemmed struct {
	word string
	term string // its stem, "" for a stop word
	hash uint32 // of term
}

// stem returns the stem of a word of a–z.
func (c *stemCache) stem(word []byte) *stemmed {
	at := maphash.Bytes(hashSeed, word) % maxStems
	first, second := &c[at], &c[at^1]
	old := first.Load()
	if old != nil && old.word == string(word) {
		return old
	}
	if s := second.Load(); s != nil && s.word == string(word) {
		return s
	}
	s := newStemmed(string(word))
	second.Store(old)
	first.Store(s)
	return s
}

func newStemmed(word string) *stemmed {
	s := &stemmed{word: word}
	if isStopWord(word) {
		return s
	}
	s.term = english.Stem(word, true)
	if n := len(s.term); n <= len(word) && word[:n] == s.term {
		s.term = word[:n] // one string for both
	}
	s.hash = hash(s.term)
	return s
}

// hashSeed: nobody can choose words that fall into one place of a table.
var hashSeed = maphash.MakeSeed()

func hash(s string) uint32 { return uint32(maphash.String(hashSeed, s)) }
