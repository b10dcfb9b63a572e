package conversation

import (
	"fmt"

	"github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
)

// Size is what a turn takes at a level, in tokens as they are budgeted.
func (c *Turns) Size(b *Block, l session.Level) int {
	return c.Cal.Budget(b.Row.Sizes[l])
}

// calibrated is a calibration of a stored ratio, in parts per million.
func calibrated(ratio int64) window.Calibration {
	const unit = 1_000_000
	return window.Calibration{}.Observe(unit, int(ratio))
}

// Shown is the level at which a turn stands in the window: the further of what the pass in force and the watcher say.
// A pin shows it whole, unless it gave way to the newest turn. A result is never without its call in the window, nor a call without its result, or a provider
// would refuse the sequence: what would leave alone stays as a stub.
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

// asked is the level that watcher and pass want for a turn, and whether it is the pass that wants it so far.
func (c *Turns) asked(i int) (l session.Level, byPass bool) {
	b := &c.Blocks[i]
	l = session.Level(c.Blocks[c.Units[b.Unit].Members[0]].Row.Level)
	if b.Judged && verdictLevels[b.Verdict.Action] > l {
		return verdictLevels[b.Verdict.Action], true
	}
	return l, false
}

// Why says why a turn is not whole, "" when it is.
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

// passReasons are the reasons that the pass in force gives, made once and not for each turn.
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

// Explain says why a turn stands in the window as it does, a sentence at a time.
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
