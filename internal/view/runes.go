package view

import "unicode"

// Steers reports whether a terminal may act on a rune instead of showing it, or whether it turns round the order of the runes beside it.
func Steers(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// Hidden reports whether a rune leaves no trace on the screen: zero-width ones, tags, fillers, variation selectors. Two names
// that look alike may differ by them, and a text may carry words that only a model reads.
func Hidden(r rune) bool {
	return r >= 0x80 && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) &&
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Shapes reports whether a hidden rune is one that scripts and emoji are written with.
func Shapes(r rune) bool {
	return r == '\u200c' || r == '\u200d' || r >= '\ufe00' && r <= '\ufe0f'
}
