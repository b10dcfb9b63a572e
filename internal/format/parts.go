package format

import (
	"math"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// JoinParts joins the text parts of a message. It also returns the length in bytes of each part's
// text, 0 for a part that is not text.
func JoinParts(parts []store.Part) (string, []int) {
	var b strings.Builder
	sizes := make([]int, len(parts))
	for i, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
			sizes[i] = len(p.Text)
		}
	}
	return b.String(), sizes
}

// StripParts copies parts without their texts, the form in which a Head has them.
func StripParts(parts []store.Part) []store.Part {
	out := slices.Clone(parts)
	for i := range out {
		if out[i].Type == "text" {
			out[i].Text = ""
		}
	}
	return out
}

// ClampUnit clamps a confidence to 0..1; NaN becomes 0.
func ClampUnit(x float64) float64 {
	if math.IsNaN(x) || x < 0 {
		return 0
	}
	return math.Min(x, 1)
}
