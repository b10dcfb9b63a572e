package triage

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// maxTokens saturates sums of tokens. No limit reaches it, so a saturated sum never fits.
const maxTokens = math.MaxInt

// maxScore bounds a score, so that sums and quotients of scores stay finite.
const maxScore = 1e12

// rank orders units by how strongly they are held.
type rank int8

const (
	rankLow       rank = iota // stub only
	rankScored                // competes by score
	rankProtected             // pinned or core
	rankNewest                // the newest turn
	rankSystem
)

// unit is a turn group, or an item alone: it is placed or left out as a whole.
type unit struct {
	members []int // into Items
	rank    rank
	class   Class
	full    int // costs of the unit in each form; small equals full when nothing can be compressed
	small   int
	stub    int // 0 when a member has no stub
	score   float64
	recent  bool
	short   bool // all members may be
	unasked bool // all members are
	minor   bool // all members are
	rough   bool // small is an estimate: the cost of a member in short form is one
	newest  int  // highest position of a member
	asks    bool // a member has the flag Newest
}

func (u *unit) cost(p pick) int {
	switch p {
	case inFull:
		return u.full
	case inSmall:
		return u.small
	case inStub:
		return u.stub
	}
	return 0
}

// makeUnits groups the items. The order of the units depends on the items' contents only, never on their order.
func makeUnits(items []Item) []unit {
	units := make([]unit, 0, len(items))
	members := indexes(len(items))
	slices.SortFunc(members, func(a, b int) int { return items[a].compare(&items[b]) })
	// a lone item's members are a slice of this one
	byGroup := map[string]int{}
	for n, i := range members {
		g := items[i].Group
		if g == "" {
			units = append(units, newUnit(&items[i], members[n:n+1:n+1]))
			continue
		}
		if u, ok := byGroup[g]; ok {
			units[u].join(&items[i], i)
			continue
		}
		byGroup[g] = len(units)
		units = append(units, newUnit(&items[i], members[n:n+1:n+1]))
	}
	return units
}

func newUnit(it *Item, members []int) unit {
	full, small, stub := it.costs()
	return unit{members: members, rank: it.rank(), class: it.Class, full: full, small: small, stub: stub,
		score: it.worth(), recent: it.Recent, short: it.Short, unasked: it.Unasked, minor: it.Minor, rough: it.Rough, newest: it.Position, asks: it.Newest}
}

// join adds a member: the group is held as its strongest member is, and costs as much as all.
func (u *unit) join(it *Item, i int) {
	full, small, stub := it.costs()
	u.members = append(u.members, i)
	u.rank = max(u.rank, it.rank())
	u.class = min(u.class, it.Class)
	u.full, u.small = addSat(u.full, full), addSat(u.small, small)
	if u.stub > 0 && stub > 0 {
		u.stub = addSat(u.stub, stub)
	} else {
		u.stub = 0
	}
	u.score += it.worth()
	u.recent = u.recent || it.Recent
	u.short = u.short && it.Short
	u.unasked = u.unasked && it.Unasked
	u.minor = u.minor && it.Minor
	u.rough = u.rough || it.Rough
	u.newest = max(u.newest, it.Position)
	u.asks = u.asks || it.Newest
}

func (it *Item) rank() rank {
	switch p := it.place(); {
	case it.Class == System, p == PlaceTools, p == PlaceSystem, p == PlaceDirectives:
		return rankSystem
	case p == PlaceNewest, it.Newest:
		return rankNewest
	case it.Pinned, it.Core:
		return rankProtected
	case it.MustStub:
		return rankLow
	}
	return rankScored
}

// place is the place of the item: as the caller said, otherwise by class and flags.
func (it *Item) place() Place {
	switch {
	case it.Place > PlaceAuto && it.Place <= PlaceNewest:
		return it.Place
	case it.Class == System:
		return PlaceSystem
	case it.Pinned:
		return PlacePinned
	case it.Core:
		return PlaceCore
	}
	return classPlace(it.Class)
}

func classPlace(c Class) Place {
	switch c {
	case System:
		return PlaceSystem
	case Core:
		return PlaceCore
	case RAG:
		return PlaceChunks
	case History:
		return PlaceHistory
	}
	return PlaceScratchpad
}

// costs cleans the three costs: never negative, small never above full.
func (it *Item) costs() (full, small, stub int) {
	full = max(it.Tokens, 0)
	small = full
	if it.Compressed > 0 && it.Compressed < full {
		small = it.Compressed
	}
	return full, small, max(it.StubTokens, 0)
}

// form is the shape and cost of one member of a unit with the given pick.
func (it *Item) form(p pick) (Form, int) {
	full, small, stub := it.costs()
	switch {
	case p == inStub:
		return Stub, stub
	case p == inSmall && small < full:
		return Compressed, small
	}
	return Full, full
}

// worth is the score made safe for sums and quotients.
func (it *Item) worth() float64 {
	if math.IsNaN(it.Score) {
		return 0
	}
	return min(max(it.Score, -maxScore), maxScore)
}

// compare is a total order over all fields: items it cannot tell apart are interchangeable.
func (it *Item) compare(o *Item) int {
	if c := strings.Compare(it.Key, o.Key); c != 0 {
		return c // the keys of a caller differ as a rule
	}
	return cmp.Or(
		strings.Compare(it.Group, o.Group),
		cmp.Compare(it.Class, o.Class), cmp.Compare(it.Place, o.Place), cmp.Compare(it.Position, o.Position),
		cmp.Compare(it.Score, o.Score), cmp.Compare(it.Tokens, o.Tokens), cmp.Compare(it.Compressed, o.Compressed),
		cmp.Compare(it.StubTokens, o.StubTokens), cmp.Compare(it.flags(), o.flags()),
	)
}

func (it *Item) flags() (n int) {
	for _, b := range []bool{it.Newest, it.Pinned, it.Core, it.Recent, it.MustStub, it.Short, it.Unasked, it.Minor, it.Rough} {
		n <<= 1
		if b {
			n |= 1
		}
	}
	return n
}

// windowOrder is by place, then position, then identity.
func windowOrder(items []Item) []int {
	order := indexes(len(items))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &items[a], &items[b]
		if c := cmp.Compare(x.place(), y.place()); c != 0 {
			return c
		}
		if c := cmp.Compare(x.Position, y.Position); c != 0 {
			return c
		}
		return x.compare(y)
	})
	return order
}

func indexes(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// addSat adds two counts that are not negative and stops at maxTokens.
func addSat(a, b int) int {
	if a > maxTokens-b {
		return maxTokens
	}
	return a + b
}

// lessRatio reports a/b < num/den in exact arithmetic; a and b are not negative.
func lessRatio(a, b, num, den int) bool {
	ah, al := bits.Mul64(uint64(a), uint64(den))
	bh, bl := bits.Mul64(uint64(b), uint64(num))
	return ah < bh || ah == bh && al < bl
}

// share is the part of total that a fraction means: 0 for anything that is no fraction, total from 1 on.
func share(fraction float64, total int) int {
	switch {
	case !(fraction > 0):
		return 0
	case fraction >= 1:
		return total
	}
	return min(int(fraction*float64(total)), total)
}
