package conversation

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/session"
)

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
