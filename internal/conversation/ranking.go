package conversation

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// ranking is the turns of the window in the order in which a context gives them room: whole ones before stubs, the better
// before the worse, the newer before the older. A context reads as many as find room, so its cost is that of the budget and
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

// place is where a turn stands in the order.
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
