package vector

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A search of few vectors computes the cosine of each. Of many it goes coarse to fine:
//
//	signs     of all: what the question weighs where they differ from its own (scan.go)
//	codes     of the part that is nearest by signs, but of many: both have two bits a dimension (refine)
//	cosines   of the depth nearest by code (closest)
//
// Each step counts in small integers, so a histogram finds where the nearest end without sorting, and takes all that are as
// near as the last.
//
// Excluded pages take no place among these. What a bit can tell (Live, Only) is asked of those that are near by signs; Shown,
// which costs more, of those that are near by code, and the range is widened until enough are shown.
const (
	// exactly is the most vectors of which all cosines are computed: they take about as long as the coarse steps.
	exactly = 4096
	// refined is the fewest codes that are compared. Of 100,000 vectors of a model the nearest 3,500 by signs have .997 of the nearest 50.
	refined = 5000
	// share is the part of many vectors whose codes are compared. A hundredth is enough for vectors of a model; the rest is for
	// vectors without structure.
	share = 75
	// part is the number of slots that are scanned before their distances are used, while they are in the processor's cache.
	part = 4096
	// furthest is above every distance by signs.
	furthest = 1 << 15
)

// depth returns how many cosines are computed for k results (bench/README.md has the recall).
func depth(k, total int) int { return 10*k + 500 + total/800 }

// Hit is a vector that was found, and its cosine with the question's.
type Hit struct {
	Num    uint64
	Cosine float64
}

// Visible says which numbers may be found. The zero Visible lets all be found.
type Visible struct {
	// Live and Only have a bit for each number, from 0; a number must have it in both. Nil: all have it.
	Live, Only []uint64
	// Shown is asked of those that have both bits; nil: all are shown.
	Shown func(num uint64) bool
}

func (v *Visible) may(num uint64) bool { return has(v.Live, num) && has(v.Only, num) }

func has(bits []uint64, num uint64) bool {
	return bits == nil || num/64 < uint64(len(bits)) && bits[num/64]&(1<<(num%64)) != 0
}

// Finder has the memory of searches. It is not safe for concurrent use; its zero value is ready.
type Finder struct {
	counts [part]uint16      // of the slots that are scanned
	near   [part / 64]uint64 // which of them are near
	seen   []int32           // histogram of how far those are that the scan listed
	coarse []place           // what the scan listed
	far    []int32           // histogram of their codes
	hits   []Hit
	sorted []float64 // cosines
	read   uint64    // see touch
}

// place is a slot, and how far its code is from the question's.
type place struct {
	set  int32
	at   uint32
	code uint16
}

// Search returns the k visible vectors of some sets with the greatest cosines, greatest first; of equal ones the greater
// number, which is the later page, comes first. The sets of another length than the question are passed over. The result
// is valid until the next search.
func (f *Finder) Search(sets []*Set, q *Question, k int, v Visible) []Hit {
	f.hits = f.hits[:0]
	total := 0
	for _, s := range sets {
		if s.dims == len(q.large) {
			total += len(s.nums)
		}
	}
	switch {
	case k <= 0 || total == 0 || q.scale == 0:
		return nil
	case total <= exactly:
		f.all(sets, q, &v)
	default:
		f.closest(sets, q, total, depth(k, total), &v)
	}
	f.leave(k)
	slices.SortFunc(f.hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Cosine, a.Cosine), cmp.Compare(b.Num, a.Num)) })
	return f.hits[:min(k, len(f.hits))]
}

// leave drops hits that are not among the k best, and not as near as the last of them. Most are; numbers are sorted in a fraction
// of the time that hits take.
func (f *Finder) leave(k int) {
	if len(f.hits) <= 2*k {
		return
	}
	f.sorted = f.sorted[:0]
	for i := range f.hits {
		f.sorted = append(f.sorted, f.hits[i].Cosine)
	}
	slices.Sort(f.sorted)
	least := f.sorted[len(f.sorted)-k]
	f.hits = slices.DeleteFunc(f.hits, func(h Hit) bool { return h.Cosine < least })
}

func (f *Finder) all(sets []*Set, q *Question, v *Visible) {
	for _, s := range sets {
		if s.dims != len(q.large) {
			continue
		}
		for at, num := range s.nums {
			if num != 0 && v.may(num) {
				f.take(s, q, at, v)
			}
		}
	}
}

func (f *Finder) take(s *Set, q *Question, at int, v *Visible) {
	num := s.nums[at]
	if s.scale[at] == 0 {
		return
	}
	if v.Shown != nil && !v.Shown(num) {
		return
	}
	f.hits = append(f.hits, Hit{num, s.cosine(q, at)})
}

// closest computes the cosines of those whose codes are nearest, of those whose signs are, until enough are shown or none is
// left. Each round takes twice as many as the last, since it scans anew.
func (f *Finder) closest(sets []*Set, q *Question, total, enough int, v *Visible) {
	left := max(total/share, refined, 2*enough)
	for from := 0; from < q.limit() && len(f.hits) < enough; left *= 2 {
		from = f.scan(sets, q, total, from, left, v)
		f.refine(sets, q)
		f.nearest(sets, q, enough, v)
	}
}

// refine tells of the slots that were listed how far their codes are, and makes the histogram.
func (f *Finder) refine(sets []*Set, q *Question) {
	shift := 0
	for 18*len(q.large)>>shift >= furthest {
		shift++
	}
	f.far = cleared(f.far, 18*len(q.large)>>shift+1)
	for some := range slices.Chunk(f.coarse, together) {
		for _, p := range some {
			f.read += sets[p.set].touch(int(p.at))
		}
		for i := range some {
			p := &some[i]
			p.code = uint16(sets[p.set].coarse(q, int(p.at)) >> shift)
			f.far[p.code]++
		}
	}
}

// together is the number of slots that are read at once. They lie far apart: one by one each waits for memory, of these all wait at
// once.
const together = 32

// touch reads the codes of a slot, so that they are at hand soon. The result says nothing: it keeps the reads from being
// left out.
func (s *Set) touch(at int) uint64 {
	first, last := at*s.words, at*s.words+s.words-1
	return s.signs[first] + s.signs[last] + s.great[first] + s.great[last]
}

// touchSmall reads the numbers of a slot, as touch its codes.
func (s *Set) touchSmall(at int) (read uint64) {
	const line = 64 // bytes that come from memory together
	numbers := s.small[at*s.dims:][:s.dims]
	for i := 0; i < len(numbers); i += line {
		read += uint64(numbers[i])
	}
	return read
}

// nearest computes the cosines of the nearest by code that are shown, until there are enough.
func (f *Finder) nearest(sets []*Set, q *Question, enough int, v *Visible) {
	for from := 0; from < len(f.far) && len(f.hits) < enough; {
		left, to := enough-len(f.hits), from
		for ; to < len(f.far) && left > 0; to++ {
			left -= int(f.far[to])
		}
		f.takeCoded(sets, q, from, to, v)
		from = to
	}
}

// takeCoded takes the slots whose codes are at least from and less than to away.
func (f *Finder) takeCoded(sets []*Set, q *Question, from, to int, v *Visible) {
	for rest := f.coarse; len(rest) > 0; {
		var some [together]place
		n := 0
		for n < together && len(rest) > 0 {
			if p := rest[0]; int(p.code) < to && int(p.code) >= from {
				some[n] = p
				n++
				f.read += sets[p.set].touchSmall(int(p.at))
			}
			rest = rest[1:]
		}
		for _, p := range some[:n] {
			f.take(sets[p.set], q, int(p.at), v)
		}
	}
}

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
