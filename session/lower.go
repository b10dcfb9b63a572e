package session

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lower lower-cases as Python's str.lower does, which is what the reference
// pager compares with. It differs from strings.ToLower in two places: dotted
// capital I (U+0130) becomes two characters, and a capital sigma at the end of
// a word becomes the final form. Bytes that are not UTF-8 (a lone surrogate
// from a JSON escape) stay as they are.
func Lower(s string) string {
	if isLowerASCII(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteByte(s[i])
		case r == '\u0130': // dotted capital I
			b.WriteString("i\u0307")
		case r == '\u03A3': // capital sigma
			b.WriteRune(sigma(s[:i], s[i+size:]))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		i += size
	}
	return b.String()
}

func isLowerASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// sigma picks the form of a capital sigma between two texts: final when a cased
// letter stands before it and none after it, case-ignorable characters passed
// over on both sides (the Final_Sigma condition of Unicode's SpecialCasing).
func sigma(before, after string) rune {
	before = strings.TrimRightFunc(before, caseIgnorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !cased(last) {
		return '\u03C3'
	}
	after = strings.TrimLeftFunc(after, caseIgnorable)
	next, _ := utf8.DecodeRuneInString(after)
	if after != "" && cased(next) {
		return '\u03C3'
	}
	return '\u03C2'
}

func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// midWord holds the characters of word break class MidLetter, MidNumLet and
// Single_Quote (Unicode TR29), which are case-ignorable beside the categories.
const midWord = "'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A"

func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune(midWord, r)
}
