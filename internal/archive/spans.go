package archive

import (
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
)

// Prunable reports whether leaves of a type may lose their bodies. The other types record the
// history of the database and of its audit.
func Prunable(t manifest.Type) bool {
	switch t {
	case manifest.TypePrune, manifest.TypeBackup, manifest.TypeRecovered, manifest.TypeRestored, manifest.TypeColumns:
		return false
	}
	return t.Known()
}

// SpansOf makes ranges of leaves, which it sorts.
func SpansOf(leaves []uint64) (out []manifest.Span) {
	slices.Sort(leaves)
	for _, i := range leaves {
		if n := len(out); n > 0 && i <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], i+1)
		} else {
			out = append(out, manifest.Span{i, i + 1})
		}
	}
	return out
}

// CountOf returns how many leaves are in ranges.
func CountOf(spans []manifest.Span) (n uint64) {
	for _, s := range spans {
		n += s[1] - s[0]
	}
	return n
}

// Covered reports whether a leaf is in one of ascending ranges.
func Covered(spans []manifest.Span, i uint64) bool {
	_, found := slices.BinarySearchFunc(spans, i, func(s manifest.Span, i uint64) int {
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
