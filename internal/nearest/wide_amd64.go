package nearest

import "golang.org/x/sys/cpu"

// The two loops that a search spends its time in, with wide instructions where the processor has them (AVX2). They count and
// multiply in integers, so they give what the loops in Go give, in half the time or less.

// wide says that the processor has the instructions.
var wide = cpu.X86.HasAVX2

// pairs is a question beside which two slots of six words are laid at once: its signs twice, and what is large twice.
type pairs [24]uint64

// differingPairs is Set.differing for n pairs of slots of six words each.
//
//go:noescape
func differingPairs(signs *uint64, q *pairs, out *uint16, n int)

// dotSixteens is the product of n times sixteen numbers.
//
//go:noescape
func dotSixteens(a *int16, b *int8, n int) int32

// differingWide counts for the first slots of out and reports for how many: for none where the processor cannot.
func (q *Question) differingWide(signs []uint64, out []uint16) int {
	n := len(out) / 2
	if !wide || n == 0 || len(q.signs) != 6 || len(signs) < 12*n {
		return 0
	}
	var p pairs
	for at := range 6 {
		p[at], p[at+6] = q.signs[at], q.signs[at]
		p[at+12], p[at+18] = q.great[at], q.great[at]
	}
	differingPairs(&signs[0], &p, &out[0], n)
	return 2 * n
}

// dotWide multiplies the first numbers of two vectors and reports how many they were.
func dotWide(a []int16, b []int8) (product int32, done int) {
	n := min(len(a), len(b)) / 16
	if !wide || n == 0 {
		return 0, 0
	}
	return dotSixteens(&a[0], &b[0], n), 16 * n
}
