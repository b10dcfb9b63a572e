package lexical

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/kljensen/snowball/english"
)

// maxStems is how many words a cache holds, wayStems how many places a word has
// in it; powers of two.
const (
	maxStems = 1 << 16
	wayStems = 4
)

// stemCache remembers the stem of lower-case English words: stemming is nine tenths of the time of an analysis without it.
// A word is in the first of its places that was free. If none is free, it replaces the word in the first. No lock is
// needed: an entry never changes, it is only replaced.
type stemCache [maxStems]atomic.Pointer[stemmed]

// stems serves all analyzers of the process: a word has one stem, and a table of
// its own would cost each database that is opened half a megabyte.
var stems stemCache

// Stem returns the stem of a word of letters a–z, a stop word's too. It is remembered with those of the analyzers: text
// that is indexed and read by another rule as well is stemmed once.
func Stem(word []byte) string {
	if len(word) > maxTerm {
		return english.Stem(string(word), true)
	}
	first := maphash.Bytes(hashSeed, word) % maxStems
	if s := stems[first].Load(); s != nil && s.of(word) {
		return s.term()
	}
	return stems.stem(word, first).term()
}

// stemmed is a word and its stem. It is as small as it can be: there are many, and whoever asks for one waits for
// memory.
type stemmed struct {
	text       string // the word; the stem behind it, when it is not what the word begins with
	hash       uint32 // of the stem
	word, stem uint8  // bytes
	stop       bool   // the word says nothing about what a text is about
}

func (s *stemmed) term() string {
	if int(s.word) < len(s.text) {
		return s.text[s.word:]
	}
	return s.text[:s.stem]
}

// waiting are words of a–z whose stems were not asked for yet. The table is larger than a cache of the processor: of words
// looked up one by one each waits for memory, of these all wait at once.
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
		if word := w.text[at:end]; out[i] == nil || !out[i].of(word) {
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
		if s.of(word) {
			return s
		}
	}
	s := newStemmed(string(word))
	place.Store(s)
	return s
}

func (s *stemmed) of(word []byte) bool {
	return int(s.word) == len(word) && s.text[:len(word)] == string(word)
}

func newStemmed(word string) *stemmed {
	s := &stemmed{text: word, word: uint8(len(word)), stop: isStopWord(word)}
	stem := english.Stem(word, true)
	if s.stem = uint8(len(stem)); !strings.HasPrefix(word, stem) {
		s.text = word + stem
	}
	s.hash = hash(stem)
	return s
}
