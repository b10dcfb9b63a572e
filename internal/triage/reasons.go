package triage

import (
	"slices"
	"strings"
)

// Reason says why a page was left out of a context; "": it was not. Manifests and answers have these texts.
//
// A new reason takes a line here, with what a caller can do about it, and the place that applies it: for a rule on the
// candidates that is format.Rule, which every store asks.
type Reason = string

// The reasons for which a page is left out before it is scored: it is black.
const (
	Expired      Reason = "expired"
	Deleted      Reason = "deleted"
	Superseded   Reason = "superseded"
	BelowFloor   Reason = "below the provenance floor"
	OtherScope   Reason = "other scope" // for the owner of all scopes; never shown to an agent
	OtherSession Reason = "turn of another session"
	OtherKind    Reason = "kind not asked for"
	Filtered     Reason = "excluded by the filter" // such pages are counted and not named
	Masked       Reason = "replaced by this transaction"
	Gone         Reason = "gone"              // gc dropped the text of a page that was current as of the LSN asked for
	Damaged      Reason = "damaged: checksum" // its words, or its row, cannot be read
	FetchFailed  Reason = "dirty: fetch failed"
	Vanished     Reason = "dirty: source vanished"
	ReadOnly     Reason = "dirty: a read-only database does not refetch"
	Derived      Reason = "dirty: derived from a page that changed"
	NoRoot       Reason = "unchecked: no file root allows its source"             // Options.FileRoots, dbctl --root
	NoScheme     Reason = "unchecked: the scheme of its source is not registered" // Options.Sources
)

// The reasons for which a page is left out that was looked at.
const (
	NotKept    Reason = "recency and provenance kept others" // first pass of START
	BeyondTopK Reason = "beyond the top K"
	NoMatch    Reason = "nothing matches the question" // no page does, so that this one would be taken for an answer
	OverBudget Reason = "over budget"
	Duplicate  Reason = "duplicate: says the same as a page that was chosen"
)

// The reasons of Fit, besides OverBudget: others were worth more per token.
const (
	ReasonLarge  Reason = "larger than the budget" // it alone exceeds the window
	ReasonGroup  Reason = "turn group over budget" // its group had to go whole
	ReasonLow    Reason = "low score"              // a MustStub item without a stub, or without room for one; or a page that is only recent beside those that match
	ReasonTier   Reason = "left out by the tier"   // the tier keeps none of its kind
	ReasonSystem Reason = "system does not fit"    // nothing was placed: see the error
)

// reasons are all of them, for counters: a text of another place is no label.
var reasons = []Reason{
	Expired, Deleted, Superseded, BelowFloor, OtherScope, OtherSession, OtherKind, Filtered, Masked, Gone, Damaged, FetchFailed, Vanished, ReadOnly, Derived,
	NoRoot, NoScheme, NotKept, BeyondTopK, NoMatch, OverBudget, Duplicate, ReasonLarge, ReasonGroup, ReasonLow, ReasonTier, ReasonSystem,
}

// Known reports whether a text is one of the reasons above.
func Known(r Reason) bool { return slices.Contains(reasons, r) }

// storedText ends the advice on pages whose text is there and was not shown.
const storedText = "--check never shows what is stored"

// advice says what a caller of dbctl can do about a reason. DIR is the directory of the files.
var advice = map[Reason]string{
	NoRoot:       "--root DIR lets this call read the files; " + storedText,
	NoScheme:     "only the application that registers the scheme can check it; " + storedText,
	ReadOnly:     "without --read-only they are fetched anew; --serve-stale shows what is stored",
	BelowFloor:   "drafts, notes and imports that nobody vouched for; --floor scratch shows them, dbctl promote raises them",
	OtherSession: "a question with --session shows them in their conversation (dbctl session ls), dbctl promote raises them",
	Expired:      "dbctl get --version prints one",
	Damaged:      "dbctl check says what is damaged",
}

// Advice returns what a caller can do about a reason, with dir for the directory of the files; "": nothing is amiss.
func Advice(r Reason, dir string) string {
	text := advice[r]
	if text == "" && strings.HasPrefix(r, "dirty: ") {
		return "--serve-stale shows what is stored, marked as stale"
	}
	return strings.ReplaceAll(text, "DIR", dir)
}
