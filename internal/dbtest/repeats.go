package dbtest

import "os"

// Long asks for the long form of tests that repeat what differs by a seed, an operation or a kind of text alone:
// CTXPAGE_LONG=1, as `make nightly` sets it.
var Long = os.Getenv("CTXPAGE_LONG") != ""

// Times is how often such a test repeats: few times each time that anybody runs the tests, often in the long form. The
// race detector, which makes each time ten times slower, takes a third of the few, at least two.
func Times(few, often int) int {
	switch {
	case Long:
		return often
	case Race:
		return max(2, few/3)
	}
	return few
}
