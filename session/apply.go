package session

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Undo says how to take a pass back.
type Undo struct {
	Pass  uint64     `json:"pass"`
	At    time.Time  `json:"at"`
	Items []UndoItem `json:"items"`
}

// UndoItem is one section before and after the pass.
type UndoItem struct {
	ID      string `json:"id"`
	From    Level  `json:"from"`
	To      Level  `json:"to"`
	Size    int    `json:"size"` // what was thought the size of To before it was made
	Because string `json:"because,omitempty"`
}

// Apply carries out a plan exactly, or fails and changes nothing: with ErrGeneration, or with ErrPlan for a plan that
// no planner makes, such as one that names a section twice, which no undo could reverse. made has the true sizes of
// levels that were produced for the plan, by id; a section whose new form is no smaller than the old one stays as it
// was. Apply returns the new state, with the next generation and pass number, and the record that undoes it.
func (s State) Apply(p Plan, made map[string]int) (State, Undo, error) {
	next := s
	next.Sections = slices.Clone(s.Sections)
	u, err := next.CarryOut(p, made)
	if err != nil {
		return s, Undo{}, err
	}
	return next, u, nil
}

// CarryOut is Apply for callers that no longer need the old state: it changes s and its sections. After an error they
// may be half changed.
func (s *State) CarryOut(p Plan, made map[string]int) (Undo, error) {
	if p.Generation != s.Generation {
		return Undo{}, fmt.Errorf("%w (plan %d, state %d)", ErrGeneration, p.Generation, s.Generation)
	}
	u := Undo{Pass: p.Pass, At: p.At, Items: make([]UndoItem, 0, len(p.Items))}
	named := make([]bool, len(s.Sections))
	for _, it := range p.Items {
		switch i := it.Index; {
		case i < 0 || i >= len(s.Sections) || s.Sections[i].ID != it.ID:
			return Undo{}, fmt.Errorf("%w (section %q)", ErrGeneration, it.ID)
		case named[i]:
			return Undo{}, fmt.Errorf("%w: section %q is named twice", ErrPlan, it.ID)
		case s.Sections[i].Level != it.From:
			return Undo{}, fmt.Errorf("%w (section %q)", ErrGeneration, it.ID)
		case it.To <= it.From || it.To > Cold:
			return Undo{}, fmt.Errorf("%w: section %q goes from level %d to %d, expected a further one, up to %d", ErrPlan, it.ID, it.From, it.To, Cold)
		}
		named[it.Index] = true
		if undo, ok := s.Sections[it.Index].compact(it, made); ok {
			u.Items = append(u.Items, undo)
		}
	}
	s.Generation++
	s.Pass = p.Pass
	return u, nil
}

// compact takes one step of a plan unless it would not shrink the section.
func (s *Section) compact(it PlanItem, made map[string]int) (UndoItem, bool) {
	size := it.After
	if n, ok := made[it.ID]; ok && it.To != Cold {
		size = n
	}
	if size >= s.Tokens() || size < 0 || size == 0 && it.To != Cold {
		return UndoItem{}, false
	}
	u := UndoItem{ID: it.ID, From: it.From, To: it.To, Size: s.Sizes[it.To], Because: s.Because}
	s.Level, s.Sizes[it.To], s.Because = it.To, size, it.Reason
	return u, true
}

// Undo undoes a pass: every section that it touched returns to its level, in its place. Sections added since stay.
// ErrUndo if one of the sections is gone or was changed after the pass; then nothing is undone. The window may be above
// the usable limit afterwards; the caller's commit must handle that.
func (s State) Undo(u Undo) (State, error) {
	at := make(map[string]int, len(s.Sections))
	for i := range s.Sections {
		at[s.Sections[i].ID] = i
	}
	sections := slices.Clone(s.Sections)
	for _, it := range u.Items {
		i, ok := at[it.ID]
		if !ok || sections[i].Level != it.To {
			return s, fmt.Errorf("%w: section %q", ErrUndo, it.ID)
		}
		sections[i].Level, sections[i].Sizes[it.To], sections[i].Because = it.From, it.Size, it.Because
	}
	s.Sections = sections
	s.Generation++
	return s, nil
}

