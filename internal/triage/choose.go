package triage

import (
	"cmp"
	"math"
)

// option is something that may be bought for tokens.
type option struct {
	unit  int
	class Class
	cost  int
	value float64
	dense float64 // score per token
}

func newOption(unit int, class Class, cost int, value float64) option {
	o := option{unit: unit, class: class, cost: cost, value: value, dense: value}
	switch {
	case cost > 0:
		o.dense = value / float64(cost)
	case value > 0:
		o.dense = math.Inf(1) // what costs nothing and is worth something comes first
	}
	return o
}

// compare orders by score per token, then class, score, cost and identity: a total order.
func (o option) compare(p option) int {
	return cmp.Or(
		cmp.Compare(p.dense, o.dense), cmp.Compare(o.class, p.class),
		cmp.Compare(p.value, o.value), cmp.Compare(o.cost, p.cost), cmp.Compare(o.unit, p.unit),
	)
}

// The exchange around the break looks at this many options, and ends after this many steps. Larger numbers were
// tried over random sets and moved the mean by less than a thousandth.
const (
	coreSize  = 40
	coreSteps = 3000
)

// choose picks options, best density first, for the most value within room.
//
// Greedy by density is off by at most the option it could not split, and either it or the most valuable single option
// is worth half the optimum (the best-single correction). Nearly all of the rest of the gap sits around the break, the
// first option that did not fit: a bounded exact search over the options next to it finds it.
func choose(opts []option, room int) []bool {
	best := greedy(opts, make([]bool, len(opts)), 0, room)
	brk := firstOut(opts, best, room)
	if brk < 0 {
		return best
	}
	for _, other := range [][]bool{bestSingle(opts, room), exchange(opts, brk, room)} {
		if worth(opts, other) > worth(opts, best) {
			best = other
		}
	}
	return best
}

// greedy completes taken from option i on with whatever fits, in order.
func greedy(opts []option, taken []bool, i, room int) []bool {
	for ; i < len(opts); i++ {
		if !taken[i] && opts[i].cost <= room {
			taken[i] = true
			room -= opts[i].cost
		}
	}
	return taken
}

// firstOut is the break: the first option of worth that could fit alone and was not taken; −1 if there is none.
func firstOut(opts []option, taken []bool, room int) int {
	for i, o := range opts {
		if !taken[i] && o.cost <= room && o.value > 0 {
			return i
		}
	}
	return -1
}

func bestSingle(opts []option, room int) []bool {
	best := -1
	for i, o := range opts {
		if o.cost <= room && (best < 0 || o.value > opts[best].value) {
			best = i
		}
	}
	taken := make([]bool, len(opts))
	if best >= 0 {
		taken[best] = true
		room -= opts[best].cost
	}
	return greedy(opts, taken, 0, room)
}

func worth(opts []option, taken []bool) (sum float64) {
	for i, yes := range taken {
		if yes && opts[i].value > 0 {
			sum += opts[i].value
		}
	}
	return sum
}

// exchange keeps the options well before the break, searches those around it and fills up with those after.
func exchange(opts []option, brk, room int) []bool {
	from := max(0, brk-coreSize/2)
	taken := make([]bool, len(opts))
	total := room
	for i := range from {
		if opts[i].cost <= room {
			taken[i] = true
			room -= opts[i].cost
		}
	}
	s := coreSearch{steps: coreSteps}
	var at []int
	for i := from; i < len(opts) && len(s.opts) < coreSize; i++ {
		if opts[i].cost <= total && opts[i].value > 0 {
			s.opts, at = append(s.opts, opts[i]), append(at, i)
		}
	}
	s.walk(0, room, 0, 0)
	for k, i := range at {
		if s.best&(1<<k) != 0 {
			taken[i] = true
			room -= opts[i].cost
		}
	}
	return greedy(opts, taken, from, room)
}

// coreSearch is a depth-first branch and bound over at most 64 options in order of density.
type coreSearch struct {
	opts  []option
	steps int
	best  uint64 // the set found, one bit per option
	value float64
}

func (s *coreSearch) walk(i, room int, set uint64, value float64) {
	if value > s.value {
		s.value, s.best = value, set
	}
	for i < len(s.opts) && s.opts[i].cost > room {
		i++
	}
	if s.steps--; s.steps < 0 || i == len(s.opts) || s.bound(i, room, value) <= s.value {
		return
	}
	s.walk(i+1, room-s.opts[i].cost, set|1<<i, value+s.opts[i].value)
	s.walk(i+1, room, set, value)
}

// bound is the most that the rest can add, as if the last option could be split.
func (s *coreSearch) bound(i, room int, value float64) float64 {
	for ; i < len(s.opts); i++ {
		o := s.opts[i]
		if o.cost > room {
			// The conversion keeps the product from being fused with the sum, which some processors would do.
			return value + float64(o.value*(float64(room)/float64(o.cost)))
		}
		room -= o.cost
		value += o.value
	}
	return value
}
