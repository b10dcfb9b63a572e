// Package triage decides which pages enter a context: it ranks them, and fits the best within a token budget.
//
// [Rank] orders pages by how recent a page is (R), who wrote it (P), and how near it is to the question (S). Exclusions come
// first, and no score outweighs them. Every part of a score is kept, so that a decision can be explained later.
//
// [Fit] places them. It keeps the system part and protected pages, chooses the rest by score per token, degrades in
// four named tiers and never exceeds the budget. Its result comes with every answer, errors included. Costs are in tokens of
// the caller's counter.
//
// The package is pure: it reads no clock, no file and no store, and equal input has equal output. Nothing changes its input.
// Except Ranker, everything is safe for concurrent use.
package triage

import (
	"cmp"
	"slices"
	"time"
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
	Apart      float64       // what of Lexical does not depend on the question: first person, standing instruction, preference
	Cosine     *float64      // of its vector and the query's, −1 to 1; nil without a vector
	Turn       bool          // a turn of a conversation that words found
	Long       float64       // divides how near it is: above 1 for a turn far longer than most
	Beside     float64       // the share of its neighbours' cosines that it gets; it counts if it is greater than Cosine
	Excluded   Reason        // found by the caller; the page is black

	System, Pinned, Directive, NewestTurn bool // red whatever the score
	// Own marks a turn of the session that asks, or a write of the transaction that asks. The
	// provenance floor does not apply to it.
	Own bool
}

// needed reports whether a page is red by its nature.
func (c *Candidate) needed() bool { return c.System || c.Pinned || c.Directive || c.NewestTurn }

// exempt reports whether the provenance floor does not apply. A pin is no
// exemption: it would carry an unjudged note past the commit gate.
func (c *Candidate) exempt() bool { return c.System || c.Directive || c.NewestTurn || c.Own }

// Scored is a candidate with every part of its score.
type Scored struct {
	*Candidate                       // of the input, which must stay as it is
	Recency, Trust, Semantic float64 // R, P and S, each 0 to 1
	Weights                  Weights // what the parts were weighed with
	Score                    float64 // 0 to 1
	Tag                      Tag
	Words                    float64 // S by words alone
	Reason                   Reason  // why it was left out; empty for what stays
}

// Ranker ranks repeatedly without allocating. It is not safe for concurrent use.
type Ranker struct {
	scored []Scored
	sorted []Scored
	places []place
}

// Rank scores and orders the candidates: first pages that are always red, then the others, then those with a Reason.
// Within each the order is by greater score, then younger pages and greater IDs, and behind them older turns and lower IDs.
// The input does not change. The result is in memory of the Ranker and valid until the next call.
func (r *Ranker) Rank(p Preset, cs []Candidate) []Scored {
	r.screen(p, cs)
	keepFirst(p, r.scored)
	semantic(r.scored)
	for i := range r.scored {
		r.scored[i].finish()
	}
	r.sorted = r.sorted[:0]
	for _, x := range r.ranking() {
		r.sorted = append(r.sorted, r.scored[x.at])
	}
	return r.sorted
}

// place has the fields that mostly decide where a candidate stands. The candidates
// themselves, which are large, are moved once only.
type place struct {
	score float64
	at    int32
	group int8
}

// ranking returns the places of the candidates, best first.
func (r *Ranker) ranking() []place {
	r.places = r.places[:0]
	for i := range r.scored {
		s := &r.scored[i]
		r.places = append(r.places, place{s.Score, int32(i), s.group()})
	}
	slices.SortFunc(r.places, func(x, y place) int {
		if x.group != y.group {
			return int(x.group - y.group)
		}
		if x.score > y.score { // none is NaN
			return -1
		} else if x.score < y.score {
			return 1
		}
		return compareEqual(&r.scored[x.at], &r.scored[y.at])
	})
	return r.places
}

// Shortlist returns the IDs of the candidates whose vectors the preset needs, best first: under START at most Keep,
// otherwise all that are not excluded. Pages that are always red need none.
func Shortlist(p Preset, cs []Candidate) []uint64 {
	var r Ranker
	r.screen(p, cs)
	keepFirst(p, r.scored)
	var ids []uint64
	for _, x := range r.ranking() {
		if s := &r.scored[x.at]; s.Reason == "" && !s.needed() {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// screen computes what costs nothing, R and P, and excludes. Score holds their
// sum until finish.
func (r *Ranker) screen(p Preset, cs []Candidate) {
	r.scored = slices.Grow(r.scored[:0], len(cs))[:len(cs)]
	for i := range cs {
		c, s := &cs[i], &r.scored[i]
		*s = Scored{Candidate: c, Weights: p.weights(c), Reason: c.Excluded}
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
	s.Tag = s.tagAt(s.Score)
}

// tagAt returns the tag of a page that is not excluded, if it had a score.
func (s *Scored) tagAt(score float64) Tag {
	switch {
	case s.needed() || s.Reason == "" && score >= RedScore:
		return Red
	case s.Reason == "" && score >= YellowScore:
		return Yellow
	}
	return Green
}

// TagByWords returns the tag that a page has by words alone: Tag itself if there are no vectors.
func (s *Scored) TagByWords() Tag {
	if s.Tag == Black || s.Semantic == s.Words {
		return s.Tag
	}
	return s.tagAt(s.Score + float64(s.Weights.Semantic*(s.Words-s.Semantic)))
}

func compareScored(a, b *Scored) int {
	if c := cmp.Compare(a.group(), b.group()); c != 0 {
		return c
	}
	if c := cmp.Compare(b.Score, a.Score); c != 0 {
		return c
	}
	return compareEqual(a, b)
}

// compareEqual orders candidates of equal scores: pages before turns, younger pages first, and older turns first.
func compareEqual(a, b *Scored) int {
	switch {
	case a.Turn && b.Turn:
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID))
	case a.Turn:
		return 1
	case b.Turn:
		return -1
	}
	return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(b.ID, a.ID))
}

// group is 0 for what comes first, 3 for what comes last.
func (s *Scored) group() int8 {
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
