// Package directivetext reads and normalises the texts of directives: the key of an item, a premise, the answer to a
// question, strict JSON, and what people and models write around a directive. It is pure.
package directivetext

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The rules of this file follow the reference, context-compiler v0.7.1, which
// takes its notions of white space, word and lower case from Python's str.

// isSpace is Unicode White_Space plus the four ASCII separators U+001C..U+001F,
// which Python's str.isspace counts in and unicode.IsSpace does not.
func isSpace(r rune) bool { return infoOf(r).is(space) }

// isWord tells what may stand inside a word; a combining mark may not.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

func Trim(s string) string     { return strings.TrimFunc(s, isSpace) }
func TrimLeft(s string) string { return strings.TrimLeftFunc(s, isSpace) }
func Blank(s string) bool      { return TrimLeft(s) == "" }

// squeeze turns every run of white space into one space and trims the ends.
func squeeze(s string) string {
	if squeezed(s) {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, isSpace), " ")
}

func squeezed(s string) bool {
	gap := true // as if a space came before, so that a leading one shows
	for _, r := range s {
		if !isSpace(r) {
			gap = false
			continue
		}
		if gap || r != ' ' {
			return false
		}
		gap = true
	}
	return s == "" || !gap
}

// lower is full lower-casing without locale: unlike strings.ToLower it keeps the
// dot of U+0130 and knows the final sigma.
func lower(s string) string {
	if lowerASCII(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i, r := range s {
		b = appendLower(b, s, i, r, infoOf(r))
	}
	return string(b)
}

// appendLower appends the lower case of r, the rune at s[i:].
func appendLower(b []byte, s string, i int, r rune, in *runeInfo) []byte {
	switch {
	case r < utf8.RuneSelf:
		return append(b, byte(r+in.lower))
	case r == 0x130:
		return append(b, "i\u0307"...)
	case r == 0x3A3 && finalSigma(s, i):
		return utf8.AppendRune(b, 0x3C2)
	}
	return utf8.AppendRune(b, r+in.lower)
}

func lowerASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// finalSigma reports whether the capital sigma at s[i:] ends a word: a cased rune
// comes before it and none after, case-ignorable ones not counted.
func finalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], caseIgnorable)
	if r, n := utf8.DecodeLastRuneInString(before); n == 0 || !cased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+utf8.RuneLen(0x3A3):], caseIgnorable)
	r, n := utf8.DecodeRuneInString(after)
	return n == 0 || !cased(r)
}

func cased(r rune) bool {
	return infoOf(r).lower != 0 || unicode.IsOneOf([]*unicode.RangeTable{
		unicode.Ll, unicode.Lu, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase,
	}, r)
}

// midWord are the runes of Word_Break MidLetter, MidNumLet and Single_Quote,
// which package unicode has no table for (Unicode 14, WordBreakProperty.txt).
const midWord = ":\u00B7\u0387\u055F\u05F4\u2027\uFE13\uFE55\uFF1A.\u2018\u2019\u2024\uFE52\uFF07\uFF0E'"

func caseIgnorable(r rune) bool {
	if in := infoOf(r); in.lower != 0 || in.is(space) {
		return false // the most that stands beside a capital sigma
	}
	return unicode.IsOneOf([]*unicode.RangeTable{unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk}, r) ||
		strings.ContainsRune(midWord, r)
}

// Premise normalises a premise text: compatibility composition, typewriter
// apostrophes, single blanks. Its case is kept. It is "" for a Blank text.
func Premise(text string) string { return squeeze(plain(text)) }

// maxFolds bounds the passes of [Item]. No text is known that needs more than
// three; the bound is there so that none can make it run on.
const maxFolds = 16

// Item normalises the text of a policy item to its key: like Premise, and in lower case, "dont" as "don't", without
// leading articles. It is "" when nothing is left. A key is its own key: Item(Item(x)) == Item(x).
func Item(text string) string {
	for range maxFolds {
		folded, final := fold(plain(text))
		key := dropArticles(apostropheDont(folded))
		if final || key == text {
			return key
		}
		text = key
	}
	return text
}

