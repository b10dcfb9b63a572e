package conversation

import (
	"time"

	"github.com/ctxpage/ctxpage/session"
)

// Calibration corrects token estimates by what a provider reported. The zero
// value trusts the estimates. It only ever enlarges them: a trigger that comes
// late is the fault to avoid.
type Calibration struct{ ratio session.PPM }

// Observe takes one estimate with the true count. The ratio rises at once and
// falls by a quarter of the difference, within 0.5 and 4.
func (c Calibration) Observe(estimated, actual int) Calibration {
	if estimated <= 0 || actual <= 0 {
		return c
	}
	seen := session.PPM(min(int64(actual)*million/int64(estimated), 4*million))
	seen = max(seen, million/2)
	if c.ratio == 0 || seen > c.ratio {
		return Calibration{seen}
	}
	return Calibration{c.ratio + (seen-c.ratio)/4}
}

// Ratio is true tokens per estimated token, in parts per million.
func (c Calibration) Ratio() session.PPM {
	if c.ratio == 0 {
		return million
	}
	return c.ratio
}

// Budget returns the corrected estimate, never less than the estimate.
func (c Calibration) Budget(estimate int) int {
	corrected := (int64(estimate)*int64(c.Ratio()) + million - 1) / million
	return max(int(corrected), estimate)
}

// Phase is the state of the watcher.
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

// Move is the task of the caller after a Step.
type Move uint8

// The moves.
const (
	Rest      Move = iota // nothing
	Compact               // plan, apply, Done
	Mark                  // plan, keep the plan for later, Done
	Recommend             // plan, show the plan, Done
)

// Machine decides when to compact, with hysteresis, back-off and one event per crossing. It is a value: Step, Done and
// Undone return the next one. Its owner asks Step, carries out the move, and reports the outcome to Done.
type Machine struct {
	Progress
	Limits session.Thresholds
	config session.Config
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
	Counters session.Counters
}

// ResumeMachine returns the machine that remembers p, perhaps under other limits than before. The zero Progress is that
// of an idle machine.
func ResumeMachine(c session.Config, p Progress) (Machine, error) {
	return Machine{Progress: p, Limits: c.Thresholds(), config: c.WithDefaults()}, c.Validate()
}

// RetryAt returns when a blocked machine tries again; zero when it is not blocked.
func (m Machine) RetryAt() time.Time {
	if m.Phase != Blocked {
		return time.Time{}
	}
	return m.Retry
}

// Step returns what to do about a window of actual tokens. The generation changes with every write of the window. Every
// move except Rest must be answered with Done; until then Step does nothing more.
func (m Machine) Step(now time.Time, generation uint64, actual int) (Machine, Move, []session.Event) {
	var events []session.Event
	m.Floor = min(m.Floor, actual)
	if m.Phase == Compacting {
		return m, Rest, nil
	}
	switch {
	case actual <= m.Limits.Target:
		events = m.calm(now, actual, events)
	case actual > m.Limits.Warn && !m.Warned:
		m.Warned = true
		m.Phase = max(m.Phase, Warned)
		m.Counters.Warnings++
		events = append(events, m.event(now, session.EventWarn, actual))
	}
	m.hear(generation)
	move := m.move(actual)
	if !m.due(now, actual, move) {
		return m, Rest, events
	}
	m.Phase = Compacting
	return m, move, events
}

// calm ends an episode: there is headroom again.
func (m *Machine) calm(now time.Time, actual int, events []session.Event) []session.Event {
	if m.Warned || m.Phase != Idle {
		events = append(events, m.event(now, session.EventHeadroomOK, actual))
	}
	m.Phase, m.Warned, m.Mourned, m.BackOff, m.Shown = Idle, false, false, 0, 0
	return events
}

// hear restarts the back-off after a write: a write or an unpinning may free what a blocked machine waits for. It does
// not retry at once, or every append to a window that cannot be compacted would plan in vain.
func (m *Machine) hear(generation uint64) {
	if m.Phase == Blocked && generation != m.Seen {
		m.BackOff = 0
		if soon := m.Blocked.Add(m.config.BackOffMin); soon.Before(m.Retry) {
			m.Retry = soon
		}
	}
	m.Seen = generation
}

