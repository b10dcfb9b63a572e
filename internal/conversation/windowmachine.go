package conversation

import (
	"errors"
	"fmt"
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

// CarryOut carries out a plan exactly, in place, or fails: with ErrGeneration, or with ErrPlan for a plan that no planner
// makes, such as one that names a section twice. After an error the state may be half changed. made has the true sizes of
// levels that were produced for the plan, by id. A section whose new form is no smaller than the old one stays as it was.
func (s *State) CarryOut(p session.Plan, made map[string]int) error {
	if p.Generation != s.Generation {
		return fmt.Errorf("%w (plan %d, state %d)", session.ErrGeneration, p.Generation, s.Generation)
	}
	named := make([]bool, len(s.Sections))
	for _, it := range p.Items {
		switch i := it.Index; {
		case i < 0 || i >= len(s.Sections) || s.Sections[i].ID != it.ID:
			return fmt.Errorf("%w (section %q)", session.ErrGeneration, it.ID)
		case named[i]:
			return fmt.Errorf("%w: section %q is named twice", session.ErrPlan, it.ID)
		case s.Sections[i].Level != it.From:
			return fmt.Errorf("%w (section %q)", session.ErrGeneration, it.ID)
		case it.To <= it.From || it.To > session.Cold:
			return fmt.Errorf("%w: section %q goes from level %d to %d, expected a further one, up to %d", session.ErrPlan, it.ID, it.From, it.To, session.Cold)
		}
		named[it.Index] = true
		sec, size := &s.Sections[it.Index], it.After
		if n, ok := made[it.ID]; ok && it.To != session.Cold {
			size = n
		}
		if size >= 0 && size < sec.Tokens() && (size > 0 || it.To == session.Cold) {
			sec.Level, sec.Sizes[it.To], sec.Because = it.To, size, it.Reason
		}
	}
	s.Generation++
	s.Pass = p.Pass
	return nil
}

// How is the way a section comes in.
type How uint8

// The ways of admission.
const (
	AdmitWhole   How = iota // there was room
	AdmitCompact            // there is, once the plan is applied
	AdmitStub               // stored cold with a stub in the window
)

// Admission says how a new section may come in.
type Admission struct {
	How     How
	Section Section      // as it is to be appended, with State.With
	Plan    session.Plan // for the state after the append; without items where there was room
	Yield   bool         // the plan is one of MakeRoom: protected sections give way
}

// Admit decides on one new section before it is committed. The window is never above the usable limit afterwards.
//
// If the section does not fit beside what is protected, and UserCap is 0, critical, pinned and kept sections give way
// (Admission.Yield). A section that is larger than the usable window, or that still does not fit, comes in as a stub,
// or cold if not even the stub fits; if it is protected itself, it is refused with a *HeadroomError that names it. A
// section that is too large never makes others pay: for it nothing is compacted beyond the room that its stub needs.
func (s State) Admit(sec Section, now time.Time) (Admission, error) {
	t := s.Config.Thresholds()
	var err error
	whole := Admission{Section: sec}
	if sec.Tokens() <= t.Usable {
		if err = s.fit(&whole, now); err == nil {
			return whole, nil
		}
		if whole.Yield = s.Config.UserCap == 0; whole.Yield && s.fit(&whole, now) == nil {
			return whole, nil
		}
	} else {
		err = &session.HeadroomError{Shortfall: sec.Tokens() - t.Usable, Protected: sec.Tokens(), Usable: t.Usable}
	}
	if sec.own() == Unprotected && sec.Role != User {
		for _, l := range [...]session.Level{session.Stub, session.Cold} {
			stub := Admission{Section: sec.stub(l), How: AdmitStub}
			if stub.Section.Tokens() < sec.Tokens() && s.fit(&stub, now) == nil {
				return stub, nil
			}
		}
	}
	var short *session.HeadroomError
	if errors.As(err, &short) {
		short.Section, short.Tokens = sec.ID, sec.Tokens()
	}
	return Admission{}, err
}

// fit finds the plan that makes room for an admission, if there is one.
func (s State) fit(a *Admission, now time.Time) error {
	if s.Tokens()+a.Section.Tokens() <= s.Config.Thresholds().Usable {
		a.Plan = session.Plan{Generation: s.Generation + 1, Pass: s.Pass + 1, At: now, FirstChanged: -1} // of With
		return nil
	}
	plan, err := s.With(a.Section).makePlan(now, planning{backstop: true, yield: a.Yield})
	if err != nil {
		return err
	}
	a.Plan = plan
	if a.How == AdmitWhole && len(plan.Items) > 0 {
		a.How = AdmitCompact
	}
	return nil
}

// stub is the section at its stub, or cold where it has none.
func (s Section) stub(l session.Level) Section {
	if l == session.Stub && (s.Sizes[session.Stub] == 0 || s.Sizes[session.Stub] >= s.Sizes[session.Raw]) {
		l = session.Cold
	}
	s.Level = l
	s.Because = "larger than the room there is"
	return s
}
