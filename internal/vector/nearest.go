// Package vector has the vectors of pages and questions. A [Set] finds the vectors nearest to a question's; a [Maker] reads
// the vectors that the store keeps and asks an embedder for the others.
//
// Searching is pure: it opens no file, starts no goroutine and reads no clock. Vectors are quantised in flat arrays, and a
// search looks at every vector of a set. Equal vectors under equal numbers give equal answers, whatever the order in which
// they were added.
//
// Rejected: a graph (HNSW). Its answers depend on the order of insertion, a filter that few pages pass breaks its walk, and
// deletions wear it out. A scan of codes of two bits is fast enough for a million pages (bench/README.md), and a filter makes it
// faster.
package vector

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// Set holds vectors of one length, each under a page number. Its owner has one lock for it: Put and Remove run under the
// write lock, everything else under the read lock.
//
// Each vector is kept twice. A search of many vectors first compares codes of two bits a number, which show roughly how large
// the angle is. The numbers in 8 bits, relative to the largest, give the cosine, to about .001 for the vectors of text models.
type Set struct {
	dims, row int
	held      []held   // by slot
	codes     []code   // by full block of slots, see encode
	small     []uint8  // row of each slot: its numbers, each + middle, and zeros
	free      []uint32 // slots
	zeros     int      // vectors of zeros
	slots     slotTable
}

// held has what belongs to a slot beside its numbers. A cosine needs all of it, so it lies together: slots lie far apart, and each place
// that is read waits for memory.
type held struct {
	num   uint64 // 0: the slot is free
	sum   uint32 // of the numbers as they are kept
	scale float32
}

// middle is added to a number of 8 bits, so that none is below 0.
const middle = 128

// NewSet makes an empty set of vectors of a length.
func NewSet(dims int) *Set {
	return &Set{dims: dims, row: (dims + 7) / 8 * 8}
}

// Len counts the vectors.
func (s *Set) Len() int { return s.slots.n }

// Has reports whether a number has a vector.
func (s *Set) Has(num uint64) bool {
	_, ok := s.slots.find(num)
	return ok
}

// Zeros reports whether there are vectors of zeros.
func (s *Set) Zeros() bool { return s.zeros > 0 }

// Numbers ranges over the numbers that have a vector; with zeros, only those whose vector is of zeros.
func (s *Set) Numbers(zeros bool) iter.Seq[uint64] {
	return func(yield func(num uint64) bool) {
		for _, h := range s.held {
			if h.num != 0 && (!zeros || h.scale == 0) && !yield(h.num) {
				return
			}
		}
	}
}

// Bytes is the memory that the vectors take, without the spare capacity of the arrays.
func (s *Set) Bytes() int {
	return len(s.held)*(8+4+4+s.row) + 16*len(s.codes) + s.slots.bytes()
}

// Reserve makes room for as many vectors in all.
func (s *Set) Reserve(n int) {
	if n <= cap(s.held) {
		return
	}
	s.held, s.small = withCapacity(s.held, n), withCapacity(s.small, n*s.row)
	s.codes = withCapacity(s.codes, n/block*s.coded())
}

// withCapacity copies a slice to one of capacity n. Memory that is new from the system is not touched
// before it is used. slices.Grow fills it with zeros, which was half the time of reading a million
// vectors.
func withCapacity[T any](old []T, n int) []T { return append(make([]T, 0, n), old...) }

// Join adds the vectors of a set of the same length. Their numbers are new to this one.
func (s *Set) Join(from *Set) {
	first := len(s.held)
	s.held, s.small = append(s.held, from.held...), append(s.small, from.small...)
	s.encodeFull(first, len(from.held))
	s.zeros += from.zeros
	for i, h := range from.held {
		at := first + i
		if h.num == 0 {
			s.free = append(s.free, uint32(at))
		} else {
			s.slots.put(h.num, uint32(at))
		}
	}
}

