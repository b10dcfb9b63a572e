package conversation

import (
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// section describes one unit; false: nothing of it is in the window.
func (c *Turns) section(u int) (window.Section, bool) {
	members := c.Units[u].Members
	lead, main := &c.Blocks[members[0]], &c.Blocks[members[len(members)-1]]
	sec := window.Section{
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
		if p := priorityOf(c.Blocks[i].priority); p > window.Medium {
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

func priorityOf(p store.Priority) window.Priority {
	if p == store.PriorityAuto {
		p = store.PriorityMedium
	}
	return window.Priority(p) - window.Priority(store.PriorityMedium)
}

// signals are what the host told of the members, and what the database sees itself.
func (c *Turns) signals(u int, sec *window.Section) {
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

// planned is what a unit would take at a level, by estimates where a form was not made yet.
func (c *Turns) planned(u int, l session.Level) (n int) {
	for _, i := range c.Units[u].Members {
		n += c.Size(&c.Blocks[i], c.plannedLevel(i, l))
	}
	return n
}

// plannedLevel is where a turn would stand if its unit went to a level, every form that may exist taken as made.
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

// reached is what a unit takes at a level with the forms that were made.
func (c *Turns) reached(u int, l session.Level) (n int) {
	for _, i := range c.Units[u].Members {
		b := &c.Blocks[i]
		n += c.Size(b, b.Row.settle(c.plannedLevel(i, l)))
	}
	return n
}
