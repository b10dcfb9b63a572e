package triage

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrBudget means that what must be in the window does not fit. The error is a *BudgetError.
var ErrBudget = errors.New("budget: the system part does not fit")

// BudgetError is the shortfall behind ErrBudget: Need tokens were needed and Have were left.
type BudgetError struct {
	Block     string // the block that did not fit; empty for Fit
	Need      int    // tokens the part needs
	Have      int    // tokens there were for it; negative when the reserve exceeds the budget
	Shortfall int    // Need − Have
}

// Error implements error.
func (e *BudgetError) Error() string {
	where := ""
	if e.Block != "" {
		where = fmt.Sprintf(" (block %q)", e.Block)
	}
	return fmt.Sprintf("%v%s: it needs %d tokens and has %d; raise the budget or lower the reserve by %d",
		ErrBudget, where, e.Need, e.Have, e.Shortfall)
}

// Is makes errors.Is(err, ErrBudget) true.
func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

// Item is one candidate for the window: a page with its cost in each form. Negative costs count as 0, and so does a NaN
// score.
type Item struct {
	Key        string  // stable identity: breaks ties, so the answer does not depend on the order of Items
	Class      Class   // what it is; System is placed always or the call fails
	Place      Place   // where it stands in the window; PlaceAuto derives it from Class, Pinned and Core
	Position   int     // order inside its place; higher is newer
	Tokens     int     // cost in full, rendered header included
	Compressed int     // cost once compressed or truncated; 0 (or not below Tokens) = cannot be compressed
	StubTokens int     // cost as a stub; 0 = has no stub
	Score      float64 // worth; compared per token with that of others
	Group      string  // turn group: its items go together or not at all; "" = alone
	Pinned     bool    // protected: placed before anything scored
	Core       bool    // human-verified: protected in the same way
	Newest     bool    // held as strongly as what stands at PlaceNewest
	Recent     bool    // member of the recent tail: a slice of the budget is tried for these first
	MustStub   bool    // never in full, only as a stub when there is room
	Unasked    bool    // does not match the question: placed after the items that match have their final forms
	Short      bool    // compressed where its full form would use room that Request.ShortShare keeps
	Minor      bool    // what happens to it does not show in the tier of Fill
	Rough      bool    // Compressed is an estimate, and Request.Exact tells the cost
}

// Request is the input of Fit.
type Request struct {
	Budget      int      // tokens of the whole window
	Reserve     int      // tokens of it kept free for the answer; negative counts as 0
	Overflow    Overflow // what to do when not everything fits
	RecentShare float64  // share of Budget − Reserve tried for Recent items first; 0 = none, capped at 1
	ShortShare  float64  // share of Budget − Reserve that Short items may not use in full form if not all items fit; only with Fill and InOrder
	InOrder     bool     // true: scored items are taken best first, each that fits; false: Fit searches for the set worth most
	Items       []Item   // read only; nothing of it is kept
	// Exact sets Compressed of Items[i] to its cost and Rough to false. Fit calls it only for what may enter compressed: with half of
	// the estimate it fits. Nil if no item is Rough.
	Exact func(i int)
}

// Placed is an item in the window.
type Placed struct {
	Index  int  // into Request.Items
	Form   Form // the form it takes
	Tokens int  // what that form costs
}

// LeftOut is an item that is not in the window, with the reason.
type LeftOut struct {
	Index  int
	Reason Reason
}

// Result is the report of Fit. It is complete even when Fit fails.
type Result struct {
	Tier   Tier
	Placed []Placed  // in window order
	Left   []LeftOut // in the window order they would have had
	Used   int       // tokens of Placed; never above Limit
	Limit  int       // Budget − Reserve
	Demand int       // tokens of everything but MustStub items, all in full
	Review bool      // tier 4: a person should look
}

