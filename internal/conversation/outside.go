package conversation

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// outside is what is out of the window: how many turns for which reason, and those of each that are named first.
type outside struct {
	sums     map[OutReason]*outSum
	expiring []int // turns that have an expiry, which may be another reason
}

// OutReason is why a turn is out, and its kind, which may be another reason.
type OutReason struct {
	Kind store.Kind
	Why  string
}

// MaxNamed is how many of those that are left out for one reason are named.
const MaxNamed = 8

type outSum struct {
	count int
	first []outTurn // up to MaxNamed, the better before the worse, the newer before the older
}

type outTurn struct {
	at    int
	score float64
}

func (o *outside) add(c *Turns, i int) {
	b := &c.Blocks[i]
	if b.Expires != 0 {
		o.expiring = append(o.expiring, i)
		return
	}
	if o.sums == nil {
		o.sums = map[OutReason]*outSum{}
	}
	of := OutReason{b.Kind, c.Why(i)}
	s := o.sums[of]
	if s == nil {
		s = &outSum{}
		o.sums[of] = s
	}
	s.count++
	t := outTurn{i, c.score(i)}
	at, _ := slices.BinarySearchFunc(s.first, t, func(x, y outTurn) int { return cmp.Or(cmp.Compare(y.score, x.score), y.at-x.at) })
	if at < MaxNamed {
		s.first = slices.Insert(s.first, at, t)
		s.first = s.first[:min(len(s.first), MaxNamed)]
	}
}

func (o *outside) counts() map[OutReason]int {
	n := make(map[OutReason]int, len(o.sums))
	for of, s := range o.sums {
		n[of] = s.count
	}
	return n
}
