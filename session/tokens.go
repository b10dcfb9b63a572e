package session

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/text/unicode/norm"
)

// Tokens gives the token set of the reference pager: after Lower, the maximal
// runs of ASCII letters, digits and underscore. Letters of other scripts are
// separators there, so such texts never match; TokenSet does better.
func Tokens(text string) map[string]struct{} {
	text = Lower(text)
	set := make(map[string]struct{})
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && asciiWord(text[i]) {
			if start < 0 {
				start = i
			}
		} else if start >= 0 {
			set[text[start:i]] = struct{}{}
			start = -1
		}
	}
	return set
}

func asciiWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}

// TokenSet gives the hashes of a text's distinct tokens, sorted: what a Block
// keeps so that a pass needs no text. Tokens are runs of letters, marks, digits
// and underscore after NFKC and Lower; scripts written without spaces give
// pairs of neighbouring characters.
func TokenSet(text string) []uint64 {
	var set []uint64
	for _, w := range words(text) {
		set = append(set, xxhash.Sum64String(w))
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// words splits a text into the tokens of TokenSet, in order, with repetitions.
func words(text string) []string {
	text = Lower(norm.NFKC.String(text))
	var out []string
	start, dense := -1, false
	flush := func(end int) {
		if start >= 0 {
			out = appendRun(out, text[start:end], dense)
		}
		start = -1
	}
	for i, r := range text {
		switch {
		case !wordRune(r):
			flush(i)
		case start < 0:
			start, dense = i, unspaced(r)
		case unspaced(r) != dense && !unicode.Is(unicode.M, r):
			flush(i)
			start, dense = i, unspaced(r)
		}
	}
	flush(len(text))
	return out
}

// appendRun adds one run: as a whole, or as pairs for an unspaced script.
func appendRun(out []string, run string, dense bool) []string {
	if !dense || utf8.RuneCountInString(run) < 2 {
		return append(out, run)
	}
	_, prev := utf8.DecodeRuneInString(run)
	for start, next := 0, prev; next < len(run); {
		_, size := utf8.DecodeRuneInString(run[next:])
		out = append(out, run[start:next+size])
		start, next = next, next+size
	}
	return out
}

func wordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiWord(byte(r))
	}
	return r != utf8.RuneError && unicode.In(r, unicode.L, unicode.M, unicode.N)
}

// unspaced says whether the script of r is written without spaces.
func unspaced(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
