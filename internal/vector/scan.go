package vector

import (
	"math"
	"math/bits"
	"slices"
)

// The scan looks at the signs of all vectors: how much of the question lies in dimensions where the signs differ. Each
// dimension of the question weighs 0 to heaviest, by its size. The distance of a slot is the sum of the weights of the
// signs in which it differs.
//
// The scan keeps the nearest so far. Their histogram shows the bound above which no slot can be among the nearest of all,
// so most slots cost a comparison. The first bound is guessed from a sample: too high costs time, too low a second scan, and
// neither changes the result.
//
// Rejected: wide instructions (AVX2, in assembly). They were twice as fast, 3.7 instead of 7.4 ms for 300,000 vectors of
// 384 numbers, less than a model needs for the vector of the question.

const (
	// heaviest is the highest weight of a dimension. Weights of two bits find as much as weights of three.
	heaviest = 3
	// perMean is the weight of a number of the mean size (root of the mean square).
	perMean = 1.3
	// block is the number of slots with their bits in one word of near.
	block = 64
	// sampled is the number of blocks from which the first bound is guessed.
	sampled = 64
)

// sketch is a question as the scan reads it.
type sketch struct {
	weights []weight // by word
	most    int      // sum of all weights
}

// weight is a word of a sketch: the signs, and bits 0 and 1 of the weight of each dimension.
type weight struct{ signs, low, high uint64 }

// newSketch weighs the numbers of a question whose squares sum to square. signs has a bit for each above 0.
func newSketch(large []int16, signs []uint64, square int) (s sketch) {
	unit := perMean / math.Sqrt(float64(square)/float64(len(large)))
	s.weights = make([]weight, len(signs))
	for w := range signs {
		s.weights[w].signs = signs[w]
	}
	for i, n := range large {
		size := min(heaviest, int(math.RoundToEven(math.Abs(float64(n))*unit)))
		s.most += size
		s.weights[i/64].low |= uint64(size&1) << (i % 64)
		s.weights[i/64].high |= uint64(size>>1) << (i % 64)
	}
	return s
}

// limit is above the distance of every slot.
func (s *sketch) limit() int { return min(s.most+1, furthest) }

// away fills in the distances of the slots from a multiple of block on, and sets a bit of near for each that is at most bound
// away.
func (s *Set) away(q *Question, from, bound int, out []uint16, near []uint64) {
	clear(near)
	weights := q.weights
	rows := s.signs[from*len(weights) : (from+len(out))*len(weights)]
	for i := range out {
		row := rows[:len(weights)]
		rows = rows[len(weights):]
		n := 0
		for w := range weights {
			p := &weights[w]
			x := row[w] ^ p.signs
			n += bits.OnesCount64(x&p.low) + 2*bits.OnesCount64(x&p.high)
		}
		out[i] = uint16(min(n, furthest-1))
		if n <= bound {
			near[i/64] |= 1 << (i % 64)
		}
	}
}

// scan lists the visible slots that are at least from away: the left nearest, and ties with the last. It returns the
// distance above the last.
func (f *Finder) scan(sets []*Set, q *Question, total, from, left int, v *Visible) (to int) {
	bound, within := f.within(sets, q, from, left, f.guess(sets, q, total, from, left, v), v)
	if within < left && bound < q.limit()-1 { // a bad guess
		bound, _ = f.within(sets, q, from, left, q.limit()-1, v)
	}
	f.coarse = slices.DeleteFunc(f.coarse, func(p place) bool { return int(p.code) > bound })
	return bound + 1
}

// guess returns a distance that probably includes left slots, by a sample.
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

// within lists the visible slots between from and bound, except those that cannot be among the nearest. It returns the
// distance of the last of the nearest, and how many slots are within it.
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
