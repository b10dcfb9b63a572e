// Package vector has the vectors of pages and questions. A [Set] finds the vectors nearest to a question's; a [Maker] reads
// the vectors that the store keeps and asks an embedder for the others.
//
// Searching is pure: it opens no file, starts no goroutine and reads no clock. Vectors are quantised in flat arrays, and a
// search looks at every vector of a set. Equal vectors under equal numbers give equal answers, whatever the order in which
// they were added.
//
// Rejected: a graph (HNSW). Its answers depend on the order of insertion, a filter that few pages pass breaks its walk, and
// deletions wear it out. A scan of sign bits is fast enough for a million pages (bench/README.md), and a filter makes it
// faster.
package vector

import (
	"iter"
	"math"
	"math/bits"
	"slices"
)

// Set holds vectors of one length, each under a page number. Its owner has one lock for it: Put and Remove run under the
// write lock, everything else under the read lock.
//
// Each vector is kept three times, coarse to fine. A search of many vectors first compares the signs, a bit for each
// dimension: where they differ from the question's shows roughly how large the angle is. A second bit marks the numbers that
// are large; with the signs that is two bits a dimension, which show the angle well. The numbers as int8, relative to the
// largest, give the cosine, to about .001 for the vectors of text models.
type Set struct {
	dims, words int
	nums        []uint64 // by slot; 0: free
	signs       []uint64 // words of each slot
	great       []uint64 // words of each slot
	small       []int8   // dims of each slot
	scale       []float32
	free        []uint32 // slots
	slots       slotTable
}

// NewSet makes an empty set of vectors of a length.
func NewSet(dims int) *Set {
	return &Set{dims: dims, words: (dims + 63) / 64}
}

// Len counts the vectors.
func (s *Set) Len() int { return s.slots.n }

// Has reports whether a number has a vector.
func (s *Set) Has(num uint64) bool {
	_, ok := s.slots.find(num)
	return ok
}

// Numbers ranges over the numbers that have a vector; with zeros, only those whose vector is of zeros.
func (s *Set) Numbers(zeros bool) iter.Seq[uint64] {
	return func(yield func(num uint64) bool) {
		for at, num := range s.nums {
			if num != 0 && (!zeros || s.scale[at] == 0) && !yield(num) {
				return
			}
		}
	}
}

// Bytes is the memory that the vectors take, without the spare capacity of the arrays.
func (s *Set) Bytes() int {
	return len(s.nums)*(8+4+16*s.words+s.dims) + s.slots.bytes()
}

// Reserve makes room for as many vectors in all.
func (s *Set) Reserve(n int) {
	if n <= cap(s.nums) {
		return
	}
	s.nums, s.scale = withCapacity(s.nums, n), withCapacity(s.scale, n)
	s.signs, s.great = withCapacity(s.signs, n*s.words), withCapacity(s.great, n*s.words)
	s.small = withCapacity(s.small, n*s.dims)
}

// withCapacity copies a slice to one of capacity n. Memory that is new from the system is not touched
// before it is used. slices.Grow fills it with zeros, which was half the time of reading a million
// vectors.
func withCapacity[T any](old []T, n int) []T { return append(make([]T, 0, n), old...) }

// Join adds the vectors of a set of the same length. Their numbers are new to this one.
func (s *Set) Join(from *Set) {
	first := len(s.nums)
	s.nums, s.scale = append(s.nums, from.nums...), append(s.scale, from.scale...)
	s.signs, s.great = append(s.signs, from.signs...), append(s.great, from.great...)
	s.small = append(s.small, from.small...)
	for i, num := range from.nums {
		at := first + i
		if num == 0 {
			s.free = append(s.free, uint32(at))
		} else {
			s.slots.put(num, uint32(at))
		}
	}
}

// Clear forgets all vectors and keeps the memory.
func (s *Set) Clear() {
	s.nums, s.scale, s.signs, s.great = s.nums[:0], s.scale[:0], s.signs[:0], s.great[:0]
	s.small, s.free = s.small[:0], s.free[:0]
	s.slots.clear()
}

