package nearest

import "golang.org/x/sys/cpu"

// The loops that a search and the reading of a file spend their time in, with wide instructions where the processor has them (AVX2). They count and
// multiply in integers, so they give what the loops in Go give, in half the time or less, most of them in a tenth.

// wide says that the processor has the instructions.
var wide = cpu.X86.HasAVX2

// awayBlocks is Set.away for n blocks: columns of tables, the first bound that is too far, the distances, a bit for each slot.
//
//go:noescape
func awayBlocks(lanes, tables *byte, columns, beyond int, out *uint16, near *uint64, n int)

// dotSixteens is the product of n times sixteen numbers.
//
//go:noescape
func dotSixteens(a *int16, b *int8, n int) int32

// largestBits is the greatest of n times sixteen numbers, without their signs.
//
//go:noescape
func largestBits(v *float32, n int) uint32

// quantiseSixteens makes small numbers of n times sixteen and gives the sum of their squares.
//
//go:noescape
func quantiseSixteens(v *float32, small *int8, unit float64, n int) int32

// fillHalves sets the bits of n times 32 numbers: above 0, and larger than limit.
//
//go:noescape
func fillHalves(small *int8, signs, great *uint64, limit, n int)

// awayWide is Set.away with wide instructions; false where the processor has none, or where the sums are too large. What it
// says of slots after the last of the set means nothing.
func (s *Set) awayWide(q *Question, from, bound int, out []uint16, near []uint64) bool {
	columns := 8 * s.words
	if !wide || q.most+1 >= furthest || len(s.lanes) < (from+len(out))*columns || len(out) == 0 {
		return false
	}
	whole := len(out) / block
	if whole > 0 {
		awayBlocks(&s.lanes[from*columns], &q.tables[0], columns, bound+1, &out[0], &near[0], whole)
	}
	if rest := out[whole*block:]; len(rest) > 0 {
		var last [block]uint16
		awayBlocks(&s.lanes[(from+whole*block)*columns], &q.tables[0], columns, bound+1, &last[0], &near[whole], 1)
		copy(rest, last[:])
	}
	return true
}

// dotWide multiplies the first numbers of two vectors and reports how many they were.
func dotWide(a []int16, b []int8) (product int32, done int) {
	n := min(len(a), len(b)) / 16
	if !wide || n == 0 {
		return 0, 0
	}
	return dotSixteens(&a[0], &b[0], n), 16 * n
}

// largestWide is the greatest size of the first numbers of a vector, and how many they were.
func largestWide(v []float32) (largest uint32, done int) {
	n := len(v) / 16
	if !wide || n == 0 {
		return 0, 0
	}
	return largestBits(&v[0], n), 16 * n
}

// quantiseWide makes small numbers of the first of a vector, and reports their squares and how many they were.
func quantiseWide(small []int8, v []float32, unit float64) (square, done int) {
	n := min(len(small), len(v)) / 16
	if !wide || n == 0 {
		return 0, 0
	}
	return int(quantiseSixteens(&v[0], &small[0], unit, n)), 16 * n
}

// fillWide sets the bits of the first numbers and reports how many words they fill.
func (c *code) fillWide(small []int8, limit int) (words int) {
	n := min(len(small)/64, len(c.signs), len(c.great))
	if !wide || n == 0 {
		return 0
	}
	fillHalves(&small[0], &c.signs[0], &c.great[0], limit, 2*n)
	return n
}
