package nearest

import (
	"math"
	"math/bits"
	"slices"
)

// The scan looks at the signs of all vectors: how much of the question lies in dimensions where the signs differ. Each
// dimension of the question weighs 0 to heaviest, by its size, and a slot is as far as the weights of the signs in which it
// differs sum to.
//
// With wide instructions it reads the signs from lanes: blocks of 64 slots, in a block 64 bytes for each column of eight
// dimensions, a byte for each slot. So one instruction looks up what four dimensions of 32 slots add, in a table of the
// question. Processors without them count bits of the signs slot by slot; both sum the same integers.
//
// The scan keeps what is among the nearest so far. Their histogram tells the bound above which none can be among the
// nearest of all, so most blocks have none and cost a comparison. Where the bound begins is guessed from a sample: too high
// costs time, too low a second scan, and neither changes what is found.

const (
	// heaviest is the most that a dimension weighs. Eight of that are below 64, so bytes hold the sum of four columns.
	heaviest = 7
	// perMean is the weight of a number of the mean size (root of the mean square).
	perMean = 3
	// block is how many slots lie together in lanes.
	block = 64
	// sampled is how many blocks the first bound is guessed from.
	sampled = 64
)

// sketch is a question as the scan needs it.
type sketch struct {
	planes [3][]uint64 // bit 0, 1 and 2 of the weight of each dimension
	tables []byte      // for each four dimensions, what each of 16 signs adds
	most   int         // sum of all weights
}

// newSketch weighs the numbers of a question whose squares sum to square. signs has those above 0.
func newSketch(large []int16, signs []uint64, square int) (s sketch) {
	unit := perMean / math.Sqrt(float64(square)/float64(len(large)))
	words := len(signs)
	for i := range s.planes {
		s.planes[i] = make([]uint64, words)
	}
	s.tables = make([]byte, 16*16*words)
	for i, n := range large {
		weight := min(heaviest, int(math.RoundToEven(math.Abs(float64(n))*unit)))
		s.most += weight
		for b := range s.planes {
			s.planes[b][i/64] |= uint64(weight>>b&1) << (i % 64)
		}
		sign := int(signs[i/64] >> (i % 64) & 1)
		for x := range 16 {
			if x>>(i%4)&1 != sign {
				s.tables[16*(i/4)+x] += byte(weight)
			}
		}
	}
	return s
}

// limit is above what any slot is away.
func (s *sketch) limit() int { return min(s.most+1, furthest) }

// lay writes the signs of a slot into its lane.
func (s *Set) lay(at int, signs []uint64) {
	if !wide {
		return
	}
	columns := 8 * s.words
	if need := (at/block + 1) * block * columns; need > len(s.lanes) {
		s.lanes = append(s.lanes, make([]byte, need-len(s.lanes))...)
	}
	lane := s.lanes[at/block*block*columns+at%block:]
	for w, word := range signs {
		for c := range 8 {
			lane[(8*w+c)*block] = byte(word >> (8 * c))
		}
	}
}

// away tells how far slots are, from a multiple of block on, and has a bit of near for each that is at most bound away.
func (s *Set) away(q *Question, from, bound int, out []uint16, near []uint64) {
	if s.awayWide(q, from, bound, out, near) {
		return
	}
	clear(near)
	for i := range out {
		signs, n := s.signs[(from+i)*s.words:][:s.words], 0
		for w, x := range signs {
			x ^= q.signs[w]
			n += bits.OnesCount64(x&q.planes[0][w]) + 2*bits.OnesCount64(x&q.planes[1][w]) + 4*bits.OnesCount64(x&q.planes[2][w])
		}
		out[i] = uint16(min(n, furthest-1))
		if int(out[i]) <= bound {
			near[i/64] |= 1 << (i % 64)
		}
	}
}

// scan lists the visible slots that are at least from away, the nearest as many as left says and all that are as near as
// the last of them. It returns the distance above the last.
func (f *Finder) scan(sets []*Set, q *Question, total, from, left int, v *Visible) (to int) {
	bound, within := f.within(sets, q, from, left, f.guess(sets, q, total, from, left, v), v)
	if within < left && bound < q.limit()-1 { // a bad guess
		bound, _ = f.within(sets, q, from, left, q.limit()-1, v)
	}
	f.coarse = slices.DeleteFunc(f.coarse, func(p place) bool { return int(p.code) > bound })
	return bound + 1
}

// guess is a distance that as many as left are probably within, by a sample of the slots.
func (f *Finder) guess(sets []*Set, q *Question, total, from, left int, v *Visible) (bound int) {
	f.coarse = f.coarse[:0]
	f.seen = cleared(f.seen, q.limit())
	last := q.limit() - 1
	step := total / sampled / block * block
	if step <= 4*block {
		return last
	}
	for i, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		for at := 0; at < len(s.nums); at += step {
			counts := f.counts[:min(block, len(s.nums)-at)]
			s.away(q, at, last, counts, f.near[:1])
			f.listNear(s.nums[at:], counts, f.near[:1], place{set: int32(i), at: uint32(at)}, from, v)
		}
	}
	for want := 3*left/2*block/step + 16; bound < last && want > 0; bound++ {
		want -= int(f.seen[bound])
	}
	return bound
}

// within lists the visible slots between from and bound, but for those that cannot be among the nearest. It returns the
// distance of the last of the nearest, and how many are as near as that.
func (f *Finder) within(sets []*Set, q *Question, from, left, bound int, v *Visible) (last, within int) {
	f.coarse = f.coarse[:0]
	f.seen = cleared(f.seen, q.limit())
	for i, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		for at := 0; at < len(s.nums); at += part {
			counts := f.counts[:min(part, len(s.nums)-at)]
			near := f.near[:(len(counts)+63)/64]
			s.away(q, at, bound, counts, near)
			within += f.listNear(s.nums[at:], counts, near, place{set: int32(i), at: uint32(at)}, from, v)
			for within-int(f.seen[bound]) >= left {
				within -= int(f.seen[bound])
				bound--
			}
		}
	}
	return bound, within
}

// listNear lists the slots with a bit in near that may be found, and counts them.
func (f *Finder) listNear(nums []uint64, counts []uint16, near []uint64, first place, from int, v *Visible) (listed int) {
	for w, word := range near {
		for ; word != 0; word &= word - 1 {
			at := 64*w + bits.TrailingZeros64(word)
			if at >= len(counts) || int(counts[at]) < from || nums[at] == 0 || !v.may(nums[at]) {
				continue
			}
			f.coarse = append(f.coarse, place{first.set, first.at + uint32(at), counts[at]})
			f.seen[counts[at]]++
			listed++
		}
	}
	return listed
}

// cleared is a histogram of n zeros.
func cleared(h []int32, n int) []int32 {
	h = slices.Grow(h[:0], n)[:n]
	clear(h)
	return h
}