// Put stores a vector of the set's length under a number above 0, in place of an earlier one. A vector of zeros points
// nowhere and is never found.
func (s *Set) Put(num uint64, v []float32) {
	at, ok := s.slots.find(num)
	switch {
	case ok:
	case len(s.free) > 0:
		at, s.free = s.free[len(s.free)-1], s.free[:len(s.free)-1]
	default:
		at = uint32(len(s.nums))
		s.nums = append(s.nums, 0)
		s.scale = append(s.scale, 0)
		s.signs = append(s.signs, make([]uint64, s.words)...)
		s.great = append(s.great, make([]uint64, s.words)...)
		s.small = append(s.small, make([]int8, s.dims)...)
	}
	if s.nums[at] = num; !ok {
		s.slots.put(num, at)
	}
	c := code{s.signs[int(at)*s.words:][:s.words], s.great[int(at)*s.words:][:s.words]}
	s.scale[at] = quantise(s.small[int(at)*s.dims:][:s.dims], c, v)
}

// Remove forgets a number.
func (s *Set) Remove(num uint64) {
	if at, ok := s.slots.find(num); ok {
		s.slots.remove(num)
		s.nums[at] = 0
		s.free = append(s.free, at)
	}
}

// code is a vector in two bits a dimension: whether a number is above 0, and whether it is large.
type code struct{ signs, great []uint64 }

// set fills in a number of the code: n of a vector whose squares sum to square. Large is above .98 of the mean (root of the
// mean square): for numbers as vectors of texts have them that halves the error.
func (c *code) set(i, n, dims, square int) {
	if n > 0 {
		c.signs[i/64] |= 1 << (i % 64)
	}
	if 25*n*n*dims > 24*square {
		c.great[i/64] |= 1 << (i % 64)
	}
}

// quantise fills in the code and the small numbers of a vector. It returns the factor that makes a product of small numbers a
// cosine.
func quantise(small []int8, c code, v []float32) float32 {
	unit := 127 / float64(largestOf(v))
	if math.IsInf(unit, 0) {
		clear(small)
		clear(c.signs)
		clear(c.great)
		return 0
	}
	square := 0
	for i, f := range v {
		// Adding magic leaves the nearest integer, of two the even one, in the lowest bits.
		n := int32(math.Float64bits(float64(float64(f)*unit) + magic))
		small[i] = int8(n)
		square += int(n * n)
	}
	c.fill(small, greatest(24*square/(25*len(v))))
	return float32(1 / math.Sqrt(float64(square)))
}

const magic = 3 << 51

// greatest is the greatest number whose square is not above one.
func greatest(square int) int {
	n := int(math.Sqrt(float64(square)))
	for n*n > square {
		n--
	}
	for (n+1)*(n+1) <= square {
		n++
	}
	return n
}

// fill sets the bits of all numbers, those above limit as large: what set does for each, without a branch.
func (c *code) fill(small []int8, limit int) {
	for w := range c.signs {
		var signs, great uint64
		for _, n := range slices.Backward(small[64*w : min(64*w+64, len(small))]) {
			n := int64(n)
			size := (n ^ n>>63) - n>>63
			signs = signs<<1 | uint64(-n)>>63
			great = great<<1 | uint64(int64(limit)-size)>>63
		}
		c.signs[w], c.great[w] = signs, great
	}
}

// largestOf is the greatest size of a number. Sizes are in the order of their bits.
func largestOf(v []float32) float32 {
	largest := uint32(0)
	for _, f := range v {
		largest = max(largest, math.Float32bits(f)&^(1<<31))
	}
	return math.Float32frombits(largest)
}

// Question is the vector of a question, prepared for searches. It is never changed.
type Question struct {
	code
	sketch
	greats int     // bits of great
	large  []int16 // so small that no product with a small vector overflows
	scale  float64
}

// NewQuestion prepares a vector.
func NewQuestion(v []float32) *Question {
	words := (len(v) + 63) / 64
	q := &Question{code: code{make([]uint64, words), make([]uint64, words)}, large: make([]int16, len(v))}
	largest := largestOf(v)
	if largest == 0 {
		return q
	}
	most := min(math.MaxInt16, math.MaxInt32/(128*len(v)))
	unit, square := float64(most)/float64(largest), 0
	for i, f := range v {
		n := int(math.RoundToEven(float64(f) * unit))
		q.large[i] = int16(n)
		square += n * n
	}
	for i, n := range q.large {
		q.set(i, int(n), 1, square/len(v))
	}
	for _, w := range q.great {
		q.greats += bits.OnesCount64(w)
	}
	q.sketch = newSketch(q.large, q.signs, square)
	q.scale = 1 / math.Sqrt(float64(square))
	return q
}

