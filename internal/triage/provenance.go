package triage

import (
	"fmt"
	"time"
)

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
