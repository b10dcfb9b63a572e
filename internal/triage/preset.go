package triage

import "time"

// Weights of the three signals; they sum to 1.
type Weights struct{ Recency, Trust, Semantic float64 }

// Preset is a way to combine the signals. The zero Preset weighs S alone.
type Preset struct {
	Name     string
	HalfLife time.Duration // 0: HalfLife
	Floor    Provenance    // pages that are trusted less are excluded; 0: none are
	Keep     int           // > 0: two passes; R and P keep this many pages, and only those get an S
	Weights  [Verified + 1]Weights
}

func (p *Preset) weights(of Provenance) Weights {
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
// recency lost evidence.
func Default() Preset {
	p := Preset{Name: "default", Floor: Tool}
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
