// Package prose reads texts alone, without what they are part of: their tokens, traits and short forms, the chunks that a long
// text is stored as, the sentences that stand for a page if the budget has no room for all of it, and texts that say the
// same. It is pure: the same text, counter and question give the same bytes on every machine.
//
// Two texts say the same if they have the same words; they may differ in spaces, punctuation and capitals, and in a few words
// before or after all others, such as a header. Texts that differ in one word in between say something else: a limit of
// 60 days must never count as the old limit of 30 days.
package prose

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"golang.org/x/text/unicode/norm"
)

// Expression returns a function that compiles a regular expression at its first call. A program that opens a database
// needs few of them, and compiling all at its start took longer than everything else before main.
func Expression(source string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })
}

// Unbroken returns a space for runes that end a line, control a terminal or reorder text.
func Unbroken(r rune) rune {
	if ' ' <= r && r < 0x7f {
		return r
	}
	if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
		return ' '
	}
	return r
}

// OneLine replaces line ends and controls with spaces.
func OneLine(s string) string {
	return strings.Map(Unbroken, strings.ToValidUTF8(s, "\uFFFD"))
}

// Clip cuts a text to limit bytes. A note at its end reports the original length.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s ... (cut, %d bytes in all)", strings.ToValidUTF8(s[:limit], ""), len(s))
}

// Within returns how many of n items, from the first on, cost at most limit together.
func Within(n, limit int, cost func(int) int) int {
	for i := range n {
		if limit -= cost(i); limit < 0 {
			return i
		}
	}
	return n
}

// Terms returns the tokens of keywords or sentences, by the rule of TokenSet, sorted and distinct. It leaves stop words
// out unless there is nothing else. hashes has the hashes of the tokens, sorted and distinct.
func Terms(texts ...string) (terms []string, hashes []uint64) {
	for _, t := range texts {
		terms = append(terms, words(t)...)
	}
	if content := slices.DeleteFunc(slices.Clone(terms), isStopWord); len(content) > 0 {
		terms = content
	}
	for i, w := range terms {
		terms[i] = stem(w)
	}
	slices.Sort(terms)
	terms = slices.Compact(terms)
	for _, w := range terms {
		hashes = append(hashes, hash(w))
	}
	slices.Sort(hashes)
	return terms, slices.Compact(hashes)
}

func isStopWord(w string) bool { return slices.Contains(stopWords, w) }

// Short formats a number with at most four decimals.
func Short(f float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', 4, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

func asciiWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}

// hashShift leaves 24 bits of a token's hash, because a conversation keeps the hashes of every word of every turn. Two
// different words have the same hash once in 2^24 pairs, and a turn then counts as one word nearer to an intent than it is.
const hashShift = 40

func hash(token string) uint64 { return xxhash.Sum64String(token) >> hashShift }

// TokenSet returns the hashes of a message's distinct tokens, sorted: numbers below 2^24. A conversation in memory keeps them, so that only its first pass reads texts.
// Pass the header of a message as well, above all its author: on LoCoMo questions that alone lowers evicted evidence
// under the recommended parameters from 26 to 2 in a hundred. Tokens are runs of letters, marks, digits and underscore
// after NFKC and Lower, English words by their stem. Scripts written without spaces give pairs of neighbouring
// characters.
func TokenSet(texts ...string) []uint64 {
	var space [256]uint64 // a message of more words moves to the heap
	set := space[:0]
	for _, t := range texts {
		if isASCII(t) {
			set = appendASCII(set, t)
			continue
		}
		for _, w := range words(t) {
			set = append(set, hash(stem(w)))
		}
	}
	slices.Sort(set)
	if set = slices.Compact(set); len(set) == 0 {
		return nil
	}
	return append(make([]uint64, 0, len(set)), set...) // a window keeps it for each of its turns: no room for more
}

// appendASCII is words and stem over text of which nothing needs to be normalised, without a string for each word.
func appendASCII(set []uint64, text string) []uint64 {
	word, plain := make([]byte, 0, 64), true
	for i := 0; i <= len(text); i++ {
		c := byte(0)
		if i < len(text) {
			c = text[i]
		}
		switch {
		case 'a' <= c && c <= 'z':
			word = append(word, c)
		case 'A' <= c && c <= 'Z':
			word = append(word, c+'a'-'A')
		case asciiWord(c):
			word, plain = append(word, c), false
		case len(word) == 0:
		case plain:
			set, word = append(set, hash(lexical.Stem(word))), word[:0]
		default:
			set, word, plain = append(set, xxhash.Sum64(word)>>hashShift), word[:0], true
		}
	}
	return set
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// stem takes plain English words to their stem and leaves all others.
func stem(w string) string {
	for i := 0; i < len(w); i++ {
		if w[i] < 'a' || w[i] > 'z' {
			return w
		}
	}
	return lexical.Stem([]byte(w))
}

// stopWords say nothing about what an intent is about. They are left out of
// intents only: what stands in a block without being asked for does no harm.
var stopWords = strings.Fields(`a about after all also am an and any are as at be because been before
	being but by can could d did do does doing down during each few for from further had has have
	having he her here hers him his how i if in into is it its just ll m me more most my no nor not
	now of off on once only or other our ours out over own re s same she should so some such t than
	that the their them then there these they this those through to too under until up ve very was
	we were what when where which while who whom why will with would you your yours`)

// words splits a text into tokens, in order, with repetitions.
func words(text string) []string {
	text = Lower(norm.NFKC.String(text))
	if !norm.NFKC.IsNormalString(text) { // a small letter may compose with a mark that its capital left alone, as alpha does with iota
		text = norm.NFKC.String(text)
	}
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

// unspaced reports whether the script of r is written without spaces.
func unspaced(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Lower lower-cases as Python's str.lower does, because the reference
// pager compares such texts. It differs from strings.ToLower in two places: dotted
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
