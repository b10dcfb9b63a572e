package conversation

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

// Priority is the importance of a section. The zero value is Medium.
type Priority int8

// The priorities, from least to most.
const (
	Low      Priority = -1
	Medium   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

var priorityNames = [...]string{"low", "medium", "high", "critical"}

func (p Priority) String() string { return priorityNames[p-Low] }

const million = 1_000_000 // of session.PPM

// Sizes are the tokens of a section at each level, estimates for levels that were not made yet. Zero means that the
// level does not exist for this section; Cold always exists and has no tokens.
type Sizes [session.Cold + 1]int

// EstimateSizes estimates the levels of a text of raw tokens: a quarter for the summary, 24 tokens for the stub, each
// only if it is smaller. A trimmed form is known only once it was made.
func EstimateSizes(raw int) Sizes {
	const stub = 24
	s := Sizes{session.Raw: raw}
	if raw >= 4*stub {
		s[session.Summary] = max(raw/4, stub+1)
	}
	if raw > stub {
		s[session.Stub] = stub
	}
	return s
}

// Section is one item of the window as the watcher sees it: metadata only.
type Section struct {
	ID        string
	Kind      string
	Role      string // empty for what is no message
	Priority  Priority
	Relevance float64   // task specific, 0..1 ...
	Rated     bool      // ... if it was given
	At        time.Time // when this was current; zero: unknown
	Turn      int64
	Level     session.Level
	Sizes     Sizes
	Pinned    bool
	Traits    prose.Traits
	Signals   session.Signals
	Because   string // why it was last compacted
}

// Tokens is the size at the current level.
func (s Section) Tokens() int { return s.Sizes[s.Level] }

// State is the window: the sections in their order, and the configuration. It is a value: methods return changed copies
// and leave the receiver unchanged.
type State struct {
	Generation uint64 // changes with every write; a plan is good for one generation
	Turn       int64  // newest turn
	Pass       uint64 // number of the last pass
	Config     session.Config
	Sections   []Section
}

// Tokens counts the window again.
func (s State) Tokens() int {
	sum := 0
	for i := range s.Sections {
		sum += s.Sections[i].Tokens()
	}
	return sum
}

// With returns the state with one section appended.
func (s State) With(sec Section) State {
	s.Sections = slices.Concat(s.Sections, []Section{sec})
	s.Turn = max(s.Turn, sec.Turn)
	s.Generation++
	return s
}

// worth is weight × relevance × recency; the section worth least is compacted first. An unknown relevance or time counts
// as 0.5, a time in the future as now. It only orders sections of one priority: protection is a rule, not a score. The
// configuration has its defaults in place.
func worth(c *session.Config, sec *Section, now time.Time) float64 {
	rel, rec := 0.5, 0.5
	if sec.Rated && !math.IsNaN(sec.Relevance) {
		rel = min(max(sec.Relevance, 0), 1)
	}
	if !sec.At.IsZero() {
		age := max(now.Sub(sec.At), 0).Hours()
		if c.Recency == session.HalfLife {
			rec = math.Exp2(-age / c.HalfLife.Hours())
		} else {
			rec = math.Exp(-age / 24)
		}
	}
	return c.Weights[sec.Priority-Low] * rel * rec
}

// Protection is the reason why no pass may touch a section.
type Protection uint8

// The protections.
const (
	Unprotected Protection = iota
	IsCritical             // critical, or a system message
	IsPinned               // pinned by the caller
	IsKept                 // a correction or a decision
	IsUserTurn             // the user's words
	IsNewest               // among the newest messages
)

// Protections returns the protection of each section. User turns are protected newest first up to UserCap tokens, or up
// to UserShare of the usable tokens if UserCap is 0. The newest messages are protected up to KeepLast of them and
// KeepShare of the usable tokens, the very newest whatever its size.
//
// If UserCap is 0, protection never fills the window: sections that are protected only as recent or as the user's fit
// below Target, beside the newest message and critical, pinned and kept sections; those that do not fit are not
// protected. The newest user turn may take what is left of the usable window.
func (s State) Protections() []Protection { return s.protections(false) }

// protections may let critical, pinned and kept sections give way to the newest
// message too, oldest first, kept ones before pinned before critical ones.
func (s *State) protections(yield bool) []Protection {
	if s.Config.UserCap > 0 {
		return s.cappedProtections()
	}
	g := s.newSharing()
	g.own(yield)
	g.newestUser()
	g.newest()
	g.users()
	return g.out
}

// sharing divides the usable window among the protected sections.
type sharing struct {
	s         *State
	c         session.Config
	out       []Protection
	byTurn    []int // newest first
	limit     session.Thresholds
	remaining int // tokens that are left
}

func (s *State) newSharing() *sharing {
	g := &sharing{s: s, c: s.Config.WithDefaults(), out: make([]Protection, len(s.Sections)), byTurn: s.newestFirst(), limit: s.Config.Thresholds()}
	newest := 0
	goesIn := func(i int) bool { r := s.Sections[i].Role; return r == User || r != "" && g.c.KeepLast > 0 }
	if k := slices.IndexFunc(g.byTurn, goesIn); k >= 0 {
		i := g.byTurn[k]
		g.out[i] = first(s.Sections[i].own(), IsNewest)
		newest = s.Sections[i].Tokens()
	}
	g.remaining = landing(g.limit, newest) - newest
	return g
}

// give protects a section if it fits; false: it does not.
func (g *sharing) give(i int, p Protection) bool {
	if g.out[i] != Unprotected {
		return true
	}
	if t := g.s.Sections[i].Tokens(); t <= g.remaining {
		g.remaining -= t
		g.out[i] = p
	}
	return g.out[i] != Unprotected
}

// own protects what is protected by itself: all of it, or what fits.
func (g *sharing) own(yield bool) {
	for _, p := range [...]Protection{IsCritical, IsPinned, IsKept} {
		fits := true
		for _, i := range g.byTurn {
			switch sec := &g.s.Sections[i]; {
			case sec.own() != p || g.out[i] != Unprotected:
			case !yield:
				g.out[i] = p
				g.remaining -= sec.Tokens()
			case fits:
				fits = g.give(i, p) // no gaps: what is older goes first
			}
		}
	}
}

func (g *sharing) newestUser() {
	for _, i := range g.byTurn {
		if g.s.Sections[i].Role == User {
			slack := g.limit.Usable - g.limit.Target
			g.remaining += slack
			g.give(i, IsUserTurn)
			g.remaining -= slack
			return
		}
	}
}

// newest protects the newest messages in a row, without gaps.
func (g *sharing) newest() {
	left, last := g.c.KeepShare.Of(g.limit.Usable), 0
	for _, i := range g.byTurn {
		sec := &g.s.Sections[i]
		if sec.Role == "" {
			continue
		}
		t := sec.Tokens()
		if last >= g.c.KeepLast || last > 0 && left < t || !g.give(i, IsNewest) {
			return
		}
		left -= t
		last++
	}
}

// users protects user turns up to their share.
func (g *sharing) users() {
	left := g.c.UserShare.Of(g.limit.Usable)
	for _, i := range g.byTurn {
		sec := &g.s.Sections[i]
		if sec.Role != User {
			continue
		}
		t := sec.Tokens()
		if g.out[i] == Unprotected && (left < t || !g.give(i, IsUserTurn)) {
			return
		}
		left -= t
	}
}

// cappedProtections are those where UserCap is set.
func (s *State) cappedProtections() []Protection {
	c := s.Config.WithDefaults()
	out := make([]Protection, len(s.Sections))
	userLeft, lastLeft := c.UserCap, c.KeepShare.Of(s.Config.Thresholds().Usable)
	users, last := 0, 0
	for _, i := range s.newestFirst() {
		sec := &s.Sections[i]
		out[i] = sec.own()
		if sec.Role == "" {
			continue
		}
		t := sec.Sizes[sec.Level]
		if last < c.KeepLast && (last == 0 || lastLeft >= t) {
			out[i] = first(out[i], IsNewest)
			lastLeft -= t
			last++
		} else {
			last = c.KeepLast // the newest in a row, no gaps
		}
		if sec.Role == User {
			if users == 0 || userLeft >= t {
				out[i] = first(out[i], IsUserTurn)
			}
			userLeft -= t
			users++
		}
	}
	return out
}

func first(a, b Protection) Protection {
	if a != Unprotected {
		return a
	}
	return b
}

// own is the protection that a section has by itself.
func (s *Section) own() Protection {
	switch {
	case s.Priority == Critical || s.Role == System:
		return IsCritical
	case s.Pinned:
		return IsPinned
	case s.Signals.Keep:
		return IsKept
	}
	return Unprotected
}

func (s *State) newestFirst() []int {
	return newestFirst(len(s.Sections), func(i int) int64 { return s.Sections[i].Turn })
}

// Analyse counts the window by kind and by priority.
func (s State) Analyse() session.Analysis { return s.analyse(s.Protections()) }

func (s *State) analyse(protected []Protection) session.Analysis {
	a := session.Analysis{Items: len(s.Sections)}
	kinds, prios := map[string]*session.Row{}, [4]session.Row{}
	for i := range s.Sections {
		sec := &s.Sections[i]
		t := sec.Sizes[sec.Level]
		k := kinds[sec.Kind]
		if k == nil {
			k = &session.Row{Name: sec.Kind}
			kinds[sec.Kind] = k
		}
		for _, r := range []*session.Row{k, &prios[Critical-sec.Priority]} {
			r.Items++
			r.Tokens += t
		}
		a.Tokens += t
		if protected[i] != Unprotected {
			a.Protected += t
		}
	}
	caps := map[string]int{}
	for _, c := range s.Config.Allocation {
		if caps[c.Kind] = c.Tokens; c.Tokens == 0 {
			caps[c.Kind] = c.Share.Of(s.Config.Total)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		r := *kinds[name]
		r.Cap = caps[name]
		if r.Cap > 0 {
			r.Over = max(r.Tokens-r.Cap, 0)
		}
		a.ByKind = append(a.ByKind, s.share(r))
	}
	for p, r := range prios {
		r.Name = (Critical - Priority(p)).String()
		a.ByPriority = append(a.ByPriority, s.share(r))
	}
	return a
}

func (s *State) share(r session.Row) session.Row {
	if s.Config.Total > 0 {
		r.Share = session.PPM(int64(r.Tokens) * million / int64(s.Config.Total))
	}
	return r
}

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
