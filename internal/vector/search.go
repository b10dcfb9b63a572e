package vector

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A search of few vectors computes the cosine of each. Of many it scans the signs of all, what the question weighs where they
// differ from its own, and computes the cosines of the part that is nearest by them. The scan counts in small integers, so a
// histogram finds where the nearest end without sorting, and takes all that are as near as the last.
//
// Excluded pages take no place among these. What a bit can tell (Live, Only) is asked of those that are near by signs; Shown,
// which costs more, of the best by cosine until enough are shown. Where it hides many, more are listed.
const (
	// exactly is the most vectors of which all cosines are computed: they take about as long as scanning many.
	exactly = 4096
	// share is the part of many vectors whose cosines are computed. A hundredth is enough for vectors of a model; the rest is for
	// vectors without structure.
	share = 75
	// part is the number of slots that are scanned before their distances are used, while they are in the processor's cache.
	part = 4096
	// furthest is above every distance by signs.
	furthest = 1 << 15
)

// nearest returns how many cosines are computed for the k best of many vectors (bench/README.md has the recall).
func nearest(k, total int) int { return max(total/share, 3500+10*k) }

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
	listed []place           // what the scan listed
	hits   []Hit             // cosines that were computed
	size   [levels]int32     // histogram of them
	best   []Hit
	read   uint64 // see touch
}

// place is a slot, and how far it is by signs.
type place struct {
	set  int32
	at   uint32
	away uint16
}

// Search returns the k visible vectors of some sets with the greatest cosines, greatest first; of equal ones the greater
// number, which is the later page, comes first. The sets of another length than the question are passed over. The result
// is valid until the next search.
func (f *Finder) Search(sets []*Set, q *Question, k int, v Visible) []Hit {
	f.hits = f.hits[:0]
	total := 0
	for _, s := range sets {
		if s.dims == q.dims {
			total += len(s.nums)
		}
	}
	if k <= 0 || total == 0 || q.scale == 0 {
		return nil
	}
	if total <= exactly {
		f.all(sets, q, &v)
		f.choose(k, &v)
		return f.best
	}
	want := nearest(k, total)
	for from, left := 0, want; from < q.limit(); left *= 2 { // a round scans anew
		from = f.scan(sets, q, total, from, left, &v)
		f.takeListed(sets, q)
		// Where Shown hid some of the best, as many more are wanted.
		if asked := f.choose(k, &v); len(f.best) == k && len(f.hits)*k >= want*asked {
			break
		}
	}
	return f.best
}

// levels is the number of steps of cosines in a histogram.
const levels = 1024

func (h *Hit) level() int { return int((h.Cosine + 1) * ((levels - 1) / 2.)) }

// choose puts the k best hits that are shown into best, in order. It returns how many were asked for.
func (f *Finder) choose(k int, v *Visible) (asked int) {
	clear(f.size[:])
	for i := range f.hits {
		f.size[f.hits[i].level()]++
	}
	f.best = f.best[:0]
	for to := levels; to > 0 && len(f.best) < k; {
		from, first := to, len(f.best)
		for n := first; from > 0 && n < k; {
			from--
			n += int(f.size[from])
		}
		for _, h := range f.hits {
			if l := h.level(); l >= from && l < to {
				f.best = append(f.best, h)
			}
		}
		slices.SortFunc(f.best[first:], func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Cosine, a.Cosine), cmp.Compare(b.Num, a.Num)) })
		last := first
		for _, h := range f.best[first:] {
			if last == k {
				break
			}
			if asked++; v.Shown == nil || v.Shown(h.Num) {
				f.best[last] = h
				last++
			}
		}
		f.best, to = f.best[:last], from
	}
	return asked
}

func (f *Finder) all(sets []*Set, q *Question, v *Visible) {
	for _, s := range sets {
		if s.dims != q.dims {
			continue
		}
		for at, num := range s.nums {
			if num != 0 && v.may(num) && s.scale[at] > 0 {
				f.hits = append(f.hits, Hit{num, s.cosine(q, at)})
			}
		}
	}
}

// together is the number of slots that are read at once. They lie far apart: one by one each waits for memory, of these all wait at
// once.
const together = 32

// takeListed computes the cosines of the slots that the scan listed.
func (f *Finder) takeListed(sets []*Set, q *Question) {
	for some := range slices.Chunk(f.listed, together) {
		for _, p := range some {
			f.read += sets[p.set].touch(int(p.at))
		}
		for _, p := range some {
			if s, at := sets[p.set], int(p.at); s.scale[at] > 0 {
				f.hits = append(f.hits, Hit{s.nums[at], s.cosine(q, at)})
			}
		}
	}
}

// touch reads the numbers of a slot, so that they are at hand soon. The result says nothing: it keeps the reads from being
// left out.
func (s *Set) touch(at int) (read uint64) {
	const line = 64 // bytes that come from memory together
	numbers := s.small[at*s.row:][:s.row]
	for i := 0; i < len(numbers); i += line {
		read += uint64(numbers[i])
	}
	return read
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

// newSketch weighs the numbers of a question whose squares sum to square.
func newSketch(numbers []int16, square int64) (s sketch) {
	unit := perMean / math.Sqrt(float64(square)/float64(len(numbers)))
	s.weights = make([]weight, (len(numbers)+63)/64)
	for i, n := range numbers {
		size := min(heaviest, int(math.RoundToEven(math.Abs(float64(n))*unit)))
		w := &s.weights[i/64]
		if n > 0 {
			w.signs |= 1 << (i % 64)
		}
		s.most += size
		w.low |= uint64(size&1) << (i % 64)
		w.high |= uint64(size>>1) << (i % 64)
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
	if len(weights) == 2 { // of the small model: without the inner loop it takes two thirds of the time
		a, b := weights[0], weights[1]
		for i := range out {
			row := (*[2]uint64)(rows)
			rows = rows[2:]
			x, y := row[0]^a.signs, row[1]^b.signs
			n := bits.OnesCount64(x&a.low) + bits.OnesCount64(y&b.low) + 2*(bits.OnesCount64(x&a.high)+bits.OnesCount64(y&b.high))
			out[i] = uint16(n)
			near[i/64] |= (uint64(bound-n)>>63 ^ 1) << (i % 64)
		}
		return
	}
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
	f.listed = slices.DeleteFunc(f.listed, func(p place) bool { return int(p.away) > bound })
	return bound + 1
}

// guess returns a distance that probably includes left slots, by a sample.
func (f *Finder) guess(sets []*Set, q *Question, total, from, left int, v *Visible) (bound int) {
	f.listed = f.listed[:0]
	f.seen = cleared(f.seen, q.limit())
	last := q.limit() - 1
	step := total / sampled / block * block
	if step <= 4*block {
		return last
	}
	for i, s := range sets {
		if s.dims != q.dims {
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
	f.listed = f.listed[:0]
	f.seen = cleared(f.seen, q.limit())
	for i, s := range sets {
		if s.dims != q.dims {
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
			f.listed = append(f.listed, place{first.set, first.at + uint32(at), counts[at]})
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