// Fit decides which of req.Items are placed, in which form and in which order.
//
// It subtracts the reserve first. Items of class System, and those at the places of tools and directives, are placed
// whole, or Fit fails with ErrBudget. The newest turn and items with the flag Pinned or Core come before anything
// scored (class Core alone protects nothing). The rest is chosen by score per token; ties are broken by class, then
// score, then key.
//
// Ladder degrades by the ratio of demand to Budget − Reserve. Fill keeps as much as fits, and its tier reports what was
// lost of the items that are not Minor:
//
//	tier           Ladder: demand / (Budget − Reserve)            Fill
//	1 full         [0, .80)      everything in full               all are placed, in full
//	2 summarised   [.80, .95)    everything scored compressed     all are placed, some compressed or as a stub
//	3 core         [.95, 1.10]   system, newest turn, protected   some are left out
//	4 minimal      above 1.10    system only                      what is protected does not fit: system; the newest
//	                                                              turn, cut short if it must be; in 3/4 of the rest the protected
//	                                                              items that fit; the best of the others
//
// Fill places everything in full if that fits. If not, it compresses what is scored and spends the room that is left on full
// forms (of all that matches if there is a ShortShare). If that does not fit either, it takes the best that fit, then stubs.
//
// If the items of a tier of Ladder still exceed the room, the next tier is tried. A group of items is treated like its
// strongest member: it is protected if one member is, and may be in full if one member may. MustStub items take the
// remaining room, but for Ladder's tiers 3 and 4.
//
// The answer does not depend on the order of Items, costs O(n log n) and never exceeds the room, whatever the numbers.
func Fit(req Request) (Result, error) {
	f := newFitting(req)
	if f.system > f.limit {
		return f.refuse()
	}
	for tier := f.firstTier(); ; tier++ {
		if f.try(tier) {
			return f.result(tier), nil
		}
	}
}

// fitting is one run of Fit. Its units are in canonical order; picks[i] is the form of units[i].
type fitting struct {
	req    Request
	limit  int
	demand int
	system int // tokens of the system units
	units  []unit
	scored []int // units that compete by score
	low    []int // units that may only be stubs
	picks  []pick
	used   int
}

// pick is the fate of a unit: out, or in one of the forms.
type pick int8

const (
	out pick = iota
	inFull
	inSmall
	inStub
)

func newFitting(req Request) *fitting {
	f := &fitting{req: req, units: makeUnits(req.Items), limit: available(req.Budget, req.Reserve)}
	f.picks, f.scored = make([]pick, len(f.units)), make([]int, 0, len(f.units))
	for i := range f.units {
		u := &f.units[i]
		switch u.rank {
		case rankSystem:
			f.system = addSat(f.system, u.full)
		case rankScored:
			f.scored = append(f.scored, i)
		case rankLow:
			f.low = append(f.low, i)
			continue
		}
		f.demand = addSat(f.demand, u.full)
	}
	return f
}

// available is budget − reserve without overflow, and below maxTokens so that a saturated sum never fits.
func available(budget, reserve int) int {
	reserve = max(reserve, 0)
	if budget < 0 && reserve > 0 && budget < math.MinInt+reserve {
		return math.MinInt
	}
	return min(budget-reserve, maxTokens-1)
}

func (f *fitting) firstTier() Tier {
	if f.req.Overflow != Ladder {
		return TierFull
	}
	switch {
	case f.demand == 0, lessRatio(f.demand, f.limit, 4, 5):
		return TierFull
	case lessRatio(f.demand, f.limit, 19, 20):
		return TierSummarised
	case !lessRatio(f.limit, f.demand, 10, 11): // demand ≤ 1.10 × limit
		return TierCore
	}
	return TierMinimal
}

// try fills the picks by the strategy of a tier and reports whether they fit. TierMinimal always does.
func (f *fitting) try(t Tier) bool {
	clear(f.picks)
	f.used = 0
	fill := f.req.Overflow != Ladder
	switch t {
	case TierFull:
		return f.place(rankScored, inFull) && f.stubs()
	case TierSummarised:
		return f.placeSmall(fill) && (!fill || f.restore() && !f.cutsForUnasked()) && f.stubs()
	case TierCore:
		return f.place(rankProtected, inFull) && (!fill || f.chooseRest() && f.stubs())
	}
	f.place(rankSystem, inFull)
	if fill {
		f.placeNewest()
		f.placeProtected(f.limit - (f.limit-f.used)/4)
		f.chooseRest()
		f.placeProtected(f.limit)
		f.stubs()
	}
	return true
}

