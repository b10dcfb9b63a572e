package lexical

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/kljensen/snowball/english"
)

// maxStems is how many words a cache holds, wayStems how many places a word has
// in it; powers of two.
const (
	maxStems = 1 << 16
	wayStems = 4
)

// stemCache remembers the stem of lower-case English words: stemming is nine
// tenths of the time of an analysis without it. A word stands in the first of its
// places that was free; when none is, it takes the first from whoever is there.
// There is no lock: what stands in a place never changes.
type stemCache [maxStems]atomic.Pointer[stemmed]

// stems serves all analyzers of the process: a word has one stem, and a table of
// its own would cost each database that is opened half a megabyte.
var stems stemCache

type stemmed struct {
	word string
	term string // its stem, "" for a stop word
	hash uint32 // of term
}

// stem returns the stem of a word of a–z.
func (c *stemCache) stem(word []byte) *stemmed {
	first := maphash.Bytes(hashSeed, word) % maxStems
	place := &c[first]
	for i := range uint64(wayStems) {
		p := &c[first^i]
		s := p.Load()
		if s == nil {
			place = p
			break
		}
		if s.word == string(word) {
			return s
		}
	}
	s := newStemmed(string(word))
	place.Store(s)
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
