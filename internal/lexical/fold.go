package lexical

import (
	"bytes"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A word with accents or marks is indexed twice, as it is written and folded, in pages and in
// questions alike. So each form finds the other, and a page that has the word as it was asked for
// matches by one term more.
//
// Folded are Latin, Greek, Arabic and Hebrew, and of Cyrillic ё and marks of stress: й and ї are
// letters of their own. Marks of other scripts are vowels, which are never dropped.

// folds are letters that do not decompose into what they are folded to.
var folds = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ħ': "h", 'ŧ': "t",
	'ς': "σ", 'ё': "е", 'ѐ': "е", 'ѝ': "и", // Cyrillic е and и
	'ٱ': "ا", 'ى': "ي", 'ة': "ه", 'ـ': "", // the last is only a stroke
}

// foldable is the range of letters and marks that are folded, beside those of appendFolded.
const foldable = 0x1FFF

// appendFolded appends the folded form of a letter in lower case, or of a mark.
func appendFolded(b []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		return append(b, byte(r))
	case r > foldable || 0x0700 <= r && r < 0x1E00:
		return utf8.AppendRune(b, r)
	case 0x0400 <= r && r < 0x0530 && folds[r] == "": // Cyrillic
		return utf8.AppendRune(b, r)
	case unicode.IsMark(r):
		return b
	}
	return append(b, foldings()[r]...)
}

// foldings has the folded form of every letter up to foldable that may have one.
var foldings = sync.OnceValue(func() *[foldable + 1]string {
	out := new([foldable + 1]string)
	for r := range rune(len(out)) {
		to, ok := folds[r]
		for _, part := range norm.NFD.String(string(r)) {
			if !ok && !unicode.IsMark(part) {
				to += string(part)
			}
		}
		out[r] = to
	}
	return out
})

// articles of Arabic are written as part of the word, with prepositions before them; the longest
// first.
var articles = [...]string{"وال", "بال", "كال", "فال", "لل", "ال"}

// stemmable is how many bytes of an Arabic word must be left without its article.
const stemmable = 2 * 3

// folded returns the folded form of a word, nil if it is the word itself. It uses the memory of b.
func folded(b, word []byte) []byte {
	b = b[:0]
	for _, r := range string(word) {
		b = appendFolded(b, r)
	}
	for _, a := range articles {
		if rest, ok := bytes.CutPrefix(b, []byte(a)); ok && len(rest) >= stemmable {
			b = rest
			break
		}
	}
	if len(b) == 0 || bytes.Equal(b, word) {
		return nil
	}
	return cut(b)
}

// digit returns the value of a decimal digit of any script. In Unicode they stand in runs of ten.
func digit(r rune) byte {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	return 0
}

// elides reports whether a word drops its vowel before another word: l’utilisateur, dell’arte. In
// French and Italian the two are written as one.
func elides(prefix []byte) bool {
	switch string(prefix) {
	case "l", "d", "j", "m", "t", "s", "n", "c", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu",
		"un", "all", "dall", "dell", "nell", "sull", "quell", "quest", "bell", "sant":
		return true
	}
	return false
}

// pictograph reports whether a symbol is an emoji or stands like one for a word. Lines, bullets and
// the modifiers of other emoji do not.
func pictograph(r rune) bool {
	switch {
	case r < 0x231A, 0x1F3FB <= r && r <= 0x1F3FF:
		return false
	case r >= 0x1F000, 0x2600 <= r && r < 0x2800, 0x2B00 <= r && r < 0x2C00, r == 0x231A, r == 0x231B, 0x23E9 <= r && r <= 0x23FA:
		return unicode.Is(unicode.So, r)
	}
	return false
}