// place takes every unit of at least the given rank, those that compete by score in the given form, and reports
// whether that fits.
func (f *fitting) place(least rank, scored pick) bool {
	for i := range f.units {
		u := &f.units[i]
		if u.rank < least {
			continue
		}
		p := inFull
		if u.rank == rankScored && u.small < u.full {
			p = scored
		}
		f.picks[i] = p
		f.used = addSat(f.used, u.cost(p))
	}
	return f.used <= f.limit
}

// placeSmall takes every unit, those that compete by score compressed, and reports whether that fits. It asks for exact costs
// only until it is clear that it does not; guess lets it trust the estimates where they say so by far.
func (f *fitting) placeSmall(guess bool) bool {
	least, known := 0, 0
	for i := range f.units {
		switch u := &f.units[i]; {
		case u.rank < rankScored:
		case u.rank == rankScored && u.rough:
			least = addSat(least, u.atLeast())
		case u.rank == rankScored:
			known = addSat(known, u.small)
		default:
			known = addSat(known, u.full)
		}
	}
	if known > f.limit || guess && addSat(known, least) > f.limit {
		return false
	}
	for i := range f.units {
		if u := &f.units[i]; u.rank == rankScored && u.rough {
			if known = addSat(known, f.exact(i).small); known > f.limit {
				return false
			}
		}
	}
	return f.place(rankScored, inSmall)
}

// exact is a unit whose compressed cost is known.
func (f *fitting) exact(i int) *unit {
	u := &f.units[i]
	if !u.rough {
		return u
	}
	u.rough, u.small = false, 0
	for _, m := range u.members {
		if f.req.Items[m].Rough {
			f.req.Exact(m)
		}
		_, small, _ := f.req.Items[m].costs()
		u.small = addSat(u.small, small)
	}
	return u
}

// atLeast returns the least that a unit with an estimate is likely to take compressed.
func (u *unit) atLeast() int { return u.small / 2 }

// tooLarge reports whether a unit that is out cannot enter compressed, as far as its estimate tells.
func (f *fitting) tooLarge(i int) bool {
	u := &f.units[i]
	return u.rough && addSat(f.used, u.atLeast()) > f.limit
}

// take sets the form of unit i if the room allows it, in exchange for what it has.
func (f *fitting) take(i int, p pick) bool {
	u := &f.units[i]
	if p == inSmall {
		u = f.exact(i)
	}
	used := addSat(f.used-u.cost(f.picks[i]), u.cost(p))
	if used > f.limit {
		return false
	}
	f.picks[i], f.used = p, used
	return true
}

// placeNewest keeps the newest turns in the last tier, the question (Item.Newest) first and then the newest turns: cut short,
// and then in full where that fits.
func (f *fitting) placeNewest() {
	var turns []int
	for i := range f.units {
		if f.units[i].rank == rankNewest {
			turns = append(turns, i)
		}
	}
	slices.SortStableFunc(turns, func(a, b int) int {
		x, y := &f.units[a], &f.units[b]
		if x.asks != y.asks {
			return map[bool]int{true: -1, false: 1}[x.asks]
		}
		return cmp.Compare(y.newest, x.newest)
	})
	for _, p := range [...]pick{inSmall, inFull} {
		for _, i := range turns {
			f.take(i, p)
		}
	}
}

