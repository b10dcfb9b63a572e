//go:build !amd64

package nearest

// Without wide instructions the loops in Go do all of it.

var wide = false

func (q *Question) differingWide([]uint64, []uint16) int { return 0 }

func dotWide([]int16, []int8) (product int32, done int) { return 0, 0 }
