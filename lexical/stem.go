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

// waiting are words of a–z whose stems nobody has asked for yet. The table is larger than a cache of the processor: of
// words looked up one by one each waits for memory, of these all wait at once.
type waiting struct {
	text []byte // the words, one behind the other
	ends [lookups]int
	n    int
}

const lookups = 32

func (w *waiting) add(word []byte) {
	w.text = append(w.text, word...)
	w.ends[w.n] = len(w.text)
	w.n++
}

// stems puts the stems of the words into out, and forgets them.
func (w *waiting) stems(c *stemCache, out *[lookups]*stemmed) []*stemmed {
	var first [lookups]uint64
	at := 0
	for i, end := range w.ends[:w.n] {
		first[i] = maphash.Bytes(hashSeed, w.text[at:end]) % maxStems
		out[i] = c[first[i]].Load()
		at = end
	}
	at = 0
	for i, end := range w.ends[:w.n] {
		if word := w.text[at:end]; out[i] == nil || out[i].word != string(word) {
			out[i] = c.stem(word, first[i])
		}
		at = end
	}
	found := out[:w.n]
	w.text, w.n = w.text[:0], 0
	return found
}

// stem returns the stem of a word of a–z whose first place is known.
func (c *stemCache) stem(word []byte, first uint64) *stemmed {
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