// Cosine returns the cosine of a number's vector and the question's; false if there is none, if their lengths differ, or if one
// of the two points nowhere. Its
// arithmetic is in integers up to the last two products, so it is the same on every machine.
func (s *Set) Cosine(q *Question, num uint64) (float64, bool) {
	at, ok := s.slots.find(num)
	if !ok || len(q.large) != s.dims || s.scale[at] == 0 || q.scale == 0 {
		return 0, false
	}
	return s.cosine(q, int(at)), true
}

// Cosine returns the cosine of two vectors as a Set computes it, to the last bit; false if it has none.
func Cosine(question, v []float32) (float64, bool) {
	s := NewSet(len(v))
	s.Put(1, v)
	return s.Cosine(NewQuestion(question), 1)
}

func (s *Set) cosine(q *Question, at int) float64 {
	c := float64(float64(dot(q.large, s.small[at*s.dims:][:s.dims]))*q.scale) * float64(s.scale[at])
	return min(max(c, -1), 1)
}

// dot is the product of two vectors of one length. Four sums run side by side, since a single one waits for each addition.
func dot(a []int16, b []int8) int32 {
	var s0, s1, s2, s3 int32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]int16)(a), (*[8]int8)(b)
		s0 += int32(x[0])*int32(y[0]) + int32(x[4])*int32(y[4])
		s1 += int32(x[1])*int32(y[1]) + int32(x[5])*int32(y[5])
		s2 += int32(x[2])*int32(y[2]) + int32(x[6])*int32(y[6])
		s3 += int32(x[3])*int32(y[3]) + int32(x[7])*int32(y[7])
		a, b = a[8:], b[8:]
	}
	for i := range a {
		s0 += int32(a[i]) * int32(b[i])
	}
	return s0 + s1 + s2 + s3
}

// coarse returns the distance of a slot's code from the question's: 0 is the same, nine times the dimensions the most that a product of
// codes can fall short of. In a code a number is 1 or 3, by its sign plus or minus; the product of two is summed by counting
// bits, of all, of those where one is large, and of those where both are.
func (s *Set) coarse(q *Question, at int) int {
	signs, great := s.signs[at*s.words:][:s.words], s.great[at*s.words:][:s.words]
	qs, qg, great := q.signs[:len(signs)], q.great[:len(signs)], great[:len(signs)]
	all, ours, theirs, both, differ := 0, 0, 0, 0, 0
	for w, x := range signs {
		d, g := x^qs[w], great[w]
		b := g & qg[w]
		all += bits.OnesCount64(d)
		ours += bits.OnesCount64(d & qg[w])
		theirs += bits.OnesCount64(g) - 2*bits.OnesCount64(d&g)
		both += bits.OnesCount64(b)
		differ += bits.OnesCount64(d & b)
	}
	product := s.dims - 2*all + 2*(q.greats-2*ours) + 2*theirs + 4*(both-2*differ)
	return 9*s.dims - product
}

// run is the number of numbers that lie together in a slotTable.
const run = 16

// slotTable finds the slots of numbers. The numbers of a set lie close together, so they are kept
// in runs: a map with an entry for each took a fifth of the time in which a set was filled.
type slotTable struct {
	runs map[uint64]*[run]uint32 // slot + 1; 0: the number has none
	n    int
}

func (t *slotTable) find(num uint64) (at uint32, ok bool) {
	r := t.runs[num/run]
	if r == nil || r[num%run] == 0 {
		return 0, false
	}
	return r[num%run] - 1, true
}

// put enters the slot of a number that has none yet.
func (t *slotTable) put(num uint64, at uint32) {
	r := t.runs[num/run]
	if r == nil {
		if t.runs == nil {
			t.runs = map[uint64]*[run]uint32{}
		}
		r = new([run]uint32)
		t.runs[num/run] = r
	}
	r[num%run] = at + 1
	t.n++
}

// remove takes the slot from a number that has one.
func (t *slotTable) remove(num uint64) {
	r := t.runs[num/run]
	r[num%run] = 0
	if t.n--; *r == [run]uint32{} {
		delete(t.runs, num/run)
	}
}

func (t *slotTable) clear() {
	clear(t.runs)
	t.n = 0
}

// bytes is about the memory that the table takes.
func (t *slotTable) bytes() int { return len(t.runs) * (4*run + 24) }
