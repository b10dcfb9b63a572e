package conversation

import (
	"slices"

	"github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
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

// sums is what is summed up over all units.
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
	if c.State.Config == nil {
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
func (c *Turns) Window() window.State {
	if !c.current(c.Win.At) {
		c.Win = derived[window.State]{c.MakeWindow(), c.Rev}
	}
	return c.Win.Value
}

// MakeWindow looks at what was in the window the last time and at what changed since: of a long session most turns are
// out of it for good.
func (c *Turns) MakeWindow() window.State {
	c.list()
	st := window.State{Generation: c.Rev, Turn: c.Turn(), Pass: c.State.Pass, Sections: make([]window.Section, 0, len(c.Inside.Value))}
	if c.State.Config != nil {
		st.Config = *c.State.Config
	}
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
