package session

import (
	"time"
)

// Phase is where the watcher stands.
//
//	Idle --above warn--> Warned --above trigger, refilled--> Compacting
//	Compacting --Done, at target--> Idle      --Done, above target--> Warned
//	Compacting --Done, not worth it--> Blocked --back-off over--> Compacting
//	any --at target--> Idle
//
// Step makes the first transition, Done those that leave Compacting.
type Phase uint8

// The phases.
const (
	Idle Phase = iota
	Warned
	Compacting
	Blocked
)

var phaseNames = [...]string{"idle", "warned", "compacting", "blocked"}

func (p Phase) String() string { return phaseNames[p] }

// MarshalText is String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Move is what the caller is to do after a Step.
type Move uint8

// The moves.
const (
	Rest      Move = iota // nothing
	Compact               // plan, apply, Done
	Mark                  // plan, keep the plan for later, Done
	Recommend             // plan, show the plan, Done
)

var moveNames = [...]string{"rest", "compact", "mark", "recommend"}

func (m Move) String() string { return moveNames[m] }

// EventKind is what an event reports.
type EventKind string

// The kinds of events.
const (
	EventWarn       EventKind = "warn"
	EventPlanned    EventKind = "planned"
	EventApplied    EventKind = "applied"
	EventBlocked    EventKind = "blocked"
	EventUndone     EventKind = "undone"
	EventHeadroomOK EventKind = "headroom_ok"
)

