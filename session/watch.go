package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Priority is how important a section is. The zero value is Medium.
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

// MarshalText is String.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Level says how far a section is compacted. The content of lower levels is kept, so a section can always go back.
type Level uint8

// The levels, each one step further than the one before.
const (
	Raw     Level = iota // as it came
	Trimmed              // repeated and log lines dropped
	Summary              // the host's summary, or an extract
	Stub                 // id, digest, tokens, title
	Cold                 // out of the working set: no tokens
	Levels  = 5
)

var levelNames = [Levels]string{"raw", "trimmed", "summary", "stub", "cold"}

func (l Level) String() string { return levelNames[l] }

// MarshalText is String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Sizes are the tokens of a section at each level, estimates for levels that were not made yet. Zero means that the
// level does not exist for this section; Cold always exists and has no tokens.
type Sizes [Levels]int

// EstimateSizes estimates the levels of a text of raw tokens: a quarter for the summary, 24 tokens for the stub, each
// only if it is smaller. A trimmed form is known only once it was made.
func EstimateSizes(raw int) Sizes {
	const stub = 24
	s := Sizes{Raw: raw}
	if raw >= 4*stub {
		s[Summary] = max(raw/4, stub+1)
	}
	if raw > stub {
		s[Stub] = stub
	}
	return s
}

// Section is one item of the window as the watcher sees it: metadata only.
type Section struct {
	ID        string
	Kind      string
	Role      Role // empty for what is no message
	Priority  Priority
	Relevance float64   // task specific, 0..1 ...
	Rated     bool      // ... if it was given
	At        time.Time // when this was current; zero: unknown
	Turn      int64
	Level     Level
	Sizes     Sizes
	Pinned    bool
	Traits    Traits
	Signals   Signals
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
	Config     Config
	Sections   []Section
}

