package session

import "time"

// Traits are what a section's text looks like; Inspect finds them once, when
// the text is at hand.
type Traits uint16

// The traits.
const (
	TraitLog Traits = 1 << iota
	TraitDiff
	TraitBinary // base64 or an image
	TraitError  // holds a line that reports a failure
	TraitAck    // nothing but an acknowledgement
)

// Signals are facts about a section that the host or the database knows.
type Signals struct {
	Digest      uint64    // hash of the content; equal digests are duplicates
	Source      string    // source key
	Version     uint64    // version of the source that this shows
	Stale       bool      // the source changed since
	Call        string    // key of the call this is the result of
	Failed      bool      // the call failed
	Refetchable bool      // asking the tool again gives it back
	Finding     bool      // what this log showed is recorded elsewhere
	Closed      bool      // belongs to a finished sub-task
	Keep        bool      // a correction or a decision: never low-value, never touched
	ExpiresAt   time.Time // zero: never
	LastRead    int64     // turn of the last read according to the manifests
}