// Clear forgets all vectors and keeps the memory.
func (s *Set) Clear() {
	s.held, s.codes, s.small = s.held[:0], s.codes[:0], s.small[:0]
	s.free, s.zeros = s.free[:0], 0
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
		at = uint32(len(s.held))
		s.held = append(s.held, held{})
		s.small = append(s.small, make([]uint8, s.row)...)
	}
	h := &s.held[at]
	if h.num = num; !ok {
		s.slots.put(num, at)
	} else if h.scale == 0 {
		s.zeros--
	}
	h.sum, h.scale = quantise(s.small[int(at)*s.row:][:s.dims], v)
	if h.scale == 0 {
		s.zeros++
	}
	s.encodeFull(int(at), 1)
}

// Remove forgets a number.
func (s *Set) Remove(num uint64) {
	if at, ok := s.slots.find(num); ok {
		s.slots.remove(num)
		if s.held[at].scale == 0 {
			s.zeros--
		}
		s.held[at].num = 0
		s.free = append(s.free, at)
		if n := (int(at)/block + 1) * s.coded(); n <= len(s.codes) {
			s.codes[n-1].low &^= 1 << (at % block)
		}
	}
}

// quantise fills in the small numbers of a vector. It returns the sum of the numbers as they are kept, and the factor that makes a
// product of numbers a cosine.
func quantise(small []uint8, v []float32) (sum uint32, scale float32) {
	unit := 127 / float64(largestOf(v))
	if math.IsInf(unit, 0) {
		clear(small)
		return 0, 0
	}
	square := 0
	for i, f := range v {
		// Adding magic leaves the nearest integer, of two the even one, in the lowest bits.
		n := int32(math.Float64bits(float64(float64(f)*unit) + magic))
		small[i] = uint8(n + middle)
		sum += uint32(small[i])
		square += int(n * n)
	}
	return sum, float32(1 / math.Sqrt(float64(square)))
}

// block is the number of slots whose codes lie side by side.
const block = 64

// code has the lower and the upper bits of the codes of a block of slots in one dimension.
type code struct{ low, high uint64 }

// coded is the number of elements of a block of codes.
func (s *Set) coded() int { return s.row + 1 }

// encodeFull makes the codes of the full blocks of some slots.
func (s *Set) encodeFull(first, n int) {
	for at := first - first%block; at < first+n && at+block <= len(s.held); at += block {
		from := at / block * s.coded()
		if from == len(s.codes) {
			s.codes = append(s.codes, make([]code, s.coded())...)
		}
		s.encode(s.codes[from:][:s.coded()], at)
	}
}

// block returns the codes of the block at a slot. Those of a last block that is not full are made in the memory of tail.
func (s *Set) block(at int, tail *[]code) []code {
	if from := at / block * s.coded(); from < len(s.codes) {
		return s.codes[from:][:s.coded()]
	}
	*tail = slices.Grow((*tail)[:0], s.coded())[:s.coded()]
	s.encode(*tail, at)
	return *tail
}

// encode makes the codes of a block of slots, or of those at the end that are not a block yet. A code has two bits: 0 to 3 for
// numbers below -step, below 0, below step, and others, where step is about the mean size of the vector's numbers. After the
// dimensions, the lower bits of the last element are the slots that can be found.
func (s *Set) encode(codes []code, first int) {
	const tops = 0x8080808080808080
	clear(codes)
	n := min(block, len(s.held)-first)
	var below, above [block]uint64 // by slot: what carries a byte of at least -step, or step, into its highest bit
	for i := range n {
		h := &s.held[first+i]
		if scale := float64(h.scale); h.num != 0 && scale > 0 {
			codes[s.row].low |= 1 << i
			below[i] = uint64(min(127, codeStep/(scale*math.Sqrt(float64(s.dims))))) * (tops >> 7)
			above[i] = 128*(tops>>7) - below[i]
		}
	}
	for d := 0; d < s.row; d += 8 {
		eight := codes[d:][:8]
		for from := 0; from < n; from += 8 {
			var low, high uint64 // a byte for each of eight dimensions, a bit for each of eight slots
			at, to := (first+from)*s.row+d, min(from+8, n)
			for i := from; i < to; i++ {
				w := binary.LittleEndian.Uint64(s.small[at:])
				rest := w &^ tops
				low = low>>1 | ((rest+above[i])&w|(rest+below[i])&^w)&tops
				high = high>>1 | w&tops
				at += s.row
			}
			low, high = low>>(from+8-to), high>>(from+8-to) // the first slot has the lowest bit
			for j := range eight {
				eight[j].low |= low & 0xff << (from & 63)
				eight[j].high |= high & 0xff << (from & 63)
				low, high = low>>8, high>>8
			}
		}
	}
}

