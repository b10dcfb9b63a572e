// Package triage decides which pages are worth a place in a context: how recent
// a page is (R), who wrote it (P), how near it is to the question (S). The
// exclusions come first and are never outweighed by a score; every part of a
// score is kept, so that a decision can be explained later.
//
// The package is pure: it reads no clock and no store, ages come in, an order
// comes out, and equal input gives equal output.
package triage

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// HalfLife is the age at which recency has fallen to one half.
const HalfLife = 7 * 24 * time.Hour

// Recency is 2^(−age/half-life), between 0 and 1. A page from the future counts
// as new; a half-life that is not positive means HalfLife.
func Recency(age, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		halfLife = HalfLife
	}
	return math.Exp2(-float64(max(age, 0)) / float64(halfLife))
}

// Semantic maps a cosine to 0..1. A cosine that is no number counts as opposite.
func Semantic(cosine float64) float64 {
	if math.IsNaN(cosine) {
		return 0
	}
	return (1 + min(max(cosine, -1), 1)) / 2
}

// Reason says why a page was left out. The empty reason: it was not.
type Reason string

// The reasons. The first group excludes before scoring (tag black); the second
// leaves out what was scored.
const (
	Expired     Reason = "expired"
	Deleted     Reason = "deleted"
	Superseded  Reason = "superseded"
	BelowFloor  Reason = "below the provenance floor"
	OtherScope  Reason = "other scope" // for the owner of all scopes only; never told to an agent
	OtherKind   Reason = "kind not asked for"
	Masked      Reason = "replaced by this transaction"
	FetchFailed Reason = "dirty: fetch failed"
	ReadOnly    Reason = "dirty: read-only database does not refetch"

	NotKept    Reason = "recency and provenance kept others" // first pass of START
	BeyondTopK Reason = "beyond the top K"
	OverBudget Reason = "over budget"
)

// Tag is the colour of a page after triage.
type Tag uint8

// The tags, most urgent first.
const (
	Red    Tag = iota + 1 // system, pinned, directive, newest turn, or score ≥ .6
	Yellow                // score ≥ .3
	Green                 // below: stub only
	Black                 // excluded, with a reason
)

// String is the name of the colour.
func (t Tag) String() string {
	switch t {
	case Red:
		return "red"
	case Yellow:
		return "yellow"
	case Green:
		return "green"
	case Black:
		return "black"
	}
	return "untagged"
}

// Candidate is a page as triage sees it.
type Candidate struct {
	ID         uint64 // the caller's number of the page
	Provenance Provenance
	Age        time.Duration // since the time the page is current as of
	Lexical    float64       // score of the index, 0 for no hit
	Cosine     *float64      // nil: no vector
	Excluded   Reason        // found by the caller; the page is black

	Pinned, System, Directive, NewestTurn bool
}

// Scored is a candidate with every part of its score.
type Scored struct {
	Candidate
	Recency, Trust, Semantic float64 // R, P, S
	LexicalRank, VectorRank  int     // from 1; 0: not ranked by it
	Score                    float64 // 0..1
	Tag                      Tag
	Reason                   Reason // why left out; empty for what stays
}

// Weights of the three signals; they sum to 1.
type Weights struct{ Recency, Trust, Semantic float64 }

// Preset is a way to join the signals.
type Preset struct {
	Name     string
	HalfLife time.Duration // 0: HalfLife
	Floor    Provenance    // below it a page is excluded, unless it is red by nature
	Keep     int           // > 0: two passes; R and P keep so many, S is asked for those only
	weights  [Verified + 1]Weights
}

// Default lets the index propose: relevance decides, recency and provenance
// break near ties.
func Default() Preset { return Preset{Name: "default"} }

// START is the published two-pass form: recency and provenance keep 20.
func START() Preset { return Preset{Name: "START", Keep: 20} }

// Shortlist returns the IDs that a preset wants vectors or lexical scores for,
// best first: under START at most Keep, else every candidate that is not
// excluded.
func Shortlist(p Preset, cs []Candidate) []uint64 { return nil }

// Rank scores and orders the candidates, best first, excluded ones last. The
// order is total: score, then younger, then the greater ID.
func Rank(p Preset, cs []Candidate) []Scored {
	best := 0.0
	for _, c := range cs {
		best = max(best, c.Lexical)
	}
	out := make([]Scored, len(cs))
	for i, c := range cs {
		s := Scored{Candidate: c, Recency: Recency(c.Age, p.HalfLife), Trust: c.Provenance.Trust(), Reason: c.Excluded}
		if best > 0 {
			s.Semantic = c.Lexical / best
		}
		s.Score = .9*s.Semantic + .05*s.Recency + .05*s.Trust
		switch {
		case s.Reason != "":
			s.Tag = Black
		case c.Pinned || c.System || s.Score >= .6:
			s.Tag = Red
		case s.Score >= .3:
			s.Tag = Yellow
		default:
			s.Tag = Green
		}
		out[i] = s
	}
	slices.SortFunc(out, func(a, b Scored) int {
		return cmp.Or(cmp.Compare(b2i(a.Reason != ""), b2i(b.Reason != "")), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Age, b.Age), cmp.Compare(b.ID, a.ID))
	})
	return out
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
