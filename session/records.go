package session

// SourceState is how far the sources of a session were looked at.
type SourceState string

// The states of a source.
const (
	Unscanned SourceState = "unscanned"
	Scanned   SourceState = "scanned"
	Verified  SourceState = "verified"
)

// ClaimBasis is what the claims of a session rest on.
type ClaimBasis string

// The bases of a claim.
const (
	BasisNone      ClaimBasis = "none"
	BasisInference ClaimBasis = "inference"
	BasisDocument  ClaimBasis = "document"
	BasisVerified  ClaimBasis = "verified"
)

// Fact is one named value of a structured claim or source.
type Fact struct{ Name, Value string }

// Statement is a named source or claim: a text, or facts, or (a source that is
// both cited and verified against) written as two statements.
type Statement struct {
	Name  string // free text; becomes a contract name
	Text  string
	Facts []Fact
}

// Cite says that Text stands in the source of that name.
type Cite struct{ Text, Source string }

// Check says that a claim with facts is to be compared with a source with facts.
type Check struct{ Claim, Source string }

// Entry is one item of a list, with an optional reason.
type Entry struct{ Text, Because string }

// List is a list of the caller's own.
type List struct {
	Name  string
	Items []Entry
}

// Records are the session-contract records, beside the pager's buckets.
type Records struct {
	SourceState SourceState // empty: unchanged
	ClaimBasis  ClaimBasis  // empty: unchanged
	Sources     []Statement
	Claims      []Statement
	Cites       []Cite
	Checks      []Check
	Decisions   []Entry
	Questions   []Entry
	Corrections []Entry
	Lists       []List
	Guard       bool // add the handler that warns of inference from unverified sources
}
