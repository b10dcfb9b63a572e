package conversation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/session"
)

// Planning a pass of the watcher. It reads metadata only and changes nothing; the same state at the same time has the
// same plan.
//
// 	candidates ─▶ eight bins: priority × low value or not ─▶ each bin is sorted when it is reached
// 	rounds       1 stubs above their share leave      2 one step for each section, stubs stay
// 	             3 one step, sections may leave       4 backstop only: several steps, until the window fits
//
// A round ends when its goal is met. Kinds above their cap go on until they are below it. Most passes end in the first
// bins, so one sort of all candidates would sort sections that no pass reaches.

// candidate is a section that may be compacted. key holds what it is ordered by
// first: priority, low value or not, score.
type candidate struct {
	key   uint64
	index int32
	item  int32 // place in the plan, -1: not yet
	low   LowValue
	level session.Level // reached so far
}

// priorityReasons are the reasons for sections that no detector found.
var priorityReasons = [...]string{"low priority", "medium priority", "high priority"}

// planner is one run of planning.
type planner struct {
	s      *State
	c      session.Config
	plan   session.Plan
	bins   [8][]candidate // by priority and low value; each is sorted when it is reached
	sorted int
	scores []float64      // by section
	excess map[string]int // tokens above the cap of a kind; nil: no kind is above
}

// Plan plans a background pass. Each section goes at most one step further, or straight to the level that fits its kind
// of low value. The order is low before medium before high (high only with AllowHigh; user turns above UserShare
// always), within a priority low-value sections first, then by score, until the target is met. A section leaves at
// least its stub in the window unless that is not enough; stubs above StubShare leave it first. Plan reads metadata
// only and takes O(n log n).
func (s State) Plan(now time.Time) (session.Plan, error) { return s.makePlan(now, planning{}) }

// Backstop plans for a commit whose window is above the usable limit: first gently down to the target, then every
// unprotected section, high ones too, as far as necessary. If that is not enough, the protected content alone is too
// large, and a *session.HeadroomError comes with the plan.
//
// With yield the newest message goes in whatever else is protected: if UserCap is 0, critical, pinned and kept sections
// give way to it, oldest first. The error then means that the message alone exceeds the usable window.
func (s State) Backstop(now time.Time, yield bool) (session.Plan, error) {
	return s.makePlan(now, planning{backstop: true, yield: yield})
}

// landing returns the tokens at which a backstop ends that has to leave the protected ones: Target, or, where they would
// leave little of it to everything else, half way between them and Usable. So a large newest turn does not push all
// others out, and the next commit has room.
func landing(t session.Thresholds, protected int) int {
	return max(t.Target, t.Usable-(t.Usable-protected)/2)
}

// planning is the kind of a plan.
type planning struct {
	backstop bool
	yield    bool // protected sections give way to the newest message
}

func (s State) makePlan(now time.Time, how planning) (session.Plan, error) {
	t := s.Config.Thresholds()
	protected := s.protections(how.yield)
	p := &planner{s: &s, c: s.Config.WithDefaults()}
	p.plan = session.Plan{
		Generation: s.Generation, Pass: s.Pass + 1, At: now, Recency: s.Config.WithDefaults().Recency, Backstop: how.backstop,
		Thresholds: t, FirstChanged: -1, Items: []session.PlanItem{}, Analysis: s.analyse(protected),
	}
	p.plan.Actual = p.plan.Analysis.Tokens
	p.plan.Predicted = p.plan.Actual
	p.collect(now, how.backstop, protected)
	p.overCaps()
	p.rounds(t, how)
	p.finish()
	if short := p.plan.Predicted - t.Usable; how.backstop && short > 0 {
		return p.plan, s.headroom(short, p.plan.Analysis.Protected)
	}
	return p.plan, nil
}

// round is one walk over the candidates.
type round struct {
	goal    int         // tokens at which it ends
	tokens  int         // least gain of an item ...
	share   session.PPM // ... or share of itself
	cold    bool
	further bool // items that were taken already may go further
}

