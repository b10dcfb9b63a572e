package lexical

import (
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// asking has what a question says about speakers and dates, by which turns are scored. It is zero in
// a scope without turns.
type asking struct {
	name   []bool   // by term: it is part of the name of a named speaker, so a turn need not contain it
	named  []uint32 // speakers that the terms name, ascending
	spoken float64  // the score of a turn by one of them; 0: the question names no speaker
	dates  Dates
}

// namesakes is the most speakers of a scope that one word may name. A word that more speakers share, as
// user-1 and user-2 do, is a word like any other.
const namesakes = 64

// understand finds the speakers that a question names. If two names share a word, the question
// means the speaker with more of the name in it: Anna Smith, and not Anna Jones. If a question has
// only names, their words are searched for as well.
func (c *columns) understand(scopes []uint32, total scopeStats, terms []string, dates Dates) (a asking) {
	if total.turns == 0 {
		return a
	}
	a.dates = dates
	words := map[uint32]uint64{} // speaker → bits of the terms of his name
	for _, id := range scopes {
		called := c.scopes[c.scopeAt[id]].called
		for t, term := range terms[:min(len(terms), 64)] {
			if who := called[term]; len(who) <= namesakes {
				for _, n := range who {
					words[n] |= 1 << t
				}
			}
		}
	}
	all, turns := uint64(0), uint64(0)
	for n, w := range words {
		if !lessNamed(words, w) {
			a.named, all = append(a.named, n), all|w
			turns += c.speakers[n].turns
		}
	}
	if len(a.named) == 0 {
		return a
	}
	slices.Sort(a.named)
	a.spoken = spokenBase + float64(spokenRare*ln(float64(total.turns)/float64(turns)))
	if bits.OnesCount64(all) < len(terms) {
		a.name = make([]bool, len(terms))
		for t := range min(len(terms), 64) {
			a.name[t] = all>>t&1 == 1
		}
	}
	return a
}

// lessNamed reports whether the question has more words of another speaker's name, including all of
// these.
func lessNamed(words map[uint32]uint64, w uint64) bool {
	for _, o := range words {
		if o != w && o&w == w {
			return true
		}
	}
	return false
}

// isName reports whether a term is part of the name of a named speaker.
func (a *asking) isName(t int) bool { return t < len(a.name) && a.name[t] }

// alsoForms returns the terms, and behind them their irregular forms; of has the term
// of each form.
func (a *asking) alsoForms(terms []string) (all []string, of []int) {
	all = terms
	for t, term := range terms {
		if a.isName(t) {
			continue
		}
		for _, f := range formsOf(term) {
			if !slices.Contains(terms, f) {
				all, of = append(all[:len(all):len(all)], f), append(of, t)
			}
		}
	}
	return all, of
}

// What people say around a question is not asked for: "could you please tell me how to …". Some of
// these words are rare in documents, so that a short question would find the pages that have them.
// They are taken off as whole phrases, and only from the beginning and the end: "way", "find" and
// "want" are words like others everywhere else.

// opening lists how questions begin, a phrase a line. Stop words decide nothing and are only there
// to join the others; a phrase ends where the question proper may begin.
const opening = `
please
can you
could you
would you
will you
can i
could i
tell me
tell us
show me
show us
help me
help us
give me
remind me
teach me
explain to me
let me know
i want
i need
i wish
i would like
i'd like
we want
we need
we would like
we'd like
i am looking for
i'm looking for
i am trying
i'm trying
i wonder
i was wondering
i am wondering
i'm wondering
to know
to find out
to learn
to understand
do you know
do you remember
does anybody know
does anyone know
is there a way
is there any way
is there something
is there anything
is there a tool
what is the best way
what is the easiest way
what is the right way
what is a good way
what's the best way
what's the easiest way
what's the right way
what is the way
what do i need
what i need
something that
something to
anything that
anything to
where do i find
where can i find
how do i
how can i
how would i
how to
to
if
whether
`

// closing lists how questions end.
const closing = `
please
thanks
thank you
thanks in advance
thank you in advance
`

var opens, closes = phrases(opening), phrases(closing)

// phrases are the lines as words, longest first: "to know" must be tried before "to".
func phrases(lines string) (out [][]string) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		out = append(out, strings.Fields(line))
	}
	sort.SliceStable(out, func(i, j int) bool { return len(out[j]) < len(out[i]) })
	return out
}

// stripPhrases is a question without the phrases around it. Phrases are taken off again and again, so
// that they may follow each other:
//
//	Could you please tell me how to find the log? Thanks!   ──▶   find the log?
//
// Of a question that is nothing but such phrases nothing is left: the caller then takes it whole.
func stripPhrases(question string) string {
	rest := question
	for n := 1; n > 0; rest = rest[n:] {
		n = begins(rest)
	}
	for n := 1; n > 0; rest = rest[:len(rest)-n] {
		n = ends(rest)
	}
	return rest
}

// longestPhrase is the most words of a phrase.
const longestPhrase = 6

// begins returns how many bytes of a text the longest phrase takes that it begins with, with what stands
// before the phrase; 0: it begins with none. Each call looks at longestPhrase words, however long
// the text is.
func begins(text string) int {
	var words [longestPhrase]string
	var after [longestPhrase]int
	n, at := 0, 0
	for ; n < longestPhrase; n++ {
		from := strings.IndexFunc(text[at:], inPhrase)
		if from < 0 {
			break
		}
		from += at
		to := strings.IndexFunc(text[from:], func(r rune) bool { return !inPhrase(r) })
		if at = from + to; to < 0 {
			at = len(text)
		}
		words[n], after[n] = text[from:at], at
	}
	for _, p := range opens {
		if len(p) <= n && slices.EqualFunc(p, words[:len(p)], sameWord) {
			return after[len(p)-1]
		}
	}
	return 0
}

