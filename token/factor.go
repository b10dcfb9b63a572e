package token

import (
	"math"
	"strconv"
)

// Raise returns a counter that answers percent/100 of c, rounded up. It is an estimate, whatever c is; its name carries
// the percentage. A percentage of 100 or one that is not positive returns c itself.
func Raise(c Counter, percent int) Counter {
	if percent == 100 || percent <= 0 {
		return c
	}
	return scaled{c, percent, Estimated}
}

// scaled is a counter times a percentage.
type scaled struct {
	base    Counter
	percent int
	label   Label
}

func (s scaled) Name() string { return s.base.Name() + "*" + strconv.Itoa(s.percent) + "%" }

func (s scaled) Label() Label { return s.label }

func (s scaled) Count(text string) int {
	n := s.base.Count(text)
	if n > math.MaxInt/s.percent-1 {
		return math.MaxInt
	}
	return (n*s.percent + 99) / 100
}
