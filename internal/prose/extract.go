package prose

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/ctxpage/ctxpage/internal/lexical"
)

// The extractive cut stands in for a page when the budget is short and no summary exists: whole sentences of the page,
// in their order, about a third of its bytes and no more than the caller says. Scores are whole numbers, because floating-point sums differ between
// machines and a replay must give the same bytes.
//
// Invariants: ranges are half-open, in bytes, ascending, and do not overlap (InRanges); all sentences joined are the text.
// Parts depend on the text alone and are made once for a page in memory; Extract adds the question.

const (
	cutShortest = 400 // bytes; below this the header weighs more than the gain
	// CutShare says how much of a text an extract keeps: the bytes divided by it, unless that is above what the caller allows.
	CutShare = 3
	cutUnit  = 600 // bytes; a longer sentence is broken at commas, else at words
)

// Parts keeps what an extract needs of a text for any question: its sentences, and how central each is to the text.
// They are made once for a page in memory. QuestionTerms are kept as hashes: nothing is asked of them but whether two are one.
type Parts struct {
	sentences [][2]uint32
	terms     [][]uint64 // distinct, ascending, of each sentence
	heading   []bool
	central   []int // worth without a question
}

// Cuttable reports whether a text is long enough for an extract. One without sentences has none all the same.
func Cuttable(text string) bool { return len(text) >= cutShortest }

// PartsOf returns no sentences for a text that is too short to be cut.
func PartsOf(text string, an *lexical.Analyzer) *Parts {
	x := &Parts{}
	if !Cuttable(text) {
		return x
	}
	sentences := sentenceRanges(text)
	if len(sentences) < 2 {
		return x
	}
	n := len(sentences)
	x.sentences, x.terms, x.heading, x.central = sentences, make([][]uint64, n), make([]bool, n), make([]int, n)
	df := map[uint64]int{} // sentences with a term
	for i, r := range sentences {
		s := text[r[0]:r[1]]
		x.heading[i] = isHeading(s)
		x.terms[i] = hashes(an.Analyze(s).Terms)
		for _, t := range x.terms[i] {
			df[t]++
		}
	}
	for i := range sentences {
		shared := 0
		for _, t := range x.terms[i] {
			shared += df[t] - 1
		}
		// How many other sentences share its words. A short sentence is not central by having few words.
		x.central[i] = 1000 * shared / ((len(x.terms[i]) + 4) * max(n-1, 1))
		if i == 0 {
			x.central[i] += 250 // texts say first what they are about
		}
	}
	return x
}

func hashes(terms []lexical.TermCount) []uint64 {
	out := make([]uint64, len(terms))
	for i := range terms {
		out[i] = xxhash.Sum64String(terms[i].Term)
	}
	slices.Sort(out)
	return out
}

// QuestionTerms are the terms of a question, as parts keep them.
func QuestionTerms(an *lexical.Analyzer, question string) []uint64 {
	return hashes(an.Analyze(question).Terms)
}

// Bytes is about what the parts take in memory.
func (x *Parts) Bytes() (n int64) {
	for i := range x.terms {
		n += int64(8*len(x.terms[i])) + 48
	}
	return n
}

// Extract chooses sentences for a question: about a third of the bytes, and about most of them at most.
func (x *Parts) Extract(asked []uint64, most int) [][2]uint32 {
	n := len(x.sentences)
	if n == 0 {
		return nil
	}
	c := extraction{Parts: x, score: slices.Clone(x.central), has: make([]uint64, n)}
	asked = asked[:min(len(asked), mostAsked)]
	for k, t := range asked {
		with := 0
		for i := range x.terms {
			if _, ok := slices.BinarySearch(x.terms[i], t); ok {
				c.has[i] |= 1 << k
				with++
			}
		}
		c.worth[k] = 2 * (1000 + 1000*(n-with)/n) / min(len(asked), 6) // the rarer in this text the more
	}
	for i := range c.score {
		c.score[i] += c.sum(c.has[i])
	}
	take := c.choose(min(int(x.sentences[n-1][1])/CutShare, most))
	slices.Sort(take)
	return JoinRanges(x.sentences, take)
}