// due reports whether a move may be made: above the trigger, refilled since the
// last pass (or since the last showing of a plan), not backing off.
func (m *Machine) due(now time.Time, actual int, move Move) bool {
	from := m.Floor
	if move != Compact {
		from = max(from, m.Shown)
	}
	return actual > m.Limits.Trigger && actual-from >= m.Limits.MinRefill && (m.Phase != Blocked || !now.Before(m.Retry))
}

func (m *Machine) move(actual int) Move {
	switch {
	case m.config.Mode == session.ModeRecommend:
		return Recommend
	case m.config.Mode == session.ModeDeferred && actual < m.Limits.Usable:
		return Mark
	}
	return Compact
}

// Outcome is the result of a move.
type Outcome struct {
	Plan    session.Plan
	Applied bool
	Actual  int   // tokens after the pass, when Applied
	Freed   int   // true tokens freed, when Applied
	Failed  error // of the move: nothing was done, or nobody knows
}

// Done answers a move.
func (m Machine) Done(now time.Time, move Move, o Outcome) (Machine, []session.Event) {
	var events []session.Event
	p := o.Plan
	m.Counters.Plans++
	worth := p.Blocked == "" && len(p.Items) > 0
	if worth {
		e := m.event(now, session.EventPlanned, p.Actual)
		e.Pass, e.Freed, e.Items = p.Pass, p.Freed, len(p.Items)
		events = append(events, e)
	}
	switch {
	case o.Applied:
		events = m.applied(now, o, events)
	case worth && move != Compact:
		m.Phase, m.Shown = Warned, p.Actual
	default:
		events = m.stuck(now, o, events)
	}
	return m, events
}

func (m *Machine) applied(now time.Time, o Outcome, events []session.Event) []session.Event {
	m.Phase, m.Floor, m.BackOff, m.Mourned = Warned, o.Actual, 0, false
	m.Counters.Passes++
	m.Counters.Freed += o.Freed
	e := m.event(now, session.EventApplied, o.Actual)
	e.Pass, e.Freed, e.Items = o.Plan.Pass, o.Freed, len(o.Plan.Items)
	events = append(events, e)
	if o.Actual <= m.Limits.Target {
		events = m.calm(now, o.Actual, events)
	}
	return events
}

// stuck backs off, and reports it once an episode.
func (m *Machine) stuck(now time.Time, o Outcome, events []session.Event) []session.Event {
	m.Phase = Blocked
	m.BackOff = min(max(2*m.BackOff, m.config.BackOffMin), m.config.BackOffMax)
	m.Blocked, m.Retry = now, now.Add(m.BackOff)
	m.Counters.Blocked++
	if m.Mourned {
		return events
	}
	m.Mourned = true
	e := m.event(now, session.EventBlocked, o.Plan.Actual)
	e.Pass, e.Freed, e.Items, e.Reason = o.Plan.Pass, o.Plan.Freed, len(o.Plan.Items), o.Plan.Blocked
	switch {
	case e.Reason != "":
	case o.Failed != nil:
		e.Reason = "the pass failed: " + o.Failed.Error()
	default:
		e.Reason = "nothing can be compacted"
	}
	return append(events, e)
}

// Undone notes that a pass was undone. The next pass waits for a refill from there; otherwise it would
// repeat at once what was just undone.
func (m Machine) Undone(now time.Time, pass uint64, actual int) (Machine, session.Event) {
	m.Floor = actual
	m.Counters.Undone++
	e := m.event(now, session.EventUndone, actual)
	e.Pass = pass
	return m, e
}

func (m *Machine) event(now time.Time, kind session.EventKind, actual int) session.Event {
	m.Seq++
	t := m.Limits
	return session.Event{Seq: m.Seq, At: now, Kind: kind, Actual: actual, Usable: t.Usable, Total: t.Total,
		Headroom: session.PPM(int64(t.Total-actual) * million / int64(t.Total))}
}
