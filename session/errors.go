package session

import (
	"errors"
	"fmt"
)

// Errors of a pass and of the contract.
var (
	ErrParams      = errors.New("session: parameters out of range")
	ErrDuplicateID = errors.New("session: block id appears twice in one history")
	ErrID          = errors.New("session: id is empty or not valid UTF-8")
	ErrFutureTurn  = errors.New("session: block is newer than the head turn")
	ErrTurn        = errors.New("session: turn is negative")
	ErrHashes      = errors.New("session: token hashes are not sorted and distinct")
	ErrIntent      = errors.New("session: intent is neither keywords nor an intent IR object")
	ErrNameClash   = errors.New("session: two blocks share one contract name")
	ErrText        = errors.New("session: quoted text is blank")
	ErrName        = errors.New("session: name is not a contract name")
	ErrCite        = errors.New("session: cited text is not in the source")
	ErrCheck       = errors.New("session: the facts of a claim differ from those of its source")
	ErrContract    = errors.New("session: contract file breaks the strict dialect")
)

// Errors of the handoff packet.
var ErrPacket = errors.New("session: handoff packet breaks the schema")

// Errors of the watcher.
var (
	ErrConfig     = errors.New("session: watcher configuration out of range")
	ErrSection    = errors.New("session: section is malformed")
	ErrGeneration = errors.New("session: the sections changed since the plan was made; plan again")
	ErrPlan       = errors.New("session: plan is malformed")
	ErrUndo       = errors.New("session: the pass cannot be undone, a section changed after it")
	ErrHeadroom   = errors.New("session: no headroom")
)

// BlockError says which block of a history was refused, and for which field.
type BlockError struct {
	Index int    // position in the history, from 0
	ID    string // empty where the id itself is at fault
	Field string
	Err   error
}

func (e *BlockError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("session: block %d, field %q: %v", e.Index, e.Field, e.Err)
	}
	return fmt.Sprintf("session: block %d (%q), field %q: %v", e.Index, e.ID, e.Field, e.Err)
}

// Unwrap returns the reason.
func (e *BlockError) Unwrap() error { return e.Err }

// HeadroomError says by how much the window would exceed its usable part: because of one section alone (Tokens is above
// Usable), because of protected content alone, or, if Protected is at most Usable, because of what would come back into
// it. It matches ErrHeadroom.
type HeadroomError struct {
	Shortfall int // tokens missing
	Protected int // tokens that no pass may touch, the refused section included where it is protected
	Usable    int
	Section   string // the section that was refused, or is larger than the usable window; empty when it is none alone
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
