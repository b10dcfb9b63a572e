package vector

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A search of few vectors computes the cosine of each. Of many it scans the codes of all and computes the cosines of the part that is
// nearest by them. The scan counts in small integers; all that are as near as the last of the nearest are taken.
//
// Excluded pages take no place among these. What a bit can tell (Live, Only) is asked of those that are near by codes; Shown,
// which costs more, of the best by cosine until enough are shown. Where it hides many, more are listed.
const (
	// exactly is the most vectors of which all cosines are computed: they take about as long as scanning many.
	exactly = 4096
	// share is the part of many vectors whose cosines are computed.
	share = 300
)

// nearest returns how many cosines are computed for the k best of many vectors (bench/README.md has the recall).
func nearest(k, total int) int { return max(total/share, 800+4*k) }

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
	blocks []place  // the first slot of each block that is scanned
	firsts []int    // by set: where its blocks begin
	sums   []uint64 // how far the slots are: bit 0 of all blocks, then bit 1, and so on
	left   []uint64 // by block, as equal and near: slots that have not been listed
	equal  []uint64 // see nearestOf
	near   []uint64
	tail   []code // of a block that is not full
	listed []place
	hits   []Hit         // cosines that were computed
	size   [levels]int32 // histogram of them
	best   []Hit
	read   uint64 // see touch
}

// place is a slot of a set.
type place struct{ set, at uint32 }

