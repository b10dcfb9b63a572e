package directive

// Kind is what a step did.
type Kind uint8

// The kinds of a decision.
const (
	Passthrough Kind = iota // no directive: hand the input on to the model
	Update                  // a directive was carried out; Changed tells whether anything differs
	Clarify                 // nothing was changed; Prompt is for the user, the model is not called
)

// String gives the wire word of the kind.
func (k Kind) String() string { return [...]string{"passthrough", "update", "clarify"}[k] }

// Code says why a decision clarifies, for programs.
type Code string

// The codes of a clarify.
const (
	PremiseEmpty          Code = "premise_empty"            // set or change without a value
	PremiseExists         Code = "premise_exists"           // set while one is set
	PremiseMissing        Code = "premise_missing"          // change while none is set
	NearMissSet           Code = "near_miss_set_premise"    // "set premise to …"
	NearMissChange        Code = "near_miss_change_premise" // "change premise …" without "to"
	ItemEmpty             Code = "item_empty"               // use, prohibit or remove without an item
	ItemProhibited        Code = "item_prohibited"          // use of a prohibited item
	ItemInUse             Code = "item_in_use"              // prohibit of an item in use
	ReplacementIncomplete Code = "replacement_incomplete"   // a side of "instead of" is missing
	ReplaceAbsent         Code = "replace_absent"           // the old item has no policy; waits for an answer
	ReplaceProhibitedOld  Code = "replace_prohibited_old"   // the old item is prohibited; waits for an answer
	ReplaceProhibitedNew  Code = "replace_prohibited_new"   // the new item is prohibited; waits for an answer
	AnswerNeeded          Code = "answer_needed"            // a question is open and this was no answer to it
	Compound              Code = "compound"                 // several directives in one (option RefuseCompound)
	InheritedProhibition  Code = "inherited_prohibition"    // an ancestor scope prohibits the item
	InheritedUse          Code = "inherited_use"            // an ancestor scope uses the item
)

// Decision is the answer to one input.
type Decision struct {
	Kind    Kind
	State   State    // the state after an Update; zero otherwise
	Prompt  string   // the question or explanation of a Clarify; "" otherwise
	Changed bool     // the authoritative state differs from before
	Code    Code     // why it clarifies; "" otherwise
	Repair  []string // directives that, stepped in order with no question open, do what was asked; nil when the user must supply something
	Scope   string   // the ancestor scope that set the item, for the Inherited codes
}

// PendingKind says what a "yes" will do.
type PendingKind uint8

// The kinds of an open question.
const (
	UseOnly    PendingKind = 1 + iota // put New in use
	ReplaceUse                        // take Old out, put New in use
)

// String gives the wire word.
func (k PendingKind) String() string {
	if k == ReplaceUse {
		return "replace_use"
	}
	return "use_only"
}

// Pending is an open question. It is not changed once made.
type Pending struct {
	Kind   PendingKind
	New    string // as typed, not normalised
	Old    string // as typed; "" for UseOnly
	Prompt string // what was asked
}

// Session is a state and, when a question is open, what it is about.
// It is a value: a step returns a new one. The zero Session is the initial one.
type Session struct {
	State   State
	Pending *Pending // nil when no question is open; never modified, only replaced
}

// Option widens or narrows the grammar. All are off by default.
type Option uint8

// The options.
const (
	// AnyCase reads keywords in any ASCII case, with blanks and tabs around and between them.
	AnyCase Option = 1 << iota
	// RefuseCompound answers a line holding several directives with a clarify
	// instead of storing the rest of the line as one long item.
	RefuseCompound
)

// Step judges one input of the user and returns the session after it.
// It is pure: the session given stays valid.
func Step(s Session, input string, opts ...Option) (Session, Decision) {
	return StepIn(nil, s, input, opts...)
}