// extraction is one cut.
type extraction struct {
	*Parts
	score []int    // worth of a sentence, in thousandths
	has   []uint64 // terms of the question in a sentence
	worth [mostAsked]int
}

// mostAsked terms of a question are looked for.
const mostAsked = 64

// sum adds up what terms are worth.
func (x *extraction) sum(terms uint64) (n int) {
	for ; terms != 0; terms &= terms - 1 {
		n += x.worth[bits.TrailingZeros64(terms)]
	}
	return n
}

// choose takes sentences by worth while they fit into limit bytes, the best one always. A term of the question that was
// taken is worth less in the next sentence, so that the cut has as many of the terms as it can. A sentence that mostly
// repeats what was taken adds nothing. A heading comes with the sentence under it, not by itself.
func (x *extraction) choose(limit int) []int {
	const gone = math.MinInt
	for i := range x.score {
		if x.heading[i] {
			x.score[i] = gone
		}
	}
	var take []int
	used, shown := 0, uint64(0)
	for {
		best := -1
		for i, s := range x.score {
			if s != gone && (best < 0 || s > x.score[best]) && (len(take) == 0 || used+x.size(i) <= limit) {
				best = i
			}
		}
		if best < 0 {
			return take
		}
		x.score[best] = gone
		if x.repeats(best, take) {
			continue
		}
		take, used = append(take, best), used+x.size(best)
		if h := best - 1; h >= 0 && x.heading[h] && used+x.size(h) <= limit {
			take, used = append(take, h), used+x.size(h)
		}
		news := x.has[best] &^ shown
		shown |= news
		for i, s := range x.score {
			if again := x.has[i] & news; again != 0 && s != gone {
				x.score[i] -= x.sum(again) * 3 / 4
			}
		}
	}
}

func (x *extraction) size(i int) int { return int(x.sentences[i][1] - x.sentences[i][0]) }

// repeats reports whether at least three quarters of a sentence's words stand in one that was taken.
func (x *extraction) repeats(i int, take []int) bool {
	if len(x.terms[i]) == 0 {
		return false
	}
	for _, j := range take {
		same := 0
		for _, t := range x.terms[i] {
			if _, ok := slices.BinarySearch(x.terms[j], t); ok {
				same++
			}
		}
		if 4*same >= 3*len(x.terms[i]) {
			return true
		}
	}
	return false
}

// JoinRanges returns the ranges of the sentences taken, neighbours as one range.
func JoinRanges(sentences [][2]uint32, take []int) [][2]uint32 {
	var out [][2]uint32
	for _, i := range take {
		r := sentences[i]
		if n := len(out); n > 0 && out[n-1][1] == r[0] {
			out[n-1][1] = r[1]
			continue
		}
		out = append(out, r)
	}
	return out
}

// sentenceRanges parts a text into sentences; joined they are the text. A sentence ends after . ! ? … and what closes it,
// before white space, unless the dot belongs to an abbreviation, an initial or a number of a list; and at the end of a
// line, which keeps list items, table rows and code lines apart. Code (fenced, or indented by four) is split at line ends
// only. Blank lines go with the sentence before, at the
// beginning with the one after.
func sentenceRanges(text string) [][2]uint32 {
	var out [][2]uint32
	blank := false // the first range is nothing but white space so far
	add := func(from, to int) {
		empty := strings.TrimSpace(text[from:to]) == ""
		if n := len(out); n > 0 && (empty || blank) {
			out[n-1][1] = uint32(to)
			blank = blank && empty
			return
		}
		out, blank = append(out, [2]uint32{uint32(from), uint32(to)}), empty
	}
	fenced := false
	for at := 0; at < len(text); {
		end := at + lineEnd(text[at:])
		line := text[at:end]
		mark := strings.HasPrefix(strings.TrimLeft(line, " "), "```")
		if fenced || mark || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			add(at, end)
		} else {
			for from := at; from < end; {
				to := from + sentenceEnd(text[from:end])
				add(from, to)
				from = to
			}
		}
		fenced = fenced != mark
		at = end
	}
	return out
}

