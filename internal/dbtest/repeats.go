package dbtest

import "os"

// The size of tests that repeat what differs by a seed, an operation or a kind of text alone. `go test ./...` runs the short form,
// which checks the same with fewer of them.
var (
	Full = Long || os.Getenv("CTXPAGE_TESTS") == "full" // as .ci/run sets it
	Long = os.Getenv("CTXPAGE_LONG") != ""              // as `make nightly` sets it
)

// Size is how often such a test repeats, or how much it works on: short, or full as .ci/run asks.
func Size(short, full int) int {
	if Full {
		return full
	}
	return short
}

// Times is how often such a test repeats: short or full, and often in the long form. The race detector, which makes each time
// ten times slower, takes a third, at least two.
func Times(short, full, often int) int {
	n := Size(short, full)
	switch {
	case Long:
		return often
	case Race:
		return min(n, max(2, full/3))
	}
	return n
}
