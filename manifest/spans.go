package manifest

import (
	"fmt"
	"time"
)

// Span is a range of leaves, half open.
type Span [2]uint64

// Pruned says when the body of a leaf was removed and by whom, according to the prune leaf.
type Pruned struct {
	Trace  string `json:"trace"`        // of the prune leaf
	Leaf   uint64 `json:"leaf"`         // its index
	At     int64  `json:"at"`           // unix µs
	By     string `json:"by,omitempty"` // "": no leaf vouches for the stub
	Action string `json:"action"`       // pruned or erased
}

// String is the sentence for people: what was done, when, by whom.
func (p *Pruned) String() string {
	if p.By == "" {
		return "pruned, and no leaf of the audit says by whom; verify the audit"
	}
	return fmt.Sprintf("%s at %s by %s", p.Action, time.UnixMicro(p.At).UTC().Format(time.RFC3339), p.By)
}
