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

// UnmarshalText reads the name of a phase.
func (p *Phase) UnmarshalText(b []byte) error { return byName(p, phaseNames[:], b) }

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
	config Config
	limits Thresholds
	p      Progress
}

// Progress is all that a machine remembers from one step to the next, as plain data: whoever stores it can go on with
// ResumeMachine in another process.
type Progress struct {
	Phase    Phase
	Floor    int // lowest actual since the last pass: refill counts from here
	Shown    int // actual when a plan was last only shown or marked
	Warned   bool
	Mourned  bool // the blocked event of this episode was sent
	BackOff  time.Duration
	Blocked  time.Time // when the last attempt failed
	Retry    time.Time
	Seen     uint64 // generation of the last snapshot
	Seq      uint64
	Counters Counters
}

// NewMachine returns an idle machine, or the faults of the configuration.
func NewMachine(c Config) (Machine, error) {
	t, err := c.Thresholds()
	return Machine{config: c.filled(), limits: t}, err
}

// ResumeMachine is NewMachine for a window that another machine watched until now, perhaps under other limits.
func ResumeMachine(c Config, p Progress) (Machine, error) {
	m, err := NewMachine(c)
	m.p = p
	return m, err
}

// Progress returns what the machine remembers.
func (m Machine) Progress() Progress { return m.p }

// Phase returns the current phase.
func (m Machine) Phase() Phase { return m.p.Phase }

// Thresholds returns the effective limits.
func (m Machine) Thresholds() Thresholds { return m.limits }

// Counters returns the counts so far.
func (m Machine) Counters() Counters { return m.p.Counters }

// RetryAt returns when a blocked machine tries again; zero when it is not blocked.
func (m Machine) RetryAt() time.Time {
	if m.p.Phase != Blocked {
		return time.Time{}
	}
	return m.p.Retry
}

// Step looks at the window and says what to do. Answer every move except Rest with Done; until then Step does nothing
// more.
func (m Machine) Step(now time.Time, s Snapshot) (Machine, Move, []Event) {
	var events []Event
	m.p.Floor = min(m.p.Floor, s.Actual)
	if m.p.Phase == Compacting {
		return m, Rest, nil
	}
	switch {
	case s.Actual <= m.limits.Target:
		events = m.calm(now, s.Actual, events)
	case s.Actual > m.limits.Warn && !m.p.Warned:
		m.p.Warned = true
		m.p.Phase = max(m.p.Phase, Warned)
		m.p.Counters.Warnings++
		events = append(events, m.event(now, EventWarn, s.Actual))
	}
	m.hear(s.Generation)
	move := m.move(s)
	if !s.Manual && !m.due(now, s.Actual, move) {
		return m, Rest, events
	}
	m.p.Phase = Compacting
	return m, move, events
}

// calm ends an episode: there is headroom again.
func (m *Machine) calm(now time.Time, actual int, events []Event) []Event {
	if m.p.Warned || m.p.Phase != Idle {
		events = append(events, m.event(now, EventHeadroomOK, actual))
	}
	m.p.Phase, m.p.Warned, m.p.Mourned, m.p.BackOff, m.p.Shown = Idle, false, false, 0, 0
	return events
}

// hear starts the back-off anew when something was written: a write or an
// unpinning may be what a blocked machine waits for. It does not retry at once,
// or every append to a window that cannot be compacted would plan in vain.
func (m *Machine) hear(generation uint64) {
	if m.p.Phase == Blocked && generation != m.p.Seen {
		m.p.BackOff = 0
		if soon := m.p.Blocked.Add(m.config.BackOffMin); soon.Before(m.p.Retry) {
			m.p.Retry = soon
		}
	}
	m.p.Seen = generation
}

// due reports whether a move may be made: above the trigger, refilled since the
// last pass (or since the last showing of a plan), not backing off.
func (m *Machine) due(now time.Time, actual int, move Move) bool {
	from := m.p.Floor
	if move != Compact {
		from = max(from, m.p.Shown)
	}
	return actual > m.limits.Trigger && actual-from >= m.limits.MinRefill && (m.p.Phase != Blocked || !now.Before(m.p.Retry))
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
	m.p.Counters.Plans++
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
		m.p.Phase = Warned
	case worth && move != Compact:
		m.p.Phase, m.p.Shown = Warned, p.Actual
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
	m.p.Phase, m.p.Floor, m.p.BackOff, m.p.Mourned = Warned, o.Actual, 0, false
	m.p.Counters.Passes++
	m.p.Counters.Freed += freed
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
	m.p.Phase = Blocked
	m.p.BackOff = min(max(2*m.p.BackOff, m.config.BackOffMin), m.config.BackOffMax)
	m.p.Blocked, m.p.Retry = now, now.Add(m.p.BackOff)
	m.p.Counters.Blocked++
	if m.p.Mourned {
		return events
	}
	m.p.Mourned = true
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
	m.p.Floor = actual
	m.p.Counters.Undone++
	e := m.event(now, EventUndone, actual)
	e.Pass = pass
	return m, e
}

// Expanded counts a section that was fetched back after a pass.
func (m Machine) Expanded() Machine {
	m.p.Counters.Expanded++
	return m
}

func (m *Machine) event(now time.Time, kind EventKind, actual int) Event {
	m.p.Seq++
	t := m.limits
	return Event{Seq: m.p.Seq, At: now, Kind: kind, Actual: actual, Usable: t.Usable, Total: t.Total,
		Headroom: PPM(int64(t.Total-actual) * million / int64(t.Total))}
}