// rounds plans gently first: stubs above their share go, and everything else
// leaves its stub behind. Only if that is not enough do sections go cold, and
// only a backstop takes several steps.
func (p *planner) rounds(t session.Thresholds, how planning) {
	goal := t.Target
	if how.backstop && p.c.UserCap == 0 {
		goal = landing(t, p.plan.Analysis.Protected)
	}
	r := round{goal: goal, tokens: p.c.MinGainTokens, share: p.c.MinGainShare}
	p.dropStubs(r, p.c.StubShare.Of(t.Usable))
	p.walk(r)
	r.cold = true
	p.walk(r)
	for range session.Cold + 1 {
		if !how.backstop || p.plan.Predicted <= t.Usable {
			return
		}
		p.walk(round{goal: t.Usable, tokens: 1, cold: true, further: true})
	}
}

// dropStubs takes stubs out of the window, those of least worth first, where
// they fill more than their share, until they fill half of it: each pass leaves
// new ones, and in a long session they would crowd out the turns themselves. As
// a stub counts what was compacted and has no shorter form worth a step.
func (p *planner) dropStubs(r round, share int) {
	isStub := func(c *candidate) bool {
		if c.level == session.Raw {
			return false
		}
		to, _ := r.step(c, &p.s.Sections[c.index])
		return to == session.Cold
	}
	stubs := 0
	for n := range p.bins {
		for i := range p.bins[n] {
			if c := &p.bins[n][i]; isStub(c) {
				stubs += p.s.Sections[c.index].Tokens()
			}
		}
	}
	if stubs <= share {
		return
	}
	for n := range p.bins {
		bin := p.bin(n)
		for i := range bin {
			if stubs <= share/2 || p.plan.Predicted <= r.goal {
				return
			}
			if c := &bin[i]; isStub(c) {
				sec := &p.s.Sections[c.index]
				stubs -= sec.Tokens()
				p.take(c, sec, session.Cold, sec.Tokens())
			}
		}
	}
}

// collect finds the candidates and puts them into their bins.
func (p *planner) collect(now time.Time, backstop bool, protected []Protection) {
	low := p.s.lowValues(now, protected)
	p.scores = make([]float64, len(p.s.Sections))
	for i := range p.s.Sections {
		sec := &p.s.Sections[i]
		high := sec.Priority == High && !backstop && !p.c.AllowHigh && (sec.Role != User || p.c.UserCap > 0)
		if protected[i] != Unprotected || sec.Level == session.Cold || high {
			continue
		}
		p.scores[i] = worth(&p.c, sec, now)
		priority := sec.Priority
		if sec.own() != Unprotected {
			priority = Critical // it goes last
		}
		c := candidate{key: sortKey(priority, low[i], p.scores[i]), index: int32(i), item: -1, low: low[i], level: sec.Level}
		g := &p.bins[c.key>>61]
		if *g == nil {
			*g = make([]candidate, 0, len(p.s.Sections)/4)
		}
		*g = append(*g, c)
	}
}

// bin returns one bin in order. Most passes end in the first ones, and then
// the others are never sorted.
func (p *planner) bin(n int) []candidate {
	for ; p.sorted <= n; p.sorted++ {
		slices.SortFunc(p.bins[p.sorted], func(a, b candidate) int {
			if a.key != b.key {
				return cmp.Compare(a.key, b.key)
			}
			return p.tie(a.index, b.index)
		})
	}
	return p.bins[n]
}

// sortKey packs priority, low value and score into one number that sorts like them.
// A score is never negative, so its bits sort as it does; the last two are
// given up, which tie looks at.
func sortKey(p Priority, low LowValue, score float64) uint64 {
	key := uint64(p-Low)<<62 | math.Float64bits(score)>>2
	if low == Worth {
		key |= 1 << 61
	}
	return key
}

// tie: lower score, older, larger, id.
func (p *planner) tie(i, j int32) int {
	a, b := &p.s.Sections[i], &p.s.Sections[j]
	return cmp.Or(
		cmp.Compare(p.scores[i], p.scores[j]),
		a.At.Compare(b.At),
		cmp.Compare(b.Sizes[b.Level], a.Sizes[a.Level]),
		strings.Compare(a.ID, b.ID))
}

func (p *planner) overCaps() {
	for _, r := range p.plan.Analysis.ByKind {
		if r.Over > 0 {
			if p.excess == nil {
				p.excess = map[string]int{}
			}
			p.excess[r.Name] = r.Over
		}
	}
}