// codeStep is the step of codes relative to the root of the mean square: codes of four steps lose least with it.
const codeStep = 1.05

const magic = 3 << 51

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
	sketch
	dims   int
	eights []eight
	offset int64 // see dot
	scale  float64
}

// eight has eight numbers of a question in 12 bits, each + halfway, as dot multiplies them: of those at even and at odd places
// the upper and the lower six bits. A number has 16 bits, the last one the lowest.
type eight struct{ evenUpper, evenLower, oddUpper, oddLower uint64 }

const (
	sixBits = 6
	halfway = 1 << (2*sixBits - 1)
)

// NewQuestion prepares a vector.
func NewQuestion(v []float32) *Question {
	q := &Question{dims: len(v), eights: make([]eight, (len(v)+7)/8)}
	largest := largestOf(v)
	if largest == 0 {
		return q
	}
	unit, square := (halfway-1)/float64(largest), int64(0)
	numbers := make([]int16, len(v))
	for i, f := range v {
		n := int64(math.RoundToEven(float64(f) * unit))
		numbers[i] = int16(n)
		square += n * n
		q.offset += middle * n
		q.eights[i/8].set(i%8, uint64(n+halfway))
	}
	q.sketch = newSketch(numbers, square)
	q.scale = 1 / math.Sqrt(float64(square))
	return q
}

// set fills in the number at a place.
func (e *eight) set(at int, n uint64) {
	upper, lower, lane := &e.evenUpper, &e.evenLower, 48-at/2*16
	if at%2 > 0 {
		upper, lower = &e.oddUpper, &e.oddLower
	}
	*upper |= n >> sixBits << lane
	*lower |= n & (1<<sixBits - 1) << lane
}

// Cosine returns the cosine of a number's vector and the question's; false if there is none, if their lengths differ, or if one
// of the two points nowhere. Its
// arithmetic is in integers up to the last two products, so it is the same on every machine.
func (s *Set) Cosine(q *Question, num uint64) (float64, bool) {
	at, ok := s.find(q, num)
	if !ok {
		return 0, false
	}
	return s.cosine(q, int(at)), true
}

// find returns the slot of a number that has a cosine.
func (s *Set) find(q *Question, num uint64) (at uint32, ok bool) {
	at, ok = s.slots.find(num)
	return at, ok && q.dims == s.dims && s.held[at].scale != 0 && q.scale != 0
}

// Cosine returns the cosine of two vectors as a Set computes it, to the last bit; false if it has none.
func Cosine(question, v []float32) (float64, bool) {
	s := NewSet(len(v))
	s.Put(1, v)
	return s.Cosine(NewQuestion(question), 1)
}

func (s *Set) cosine(q *Question, at int) float64 {
	h := &s.held[at]
	product := dot(q.eights, s.small[at*s.row:][:s.row]) - halfway*int64(h.sum) - q.offset
	return min(max(float64(float64(product)*q.scale)*float64(h.scale), -1), 1)
}

// dot is the product of a question and a vector as they are kept: of numbers a and b it sums (a + halfway)·(b + middle), so it
// exceeds the product by halfway times the sum of the vector's, and by middle times the sum of the question's.
//
// One multiplication makes four products and adds them: of (a0 + a1·2¹⁶ + a2·2³² + a3·2⁴⁸) and b in the reverse order the upper
// 16 bits are a0·b0 + … + a3·b3. Six bits times eight, four times, have room in 16, so nothing is carried into them.
func dot(a []eight, b []uint8) int64 {
	const even = 0x00ff00ff00ff00ff
	var upper, lower uint64
	for i := range a {
		p, w := &a[i], binary.LittleEndian.Uint64(b[8*i:])
		x, y := w&even, w>>8&even
		upper += x*p.evenUpper>>48 + y*p.oddUpper>>48
		lower += x*p.evenLower>>48 + y*p.oddLower>>48
	}
	return int64(upper<<sixBits + lower)
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