// placeProtected takes what of the protected units fits below a limit, in full, else compressed: by place, then the best for its
// tokens. In the order of the window the worst would come first, because the best stand last. A unit that is too large takes no
// place from the others.
func (f *fitting) placeProtected(limit int) {
	var opts []option
	place := make([]Place, len(f.units))
	for i := range f.units {
		if u := &f.units[i]; u.rank == rankProtected && f.picks[i] == out {
			place[i] = f.req.Items[u.members[0]].place()
			opts = append(opts, newOption(i, u.class, u.full, u.score))
		}
	}
	slices.SortFunc(opts, func(a, b option) int {
		return cmp.Or(cmp.Compare(place[a.unit], place[b.unit]), a.compare(b))
	})
	for _, o := range opts {
		for _, p := range [...]pick{inFull, inSmall} {
			if f.picks[o.unit] == out && addSat(f.used, f.exact(o.unit).cost(p)) <= limit {
				f.take(o.unit, p)
			}
		}
	}
}

// restore spends the room that compression freed on full forms.
func (f *fitting) restore() bool {
	f.upgrade(f.scored)
	return true
}

// cutsForUnasked reports whether what matches the question stays cut so that something else has a place. The next tier decides
// better then.
func (f *fitting) cutsForUnasked() bool {
	if !f.keepsShort() {
		return false
	}
	cut, unasked := false, false
	for _, i := range f.scored {
		u := &f.units[i]
		cut = cut || !u.unasked && f.picks[i] == inSmall
		unasked = unasked || u.unasked
	}
	return cut && unasked
}

// keepsShort reports whether a share of the limit is kept for short items.
func (f *fitting) keepsShort() bool { return f.req.InOrder && f.req.ShortShare > 0 }

// chooseRest fills the room beside the protected units: full forms by score per token, then compressed ones.
func (f *fitting) chooseRest() bool {
	if f.keepsShort() {
		f.shorten(f.scored)
	} else {
		f.upgrade(f.scored)
	}
	left := make([]int, 0, len(f.scored))
	for _, i := range f.scored {
		if f.picks[i] == out && f.units[i].small < f.units[i].full && !f.tooLarge(i) && f.exact(i).small < f.units[i].full {
			left = append(left, i)
		}
	}
	opts := f.options(left, inSmall)
	for _, o := range opts {
		f.take(o.unit, inSmall)
	}
	return true
}

// upgrade brings units to their full form: the recent tail within its slice first, then by score per token.
func (f *fitting) upgrade(units []int) {
	f.recentSlice(units)
	opts := f.options(units, inFull)
	for i, yes := range f.choose(opts) {
		if yes {
			f.take(opts[i].unit, inFull)
		}
	}
}

// shorten is upgrade in order of score, but items that may be short leave a share of the limit free and enter it
// compressed: there they make room for others. What the others leave makes them whole, the best first, before anything
// enters that was not asked for.
func (f *fitting) shorten(units []int) {
	f.recentSlice(units)
	var asked, unasked []int
	for _, i := range units {
		if f.units[i].unasked {
			unasked = append(unasked, i)
		} else {
			asked = append(asked, i)
		}
	}
	f.enterShort(asked)
	for _, o := range f.options(asked, inFull) {
		if f.picks[o.unit] == inSmall {
			f.take(o.unit, inFull)
		}
	}
	f.enterShort(unasked)
}

// enterShort takes units in order of score, short ones compressed in the share that is kept for them.
func (f *fitting) enterShort(units []int) {
	kept := share(f.req.ShortShare, f.limit)
	for _, o := range f.options(units, inFull) {
		u, p := &f.units[o.unit], inFull
		if u.short && u.small < u.full && addSat(f.used, o.cost) > f.limit-kept {
			if f.tooLarge(o.unit) {
				continue
			}
			if f.exact(o.unit); u.small < u.full {
				p = inSmall
			}
		}
		f.take(o.unit, p)
	}
}

func (f *fitting) choose(opts []option) []bool {
	if f.req.InOrder {
		return greedy(opts, make([]bool, len(opts)), 0, f.limit-f.used)
	}
	return choose(opts, f.limit-f.used)
}

