package lexical

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/kljensen/snowball/english"
)

// maxStems is how many words a cache holds, wayStems how many places a word has
// in it; powers of two.
const (
	maxStems = 1 << 16
	wayStems = 4
)

// stemCache remembers the stem of lower-case English words: stemming is nine tenths of the time of
// an analysis without it. A word is in the first of its places that was free. If none is free, it
// replaces the word in the first. No lock is needed: an entry never changes, it is only replaced.
type stemCache [maxStems]atomic.Pointer[stemmed]

// stems serves all analyzers of the process: a word has one stem, and a table of
// its own would cost each database that is opened half a megabyte.
var stems stemCache

// Stem returns the stem of a word of letters a–z, also of a stop word. It shares its cache with the
// analyzers, so a text that other rules read too is stemmed once. It is safe for concurrent use.
func Stem(word []byte) string {
	switch {
	case len(word) > maxTerm:
		return english.Stem(string(word), true)
	case len(word) > keyLetters:
		return stems.long(word).term()
	}
	key := keyOf(word)
	first := placeOf(key)
	if s := stems[first].Load(); s != nil && s.is(key) {
		return s.term()
	}
	return stems.short(key, first).term()
}

// The key of a word of at most keyLetters letters is the word itself, letterBits a letter, so that
// words are told apart without a look at their text, which lies elsewhere in memory. Longer words
// have the key 0.
const (
	keyLetters = 12
	letterBits = 5
)

// keyOf is the key of a word of at most keyLetters letters.
func keyOf(word []byte) (key uint64) {
	for _, c := range word {
		key = key<<letterBits | uint64(c-'a'+1)
	}
	return key
}

// stemmed is a word and its stem. It is as small as it can be, because there are many, and whoever
// asks for one waits for memory: half a line of a cache.
type stemmed struct {
	key  uint64 // of the word, with stopWord or longWord
	text string // the stem; of a long word the word before it
	hash uint32 // of the stem
	id   uint32 // no other one of this process has it; 0: they have run out
}

// Of a key that has its word in it, keyLetters*letterBits bits are used.
const (
	stopWord = 1 << 63 // the word says nothing about what a text is about
	longWord = 1 << 62 // the rest is how many bytes of text are the word
)

// term is the stem.
func (s *stemmed) term() string {
	if s.key&longWord != 0 {
		return s.text[s.key&^(longWord|stopWord):]
	}
	return s.text
}

// is reports whether this is the word with a key.
func (s *stemmed) is(key uint64) bool { return s.key&^stopWord == key }

// isLong is is for a word without a key.
func (s *stemmed) isLong(word []byte) bool {
	return s.is(longWord|uint64(len(word))) && s.text[:len(word)] == string(word)
}

// waiting are the keys of words whose stems were not asked for yet. The table is larger than a
// cache of the processor: of words looked up one by one each waits for memory, of these all wait at
// once.
type waiting struct {
	keys [lookups]uint64
	n    int
	text []byte // the words without a key, one behind the other
	ends []int  // where each of them ends
}

const lookups = 32

// add takes a word of a–z; it is not empty.
func (w *waiting) add(word []byte) {
	if len(word) > keyLetters {
		w.text = append(w.text, word...)
		w.ends = append(w.ends, len(w.text))
		w.key(0)
	} else {
		w.key(keyOf(word))
	}
}

// key takes the key of a word.
func (w *waiting) key(key uint64) {
	w.keys[w.n] = key
	w.n++
}

// stems puts the stems of the words into out, and forgets them.
func (w *waiting) stems(c *stemCache, out *[lookups]*stemmed) []*stemmed {
	var first [lookups]uint32
	for i, key := range w.keys[:w.n] {
		first[i] = placeOf(key)
		out[i] = c[first[i]].Load()
	}
	at, long := 0, w.ends
	for i, key := range w.keys[:w.n] {
		switch {
		case key == 0:
			out[i] = c.long(w.text[at:long[0]])
			at, long = long[0], long[1:]
		case out[i] == nil || !out[i].is(key):
			out[i] = c.short(key, first[i])
		}
	}
	found := out[:w.n]
	w.text, w.ends, w.n = w.text[:0], w.ends[:0], 0
	return found
}

// keySeed differs in each process, like hashSeed, so nobody can choose words that share their
// places. Answers do not depend on it.
var keySeed = [2]uint64{maphash.String(hashSeed, "add"), maphash.String(hashSeed, "multiply") | 1}

// placeOf is the first place of a word with a key.
func placeOf(key uint64) uint32 {
	high, low := bits.Mul64(key^keySeed[0], keySeed[1])
	return uint32(high^low) % maxStems
}

// short returns the stem of a word that has a key.
func (c *stemCache) short(key uint64, first uint32) *stemmed {
	return c.stem(first, func(s *stemmed) bool { return s.is(key) }, func() string {
		var word [keyLetters]byte
		at := keyLetters
		for ; key > 0; key >>= letterBits {
			at--
			word[at] = byte(key&(1<<letterBits-1)) + 'a' - 1
		}
		return string(word[at:])
	})
}

// long returns the stem of a word that is too long for a key.
func (c *stemCache) long(word []byte) *stemmed {
	return c.stem(uint32(maphash.Bytes(hashSeed, word)%maxStems), func(s *stemmed) bool { return s.isLong(word) }, func() string { return string(word) })
}

// stem returns the stem of a word of a–z whose first place is known. It is in one of its places, or
// the word is stemmed.
func (c *stemCache) stem(first uint32, is func(*stemmed) bool, word func() string) *stemmed {
	place := &c[first]
	for i := range uint32(wayStems) {
		p := &c[first^i]
		s := p.Load()
		if s == nil {
			place = p
			break
		}
		if is(s) {
			return s
		}
	}
	s := newStemmed(word())
	place.Store(s)
	return s
}

// newStemmed stems a word.
func newStemmed(word string) *stemmed {
	stem := english.Stem(word, true)
	s := &stemmed{text: stem, hash: hash(stem), id: newStemID()}
	if len(word) <= keyLetters {
		s.key = keyOf([]byte(word))
	} else {
		s.key, s.text = longWord|uint64(len(word)), word+stem
	}
	if isStopWord(word) {
		s.key |= stopWord
	}
	return s
}

// stemIDs is the id that was given last.
var stemIDs atomic.Uint32

// newStemID returns an id that no other stem has had. There are enough for years of texts whose words
// are all new; then there are no more.
func newStemID() uint32 {
	for {
		last := stemIDs.Load()
		if last == math.MaxUint32 {
			return 0
		}
		if stemIDs.CompareAndSwap(last, last+1) {
			return last + 1
		}
	}
}