// Tokens counts the window again.
func (s State) Tokens() int {
	sum := 0
	for i := range s.Sections {
		sum += s.Sections[i].Sizes[s.Sections[i].Level]
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

// Check reports malformed sections: empty or repeated ids, negative sizes, a relevance that is not a number. Plan
// relies on a state that passed it.
func (s State) Check() error {
	seen := make(map[string]bool, len(s.Sections))
	for i, sec := range s.Sections {
		var field string
		switch {
		case sec.ID == "" || seen[sec.ID]:
			field = "id"
		case math.IsNaN(sec.Relevance):
			field = "relevance"
		case sec.Level > Cold:
			field = "level"
		case sec.Priority < Low || sec.Priority > Critical:
			field = "priority"
		case slices.Min(sec.Sizes[:]) < 0 || sec.Sizes[Cold] != 0 || sec.Level != Cold && sec.Tokens() == 0 && sec.Sizes[Raw] != 0:
			field = "sizes"
		}
		if field != "" {
			return fmt.Errorf("%w: section %d (%q), field %q", ErrSection, i, sec.ID, field)
		}
		seen[sec.ID] = true
	}
	return nil
}

// RecencyModel is how age lowers a score.
type RecencyModel uint8

// The recency models. The written rule says a half-life of about 24 hours and
// gives a formula whose half-life is 16.64; both are here.
const (
	Exp24    RecencyModel = iota // exp(-age/24 h), the formula
	HalfLife                     // 2^(-age/half-life)
)

var recencyNames = [...]string{"exp24", "halflife"}

func (m RecencyModel) String() string { return recencyNames[m] }

// MarshalText is String.
func (m RecencyModel) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a model.
func (m *RecencyModel) UnmarshalText(b []byte) error { return byName(m, recencyNames[:], b) }

// Score is weight × relevance × recency; the lowest is compacted first. An unknown relevance or time counts as 0.5, a
// time in the future as now. The score only orders sections of one priority. Protection is a rule, not a score.
func (c Config) Score(sec Section, now time.Time) float64 {
	c = c.filled()
	return c.score(&sec, now)
}

// score is Score for a configuration with its defaults in place.
func (c *Config) score(sec *Section, now time.Time) float64 {
	rel, rec := 0.5, 0.5
	if sec.Rated && !math.IsNaN(sec.Relevance) {
		rel = min(max(sec.Relevance, 0), 1)
	}
	if !sec.At.IsZero() {
		rec = c.recency(max(now.Sub(sec.At), 0))
	}
	return c.Weights[sec.Priority-Low] * rel * rec
}

func (c *Config) recency(age time.Duration) float64 {
	if c.Recency == HalfLife {
		return math.Exp2(-age.Hours() / c.HalfLife.Hours())
	}
	return math.Exp(-age.Hours() / 24)
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

var protectionNames = [...]string{"", "critical", "pinned", "correction or decision", "user turn", "newest"}

func (p Protection) String() string { return protectionNames[p] }

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
	g := s.newGuard()
	g.own(yield)
	g.newestUser()
	g.newest()
	g.users()
	return g.out
}

// guard shares the usable window out among what is protected.
type guard struct {
	s         *State
	c         Config
	out       []Protection
	byTurn    []int // newest first
	limit     Thresholds
	remaining int // tokens that are left
}

func (s *State) newGuard() *guard {
	g := &guard{s: s, c: s.Config.filled(), out: make([]Protection, len(s.Sections)), byTurn: s.newestFirst(), limit: s.Config.thresholds()}
	newest := 0
	goesIn := func(i int) bool { r := s.Sections[i].Role; return r == User || r != "" && g.c.KeepLast > 0 }
	if k := slices.IndexFunc(g.byTurn, goesIn); k >= 0 {
		i := g.byTurn[k]
		g.out[i] = first(s.Sections[i].own(), IsNewest)
		newest = s.Sections[i].Tokens()
	}
	g.remaining = g.limit.landing(newest) - newest
	return g
}

// give protects a section if it fits; false: it does not.
func (g *guard) give(i int, p Protection) bool {
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
func (g *guard) own(yield bool) {
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

func (g *guard) newestUser() {
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
func (g *guard) newest() {
	left, last := shareOf(g.limit.Usable, g.c.KeepShare), 0
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
func (g *guard) users() {
	left := shareOf(g.limit.Usable, g.c.UserShare)
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
	c := s.Config.filled()
	out := make([]Protection, len(s.Sections))
	userLeft, lastLeft := c.UserCap, shareOf(s.Config.thresholds().Usable, c.KeepShare)
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

// newestFirst orders sections by turn, later ones first among equals.
func (s *State) newestFirst() []int {
	order := make([]int, len(s.Sections))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	byTurn := func(a, b int) int { return cmp.Compare(s.Sections[b].Turn, s.Sections[a].Turn) }
	if !slices.IsSortedFunc(order, byTurn) {
		slices.SortStableFunc(order, byTurn)
	}
	return order
}

// Row is one line of a token analysis.
type Row struct {
	Name   string `json:"name"`
	Items  int    `json:"items"`
	Tokens int    `json:"tokens"`
	Share  PPM    `json:"share_ppm"`             // of the window
	Cap    int    `json:"cap_tokens,omitempty"`  // 0: none
	Over   int    `json:"over_tokens,omitempty"` // above the cap
}

// Analysis says which sections hold the tokens of a window. Kinds are sorted alphabetically, priorities from critical
// to low.
type Analysis struct {
	Tokens     int   `json:"tokens"`
	Items      int   `json:"items"`
	Protected  int   `json:"protected_tokens"`
	ByKind     []Row `json:"by_kind"`
	ByPriority []Row `json:"by_priority"`
}

// Analyse counts the window by kind and by priority.
func (s State) Analyse() Analysis { return s.analyse(s.Protections()) }

func (s *State) analyse(protected []Protection) Analysis {
	a := Analysis{Items: len(s.Sections)}
	kinds, prios := map[string]*Row{}, [4]Row{}
	for i := range s.Sections {
		sec := &s.Sections[i]
		t := sec.Sizes[sec.Level]
		k := kinds[sec.Kind]
		if k == nil {
			k = &Row{Name: sec.Kind}
			kinds[sec.Kind] = k
		}
		for _, r := range []*Row{k, &prios[Critical-sec.Priority]} {
			r.Items++
			r.Tokens += t
		}
		a.Tokens += t
		if protected[i] != Unprotected {
			a.Protected += t
		}
	}
	caps := s.Config.caps()
	for _, name := range sortedKeys(kinds) {
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

func (s *State) share(r Row) Row {
	if s.Config.Total > 0 {
		r.Share = PPM(int64(r.Tokens) * million / int64(s.Config.Total))
	}
	return r
}
