package conversation

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// ranking has the turns of the window in the order in which a context makes room for them: whole ones before stubs, the better
// before the worse, the newer before the older. A context reads as many as find room, so its cost follows the budget and
// not that of the window. A change of one unit costs a pass over the list, which is memory in order, and no look at a turn.
//
// Sorting the turns anew for every context was tried: at ten thousand turns in the window it was three quarters of an
// assembly.
type ranking struct {
	list     []place
	kinds    map[store.Kind]int // how many of each are in the list
	pinned   map[int]int        // turns that come in whatever is before them: turn → unit
	expiring map[int]int        // turns that may have expired, likewise
}

// place is the position of a turn in the order.
type place struct {
	at, unit int
	kind     store.Kind
	stub     bool
	score    float64
}

func (p place) compare(o place) int {
	stubs := 0
	if p.stub != o.stub {
		if stubs = -1; p.stub {
			stubs = 1
		}
	}
	return cmp.Or(stubs, cmp.Compare(o.score, p.score), o.at-p.at)
}

// remove takes units out, which are sorted.
func (r *ranking) remove(units []int) {
	if len(r.list) == 0 {
		return
	}
	of := func(u int) bool {
		_, yes := slices.BinarySearch(units, u)
		return yes
	}
	r.list = slices.DeleteFunc(r.list, func(p place) bool {
		if !of(p.unit) {
			return false
		}
		r.kinds[p.kind]--
		delete(r.pinned, p.at)
		delete(r.expiring, p.at)
		return true
	})
}

// places adds the places of a unit's turns to a list.
func (r *ranking) places(list []place, c *Turns, u int) []place {
	unit := &c.Units[u]
	pinned := c.Pinned(unit)
	for _, i := range unit.Members {
		b := &c.Blocks[i]
		list = append(list, place{at: i, unit: u, kind: b.Kind, stub: c.Shown(i) == session.Stub && len(unit.Members) == 1, score: c.score(i)})
		if pinned {
			put(&r.pinned, i, u)
		}
		if b.Expires != 0 {
			put(&r.expiring, i, u)
		}
	}
	return list
}

func put[K comparable](m *map[K]int, k K, v int) {
	if *m == nil {
		*m = map[K]int{}
	}
	(*m)[k] = v
}

// insert takes places in.
func (r *ranking) insert(fresh []place) {
	for _, p := range fresh {
		put(&r.kinds, p.kind, r.kinds[p.kind]+1)
	}
	if len(fresh) < 8 {
		for _, p := range fresh {
			at, _ := slices.BinarySearchFunc(r.list, p, place.compare)
			r.list = slices.Insert(r.list, at, p)
		}
		return
	}
	r.list = append(r.list, fresh...)
	slices.SortFunc(r.list, place.compare)
}

func (r *ranking) isPinned(i int) bool {
	_, yes := r.pinned[i]
	return yes
}

// outside counts the turns that left the window, by reason, with those of each reason that are named first.
type outside struct {
	sums     map[OutReason]*outSum
	expiring []int // turns that have an expiry, which may be another reason
}

// OutReason is why a turn is out, and its kind, which may be another reason.
type OutReason struct {
	Kind store.Kind
	Why  string
}

// MaxNamed is the number of turns that are named for one reason.
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
