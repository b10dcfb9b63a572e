package token

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The encodings publish how they split as regular expressions, whose first alternative that matches is the next piece:
//
//	cl100k_base:
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
//	o200k_base, with C for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and S for [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
//	[^\r\n\p{L}\p{N}]?C*S+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?C+S*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	and white space as above
//
// The functions here follow them; the tests of package token/bpe compare the two.

// kind is the set of classes of the expressions that a character is in.
type kind uint8

const (
	capital kind = 1 << iota // C
	small                    // S
	letter
	number
	space
	newline
)

// NextPiece returns the function that splits texts as an encoding does, O200k or CL100k: it returns the length of the first
// piece of a text that is not empty. No token of the encoding reaches beyond a piece.
func NextPiece(encoding string) func(text string) int {
	if encoding == CL100k {
		return nextCL100k
	}
	return nextO200k
}

var ascii = func() (kinds [utf8.RuneSelf]kind) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

func kindOf(r rune) kind {
	switch {
	case r == '\r' || r == '\n':
		return space | newline
	case unicode.IsSpace(r):
		return space
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return letter | capital
	case unicode.Is(unicode.Ll, r):
		return letter | small
	case unicode.IsLetter(r):
		return letter | capital | small
	case unicode.IsMark(r):
		return capital | small
	case unicode.IsNumber(r):
		return number
	}
	return 0
}

// first returns the kind and the length of the first character; 0, 0 for an empty text.
func first(text string) (kind, int) {
	if text == "" {
		return 0, 0
	}
	if text[0] < utf8.RuneSelf {
		return ascii[text[0]], 1
	}
	r, n := utf8.DecodeRuneInString(text)
	return kindOf(r), n
}

// run returns the length of the longest prefix whose characters are of one of these kinds; with not, of none.
func run(text string, of kind, not bool) int {
	i := 0
	for i < len(text) {
		k, n := first(text[i:])
		if (k&of == 0) != not {
			break
		}
		i += n
	}
	return i
}

func nextCL100k(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	return next(text, func(text string) (int, bool) { return run(text, letter, false), true }, "\r\n")
}

func nextO200k(text string) int { return next(text, word, "\r\n/") }

// next matches a word with at most one sign before it, up to three digits, signs with a space before and ends behind them, or
// white space.
//
// A mark is both a sign and a small letter. Before capitals alone it is a word of its own, because the expression for words
// that end in small letters comes first.
func next(text string, word func(string) (n int, ends bool), signEnds string) int {
	k, n := first(text)
	switch {
	case k&number != 0:
		return n + digits(text[n:], 2)
	case k&(letter|newline) == 0:
		if w, ends := word(text[n:]); w > 0 && (ends || k&small == 0) {
			return n + w
		}
	}
	if w, _ := word(text); w > 0 {
		return w
	}
	blank := 0
	if text[0] == ' ' {
		blank = 1
	}
	if n := run(text[blank:], letter|number|space, true); n > 0 {
		after := text[blank+n:]
		return blank + n + len(after) - len(strings.TrimLeft(after, signEnds))
	}
	return white(text)
}

// word matches capitals and then small letters. A letter without case, or a mark, is both: without small letters, the word
// ends at the last such character. ends reports whether the word ends in small letters or in such a character.
func word(text string) (i int, ends bool) {
	both := 0
	for i < len(text) {
		k, n := first(text[i:])
		if k&capital == 0 {
			break
		}
		i += n
		if k&small != 0 {
			both = i
		}
	}
	n := run(text[i:], small, false)
	switch {
	case n > 0:
		i += n
	case both > 0:
		i = both
	}
	if ends = n > 0 || both > 0; i > 0 {
		i += contraction(text[i:])
	}
	return i, ends
}

func digits(text string, most int) int {
	i := 0
	for range most {
		if k, n := first(text[i:]); k&number != 0 {
			i += n
		}
	}
	return i
}

// white matches white space up to and including its last newline. Without a newline it leaves its last character to the word
// that follows.
func white(text string) int {
	i, last, end := 0, 0, 0
	for i < len(text) {
		k, n := first(text[i:])
		if k&space == 0 {
			break
		}
		last, i = i, i+n
		if k&newline != 0 {
			end = i
		}
	}
	switch {
	case end > 0:
		return end
	case i == len(text) || last == 0:
		return i
	}
	return last
}

// contraction matches an apostrophe with an English ending. The long s is an s in another case.
func contraction(text string) int {
	if text == "" || text[0] != '\'' {
		return 0
	}
	for _, w := range []string{"s", "t", "re", "ve", "m", "ll", "d", "ſ"} {
		if after := text[1:]; len(after) >= len(w) && strings.EqualFold(after[:len(w)], w) {
			return 1 + len(w)
		}
	}
	return 0
}