// Search returns the k visible vectors of some sets with the greatest cosines, greatest first; of equal ones the greater
// number, which is the later page, comes first. The sets of another length than the question are passed over. The result
// is valid until the next search.
func (f *Finder) Search(sets []*Set, q *Question, k int, v Visible) []Hit {
	f.hits = f.hits[:0]
	total := 0
	for _, s := range sets {
		if s.dims == q.dims {
			total += len(s.held)
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
	f.scan(sets, q)
	want := nearest(k, total)
	for left := want; f.list(sets, q, left, &v); left *= 2 {
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
		slices.SortFunc(f.best[first:], func(a, b Hit) int {
			if a.Cosine != b.Cosine {
				return cmp.Compare(b.Cosine, a.Cosine)
			}
			return cmp.Compare(b.Num, a.Num)
		})
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
		for at, h := range s.held {
			if h.num != 0 && v.may(h.num) && h.scale > 0 {
				f.hits = append(f.hits, Hit{h.num, s.cosine(q, at)})
			}
		}
	}
}

// Cosines returns the cosines of numbers that have one, as Set.Cosine, in the order of nums; each in the first set that has it. The
// result is valid until the next search.
func (f *Finder) Cosines(sets []*Set, q *Question, nums []uint64) []Hit {
	f.hits, f.listed = f.hits[:0], f.listed[:0]
	for _, num := range nums {
		for i, s := range sets {
			if at, ok := s.find(q, num); ok {
				f.listed = append(f.listed, place{uint32(i), at})
				break
			}
		}
	}
	f.takeListed(sets, q)
	return f.hits
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
			s, at := sets[p.set], int(p.at)
			f.hits = append(f.hits, Hit{s.held[at].num, s.cosine(q, at)})
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
	return read + s.held[at].num
}

// The scan compares the codes of all vectors with the question. Each dimension of the question weighs 0 to heaviest, by its size.
// The distance of a slot is the sum of the weights, each times the slot's code, or times 3 less the code where the question's number
// is positive.
//
// It adds up the 64 slots of a block at once: a word has one bit of each, and words are added with the logic of an adder. The sums
// stay in this form: the bound of the nearest is found bit by bit from the highest down, so nothing is sorted.
//
// Rejected: signs instead of codes of two bits. The scan was no faster, slot by slot, and needed three times as many cosines for the
// same recall. Signs with codes for those that are near: what is saved goes into reading them from all over memory. Wide
// instructions (AVX2, in assembly): they save less than a model needs for the vector of the question.

const (
	// heaviest is the highest weight of a dimension. More weights find no more.
	heaviest = 3
	// perMean is the weight of a number of the mean size (root of the mean square) in vectors of 128 numbers. Where a question has
	// more numbers, each says less, and fewer of the small ones weigh anything.
	perMean, leastPerMean = 1.5, .8
	// atOnce is the number of dimensions that are added at once.
	atOnce = 4
	// widest is above the number of bits of every distance: MaxNumbers dimensions of weight and code 3.
	widest = 21
)

// sketch is a question as the scan reads it.
type sketch struct {
	weights [heaviest][][atOnce]dimension // the heaviest first
	sums    [heaviest]int                 // bits of the greatest sum of the codes of a weight and of those before it
	bits    int                           // of the greatest distance
}

// dimension is an index into a block of codes, and what turns a code into 3 less the code.
type dimension struct {
	at   int
	flip uint64
}

// distances has a distance for each slot of a block: bit i of each in word i.
type distances [widest]uint64

// newSketch weighs the numbers of a question whose squares sum to square. Dimensions that do not fill the last group of their weight
// get the next lower one.
func newSketch(numbers []int16, square int64) (s sketch) {
	unit := max(leastPerMean, perMean*min(1, math.Sqrt(128/float64(len(numbers))))) / math.Sqrt(float64(square)/float64(len(numbers)))
	var of [heaviest + 1][]dimension
	for i, n := range numbers {
		size := min(heaviest, int(math.RoundToEven(math.Abs(float64(n))*unit)))
		of[heaviest-size] = append(of[heaviest-size], dimension{i, uint64(int64(-n) >> 63)})
	}
	sum, greatest := 0, 0
	for i := range s.weights {
		w := of[i]
		for ; len(w) >= atOnce; w = w[atOnce:] {
			s.weights[i] = append(s.weights[i], [atOnce]dimension(w))
			sum += 3 * atOnce
		}
		of[i+1] = append(of[i+1], w...)
		s.sums[i] = bits.Len(uint(sum))
		greatest += sum
	}
	s.bits = bits.Len(uint(greatest))
	return s
}

// away computes how far the slots of a block are. sum is the memory for it.
func (s *sketch) away(codes []code, sum, all *distances) {
	clear(sum[:])
	clear(all[:])
	for i, w := range s.weights { // sum keeps the heavier dimensions, so they are added to all once for each weight
		sum.addCodes(codes, w, s.sums[i])
		carry := uint64(0)
		for i, w := range sum[:s.bits] {
			all[i], carry = add(all[i], w, carry)
		}
	}
}

// add adds three bits.
func add(a, b, c uint64) (sum, carry uint64) {
	x := a ^ b
	return x ^ c, a&b | x&c
}

// addCodes adds the codes of some dimensions.
func (d *distances) addCodes(codes []code, of [][atOnce]dimension, bits int) {
	ones, twos, fours, eights, sixteens, carries := d[0], d[1], d[2], d[3], d[4], uint64(0)
	for n := range of {
		p, q, r, s := &of[n][0], &of[n][1], &of[n][2], &of[n][3]
		a, b, c, e := &codes[p.at], &codes[q.at], &codes[r.at], &codes[s.at]
		var two0, two1, four0, four1, four2, eight, carry uint64
		ones, two0 = add(ones, a.low^p.flip, b.low^q.flip)
		ones, two1 = add(ones, c.low^r.flip, e.low^s.flip)
		twos, four0 = add(twos, a.high^p.flip, b.high^q.flip)
		twos, four1 = add(twos, c.high^r.flip, e.high^s.flip)
		twos, four2 = add(twos, two0, two1)
		fours, eight = add(fours, four0, four1)
		eights, carry = add(eights, eight, fours&four2)
		fours ^= four2
		carries |= sixteens & carry // two groups add at most 24 to at most 31: a slot has one carry of both
		sixteens ^= carry
		if n%2 == 1 || n == len(of)-1 {
			for i := 5; i < bits; i++ {
				d[i], carries = d[i]^carries, d[i]&carries
			}
			carries = 0
		}
	}
	d[0], d[1], d[2], d[3], d[4] = ones, twos, fours, eights, sixteens
}

// scan computes how far all slots are.
func (f *Finder) scan(sets []*Set, q *Question) {
	f.blocks, f.firsts, f.left = f.blocks[:0], f.firsts[:0], f.left[:0]
	for i, s := range sets {
		f.firsts = append(f.firsts, len(f.blocks))
		for at := 0; s.dims == q.dims && at < len(s.held); at += block {
			f.blocks = append(f.blocks, place{uint32(i), uint32(at)})
		}
	}
	n := len(f.blocks)
	f.sums = slices.Grow(f.sums[:0], n*q.bits)[:n*q.bits]
	var sum, all distances
	for b, p := range f.blocks {
		codes := sets[p.set].block(int(p.at), &f.tail)
		f.left = append(f.left, codes[len(codes)-1].low)
		q.away(codes, &sum, &all)
		for i, w := range all[:q.bits] {
			f.sums[i*n+b] = w
		}
	}
}

// list lists the n nearest of the visible slots that are left, and all that are as near as the last of them. It reports whether
// there are any.
func (f *Finder) list(sets []*Set, q *Question, n int, v *Visible) bool {
	for probe := n; ; probe *= 2 {
		f.nearestOf(probe, q.bits)
		hidden := f.hide(sets, v)
		if hidden == 0 && probe == n {
			break
		}
		if seen := len(f.listed); seen >= n || seen+hidden < probe { // those that are hidden have left
			f.nearestOf(n, q.bits)
			f.hide(sets, v)
			break
		}
	}
	for b, w := range f.near {
		f.left[b] &^= w
	}
	return len(f.listed) > 0
}

// nearestOf finds the n nearest of the slots that are left, and all that are as near as the last of them.
func (f *Finder) nearestOf(n, levels int) {
	blocks := len(f.left)
	f.equal = append(f.equal[:0], f.left...) // at the bound, as far as its bits are known
	f.near = slices.Grow(f.near[:0], blocks)[:blocks]
	clear(f.near) // below it
	for i := levels - 1; i >= 0; i-- {
		row, zeros := f.sums[i*blocks:][:blocks], 0
		for b, w := range row {
			zeros += bits.OnesCount64(f.equal[b] &^ w)
		}
		if zeros >= n { // the bound has a zero
			for b, w := range row {
				f.equal[b] &^= w
			}
			continue
		}
		n -= zeros
		for b, w := range row {
			f.near[b] |= f.equal[b] &^ w
			f.equal[b] &= w
		}
	}
	for b, w := range f.equal {
		f.near[b] |= w
	}
}

// hide lists those of the near slots that are visible. It takes the others from what is left, and counts them.
func (f *Finder) hide(sets []*Set, v *Visible) (hidden int) {
	f.listed = f.listed[:0]
	for b, p := range f.blocks {
		for word := f.near[b]; word != 0; word &= word - 1 {
			f.listed = append(f.listed, place{p.set, p.at + uint32(bits.TrailingZeros64(word))})
		}
	}
	seen := 0
	for _, p := range f.listed { // apart from the loop above, whose branches are hard to foresee: reads wait for memory together
		if v.may(sets[p.set].held[p.at].num) {
			f.listed[seen] = p
			seen++
		} else {
			f.left[f.firsts[p.set]+int(p.at)/block] &^= 1 << (p.at % block)
		}
	}
	hidden = len(f.listed) - seen
	f.listed = f.listed[:seen]
	return hidden
}
