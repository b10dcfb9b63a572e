package manifest

import (
	"fmt"
	"slices"
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

// Prunable reports whether leaves of a type may lose their bodies. The other types record the
// history of the database and of its audit.
func Prunable(t Type) bool {
	switch t {
	case TypePrune, TypeBackup, TypeRecovered, TypeRestored, TypeColumns:
		return false
	}
	return t.Known()
}

// SpansOf makes ranges of leaves, which it sorts.
func SpansOf(leaves []uint64) (out []Span) {
	slices.Sort(leaves)
	for _, i := range leaves {
		if n := len(out); n > 0 && i <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], i+1)
		} else {
			out = append(out, Span{i, i + 1})
		}
	}
	return out
}

// CountOf returns how many leaves are in ranges.
func CountOf(spans []Span) (n uint64) {
	for _, s := range spans {
		n += s[1] - s[0]
	}
	return n
}

// Covered reports whether a leaf is in one of ascending ranges.
func Covered(spans []Span, i uint64) bool {
	_, found := slices.BinarySearchFunc(spans, i, func(s Span, i uint64) int {
		switch {
		case s[1] <= i:
			return -1
		case s[0] > i:
			return 1
		}
		return 0
	})
	return found
}
