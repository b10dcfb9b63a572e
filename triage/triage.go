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
	"slices"
	"time"
)

// Reason says why a page was left out. The empty reason: it was not.
type Reason string

// Reasons that exclude before scoring; the page is black.
const (
	Expired     Reason = "expired"
	Deleted     Reason = "deleted"
	Superseded  Reason = "superseded"
	BelowFloor  Reason = "below the provenance floor"
	OtherScope  Reason = "other scope" // for the owner of all scopes; never told to an agent
	OtherKind   Reason = "kind not asked for"
	Masked      Reason = "replaced by this transaction"
	FetchFailed Reason = "dirty: fetch failed"
	ReadOnly    Reason = "dirty: a read-only database does not refetch"
)

// Reasons that leave out a page which was looked at.
const (
	NotKept    Reason = "recency and provenance kept others" // first pass of START
	BeyondTopK Reason = "beyond the top K"
	OverBudget Reason = "over budget"
)

// Tag is the colour of a page after triage.
type Tag uint8

// The tags, most urgent first.
const (
	Red    Tag = iota + 1 // system, pinned, directive, newest turn, or score ≥ RedScore
	Yellow                // score ≥ YellowScore
	Green                 // below: a stub is enough
	Black                 // excluded, with a reason
)

// Scores from which a page is red or yellow.
const (
	RedScore    = .6
	YellowScore = .3
)

var tags = [...]string{"untagged", "red", "yellow", "green", "black"}

// String is the name of the colour.
func (t Tag) String() string {
	if int(t) >= len(tags) {
		t = 0
	}
	return tags[t]
}

// Candidate is a page as triage sees it.
type Candidate struct {
	ID         uint64 // the caller's number of the page, unique among the candidates
	Provenance Provenance
	Age        time.Duration // since the time that the page is current as of
	Lexical    float64       // score of the index, 0 for no hit
	Cosine     *float64      // of its vector and the query's; nil without a vector
	Excluded   Reason        // found by the caller; the page is black

	System, Pinned, Directive, NewestTurn bool // red whatever the score
	// Own: a turn of the session that asks, or a write of the transaction that
	// asks. The provenance floor does not apply to it.
	Own bool
}

// needed reports whether a page is red by its nature.
func (c *Candidate) needed() bool { return c.System || c.Pinned || c.Directive || c.NewestTurn }

// exempt reports whether the provenance floor does not apply. A pin is no
// exemption: it would carry an unjudged note past the commit gate.
func (c *Candidate) exempt() bool { return c.System || c.Directive || c.NewestTurn || c.Own }

// Scored is a candidate with every part of its score.
type Scored struct {
	Candidate
	Recency, Trust, Semantic float64 // R, P and S, each 0 to 1
	LexicalRank, VectorRank  int     // from 1, equal scores share one; 0: no score
	Weights                  Weights // what the parts were weighed with
	Score                    float64 // 0 to 1
	Tag                      Tag
	Reason                   Reason // why it was left out; empty for what stays
}

// Rank scores and orders the candidates. First come the pages that are red by
// nature, then the others, then those with a Reason; within each the greater
// score, the younger page, the greater ID. The input is not changed.
func Rank(p Preset, cs []Candidate) []Scored {
	out := screen(p, cs)
	keepFirst(p, out)
	semantic(out)
	for i := range out {
		out[i].finish()
	}
	arrange(out, order(out))
	return out
}

// arrange moves out[at[i]] to i, for all i: each page into the one place where it stays.
func arrange(out []Scored, at []int32) {
	for i := range at {
		from := at[i]
		for from < int32(i) { // it was moved when that place was filled
			from = at[from]
		}
		out[i], out[from] = out[from], out[i]
	}
}

// order gives the places of out, best first. The pages themselves, which are large, are not moved.
func order(out []Scored) []int32 {
	at := make([]int32, len(out))
	for i := range at {
		at[i] = int32(i)
	}
	slices.SortFunc(at, func(i, j int32) int { return compareScored(&out[i], &out[j]) })
	return at
}

// Shortlist returns the IDs of the candidates whose vectors the preset needs,
// best first: under START at most Keep, else all that are not excluded. Pages
// that are red by nature need none.
func Shortlist(p Preset, cs []Candidate) []uint64 {
	out := screen(p, cs)
	keepFirst(p, out)
	var ids []uint64
	for _, i := range order(out) {
		if out[i].Reason == "" && !out[i].needed() {
			ids = append(ids, out[i].ID)
		}
	}
	return ids
}

// screen computes what costs nothing, R and P, and excludes. Score holds their
// sum until finish.
func screen(p Preset, cs []Candidate) []Scored {
	out := make([]Scored, len(cs))
	for i := range cs {
		c, s := &cs[i], &out[i]
		*s = Scored{Candidate: *c, Weights: p.weights(c.Provenance), Reason: c.Excluded}
		if s.Reason == "" && c.Provenance < p.Floor && !c.exempt() {
			s.Reason = BelowFloor
		}
		if s.Reason != "" {
			s.Tag = Black
		} else {
			s.Recency, s.Trust = Recency(c.Age, p.HalfLife), c.Provenance.Trust()
			s.Score = float64(s.Weights.Recency*s.Recency) + float64(s.Weights.Trust*s.Trust)
		}
	}
	return out
}

// keepFirst is the first pass of a preset with two: the best by R and P stay.
func keepFirst(p Preset, out []Scored) {
	if p.Keep <= 0 {
		return
	}
	var open []*Scored
	for i := range out {
		if out[i].Reason == "" && !out[i].needed() {
			open = append(open, &out[i])
		}
	}
	slices.SortFunc(open, compareScored)
	for _, s := range open[min(p.Keep, len(open)):] {
		s.Reason = NotKept
	}
}

func (s *Scored) finish() {
	if s.Tag == Black {
		return
	}
	if s.Reason == "" {
		s.Score += float64(s.Weights.Semantic * s.Semantic)
	}
	switch {
	case s.needed() || s.Reason == "" && s.Score >= RedScore:
		s.Tag = Red
	case s.Reason == "" && s.Score >= YellowScore:
		s.Tag = Yellow
	default:
		s.Tag = Green
	}
}

func compareScored(a, b *Scored) int {
	if c := cmp.Compare(a.place(), b.place()); c != 0 {
		return c
	}
	if c := cmp.Compare(b.Score, a.Score); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(b.ID, a.ID))
}

func (s *Scored) place() int {
	switch {
	case s.Tag == Black:
		return 3
	case s.Reason != "":
		return 2
	case s.needed():
		return 0
	}
	return 1
}
