package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PlanItem is one step of a plan: a section goes from one level to another.
type PlanItem struct {
	Index      int      `json:"index"` // place in the window
	ID         string   `json:"id"`
	Kind       string   `json:"kind"`
	Priority   Priority `json:"priority"`
	Score      float64  `json:"score"`
	Reason     string   `json:"reason"`
	From       Level    `json:"from"`
	To         Level    `json:"to"`
	Before     int      `json:"tokens_before"`
	After      int      `json:"tokens_after"`
	Cumulative int      `json:"freed_so_far"`
}

// Plan says what a pass would do, and what it would leave. It is good for one
// generation of the state. Same state, same time, same plan.
type Plan struct {
	Generation   uint64       `json:"generation"`
	Pass         uint64       `json:"pass"`
	At           time.Time    `json:"at"`
	Recency      RecencyModel `json:"recency_model"`
	Backstop     bool         `json:"backstop"`
	Thresholds   Thresholds   `json:"thresholds"`
	Actual       int          `json:"actual"`
	Predicted    int          `json:"predicted"`
	Freed        int          `json:"freed"`
	Headroom     PPM          `json:"predicted_headroom_ppm"`
	FirstChanged int          `json:"first_changed_index"` // -1: nothing changes; from here on a prompt cache is lost
	Blocked      string       `json:"blocked,omitempty"`   // why the plan is not worth applying; empty: it is
	Items        []PlanItem   `json:"items"`
	Analysis     Analysis     `json:"analysis"`
}

// candidate is a section that may be compacted, with what it is ordered by.
type candidate struct {
	score  float64
	at     int64 // seconds, for ties
	tokens int
	index  int32
	low    LowValue
	prio   Priority
	item   int32 // place in the plan, -1: not yet
	level  Level // reached so far
}

// planner is one run of planning.
type planner struct {
	s     State
	c     Config
	plan  Plan
	cands []candidate
	over  map[string]int // tokens above the cap of a kind; nil: no kind is above
}

// Plan plans a background pass: each section goes one step further at most, or
// straight to the level that fits its kind of low value; low before medium
// before high (only with AllowHigh), within a class what is of little value
// first, then by score; until the target is met. It reads metadata only and
// takes O(n log n).
func (s State) Plan(now time.Time) (Plan, error) { return s.makePlan(now, false, 0) }

// Backstop plans for a commit that would leave less room than need tokens below
// the usable limit: first gently down to the target, then every unprotected
// section, high ones too, as far as it takes. If that is not enough, the
// protected content alone is too much: a *HeadroomError comes with the plan.
func (s State) Backstop(now time.Time, need int) (Plan, error) { return s.makePlan(now, true, need) }

func (s State) makePlan(now time.Time, backstop bool, need int) (Plan, error) {
	t, err := s.Config.Thresholds()
	if err != nil {
		return Plan{}, err
	}
	protected := s.Protections()
	p := &planner{s: s, c: s.Config.filled()}
	p.plan = Plan{
		Generation: s.Generation, Pass: s.Pass + 1, At: now, Recency: s.Config.Recency, Backstop: backstop,
		Thresholds: t, FirstChanged: -1, Items: []PlanItem{}, Analysis: s.analyse(protected),
	}
	p.plan.Actual = p.plan.Analysis.Tokens
	p.plan.Predicted = p.plan.Actual
	p.collect(now, backstop, protected)
	p.overCaps()
	p.round(t.Target-need, p.c.MinGainTokens, p.c.MinGainShare)
	for range Levels {
		if !backstop || p.plan.Predicted+need <= t.Usable {
			break
		}
		p.round(t.Usable-need, 1, 0)
	}
	p.finish()
	if short := p.plan.Predicted + need - t.Usable; backstop && short > 0 {
		return p.plan, &HeadroomError{Shortfall: short, Protected: p.plan.Analysis.Protected, Usable: t.Usable}
	}
	return p.plan, nil
}

