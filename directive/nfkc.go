package directive

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// joiner is what package norm puts into a run of more than 30 combining marks,
// Unicode's stream-safe format. Compatibility composition itself adds nothing, so
// a key must not hold one that nobody wrote.
const joiner = "\u034F"

// nfkc is compatibility composition (Unicode Standard Annex 15), for runs of
// combining marks of any length.
func nfkc(s string) string {
	out := norm.NFKC.String(s)
	if strings.Count(out, joiner) == strings.Count(s, joiner) {
		return out
	}
	return string(composed(decomposed(s)))
}

// decomposed is the full compatibility decomposition with its marks in order.
func decomposed(s string) []rune {
	runes := make([]rune, 0, len(s))
	for _, r := range s {
		runes = append(runes, []rune(norm.NFKD.String(string(r)))...)
	}
	for i := 0; i < len(runes); i++ {
		start := i
		for i < len(runes) && class(runes[i]) != 0 {
			i++
		}
		slices.SortStableFunc(runes[start:i], func(a, b rune) int { return cmp.Compare(class(a), class(b)) })
	}
	return runes
}

func class(r rune) uint8 { return norm.NFKD.PropertiesString(string(r)).CCC() }

// composed joins each rune, in place, to the last starter before it where the
// two have a composite and no rune of the same or a higher class is in between.
func composed(runes []rune) []rune {
	out := runes[:0]
	starter, last := -1, uint8(0)
	for _, r := range runes {
		c := class(r)
		if starter >= 0 && (starter == len(out)-1 || last < c) {
			if joined := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(joined) == 1 {
				out[starter] = joined[0]
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, r)
	}
	return out
}
