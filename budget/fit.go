package budget

import (
	"errors"
	"fmt"
)

// ErrBudget says that what must be in the window does not fit into it. The error is a [*BudgetError].
var ErrBudget = errors.New("budget: the system part does not fit")

// BudgetError is the shortfall behind [ErrBudget]: Need tokens were asked for where Have were left.
type BudgetError struct {
	Block     string // the block that did not fit; empty for Fit
	Need      int    // tokens the part needs
	Have      int    // tokens there were for it; negative when the reserve exceeds the budget
	Shortfall int    // Need − Have
}

// Error implements error.
func (e *BudgetError) Error() string {
	where := ""
	if e.Block != "" {
		where = fmt.Sprintf(" (block %q)", e.Block)
	}
	return fmt.Sprintf("%v%s: it needs %d tokens and has %d; raise the budget or lower the reserve by %d",
		ErrBudget, where, e.Need, e.Have, e.Shortfall)
}

// Is makes errors.Is(err, ErrBudget) true.
func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

// Item is one candidate for the window: a page with its costs in each form. Negative costs count as 0, a NaN score as 0.
type Item struct {
	Key        string  // stable identity: breaks ties, so the answer does not depend on the order of Items
	Class      Class   // what it is; System is placed always or the call fails
	Place      Place   // where it stands in the window; PlaceAuto derives it from Class, Pinned and Core
	Position   int     // order inside its place; higher is newer
	Tokens     int     // cost in full, rendered header included
	Compressed int     // cost once compressed or truncated; 0 (or not below Tokens) = cannot be compressed
	StubTokens int     // cost as a stub; 0 = has no stub
	Score      float64 // worth; compared per token with that of others
	Group      string  // turn group: its items go together or not at all; "" = alone
	Pinned     bool    // protected: placed before anything scored
	Core       bool    // human-verified: protected likewise
	Recent     bool    // member of the recent tail: a slice of the budget is tried for these first
	MustStub   bool    // never in full, only as a stub when there is room
}

// Request is what Fit decides about.
type Request struct {
	Budget      int      // tokens of the whole window
	Reserve     int      // tokens of it kept free for the answer; negative counts as 0
	Overflow    Overflow // what to do when not everything fits
	RecentShare float64  // share of Budget − Reserve tried for Recent items first; 0 = none, capped at 1
	Items       []Item   // read only; nothing of it is kept
}

// Placed is an item in the window.
type Placed struct {
	Index  int  // into Request.Items
	Form   Form // the form it takes
	Tokens int  // what that form costs
}

// LeftOut is an item outside the window and why.
type LeftOut struct {
	Index  int
	Reason Reason
}

// Result is the report of Fit; it is complete even when Fit fails.
type Result struct {
	Tier   Tier
	Placed []Placed  // in window order
	Left   []LeftOut // in the window order they would have had
	Used   int       // tokens of Placed; never above Limit
	Limit  int       // Budget − Reserve
	Demand int       // tokens of everything but MustStub items, all in full
	Review bool      // tier 4: a person should look
}

// Fit is replaced below.
func Fit(r Request) (Result, error) { return Result{}, nil }
