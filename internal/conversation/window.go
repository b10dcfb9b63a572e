package conversation

import (
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Values that are derived from the turns. Most turns of a long session have left the window for good, so a commit and an
// assembly must cost what they change and show, not what the history holds.
//
//	Sum      tokens of the window, and how many units something decided about
//	Inside   the units in the window, and the order in which their turns are given room
//	Win      the window as the planner sees it
//
// Each carries the revision at which it was made. A change of one unit updates Sum and Inside (Recount). A change of more
// than one (a pass, a window limit, a calibration) calls Changed, and the next reader makes them anew from all units.

// sums are sums over all units.
type sums struct {
	tokens  int // of the window
	decided int // units that are pinned or that the watcher compacted
}

// summed returns the sums. Once made, they follow what changes a single unit.
func (c *Turns) summed() sums {
	if !c.current(c.Sum.At) {
		c.Sum = derived[sums]{At: c.Rev}
		for u := range c.Units {
			c.Sum.Value.add(c.sumOf(u), 1)
		}
	}
	return c.Sum.Value
}

func (s *sums) add(of sums, sign int) {
	s.tokens += sign * of.tokens
	s.decided += sign * of.decided
}

func (c *Turns) sumOf(u int) (s sums) {
	members := c.Units[u].Members
	if s.tokens = c.unitTokens(u); len(members) > 0 && (c.Pinned(&c.Units[u]) || c.Blocks[members[0]].Row.Level > 0) {
		s.decided = 1
	}
	return s
}

// Tokens counts the window.
func (c *Turns) Tokens() int { return c.summed().tokens }

func (c *Turns) unitTokens(u int) (n int) {
	for _, i := range c.Units[u].Members {
		n += c.Size(&c.Blocks[i], c.Shown(i))
	}
	return n
}

// Recount makes a change that concerns one unit and no other: the sums and the list of what is in the window follow.
func (c *Turns) Recount(u int, change func()) {
	counted, listed := c.current(c.Sum.At), c.current(c.Inside.At) && c.inWindow(u)
	if counted {
		c.Sum.Value.add(c.sumOf(u), -1)
	}
	change()
	if c.Changed(); counted {
		c.Sum.Value.add(c.sumOf(u), 1)
		c.Sum.At = c.Rev
	}
	if listed {
		c.Inside.At = c.Rev
		c.touch(u)
	}
}

// note makes a change that plans depend on, but neither the sum of the window nor what is in it.
func (c *Turns) note(change func()) {
	counted, listed := c.current(c.Sum.At), c.current(c.Inside.At)
	change()
	if c.Changed(); counted {
		c.Sum.At = c.Rev
	}
	if listed {
		c.Inside.At = c.Rev
	}
}

// inWindow reports whether a unit is listed as in the window, where a new one comes first.
func (c *Turns) inWindow(u int) bool {
	at, listed := slices.BinarySearch(c.Inside.Value, u)
	if !listed && len(c.Units[u].Members) == 0 {
		c.Inside.Value, listed = slices.Insert(c.Inside.Value, at, u), true
	}
	return listed
}

// Fits is nil, or the *session.HeadroomError of a window above its limit.
func (c *Turns) Fits() error {
	if !c.State.limited() {
		return nil
	}
	t := c.State.Config.Thresholds()
	if shortfall := c.Tokens() - t.Usable; shortfall > 0 {
		return &session.HeadroomError{Shortfall: shortfall, Protected: c.Window().Analyse().Protected, Usable: t.Usable}
	}
	return nil
}

// Window is the session as the planner sees it: a section for each unit that is in the window. Units are whole
// sections, because a call and its results go through the levels together.
func (c *Turns) Window() State {
	if !c.current(c.Win.At) {
		c.Win = derived[State]{c.MakeWindow(), c.Rev}
	}
	return c.Win.Value
}

// MakeWindow looks at what was in the window the last time and at what changed since: of a long session most turns are
// out of it for good.
func (c *Turns) MakeWindow() State {
	c.list()
	st := State{Generation: c.Rev, Turn: c.Turn(), Pass: c.State.Pass, Config: c.State.Config, Sections: make([]Section, 0, len(c.Inside.Value))}
	for _, u := range c.Inside.Value {
		if sec, ok := c.section(u); ok {
			st.Sections = append(st.Sections, sec)
		}
	}
	return st
}

// list brings up to date which units are in the window, and the order in which their turns are given room. Units that
// changed are looked at again; what went out of the window is summed up, and looked at again only when it changes.
func (c *Turns) list() {
	if !c.current(c.Inside.At) {
		c.Inside = derived[[]int]{everyIndex(c.Inside.Value[:0], len(c.Units)), c.Rev}
		c.touched = everyIndex(c.touched[:0], len(c.Units))
		c.Outside, c.ranked = outside{}, ranking{}
	}
	if len(c.touched) == 0 {
		return
	}
	c.touched = slices.Compact(slices.Sorted(slices.Values(c.touched)))
	c.ranked.remove(c.touched)
	var gone []int
	var fresh []place
	for _, u := range c.touched {
		if u >= len(c.Units) { // of a turn that was withdrawn
			continue
		}
		c.looked++
		members := c.Units[u].Members
		if c.Shown(members[0]) != session.Cold { // else all of it is
			fresh = c.ranked.places(fresh, c, u)
			continue
		}
		gone = append(gone, u)
		for _, i := range members {
			c.Outside.add(c, i)
		}
	}
	c.ranked.insert(fresh)
	if c.touched = c.touched[:0]; len(gone) > 0 {
		c.Inside.Value = slices.DeleteFunc(c.Inside.Value, func(u int) bool {
			_, out := slices.BinarySearch(gone, u)
			return out
		})
	}
}

// touch notes that a unit of the window must be looked at again.
func (c *Turns) touch(u int) {
	if c.touched = append(c.touched, u); len(c.touched) > 2*len(c.Inside.Value)+64 { // nobody has looked for long
		c.touched = slices.Compact(slices.Sorted(slices.Values(c.touched)))
	}
}

func everyIndex(into []int, n int) []int {
	into = slices.Grow(into, n)
	for i := range n {
		into = append(into, i)
	}
	return into
}

// section describes one unit; false: nothing of it is in the window.
func (c *Turns) section(u int) (Section, bool) {
	members := c.Units[u].Members
	lead, main := &c.Blocks[members[0]], &c.Blocks[members[len(members)-1]]
	sec := Section{
		ID: lead.ID, Kind: main.Kind.String(), Priority: priorityOf(main.priority), At: codec.FromMicros(main.AsOf), Turn: max(main.Seq, 0),
		Level: session.Level(lead.Row.Level), Pinned: c.Pinned(&c.Units[u]), Because: lead.Row.Because,
	}
	if main.Kind == store.KindMessage {
		sec.Kind, sec.Role = main.Role, store.SpokenAs(main.Role)
	}
	if main.rated != nil {
		sec.Relevance, sec.Rated = *main.rated, true
	}
	if sec.Pinned {
		sec.Level = session.Raw
	}
	c.signals(u, &sec)
	for _, i := range members {
		if p := priorityOf(c.Blocks[i].priority); p > Medium {
			sec.Priority = max(sec.Priority, p)
		}
	}
	for _, i := range members {
		sec.Sizes[sec.Level] += c.Size(&c.Blocks[i], c.Shown(i))
	}
	below := sec.Tokens()
	for l := sec.Level + 1; l < session.Cold; l++ {
		if n := c.planned(u, l); n < below {
			sec.Sizes[l], below = n, n
		}
	}
	return sec, sec.Level != session.Cold && sec.Tokens() > 0
}

func priorityOf(p store.Priority) Priority {
	if p == store.PriorityAuto {
		p = store.PriorityMedium
	}
	return Priority(p) - Priority(store.PriorityMedium)
}

// signals sets the signals that the host gave for the members, and those that the database derives.
func (c *Turns) signals(u int, sec *Section) {
	members := c.Units[u].Members
	for _, i := range members {
		b := &c.Blocks[i]
		s := &b.Row.Signals
		sec.Traits |= prose.Traits(b.Row.Traits)
		sec.Signals.Keep = sec.Signals.Keep || s.Keep
		sec.Signals.LastRead = max(sec.Signals.LastRead, s.LastRead, c.Reads[b.ID])
	}
	b := &c.Blocks[members[len(members)-1]]
	s := &b.Row.Signals
	out := &sec.Signals
	out.Source, out.Version, out.Stale, out.Finding, out.Closed, out.Refetchable = s.Source, s.Version, s.Stale, s.Finding, s.Closed, s.Refetchable
	out.Failed = s.Failed || b.Role == "tool" && prose.Traits(b.Row.Traits)&prose.TraitError != 0
	out.ExpiresAt, out.Call = codec.FromMicros(b.Expires), s.Call
	if len(members) > 2 {
		return // of a unit with several results none speaks for all
	}
	out.Digest = b.Row.Content
	lead := &c.Blocks[members[0]]
	if k := slices.Index(lead.calls(), b.answers()); k >= 0 && b.answers() != "" && out.Call == "" {
		out.Call = lead.Tool.callKeys[k]
	}
}

// planned returns the tokens of a unit at a level. It estimates forms that were not made yet.
func (c *Turns) planned(u int, l session.Level) (n int) {
	for _, i := range c.Units[u].Members {
		n += c.Size(&c.Blocks[i], c.plannedLevel(i, l))
	}
	return n
}

// plannedLevel returns the level of a turn if its unit went to level l and every possible form existed.
func (c *Turns) plannedLevel(i int, l session.Level) session.Level {
	b := &c.Blocks[i]
	if b.Judged && verdictLevels[b.Verdict.Action] > l {
		if l = verdictLevels[b.Verdict.Action]; l == session.Cold {
			return c.Shown(i)
		}
	}
	for l > session.Raw && l < session.Cold && b.Row.Sizes[l] == 0 {
		l--
	}
	return l
}

// reached returns the tokens of a unit at a level with the forms that exist.
func (c *Turns) reached(u int, l session.Level) (n int) {
	for _, i := range c.Units[u].Members {
		b := &c.Blocks[i]
		n += c.Size(b, b.Row.settle(c.plannedLevel(i, l)))
	}
	return n
}

// Size returns the tokens of a turn at a level, as they are budgeted.
func (c *Turns) Size(b *Block, l session.Level) int {
	return c.Cal.Budget(b.Row.Sizes[l])
}

// calibrated is a calibration of a stored ratio, in parts per million.
func calibrated(ratio int64) Calibration {
	const unit = 1_000_000
	return Calibration{}.Observe(unit, int(ratio))
}

// Shown returns the level at which the window shows a turn: the further of the levels that the pass in force and the
// watcher ask for. A pin shows it whole, unless it gave way to the newest turn. A call and its results are in the window
// together, because providers refuse one without the other: a member that would leave alone stays as a stub.
func (c *Turns) Shown(i int) session.Level {
	b := &c.Blocks[i]
	u := &c.Units[b.Unit]
	if c.Pinned(u) {
		return session.Raw
	}
	l, _ := c.asked(i)
	if l == session.Cold && len(u.Members) > 1 {
		for _, j := range u.Members {
			if other, _ := c.asked(j); other != session.Cold {
				l = session.Stub
				break
			}
		}
	}
	return b.Row.settle(l)
}

// Pinned reports whether a pin of a unit holds: one of its turns is pinned, and the pin has not given way.
func (c *Turns) Pinned(u *unit) bool {
	for _, i := range u.Members {
		if r := c.Blocks[i].Row; r.Pinned && !r.Yielded {
			return true
		}
	}
	return false
}

// asked returns the further of the levels that watcher and pass ask for. byPass reports that it is the pass's.
func (c *Turns) asked(i int) (l session.Level, byPass bool) {
	b := &c.Blocks[i]
	l = session.Level(c.Blocks[c.Units[b.Unit].Members[0]].Row.Level)
	if b.Judged && verdictLevels[b.Verdict.Action] > l {
		return verdictLevels[b.Verdict.Action], true
	}
	return l, false
}

// Why returns the reason why a turn is not whole; "" if it is.
func (c *Turns) Why(i int) string {
	if c.Shown(i) == session.Raw {
		return ""
	}
	l, byPass := c.asked(i)
	switch {
	case !byPass:
		return c.Blocks[c.Units[c.Blocks[i].Unit].Members[0]].Row.Because
	case l == session.Cold:
		return c.passed().evicted
	}
	return c.passed().paged
}

// verdictLevels are the levels that verdicts ask for.
var verdictLevels = [...]session.Level{session.Retain: session.Raw, session.Page: session.Stub, session.Evict: session.Cold}

// passReasons are the reasons of the pass in force, made once and not for each turn.
type passReasons struct {
	pass           uint64
	evicted, paged string
}

func (c *Turns) passed() *passReasons {
	if n := c.State.InForce; c.reasons.pass != n {
		c.reasons = passReasons{n, fmt.Sprintf("evicted by pass %d", n), fmt.Sprintf("paged by pass %d", n)}
	}
	return &c.reasons
}

// WindowTurn describes a turn to a user.
func (c *Turns) WindowTurn(i int) session.WindowTurn {
	b := &c.Blocks[i]
	l := c.Shown(i)
	t := session.WindowTurn{
		ID: b.ID, Version: b.Version, Seq: b.Seq, Role: b.Role, Kind: b.Kind.String(), Level: l, Tokens: c.Size(b, l),
		Stored: c.Size(b, session.Raw), Pinned: b.Row.Pinned, Why: c.Why(i), Trace: b.Trace,
	}
	if b.Judged {
		t.Verdict = b.Verdict.Action.String()
	}
	return t
}

// Explain returns the reasons for the level of a turn, a sentence each.
func (c *Turns) Explain(i int) []string {
	b := &c.Blocks[i]
	l := c.Shown(i)
	out := []string{fmt.Sprintf("shown as %s with %d of %d tokens", l, c.Size(b, l), c.Size(b, session.Raw))}
	if b.Judged {
		pass := session.StoredPass{Params: c.Force.Params, Keywords: c.Force.Tokens}
		out = append(out, fmt.Sprintf("pass %d: %s", c.Force.Number, pass.Explain(c.judgement(i))))
	} else {
		out = append(out, "no pass has judged it as it is now, so it is retained")
	}
	u := &c.Units[b.Unit]
	if lead := c.Blocks[u.Members[0]].Row; lead.Level > 0 {
		out = append(out, fmt.Sprintf("watcher: compacted to %s: %s", session.Level(lead.Level), lead.Because))
	}
	if c.Pinned(u) {
		out = append(out, "pinned: shown whole whatever pass and watcher say")
	} else if b.Row.Pinned {
		out = append(out, "pinned, but the window has no room for it beside the newest turn: it is shown whole again by the first append that leaves room for it")
	}
	if asked, _ := c.asked(i); asked == session.Cold && l == session.Stub {
		out = append(out, "kept as a stub: a call and its results are in the window together or not at all")
	}
	if b.Trace != "" {
		out = append(out, "written from the context of trace "+b.Trace)
	}
	return out
}