// collect finds the candidates and puts them in order.
func (p *planner) collect(now time.Time, backstop bool, protected []Protection) {
	low := p.s.lowValues(now, protected)
	for i := range p.s.Sections {
		sec := &p.s.Sections[i]
		if protected[i] != Unprotected || sec.Level == Cold || sec.Priority == High && !backstop && !p.c.AllowHigh {
			continue
		}
		c := candidate{score: p.c.Score(*sec, now), tokens: sec.Tokens(), index: int32(i), low: low[i], prio: sec.Priority, item: -1, level: sec.Level}
		if !sec.At.IsZero() {
			c.at = sec.At.Unix()
		}
		p.cands = append(p.cands, c)
	}
	slices.SortFunc(p.cands, p.compare)
}

// compare: lower class, low value, lower score, older, larger, id.
func (p *planner) compare(a, b candidate) int {
	if c := cmp.Compare(a.prio, b.prio); c != 0 {
		return c
	}
	if (a.low != Worth) != (b.low != Worth) {
		if a.low != Worth {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(a.score, b.score); c != 0 {
		return c
	}
	if c := cmp.Compare(a.at, b.at); c != 0 {
		return c
	}
	if c := cmp.Compare(b.tokens, a.tokens); c != 0 {
		return c
	}
	return strings.Compare(p.s.Sections[a.index].ID, p.s.Sections[b.index].ID)
}

func (p *planner) overCaps() {
	for _, r := range p.plan.Analysis.ByKind {
		if r.Over > 0 {
			if p.over == nil {
				p.over = map[string]int{}
			}
			p.over[r.Name] = r.Over
		}
	}
}

// round takes each candidate one step further until the goal is met; beyond it
// only kinds above their cap go on.
func (p *planner) round(goal, minTokens int, minShare PPM) {
	for i := range p.cands {
		c := &p.cands[i]
		sec := &p.s.Sections[c.index]
		if p.plan.Predicted <= goal && p.over[sec.Kind] <= 0 {
			if p.over == nil {
				return
			}
			continue
		}
		to, gain := sec.next(c.level, c.low.goal())
		if gain <= 0 || gain < minTokens && int64(gain)*million < int64(minShare)*int64(sec.Sizes[c.level]) {
			continue
		}
		p.take(c, sec, to, gain)
	}
}

// next is the first level after from, not below goal, that exists and is
// smaller than what is in the window.
func (s *Section) next(from, goal Level) (to Level, gain int) {
	for to = max(from+1, goal); to < Cold; to++ {
		if n := s.Sizes[to]; n > 0 && n < s.Sizes[from] {
			return to, s.Sizes[from] - n
		}
	}
	return Cold, s.Sizes[from]
}

func (p *planner) take(c *candidate, sec *Section, to Level, gain int) {
	if c.item < 0 {
		c.item = int32(len(p.plan.Items))
		why := c.low.String()
		if why == "" {
			why = c.prio.String() + " priority"
		}
		p.plan.Items = append(p.plan.Items, PlanItem{
			Index: int(c.index), ID: sec.ID, Kind: sec.Kind, Priority: c.prio, Score: c.score, Reason: why,
			From: sec.Level, Before: sec.Tokens(),
		})
	}
	it := &p.plan.Items[c.item]
	it.To, it.After = to, sec.Sizes[to]
	c.level = to
	p.plan.Predicted -= gain
	if p.over != nil {
		p.over[sec.Kind] -= gain
	}
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
	p.plan.Headroom = PPM(int64(t.Total-p.plan.Predicted) * million / int64(t.Total))
	if !p.plan.Backstop && p.plan.Freed < max(t.MinGain, 1) {
		p.plan.Blocked = fmt.Sprintf("frees %d of at least %d tokens; %d of %d are protected", p.plan.Freed, t.MinGain, p.plan.Analysis.Protected, p.plan.Actual)
	}
}