// ends is begins for the end of a text, with what stands behind the phrase.
func ends(text string) int {
	var words [longestPhrase]string // the last first
	var before [longestPhrase]int
	n, at := 0, len(text)
	for ; n < longestPhrase; n++ {
		to := strings.LastIndexFunc(text[:at], inPhrase)
		if to < 0 {
			break
		}
		_, size := utf8.DecodeRuneInString(text[to:])
		to += size
		at = strings.LastIndexFunc(text[:to], func(r rune) bool { return !inPhrase(r) })
		if at < 0 {
			at = 0
		} else {
			_, size = utf8.DecodeRuneInString(text[at:])
			at += size
		}
		words[n], before[n] = text[at:to], at
	}
	for _, p := range closes {
		if len(p) > n {
			continue
		}
		end := slices.Clone(words[:len(p)]) // the last word first
		slices.Reverse(end)
		if slices.EqualFunc(p, end, sameWord) {
			return len(text) - before[len(p)-1]
		}
	}
	return 0
}

// inPhrase reports whether a rune belongs to a word.
func inPhrase(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\'' || r == '’' || r == '_'
}

// sameWord compares a word of a phrase with one of a text. Case is ignored, and a typographic
// apostrophe is the plain one.
func sameWord(phrase, word string) bool {
	return strings.EqualFold(phrase, word) || strings.Contains(word, "’") && strings.EqualFold(phrase, strings.ReplaceAll(word, "’", "'"))
}

// Turn has the fields that the index keeps of a message beside its words.
type Turn struct {
	Speaker string // its speaker; "": not known
	Month   Month  // when
}

// Month is a month of a year, 0 for none: 12 × (year − 1900) + month, which fits 12 bits.
type Month uint16

// The years of months.
const (
	firstYear = 1900
	lastYear  = 2240
	monthBits = 12
)

// MonthOf returns the month of a time, in UTC; 0 before 1900 and after 2240.
func MonthOf(t time.Time) Month {
	year, month, _ := t.UTC().Date()
	if year < firstYear || year > lastYear {
		return 0
	}
	return Month(12*(year-firstYear) + int(month))
}

func (m Month) year() int  { return firstYear + int(m-1)/12 }
func (m Month) month() int { return int(m-1) % 12 }

// Dates are the months and the years that a question names. Days are not read: a turn is dated by
// its month, as people name it.
type Dates struct {
	Months uint16 // a bit for each, January the lowest
	Years  []int  // ascending
}

// match is 1 if the month matches, less if only the month of the year does, and otherwise 0.
func (d *Dates) match(m Month) float64 {
	switch {
	case m == 0 || d.Months>>m.month()&1 == 0:
		return 0
	case len(d.Years) > 0 && !slices.Contains(d.Years, m.year()):
		return otherYear
	}
	return 1
}

var months = map[string]int{
	"january": 0, "february": 1, "march": 2, "april": 3, "may": 4, "june": 5, "july": 6, "august": 7, "september": 8,
	"october": 9, "november": 10, "december": 11,
	"jan": 0, "feb": 1, "mar": 2, "apr": 3, "jun": 5, "jul": 6, "aug": 7, "sep": 8, "sept": 8, "oct": 9, "nov": 10, "dec": 11,
}

// DatesOf returns the months and years that a question names. A word that usually means something
// else, such as may or march, counts as a month only beside words that suggest a date: "in May",
// "May 2023", "May 5".
func DatesOf(question string) Dates {
	var d Dates
	words := strings.FieldsFunc(question, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words {
		if y := number(w); len(w) == 4 && y > 0 && y <= 2729 && !slices.Contains(d.Years, y) {
			d.Years = append(d.Years, y)
		}
		m, ok := months[strings.ToLower(w)]
		if ok && (len(w) > 5 || m != 2 && m != 4 && len(w) > 3 || besideDate(words, i)) {
			d.Months |= 1 << m
		}
	}
	slices.Sort(d.Years)
	return d
}

// besideDate reports whether the word before or behind makes a word a month.
func besideDate(words []string, i int) bool {
	if i+1 < len(words) && number(words[i+1]) > 0 {
		return true
	}
	if i == 0 {
		return false
	}
	capital, _ := utf8.DecodeRuneInString(words[i])
	switch strings.ToLower(words[i-1]) {
	case "in", "of", "on", "during", "since", "by":
		return true
	case "last", "next", "this", "early", "late", "mid", "until", "till", "before", "after", "around":
		return unicode.IsUpper(capital)
	}
	return unicode.IsUpper(capital) && number(words[i-1]) > 0
}

// number reads up to four digits, with or without an ending as in 5th; 0 where there are
// none.
func number(w string) (n int) {
	digits := 0
	for digits < len(w) && '0' <= w[digits] && w[digits] <= '9' {
		n = 10*n + int(w[digits]-'0')
		if digits++; digits > 4 {
			return 0
		}
	}
	switch w[digits:] {
	case "", "st", "nd", "rd", "th":
		return n
	}
	return 0
}
