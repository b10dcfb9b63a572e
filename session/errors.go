package session

import (
	"errors"
	"fmt"
)

// Errors of passes, windows, contracts and handoff packets.
var (
	ErrConfig     = errors.New("session: window configuration out of range")
	ErrGeneration = errors.New("session: the sections changed since the plan was made; plan again")
	ErrPlan       = errors.New("session: plan is malformed")
	ErrUndo       = errors.New("session: the pass cannot be undone, a section changed after it")
	ErrHeadroom   = errors.New("session: no headroom")
	ErrContract   = errors.New("session: contract file breaks the strict dialect")
	ErrPacket     = errors.New("session: handoff packet breaks the schema")
)

// HeadroomError reports how many tokens the window would have above its usable part. There are three causes: one section
// alone (Tokens is above Usable), protected content alone (Protected is above Usable), or content that would come back.
// It matches ErrHeadroom.
type HeadroomError struct {
	Shortfall int // tokens missing
	Protected int // tokens that no pass may touch; they include the refused section if it is protected
	Usable    int
	Section   string // the refused section, or one that is larger than the usable window; "" if there is none
	Tokens    int    // of Section; 0: not known
}

func (e *HeadroomError) Error() string {
	what := ""
	if e.Section != "" {
		what = fmt.Sprintf(" admitting %q", e.Section)
	}
	switch {
	case e.Tokens > e.Usable:
		return fmt.Sprintf("%v: turn %q alone takes %d tokens, %d more than the usable window of %d; split or shorten it, or enlarge the window",
			ErrHeadroom, e.Section, e.Tokens, e.Tokens-e.Usable, e.Usable)
	case e.Protected <= e.Usable:
		return fmt.Sprintf("%v: more than the usable window would stand in it:%s %d usable tokens, %d short; enlarge the window",
			ErrHeadroom, what, e.Usable, e.Shortfall)
	}
	return fmt.Sprintf("%v: protected content alone exceeds the usable window:%s %d protected tokens, %d usable, %d short; unpin something, protect fewer user turns (Config.UserCap), or enlarge the window",
		ErrHeadroom, what, e.Protected, e.Usable, e.Shortfall)
}

// Is reports whether target is ErrHeadroom.
func (e *HeadroomError) Is(target error) bool { return target == ErrHeadroom }
