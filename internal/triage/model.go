package triage

import "strconv"

// Class says what a page is. When the budget is short, the classes are served in their
// order, System first.
type Class int

// The classes in order of precedence. Other values are legal and print as Class(N).
const (
	System     Class = iota // instructions, tool definitions, directives
	Core                    // pinned and human-verified facts
	RAG                     // retrieved chunks
	History                 // the conversation
	Scratchpad              // working notes
)

// String returns the lower-case name of the class.
func (c Class) String() string {
	return name(int(c), "Class", "system", "core", "rag", "history", "scratchpad")
}

// Place is the position in the window. What changes least comes first, so that a provider's prefix cache keeps hitting.
// Place is separate from Class, which says what is left out first.
type Place int

// The places in window order.
const (
	PlaceAuto Place = iota // derived from class and flags
	PlaceTools
	PlaceSystem
	PlaceDirectives
	PlacePinned
	PlaceCore
	PlaceSummaries
	PlaceHistory
	PlaceChunks
	PlaceScratchpad
	PlaceNewest // the newest user turn: it is set aside before anything scored
)

// String returns the lower-case name of the place.
func (p Place) String() string {
	return name(int(p), "Place", "auto", "tools", "system", "directives", "pinned", "core", "summaries", "history",
		"chunks", "scratchpad", "newest")
}

// Tier is a step of degradation, 1 to 4. Under Fill it reports what was lost of the items that matter.
type Tier int

// The four tiers. Fit says what they mean under Ladder.
const (
	TierFull       Tier = iota + 1 // all that matters is in, in full
	TierSummarised                 // all that matters is in, some of it shortened
	TierCore                       // some of what matters is left out
	TierMinimal                    // what is protected does not fit: the system part only; a person should look
)

// String returns the lower-case name of the tier.
func (t Tier) String() string {
	return name(int(t)-1, "Tier", "full", "summarised", "core", "minimal")
}

// Overflow is the policy when not everything fits.
type Overflow int

// The two policies. Fill keeps as much as fits; Ladder goes down a whole tier at fixed ratios of demand to
// budget.
const (
	Fill Overflow = iota
	Ladder
)

// String returns the lower-case name of the policy.
func (o Overflow) String() string { return name(int(o), "Overflow", "fill", "ladder") }

// Lost returns in words what Fill lost at a tier.
func (t Tier) Lost() string {
	return name(int(t)-1, "Tier", "all that matters is in, whole", "some of what matters is shortened", "some of what matters is left out", "what is protected does not fit")
}

// Form is the shape in which something is placed.
type Form int

// The three forms.
const (
	Full Form = iota
	Compressed
	Stub
)

// String returns the lower-case name of the form.
func (f Form) String() string { return name(int(f), "Form", "full", "compressed", "stub") }

func name(i int, kind string, names ...string) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	if kind == "Tier" {
		i++
	}
	return kind + "(" + strconv.Itoa(i) + ")"
}
