//go:build !amd64

package nearest

// Without wide instructions the loops in Go do all of it.

var wide = false

func (s *Set) awayWide(*Question, int, int, []uint16, []uint64) bool { return false }

func dotWide([]int16, []int8) (product int32, done int) { return 0, 0 }

func largestWide([]float32) (largest uint32, done int) { return 0, 0 }

func quantiseWide([]int8, []float32, float64) (square, done int) { return 0, 0 }

func (c *code) fillWide([]int8, int) (words int) { return 0 }