// Event is one thing that happened; each fires once per crossing.
type Event struct {
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"time"`
	Kind     EventKind `json:"kind"`
	Pass     uint64    `json:"pass"`
	Actual   int       `json:"actual"`
	Usable   int       `json:"usable"`
	Total    int       `json:"total"`
	Headroom PPM       `json:"headroom_ppm"`
	Freed    int       `json:"freed"`
	Items    int       `json:"items"`
	Reason   string    `json:"reason,omitempty"`
}

// Counters count events since the machine was made.
type Counters struct {
	Warnings int `json:"warnings"`
	Plans    int `json:"plans"`
	Passes   int `json:"passes"`
	Freed    int `json:"freed"`
	Blocked  int `json:"blocked"`
	Undone   int `json:"undone"`
	Expanded int `json:"expanded"` // sections fetched back after a pass: regret
}

// Snapshot is what the machine needs to know of the window.
type Snapshot struct {
	Generation uint64
	Actual     int  // tokens in the window
	Manual     bool // the user asked for a pass
}

// Machine decides when to compact, with hysteresis, back-off and one event per crossing. It is a value: Step, Done,
// Undone and Expanded return the next one. A caller's loop:
//
//	for now := range ticks {
//		m, move, events = m.Step(now, session.Snapshot{Generation: s.Generation, Actual: s.Tokens()})
//		publish(events)
//		if move == session.Rest {
//			continue
//		}
//		out := session.Outcome{}
//		if out.Plan, err = s.Plan(now); err == nil && move == session.Compact && out.Plan.Blocked == "" {
//			s, undo, err = s.Apply(out.Plan, nil) // in one transaction
//			out.Applied, out.Actual = err == nil, s.Tokens()
//		}
//		m, events = m.Done(now, move, out)
//		publish(events)
//	}
type Machine struct {
	config   Config
	limits   Thresholds
	phase    Phase
	floor    int // lowest actual since the last pass: refill counts from here
	shown    int // actual when a plan was last only shown or marked
	warned   bool
	mourned  bool // the blocked event of this episode was sent
	backOff  time.Duration
	blocked  time.Time // when the last attempt failed
	retry    time.Time
	seen     uint64 // generation of the last snapshot
	seq      uint64
	counters Counters
}

// NewMachine returns an idle machine, or the faults of the configuration.
func NewMachine(c Config) (Machine, error) {
	t, err := c.Thresholds()
	return Machine{config: c.filled(), limits: t}, err
}

// Phase returns the current phase.
func (m Machine) Phase() Phase { return m.phase }

// Thresholds returns the effective limits.
func (m Machine) Thresholds() Thresholds { return m.limits }

// Counters returns the counts so far.
func (m Machine) Counters() Counters { return m.counters }

// RetryAt returns when a blocked machine tries again; zero when it is not blocked.
func (m Machine) RetryAt() time.Time {
	if m.phase != Blocked {
		return time.Time{}
	}
	return m.retry
}

// Step looks at the window and says what to do. Answer every move except Rest with Done; until then Step does nothing
// more.
func (m Machine) Step(now time.Time, s Snapshot) (Machine, Move, []Event) {
	var events []Event
	m.floor = min(m.floor, s.Actual)
	if m.phase == Compacting {
		return m, Rest, nil
	}
	switch {
	case s.Actual <= m.limits.Target:
		events = m.calm(now, s.Actual, events)
	case s.Actual > m.limits.Warn && !m.warned:
		m.warned = true
		m.phase = max(m.phase, Warned)
		m.counters.Warnings++
		events = append(events, m.event(now, EventWarn, s.Actual))
	}
	m.hear(s.Generation)
	move := m.move(s)
	if !s.Manual && !m.due(now, s.Actual, move) {
		return m, Rest, events
	}
	m.phase = Compacting
	return m, move, events
}

// calm ends an episode: there is headroom again.
func (m *Machine) calm(now time.Time, actual int, events []Event) []Event {
	if m.warned || m.phase != Idle {
		events = append(events, m.event(now, EventHeadroomOK, actual))
	}
	m.phase, m.warned, m.mourned, m.backOff, m.shown = Idle, false, false, 0, 0
	return events
}

// hear starts the back-off anew when something was written: a write or an
// unpinning may be what a blocked machine waits for. It does not retry at once,
// or every append to a window that cannot be compacted would plan in vain.
func (m *Machine) hear(generation uint64) {
	if m.phase == Blocked && generation != m.seen {
		m.backOff = 0
		if soon := m.blocked.Add(m.config.BackOffMin); soon.Before(m.retry) {
			m.retry = soon
		}
	}
	m.seen = generation
}

// due says whether a move may be made: above the trigger, refilled since the
// last pass (or since the last showing of a plan), not backing off.
func (m *Machine) due(now time.Time, actual int, move Move) bool {
	from := m.floor
	if move != Compact {
		from = max(from, m.shown)
	}
	return actual > m.limits.Trigger && actual-from >= m.limits.MinRefill && (m.phase != Blocked || !now.Before(m.retry))
}

func (m *Machine) move(s Snapshot) Move {
	switch {
	case m.config.Mode == ModeRecommend:
		return Recommend
	case m.config.Mode == ModeDeferred && s.Actual < m.limits.Usable && !s.Manual:
		return Mark
	}
	return Compact
}

// Outcome is the result of a move.
type Outcome struct {
	Plan     Plan
	Applied  bool
	Conflict bool // the state changed under the plan, three times over
	Actual   int  // tokens after the pass, when Applied
	Freed    int  // true tokens freed, when Applied; 0: as planned
}

// Done answers a move.
func (m Machine) Done(now time.Time, move Move, o Outcome) (Machine, []Event) {
	var events []Event
	p := o.Plan
	m.counters.Plans++
	worth := p.Blocked == "" && len(p.Items) > 0
	if worth {
		e := m.event(now, EventPlanned, p.Actual)
		e.Pass, e.Freed, e.Items = p.Pass, p.Freed, len(p.Items)
		events = append(events, e)
	}
	switch {
	case o.Applied:
		events = m.applied(now, o, events)
	case o.Conflict:
		m.phase = Warned
	case worth && move != Compact:
		m.phase, m.shown = Warned, p.Actual
	default:
		events = m.stuck(now, o, events)
	}
	return m, events
}

func (m *Machine) applied(now time.Time, o Outcome, events []Event) []Event {
	freed := o.Freed
	if freed == 0 {
		freed = o.Plan.Freed
	}
	m.phase, m.floor, m.backOff, m.mourned = Warned, o.Actual, 0, false
	m.counters.Passes++
	m.counters.Freed += freed
	e := m.event(now, EventApplied, o.Actual)
	e.Pass, e.Freed, e.Items = o.Plan.Pass, freed, len(o.Plan.Items)
	events = append(events, e)
	if o.Actual <= m.limits.Target {
		events = m.calm(now, o.Actual, events)
	}
	return events
}

// stuck backs off, and says so once an episode.
func (m *Machine) stuck(now time.Time, o Outcome, events []Event) []Event {
	m.phase = Blocked
	m.backOff = min(max(2*m.backOff, m.config.BackOffMin), m.config.BackOffMax)
	m.blocked, m.retry = now, now.Add(m.backOff)
	m.counters.Blocked++
	if m.mourned {
		return events
	}
	m.mourned = true
	e := m.event(now, EventBlocked, o.Plan.Actual)
	e.Pass, e.Freed, e.Items, e.Reason = o.Plan.Pass, o.Plan.Freed, len(o.Plan.Items), o.Plan.Blocked
	if e.Reason == "" {
		e.Reason = "nothing can be compacted"
	}
	return append(events, e)
}

// Undone tells the machine that a pass was undone. The next pass waits for a refill from there; otherwise it would
// repeat at once what was just undone.
func (m Machine) Undone(now time.Time, pass uint64, actual int) (Machine, Event) {
	m.floor = actual
	m.counters.Undone++
	e := m.event(now, EventUndone, actual)
	e.Pass = pass
	return m, e
}

// Expanded counts a section that was fetched back after a pass.
func (m Machine) Expanded() Machine {
	m.counters.Expanded++
	return m
}

func (m *Machine) event(now time.Time, kind EventKind, actual int) Event {
	m.seq++
	t := m.limits
	return Event{Seq: m.seq, At: now, Kind: kind, Actual: actual, Usable: t.Usable, Total: t.Total,
		Headroom: PPM(int64(t.Total-actual) * million / int64(t.Total))}
}
