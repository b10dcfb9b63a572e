package prose

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
