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
