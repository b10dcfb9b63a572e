package session

// Action is what a pass does with a block.
type Action uint8

// The three actions, in the order of the summary line.
const (
	Retain Action = iota // whole in the window
	Page                 // a stub in the window, the text one recall away
	Evict                // out of the window, still recallable
)

var actionNames = [3]string{"retain", "page", "evict"}
var bucketNames = [3]string{"retained-blocks", "paged-blocks", "evicted-blocks"}

func (a Action) String() string { return actionNames[a] }

// Bucket is the name of the contract list the action adds to.
func (a Action) Bucket() string { return bucketNames[a] }

// Recency is 1 / (1 + ln(1+delta)), given lnDelta = ln(1+delta).
func Recency(lnDelta float64) float64 { return 1 / (1 + lnDelta) }

// Score is alpha*similarity + beta*recency, each operation rounded on its own:
// the conversions forbid the compiler a fused multiply-add, which would change
// the last bit on some processors.
func Score(alpha, beta, similarity, recency float64) float64 {
	return float64(alpha*similarity) + float64(beta*recency)
}

// Classify compares the unrounded score with the cuts. Retain is tested first,
// so inverted cuts retain; a NaN score is neither and pages.
func Classify(score, retainCut, evictCut float64) Action {
	switch {
	case score >= retainCut:
		return Retain
	case score < evictCut:
		return Evict
	}
	return Page
}
