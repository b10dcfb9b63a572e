package prose

import (
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

const (
	// leastWords is how many words a text must have to repeat another: of shorter ones many are alike and none says much.
	leastWords = 8
	// mostExtra words may stand before and behind the rest, and no more than a quarter of it.
	mostExtra  = 12
	extraShare = 4

	gram     = 4 // words hashed together for a Sketch
	samples  = 4
	seedStep = 0x9e3779b97f4a7c15
)

// Sketch finds texts that may be alike: such two share a number in one place of it, nearly always (of 40 words behind a
// header of 12 all but one in a thousand; without a header always). The zero Sketch belongs to a text too short to
// repeat another.
type Sketch struct {
	parts [samples]uint64
	words int
	all   uint64 // of all words, in order
}

// SameText reports whether two texts say the same, as far as their sketches tell; else known is false, and the texts must be
// read. SketchOf texts with as many words the sketches always tell: pages made from one form are compared without reading them.
func (s *Sketch) Same(o *Sketch) (same, known bool) {
	if !near(min(s.words, o.words), max(s.words, o.words)) {
		return false, true
	}
	return s.all == o.all, s.words == o.words
}

// Key is the same of texts that say the same, but for one of a few behind a header; 0: the text is too short to repeat
// another.
func (s *Sketch) Key() uint64 { return s.parts[0] }

// near reports whether texts of so many words can be the same.
func near(short, long int) bool {
	extra := long - short
	return short >= leastWords && extra <= mostExtra && extra*extraShare <= short
}

// SketchOf makes the sketch of a text, the same in every process: whether two pages meet decides what is in a context, and a
// context is the same bytes wherever it is made.
func SketchOf(text string) (s Sketch) {
	w := wordHashes(text)
	if len(w) < leastWords {
		return s
	}
	s.words = len(w)
	for _, x := range w {
		s.all = mix(s.all ^ x)
	}
	for i := 0; i+gram <= len(w); i++ {
		h := uint64(0)
		for _, x := range w[i : i+gram] {
			h = mix(h ^ x)
		}
		for k := range s.parts {
			if v := mix(h + uint64(k)*seedStep); s.parts[k] == 0 || v < s.parts[k] {
				s.parts[k] = max(v, 1)
			}
		}
	}
	return s
}

// SameText reports whether two texts say the same. It reads both.
func SameText(a, b string) bool {
	short, long := wordHashes(a), wordHashes(b)
	if len(short) > len(long) {
		short, long = long, short
	}
	if !near(len(short), len(long)) {
		return false
	}
	extra := len(long) - len(short)
	for from := 0; from <= extra; from++ {
		if equal(short, long[from:from+len(short)]) {
			return true
		}
	}
	return false
}

func equal(a, b []uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// wordHashes returns the hashes of the words of a text, in lower case.
func wordHashes(text string) (out []uint64) {
	var word []byte
	for _, r := range text {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			word = utf8.AppendRune(word, unicode.ToLower(r))
		case len(word) > 0:
			out, word = append(out, xxhash.Sum64(word)), word[:0]
		}
	}
	if len(word) > 0 {
		out = append(out, xxhash.Sum64(word))
	}
	return out
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Seen finds, of texts that were added with their sketches, those that a text may repeat. Its memory is used again after
// Clear. The zero Seen is empty.
//
// The parts of sketches are hashes, so a table of its own needs no other hash: to ask a map was most of what the search for
// repetitions cost a context.
type Seen[T any] struct {
	table []newest // by the low bits of a part, then the next free one; a power of two, at most half full
	used  int
	round uint32 // entries of another round are free
	links []link[T]
}

type newest struct {
	part  uint64
	round uint32
	at    int32 // place in links
}

type link[T any] struct {
	of    T
	older int32 // place of the text before with the same part; -1: none
}

// mostCompared bounds what First compares: a thousand pages with one header would otherwise be compared each with each.
const mostCompared = 64

// leastTable is the length of the first table: some fifty texts.
const leastTable = 512

// Add adds a text.
func (s *Seen[T]) Add(sketch *Sketch, of T) {
	for _, part := range sketch.parts {
		if part == 0 {
			continue
		}
		if 2*(s.used+1) > len(s.table) {
			s.grow()
		}
		n, older := s.find(part), int32(-1)
		if n.round == s.round {
			older = n.at
		} else {
			s.used++
		}
		*n = newest{part, s.round, int32(len(s.links))}
		s.links = append(s.links, link[T]{of, older})
	}
}

// find is the entry of a part, or the free one that it would take. The table has free ones.
func (s *Seen[T]) find(part uint64) *newest {
	mask := uint64(len(s.table) - 1)
	for i := part & mask; ; i = (i + 1) & mask {
		if n := &s.table[i]; n.round != s.round || n.part == part {
			return n
		}
	}
}

// grow makes room for twice as many parts.
func (s *Seen[T]) grow() {
	was, round := s.table, s.round
	s.table, s.round = make([]newest, max(2*len(was), leastTable)), 1
	for _, n := range was {
		if n.round == round {
			n.round = s.round
			*s.find(n.part) = n
		}
	}
}

// First returns the text that was added first of those that meet the sketch and are the same by the caller's measure. It
// compares the newest mostCompared texts that meet it.
func (s *Seen[T]) First(sketch *Sketch, same func(T) bool) (of T, found bool) {
	if len(s.links) == 0 {
		return of, false
	}
	first, left := int32(len(s.links)), mostCompared
	for _, part := range sketch.parts {
		if part == 0 {
			continue
		}
		n := s.find(part)
		if n.round != s.round {
			continue
		}
		for at := n.at; at >= 0 && left > 0; at = s.links[at].older {
			if at >= first {
				continue
			}
			left--
			if same(s.links[at].of) {
				first = at
			}
		}
	}
	if found = int(first) < len(s.links); found {
		of = s.links[first].of
	}
	return of, found
}

// keptTable is the longest table that is kept: of more pages than a context considers as a rule.
const keptTable = 1 << 14

// Clear forgets all texts and keeps the memory.
func (s *Seen[T]) Clear() {
	clear(s.links)
	s.links, s.used = s.links[:0], 0
	if s.round++; s.round == 0 || len(s.table) > keptTable {
		s.table, s.round = nil, 1
	}
}
