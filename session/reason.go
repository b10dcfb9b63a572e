package session

import (
	"fmt"
	"strconv"
)

// Reason is why a block got its action.
type Reason uint8

// The reasons of a verdict. With ByScore the score decided. The others are
// guards, which only ever raise what the score decided.
const (
	ByScore    Reason = iota // R reached the retain cut, missed the evict cut, or lies between
	ByPin                    // pinned by the caller
	ByKeepLast               // one of the newest blocks
	ByNewest                 // the newest user turn
	ByUserTurn               // a user turn is never below page
	ByAge                    // too young to be evicted
)

var reasonNames = [...]string{"score", "pinned", "keep-last", "newest user turn", "user turn", "too young to evict"}

func (r Reason) String() string { return reasonNames[r] }

// Explain states the verdict in one sentence. Equal verdicts give equal sentences.
func (r Result) Explain(v Verdict) string {
	base := fmt.Sprintf("%s: R %s = %s × similarity %s (%d of %d keywords) + %s × recency %s (%d turns behind)",
		v.Action, short(v.R), short(r.Params.Alpha), short(v.Similarity), v.Hits, r.Keywords,
		short(r.Params.Beta), short(v.Recency), v.Delta)
	cuts := fmt.Sprintf("; retain from %s, evict below %s", short(r.Params.RetainCut), short(r.Params.EvictCut))
	if v.Reason == ByScore {
		return base + cuts
	}
	return base + cuts + "; raised by guard: " + v.Reason.String()
}

// short writes a float with at most four decimals.
func short(f float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', 4, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
