// Package token counts what a text costs a model.
//
// A [Counter] is named, and the name keys stored counts: a page is counted once, when it is written, and the number
// stays valid for as long as the same counter is asked for. [Default] estimates by character class and errs high;
// package token/bpe counts exactly for the encodings that are public; [Calibration] learns a factor from the usage a
// provider reports. The package is pure: no files, no clock, no goroutines.
package token

// Counter counts the tokens of a text.
//
// Count is deterministic, never negative, 0 for the empty text, and safe for concurrent use. It may be slow, so a
// caller holds no lock while it runs. Name identifies the way of counting and keys stored counts: two counters of one
// name must agree on every text, and a counter whose answers change takes a new name.
type Counter interface {
	Name() string
	Count(text string) int
}

// Label says how far a count can be trusted.
type Label string

// The three qualities of a count.
const (
	Exact      Label = "exact"      // the model's own tokenizer
	Estimated  Label = "estimated"  // a rule of thumb that errs high
	Calibrated Label = "calibrated" // an estimate corrected by observed usage
)

// labeler is implemented by counters that know their quality.
type labeler interface{ Label() Label }

// LabelOf returns the quality of c. A counter that does not say is taken for an estimate.
func LabelOf(c Counter) Label {
	if l, ok := c.(labeler); ok {
		return l.Label()
	}
	return Estimated
}
