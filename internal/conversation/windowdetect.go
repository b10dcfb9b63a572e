package conversation

import (
	"time"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

// LowValue is the reason why a section is worth little.
type LowValue uint8

// The kinds of low value, in the order in which they are looked for.
const (
	Worth      LowValue = iota
	Expired             // past its time
	Duplicate           // a newer section has the same content
	Superseded          // a newer version of the same source is in the window
	StaleRead           // its source changed since
	Resolved            // a failed call that later succeeded
	OldDiff             // a newer diff of the same source is in the window
	Encoded             // base64 or an image
	RawLog              // a log whose finding is recorded
	Refetch             // a large tool output that can be asked for again
	ClosedTask          // of a finished sub-task
	Chatter             // an acknowledgement
	Unread              // not read for many turns
)

var lowValueNames = [...]string{"", "expired", "duplicate", "superseded read", "stale source", "resolved error", "old diff",
	"encoded data", "log with recorded finding", "re-fetchable output", "closed sub-task", "acknowledgement", "unread"}

func (v LowValue) String() string { return lowValueNames[v] }

// goal is the level to which a section of little worth may go at once, instead
// of one step at a time: what exists elsewhere needs no summary here.
func (v LowValue) goal() session.Level {
	switch v {
	case Worth, Unread:
		return session.Raw
	case ClosedTask:
		return session.Summary
	case Expired, Chatter:
		return session.Cold
	}
	return session.Stub
}

// chatterTokens is below which a turn without content counts as chatter.
const chatterTokens = 8

// lowValues finds sections of little worth; the result is parallel to Sections. Protected sections and sections with an
// unresolved error are never among them. It is linear in the sections.
func (s *State) lowValues(now time.Time, protected []Protection) []LowValue {
	x := s.index()
	c := s.Config.WithDefaults()
	out := make([]LowValue, len(s.Sections))
	for i := range s.Sections {
		if sec := &s.Sections[i]; protected[i] == Unprotected && sec.Role != User && sec.Level < session.Cold {
			out[i] = x.judge(i, sec, s.Turn, now, &c)
		}
	}
	return out
}

// windowIndex finds the newest section of each content, source and call.
type windowIndex struct {
	digest  map[uint64]int
	version map[string]uint64
	diff    map[string]int
	success map[string]int
}

func (s *State) index() windowIndex {
	digests, sources := 0, 0
	for i := range s.Sections {
		digests += int(min(s.Sections[i].Signals.Digest, 1))
		sources += int(min(s.Sections[i].Signals.Version, 1))
	}
	x := windowIndex{make(map[uint64]int, digests), make(map[string]uint64, sources), map[string]int{}, map[string]int{}}
	for i := range s.Sections {
		sec := &s.Sections[i]
		g := &sec.Signals
		if g.Digest != 0 && sec.Level == session.Raw {
			x.digest[g.Digest] = i
		}
		if g.Source != "" && g.Version > 0 {
			if g.Version > x.version[g.Source] {
				x.version[g.Source] = g.Version
			}
		}
		if g.Source != "" && sec.Traits&prose.TraitDiff != 0 {
			x.diff[g.Source] = i
		}
		if g.Call != "" && !g.Failed {
			x.success[g.Call] = i
		}
	}
	return x
}

func (x *windowIndex) duplicate(i int, g *session.Signals) bool {
	if g.Digest == 0 {
		return false
	}
	newer, ok := x.digest[g.Digest]
	return ok && newer > i
}

func (x *windowIndex) superseded(g *session.Signals) bool {
	return g.Source != "" && g.Version < x.version[g.Source]
}

func (x *windowIndex) resolved(i int, g *session.Signals) bool {
	return g.Failed && g.Call != "" && x.success[g.Call] > i
}

func (x *windowIndex) oldDiff(i int, sec *Section) bool {
	return sec.Traits&prose.TraitDiff != 0 && sec.Signals.Source != "" && x.diff[sec.Signals.Source] > i
}

// judge applies the detectors in their order.
func (x *windowIndex) judge(i int, sec *Section, turn int64, now time.Time, c *session.Config) LowValue {
	g := &sec.Signals
	switch {
	case !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt):
		return Expired
	case x.duplicate(i, g):
		return Duplicate
	case x.superseded(g):
		return Superseded
	case g.Stale:
		return StaleRead
	case x.resolved(i, g):
		return Resolved
	case sec.Traits&prose.TraitError != 0 || g.Failed:
		return Worth // what went wrong and is not yet right
	case x.oldDiff(i, sec):
		return OldDiff
	case sec.Traits&prose.TraitBinary != 0:
		return Encoded
	case sec.Traits&prose.TraitLog != 0 && g.Finding:
		return RawLog
	case sec.Role == Tool && g.Refetchable && sec.Tokens() > c.RefetchTokens:
		return Refetch
	case g.Closed:
		return ClosedTask
	case sec.Role == Assistant && sec.Traits&prose.TraitAck != 0 && sec.Tokens() < chatterTokens:
		return Chatter
	case g.LastRead > 0 && turn-g.LastRead >= c.UnreadTurns:
		return Unread
	}
	return Worth
}