// walk takes each candidate one step further until the goal is met; beyond it
// only kinds above their cap go on.
func (p *planner) walk(r round) {
	for n := range p.bins {
		if p.plan.Predicted <= r.goal && p.excess == nil {
			return
		}
		bin := p.bin(n)
		for i := range bin {
			c := &bin[i]
			sec := &p.s.Sections[c.index]
			if p.plan.Predicted <= r.goal && p.excess[sec.Kind] <= 0 || c.item >= 0 && !r.further {
				continue
			}
			if to, gain := r.step(c, sec); r.allows(c, to, gain, sec.Sizes[c.level]) {
				p.take(c, sec, to, gain)
			}
		}
	}
}

// step returns the next level of a section. It skips levels that free too little.
func (r *round) step(c *candidate, sec *Section) (to session.Level, gain int) {
	to, gain = sec.next(c.level, c.low.goal())
	for to < session.Cold && !r.allows(c, to, gain, sec.Sizes[c.level]) {
		to, gain = sec.next(c.level, to+1)
	}
	return to, gain
}

func (r *round) allows(c *candidate, to session.Level, gain, size int) bool {
	if gain <= 0 || to == session.Cold && !r.cold && c.low.goal() != session.Cold {
		return false
	}
	return gain >= r.tokens || int64(gain)*million >= int64(r.share)*int64(size)
}

// next is the first level after from, not below goal, that exists and is
// smaller than what is in the window.
func (s *Section) next(from, goal session.Level) (to session.Level, gain int) {
	for to = max(from+1, goal); to < session.Cold; to++ {
		if n := s.Sizes[to]; n > 0 && n < s.Sizes[from] {
			return to, s.Sizes[from] - n
		}
	}
	return session.Cold, s.Sizes[from]
}

func (p *planner) take(c *candidate, sec *Section, to session.Level, gain int) {
	if c.item < 0 {
		c.item = int32(len(p.plan.Items))
		if cap(p.plan.Items) == 0 {
			p.plan.Items = make([]session.PlanItem, 0, len(p.s.Sections)/4+1)
		}
		p.plan.Items = append(p.plan.Items, session.PlanItem{
			Index: int(c.index), ID: sec.ID, Kind: sec.Kind, Priority: sec.Priority.String(), Score: p.scores[c.index], Reason: p.reason(c, sec),
			From: sec.Level, Before: sec.Tokens(),
		})
	}
	it := &p.plan.Items[c.item]
	it.To, it.After = to, sec.Sizes[to]
	c.level = to
	p.plan.Predicted -= gain
	if p.excess != nil {
		p.excess[sec.Kind] -= gain
	}
}

// reason returns the reason for which a section goes.
func (p *planner) reason(c *candidate, sec *Section) string {
	switch {
	case sec.own() != Unprotected:
		return ReasonYielded
	case c.low != Worth:
		return c.low.String()
	case sec.Role == User && p.c.UserCap == 0:
		return "user turn above the protected share"
	}
	return priorityReasons[sec.Priority-Low]
}

// ReasonYielded is the reason for compacting a section that is critical, pinned or kept.
const ReasonYielded = "gave way to the newest turn"

// headroom is the refusal of a window that is short of so many tokens. It names
// the section that is larger than the usable window by itself, if there is one.
func (s *State) headroom(short, protected int) *session.HeadroomError {
	e := &session.HeadroomError{Shortfall: short, Protected: protected, Usable: s.Config.Thresholds().Usable}
	for i := range s.Sections {
		if sec := &s.Sections[i]; sec.Tokens() > max(e.Usable, e.Tokens) {
			e.Section, e.Tokens = sec.ID, sec.Tokens()
		}
	}
	return e
}

// finish adds up and judges whether the plan is worth a changed prefix.
func (p *planner) finish() {
	for i := range p.plan.Items {
		it := &p.plan.Items[i]
		p.plan.Freed += it.Before - it.After
		it.Cumulative = p.plan.Freed
		if p.plan.FirstChanged < 0 || it.Index < p.plan.FirstChanged {
			p.plan.FirstChanged = it.Index
		}
	}
	t := p.plan.Thresholds
	p.plan.Headroom = session.PPM(int64(t.Total-p.plan.Predicted) * million / int64(t.Total))
	if !p.plan.Backstop && p.plan.Freed < max(t.MinGain, 1) {
		p.plan.Blocked = fmt.Sprintf("frees %d of at least %d tokens; %d of %d are protected", p.plan.Freed, t.MinGain, p.plan.Analysis.Protected, p.plan.Actual)
	}
}