// Expand moves one section back by one existing level. It returns the reason for which the section had been compacted,
// so that regret can be counted by reason.
func (s State) Expand(id string) (State, string, error) {
	i := slices.IndexFunc(s.Sections, func(sec Section) bool { return sec.ID == id })
	if i < 0 || s.Sections[i].Level == Raw {
		return s, "", fmt.Errorf("%w: %q is not compacted", ErrUndo, id)
	}
	sections := slices.Clone(s.Sections)
	sec := &sections[i]
	why := sec.Because
	for sec.Level--; sec.Level > Raw && sec.Sizes[sec.Level] == 0; sec.Level-- {
	}
	if sec.Level == Raw {
		sec.Because = ""
	}
	s.Sections = sections
	s.Generation++
	return s, why, nil
}

// How says how a section came in.
type How uint8

// The ways of admission.
const (
	AdmitWhole   How = iota // there was room
	AdmitCompact            // there is, once the plan is applied
	AdmitStub               // stored cold with a stub in the window
)

var howNames = [...]string{"whole", "after compaction", "as a stub"}

func (h How) String() string { return howNames[h] }

// MarshalText is String.
func (h How) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Admission says how a new section may come in.
type Admission struct {
	How     How
	Section Section // as it is to be appended, with State.With
	Plan    Plan    // for the state after the append; without items where there was room
	Yield   bool    // the plan is one of MakeRoom: protected sections give way
}

// Admit decides on one new section before it is committed. The window is never above the usable limit afterwards.
//
// If the section does not fit beside what is protected, and UserCap is 0, critical, pinned and kept sections give way
// (Admission.Yield). A section that is larger than the usable window, or that still does not fit, comes in as a stub,
// or cold if not even the stub fits; if it is protected itself, it is refused with a *HeadroomError that names it. A
// section that is too large never makes others pay: for it nothing is compacted beyond the room that its stub needs.
func (s State) Admit(sec Section, now time.Time) (Admission, error) {
	t, err := s.Config.Thresholds()
	if err != nil {
		return Admission{}, err
	}
	whole := Admission{Section: sec}
	if sec.Tokens() <= t.Usable {
		if err = s.fit(&whole, now); err == nil {
			return whole, nil
		}
		if whole.Yield = s.Config.UserCap == 0; whole.Yield && s.fit(&whole, now) == nil {
			return whole, nil
		}
	} else {
		err = &HeadroomError{Shortfall: sec.Tokens() - t.Usable, Protected: sec.Tokens(), Usable: t.Usable}
	}
	if sec.own() == Unprotected && sec.Role != User {
		for _, l := range [...]Level{Stub, Cold} {
			stub := Admission{Section: sec.stub(l), How: AdmitStub}
			if stub.Section.Tokens() < sec.Tokens() && s.fit(&stub, now) == nil {
				return stub, nil
			}
		}
	}
	var short *HeadroomError
	if errors.As(err, &short) {
		short.Section, short.Tokens = sec.ID, sec.Tokens()
	}
	return Admission{}, err
}

// fit finds the plan that makes room for an admission, if there is one.
func (s State) fit(a *Admission, now time.Time) error {
	if s.Tokens()+a.Section.Tokens() <= s.Config.thresholds().Usable {
		a.Plan = Plan{Generation: s.Generation + 1, Pass: s.Pass + 1, At: now, FirstChanged: -1} // of With
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
func (s Section) stub(l Level) Section {
	if l == Stub && (s.Sizes[Stub] == 0 || s.Sizes[Stub] >= s.Sizes[Raw]) {
		l = Cold
	}
	s.Level = l
	s.Because = "larger than the room there is"
	return s
}