// recentSlice takes recent units, newest first, while their slice of the budget lasts.
func (f *fitting) recentSlice(units []int) {
	slice := share(f.req.RecentShare, f.limit)
	if slice == 0 {
		return
	}
	var tail []int
	for _, i := range units {
		if f.units[i].recent {
			tail = append(tail, i)
		}
	}
	slices.SortFunc(tail, func(a, b int) int {
		return cmp.Or(cmp.Compare(f.units[b].newest, f.units[a].newest), cmp.Compare(a, b))
	})
	for _, i := range tail {
		u := &f.units[i]
		extra := u.full - u.cost(f.picks[i])
		if extra <= slice && f.take(i, inFull) {
			slice -= extra
		}
	}
}

// options lists the units that a form p would change, best score per extra token first.
func (f *fitting) options(units []int, p pick) []option {
	opts := make([]option, 0, len(units))
	for _, i := range units {
		if f.picks[i] == p {
			continue
		}
		u := &f.units[i]
		opts = append(opts, newOption(i, u.class, max(u.cost(p)-u.cost(f.picks[i]), 0), u.score))
	}
	slices.SortFunc(opts, option.compare)
	return opts
}

// stubs spends what is left on stubs: of what was chosen but did not fit, then of the low ones.
func (f *fitting) stubs() bool {
	for _, units := range [][]int{f.scored, f.low} {
		var order []int
		for _, i := range units {
			if f.picks[i] == out && f.units[i].stub > 0 {
				order = append(order, i)
			}
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(f.units[b].score, f.units[a].score), cmp.Compare(a, b))
		})
		for _, i := range order {
			f.take(i, inStub)
		}
	}
	return true
}

// lost is the tier of Fill: the worst that happened to an item that is not Minor.
func (f *fitting) lost() Tier {
	t := TierFull
	for i := range f.units {
		u := &f.units[i]
		switch p := f.picks[i]; {
		case u.minor:
		case p == out:
			return TierCore
		case p == inSmall && u.small < u.full, p == inStub && u.rank != rankLow:
			t = TierSummarised
		}
	}
	return t
}

func (f *fitting) result(t Tier) Result {
	reported := t
	if t != TierMinimal && f.req.Overflow != Ladder {
		reported = f.lost()
	}
	r := Result{Tier: reported, Used: f.used, Limit: f.limit, Demand: f.demand, Review: t == TierMinimal}
	if t == TierFull {
		r.Placed = make([]Placed, 0, len(f.req.Items))
	}
	unitOf := f.unitOf()
	for _, i := range windowOrder(f.req.Items) {
		it, u := &f.req.Items[i], unitOf[i]
		if p := f.picks[u]; p != out {
			form, tokens := it.form(p)
			r.Placed = append(r.Placed, Placed{Index: i, Form: form, Tokens: tokens})
			continue
		}
		r.Left = append(r.Left, LeftOut{Index: i, Reason: f.reason(u, t)})
	}
	return r
}

func (f *fitting) unitOf() []int {
	of := make([]int, len(f.req.Items))
	for u := range f.units {
		for _, i := range f.units[u].members {
			of[i] = u
		}
	}
	return of
}

func (f *fitting) reason(i int, t Tier) Reason {
	u := &f.units[i]
	switch {
	case f.req.Overflow == Ladder && t >= TierCore:
		return ReasonTier
	case u.rank == rankLow:
		return ReasonLow
	case min(u.full, u.small) > f.limit:
		return ReasonLarge
	case len(u.members) > 1:
		return ReasonGroup
	}
	return OverBudget
}

// refuse reports that not even the system part fits: nothing is placed.
func (f *fitting) refuse() (Result, error) {
	r := Result{Tier: TierMinimal, Limit: f.limit, Demand: f.demand, Review: true}
	for _, i := range windowOrder(f.req.Items) {
		r.Left = append(r.Left, LeftOut{Index: i, Reason: ReasonSystem})
	}
	return r, shortfall("", f.system, f.limit)
}

func shortfall(block string, need, have int) *BudgetError {
	e := &BudgetError{Block: block, Need: need, Have: have, Shortfall: maxTokens}
	if have >= 0 || need < maxTokens+have {
		e.Shortfall = need - have
	}
	return e
}
