package alike

// Seen finds, of texts that were added with their sketches, those that a text may repeat. Its memory is used again after
// Clear. The zero Seen is empty.
type Seen[T any] struct {
	newest map[uint64]int32 // part of a sketch → place in links
	links  []link[T]
}

type link[T any] struct {
	of    T
	older int32 // place of the text before with the same part; -1: none
}

// mostCompared bounds what First compares: a thousand pages with one header would otherwise be compared each with each.
const mostCompared = 64

// Add adds a text.
func (s *Seen[T]) Add(sketch *Sketch, of T) {
	if s.newest == nil {
		s.newest = map[uint64]int32{}
	}
	for _, part := range sketch.parts {
		if part == 0 {
			continue
		}
		older, ok := s.newest[part]
		if !ok {
			older = -1
		}
		s.newest[part] = int32(len(s.links))
		s.links = append(s.links, link[T]{of, older})
	}
}

// First gives, of the texts that meet the sketch and are the same by the caller's measure, the one that was added first. It
// compares the newest mostCompared of those that meet.
func (s *Seen[T]) First(sketch *Sketch, same func(T) bool) (of T, found bool) {
	first, left := int32(len(s.links)), mostCompared
	for _, part := range sketch.parts {
		at, ok := s.newest[part]
		for ; ok && part != 0 && at >= 0 && left > 0; at = s.links[at].older {
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

// Clear forgets all texts and keeps the memory.
func (s *Seen[T]) Clear() {
	clear(s.newest)
	clear(s.links)
	s.links = s.links[:0]
}
