//go:build !amd64

package nearest

// Without wide instructions the loops in Go do all of it.

var wide = false

func (s *Set) awayWide(*Question, int, int, []uint16, []uint64) bool { return false }

func dotWide([]int16, []int8) (product int32, done int) { return 0, 0 }
