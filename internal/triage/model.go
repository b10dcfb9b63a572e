package triage

import (
	"fmt"
	"strconv"
	"time"
)

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

// Provenance says who wrote a page. It is an order of trust, not of visibility: a greater value is trusted more. The
// zero value is no provenance and is trusted least.
type Provenance uint8

// The provenances, least trusted first.
const (
	Scratch   Provenance = iota + 1 // an agent's own note, not judged by anybody
	Tool                            // what a tool returned
	Validated                       // written by an agent, let through by the commit gate
	Chunk                           // a document, or the words of the user
	Verified                        // checked by a person
)

var provenances = [...]struct {
	name  string
	trust float64
}{
	Scratch:   {"scratch", .1},
	Tool:      {"tool", .4},
	Validated: {"validated", .5},
	Chunk:     {"chunk", .7},
	Verified:  {"human-verified", 1},
}

// Trust is the number of a provenance in scores, 0 to 1.
func (p Provenance) Trust() float64 {
	if !p.Valid() {
		return 0
	}
	return provenances[p].trust
}

// Valid reports whether p is one of the named provenances.
func (p Provenance) Valid() bool { return p >= Scratch && p <= Verified }

// String is the name that ParseProvenance reads.
func (p Provenance) String() string {
	if !p.Valid() {
		return fmt.Sprintf("provenance(%d)", uint8(p))
	}
	return provenances[p].name
}

// ParseProvenance reads a name made by String.
func ParseProvenance(s string) (Provenance, error) {
	for p := Scratch; p <= Verified; p++ {
		if provenances[p].name == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("triage: %q is no provenance; use scratch, tool, validated, chunk or human-verified", s)
}

// Weights of the three signals; they sum to 1.
type Weights struct{ Recency, Trust, Semantic float64 }

// Preset is a way to combine the signals. The zero Preset weighs S alone.
type Preset struct {
	Name     string
	HalfLife time.Duration // 0: HalfLife
	Floor    Provenance    // pages that are trusted less are excluded; 0: none are
	Keep     int           // > 0: two passes; R and P keep this many pages, and only those get an S
	Weights  [Verified + 1]Weights
	Turns    Weights // of turns; zero: those of their provenance
}

func (p *Preset) weights(c *Candidate) Weights {
	if c.Turn && p.Turns != (Weights{}) {
		return p.Turns
	}
	of := c.Provenance
	if !of.Valid() {
		of = Scratch
	}
	w := p.Weights[of]
	if w == (Weights{}) {
		return Weights{Semantic: 1}
	}
	return w
}

// Default lets relevance decide; recency and provenance break near ties. On long conversations every larger share of
// recency lost evidence. Of turns that words found recency decides nothing: people ask for what was said some time ago as
// often as for the newest, and of equal turns the older ones found more.
func Default() Preset {
	p := Preset{Name: "default", Floor: Tool, Turns: Weights{Trust: .06, Semantic: .94}}
	for i := range p.Weights {
		p.Weights[i] = Weights{Recency: .02, Trust: .06, Semantic: .92}
	}
	return p
}

// START is the published form of context triage in two passes: recency and provenance keep 20 pages, and only those get
// the semantic signal. Weights depend on the type of page. The published form has none for validated pages; theirs lie
// between chunk and scratchpad.
func START() Preset {
	return Preset{Name: "START", Floor: Tool, Keep: 20, Weights: [Verified + 1]Weights{
		Scratch:   {.3, .2, .5},
		Tool:      {.5, .2, .3},
		Validated: {.4, .2, .4},
		Chunk:     {.4, .2, .4},
		Verified:  {.2, .5, .3},
	}}
}
