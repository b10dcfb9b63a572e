package lexical

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
	slices.SortStableFunc(out, func(a, b []string) int { return len(b) - len(a) })
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

// longestPhrase is how many words a phrase has at most.
const longestPhrase = 6

// begins is how many bytes of a text the longest phrase takes that it begins with, with what stands
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
		if len(p) <= n && slices.EqualFunc(p, backwards(words[:len(p)]), sameWord) {
			return len(text) - before[len(p)-1]
		}
	}
	return 0
}

// backwards is the words of a text's end in the order in which they stand: ends collects the last
// one first.
func backwards(words []string) []string {
	out := slices.Clone(words)
	slices.Reverse(out)
	return out
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
