package store

import (
	"slices"
	"strings"
)

// JoinParts joins the text parts of a message. It also returns the length in bytes of each part's
// text, 0 for a part that is not text.
func JoinParts(parts []Part) (string, []int) {
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
func StripParts(parts []Part) []Part {
	out := slices.Clone(parts)
	for i := range out {
		if out[i].Type == "text" {
			out[i].Text = ""
		}
	}
	return out
}