func lineEnd(s string) int {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return i + 1
	}
	return len(s)
}

// sentenceEnd returns the length of the first sentence of a line, white space after it included.
func sentenceEnd(line string) int {
	for i, r := range line {
		if !strings.ContainsRune(".!?…", r) {
			continue
		}
		end := i + utf8.RuneLen(r)
		for end < len(line) && strings.ContainsRune(`.!?…"')]”’»`, firstRune(line[end:])) {
			end += utf8.RuneLen(firstRune(line[end:]))
		}
		space := end
		for space < len(line) && (line[space] == ' ' || line[space] == '\n') {
			space++
		}
		if space == end && end < len(line) || r == '.' && !ends(line[:i], line[space:]) {
			continue
		}
		return brief(line, space)
	}
	return brief(line, len(line))
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// brief breaks a sentence that is too long to be worth keeping whole.
func brief(line string, n int) int {
	if n <= cutUnit {
		return n
	}
	for _, sep := range []string{"; ", ", ", " "} {
		if i := strings.LastIndex(line[:cutUnit], sep); i > cutUnit/2 {
			return i + len(sep)
		}
	}
	return runeBoundary(line, cutUnit)
}

// ends reports whether a dot ends a sentence, by the word before it and what follows.
func ends(before, after string) bool {
	word := before[strings.LastIndexAny(before, " (\"'\t")+1:]
	switch {
	case abbreviations[strings.ToLower(word)], isInitial(word):
		return false
	case strings.TrimLeft(before, " -*\t") == word && word != "" && strings.Trim(word, "0123456789") == "": // "3. An item"
		return false
	}
	next := firstRune(after)
	if numbered[strings.ToLower(word)] && unicode.IsDigit(next) {
		return false
	}
	return after == "" || !unicode.IsLower(next)
}

func isInitial(word string) bool {
	last := word[strings.LastIndexByte(word, '.')+1:]
	return utf8.RuneCountInString(last) == 1 && unicode.IsUpper(firstRune(last))
}

// abbreviations that stand inside a sentence as a rule; those that end one as often (etc, no) are told by the case of
// the letter after.
var abbreviations = map[string]bool{
	"mr": true, "mrs": true, "ms": true, "dr": true, "prof": true, "st": true, "sr": true, "jr": true, "vs": true, "cf": true, "approx": true,
	"e.g": true, "i.e": true, "eg": true, "ie": true, "fig": true, "eq": true, "sec": true, "vol": true, "pp": true, "ca": true,
	"jan": true, "feb": true, "apr": true, "aug": true, "sept": true, "oct": true, "nov": true, "dec": true, "dept": true, "est": true, "inc": true,
}

// numbered words are shortened before a number: no. 3.
var numbered = map[string]bool{"no": true, "nos": true, "nr": true, "art": true, "ch": true, "p": true, "para": true, "sect": true}

// InRanges reports whether ranges follow each other without overlap inside a text of n bytes.
func InRanges(ranges [][2]uint32, n int) bool {
	last := uint32(0)
	for _, r := range ranges {
		if r[0] < last || r[1] < r[0] || int(r[1]) > n {
			return false
		}
		last = r[1]
	}
	return true
}

// ShowParts is a text cut to ranges; "[…]" marks each gap.
func ShowParts(text string, cuts [][2]uint32) string {
	var b strings.Builder
	for i, r := range cuts {
		if i > 0 || r[0] > 0 {
			b.WriteString("[…] ")
		}
		b.WriteString(text[r[0]:r[1]])
	}
	if n := len(cuts); n > 0 && int(cuts[n-1][1]) < len(text) {
		b.WriteString(" […]")
	}
	return b.String()
}