// fold is squeeze(lower(s)) of a plain s. It is final, which is to say plain, when
// no letter took on a case in which it joins a mark behind it: "J\u030C" has no
// composite, and "j\u030C" has.
func fold(s string) (string, bool) {
	var buf [256]byte
	out, done := buf[:0], 0  // out is made of s[:done]
	gap, final := true, true // whether a space came before
	turned := rune(0)        // the last letter that is no mark, if it took on another case
	for i, r := range s {
		if 'a' <= r && r <= 'z' {
			gap, turned = false, 0
			continue
		}
		in := infoOf(r)
		if in.is(space) {
			if gap || r != ' ' {
				out = append(out, s[done:i]...)
				if !gap {
					out = append(out, ' ')
				}
				done = i + utf8.RuneLen(r)
			}
			gap, turned = true, 0
			continue
		}
		gap = false
		switch {
		case !in.is(joined) && in.lower == 0:
			turned = 0
		case !in.is(joined):
			turned = r + in.lower
		case turned != 0 && joins(turned, r):
			final = false
		}
		if in.lower != 0 {
			final = final && r != 0x130 // which becomes a letter and a mark
			out = appendLower(append(out, s[done:i]...), s, i, r, in)
			done = i + utf8.RuneLen(r)
		}
	}
	if done == 0 {
		return strings.TrimSuffix(s, " "), final
	}
	return string(bytes.TrimSuffix(append(out, s[done:]...), []byte(" "))), final
}

// joins reports whether a mark joins a letter, or a part of the letter that ends
// before one of its own marks. In doubt it does.
func joins(letter, mark rune) bool {
	pairs, part := composites(), rune(0)
	if !infoOf(letter).is(split) {
		return pairs.composite(letter, mark) != 0
	}
	for _, r := range string(norm.NFC.PropertiesString(string(letter)).Decomposition()) {
		if part == 0 {
			part = r
		} else {
			part = pairs.composite(part, r)
		}
		if part == 0 || pairs.composite(part, mark) != 0 {
			return true
		}
	}
	return part == 0
}

// apostropheDont writes "don't" for each "dont" that is a word by itself.
func apostropheDont(s string) string {
	i := findWord(s, "dont", 0)
	if i < 0 {
		return s
	}
	var b strings.Builder
	from := 0
	for ; i >= 0; i = findWord(s, "dont", i+len("dont")) {
		b.WriteString(s[from:i])
		b.WriteString("don't")
		from = i + len("dont")
	}
	b.WriteString(s[from:])
	return b.String()
}

// dropArticles drops all leading articles. An article ends where a word ends, so
// "a-team" loses its "a" and "theory" keeps its "the". The first letter of an
// abbreviation is no article: "a.m." stays whole.
func dropArticles(s string) string {
	for {
		rest, ok := cutArticle(s)
		if !ok {
			return s
		}
		s = TrimLeft(rest)
	}
}

func cutArticle(s string) (rest string, ok bool) {
	if s == "" || s[0] != 'a' && s[0] != 't' {
		return s, false
	}
	for _, article := range [...]string{"a", "an", "the"} {
		if rest, ok := strings.CutPrefix(s, article); ok && WordEnds(rest) {
			return rest, !(strings.HasPrefix(rest, ".") && !WordEnds(rest[1:]))
		}
	}
	return s, false
}

// WordEnds reports whether no word goes on at the start of s.
func WordEnds(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n == 0 || !isWord(r)
}

// wordStarts reports whether no word reaches to the end of s.
func wordStarts(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n == 0 || !isWord(r)
}

// findWord finds word in s[from:] where it stands by itself, or -1. The word must
// begin and end with a word character.
func findWord(s, word string, from int) int {
	for {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		if wordStarts(s[:i]) && WordEnds(s[i+len(word):]) {
			return i
		}
		from = i + len(word)
	}
}

// Valid replaces invalid UTF-8 by U+FFFD.
func Valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Answer classifies an input as the answer to an open question.
type Answer uint8

const (
	NoAnswer Answer = iota
	Yes
	No
)

// answer reads a confirmation. Only one run of closing punctuation is dropped:
// "yes!" confirms, "yes. !" does not.
func AnswerTo(input string) Answer {
	s, _ := fold(plain(input))
	switch Trim(strings.TrimRight(s, ".,!?")) {
	case "yes", "yes please", "yep", "yeah", "sure", "ok", "okay":
		return Yes
	case "no", "nope", "no thanks":
		return No
	}
	return NoAnswer
}

// IsAnswer reports whether an input would close an open question.
func IsAnswer(input string) bool { return AnswerTo(input) != NoAnswer }
