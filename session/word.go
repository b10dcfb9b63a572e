package session

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A contract is written in a small language. A line is split into words; a word
// is a name where it is none of the words that the language keeps for itself,
// no number and no date.

// wordSort is the sort of a word.
type wordSort uint8

const (
	aName wordSort = 1 + iota
	aVerb
	aLink
	anOperator
	anArticle
	aDeclaration
	aNumber
	aDate
	aQuote
	aColon
)

// word is one word of a line: in lower case, quoted text as it stands.
type word struct {
	sort wordSort
	text string
}

func (w word) is(sort wordSort, texts ...string) bool {
	return w.sort == sort && (len(texts) == 0 || slices.Contains(texts, w.text))
}

// kept are the words of the language, by their sort. cite and verify come with
// the pack for sessions.
var kept = func() map[string]wordSort {
	out := map[string]wordSort{}
	for sort, words := range map[wordSort]string{
		aVerb: "remember show filter keep count gather sum each choose finish add remove weakens require forbid permit assign expect sort compare transform " +
			"cite verify",
		aLink:        "where and or from with called to how as of if otherwise when unless includes within over then by because starting until",
		anOperator:   "is above below not plus minus reverse inherited highest lowest",
		anArticle:    "the a an",
		aDeclaration: "about define",
	} {
		for _, w := range strings.Fields(words) {
			out[w] = sort
		}
	}
	return out
}()

// halves are words that the language keeps, too, for operators of two words,
// and for what a verb was called before.
var halves = []string{"equal", "multiplied", "divided", "combine"}

var (
	isNumber = expression(`^-?\p{Nd}+(?:\.\p{Nd}+)?$`)
	isDate   = expression(`^\p{Nd}{4}-\p{Nd}{2}-\p{Nd}{2}$`)
)

var (
	errOpen  = errors.New("a quote is not closed on its line")
	errEmpty = errors.New("there is nothing between two quotes")
)

// spaced tells white space of the language from other characters.
func spaced(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// wordsOf splits a line. A blank line and a comment have no words.
func wordsOf(line string) ([]word, error) {
	text := strings.TrimLeftFunc(line, spaced)
	if strings.HasPrefix(text, "--") {
		return nil, nil
	}
	var out []word
	for text != "" {
		switch {
		case text[0] == '"':
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				return nil, errOpen
			}
			if end == 0 {
				return nil, errEmpty
			}
			out = append(out, word{aQuote, text[1 : 1+end]})
			text = text[end+2:]
		case text[0] == ':':
			out = append(out, word{aColon, ":"})
			text = text[1:]
		default:
			end := strings.IndexFunc(text, func(r rune) bool { return r == '"' || r == ':' || spaced(r) })
			if end < 0 {
				end = len(text)
			}
			if bare := Lower(strings.Trim(text[:end], ",.?!")); bare != "" {
				out = append(out, word{sortOf(bare), bare})
			}
			text = text[end:]
		}
		text = strings.TrimLeftFunc(text, spaced)
	}
	return paired(out), nil
}

func sortOf(bare string) wordSort {
	switch sort, ok := kept[bare]; {
	case ok:
		return sort
	case isNumber().MatchString(bare):
		return aNumber
	case isDate().MatchString(bare):
		return aDate
	}
	return aName
}

// paired joins the operators of two words.
func paired(words []word) []word {
	second := map[string]string{"equal": "to", "multiplied": "by", "divided": "by"}
	out := words[:0]
	for i := 0; i < len(words); i++ {
		w := words[i]
		if next := second[w.text]; w.sort == aName && next != "" && i+1 < len(words) && words[i+1].is(aLink, next) {
			w = word{anOperator, w.text + " " + next}
			i++
		}
		out = append(out, w)
	}
	return out
}

// ordered puts the verb of a sentence first: "orders count" is "count orders".
func ordered(words []word) ([]word, error) {
	at := 0
	for _, link := range []string{"starting", "until"} {
		if at+1 < len(words) && words[at].is(aLink, link) && (words[at+1].sort == aQuote || words[at+1].sort == aDate) {
			at += 2
		}
	}
	for at < len(words) && words[at].is(anOperator, "inherited") {
		at++
	}
	rest := words[at:]
	verb := slices.IndexFunc(rest, func(w word) bool { return w.sort == aVerb })
	if verb <= 0 {
		return words, nil
	}
	named := false
	for _, w := range rest[:verb] {
		if w.sort != aName && w.sort != anArticle {
			return nil, errors.New("the verb must come first")
		}
		named = named || w.sort == aName
	}
	if !named {
		return words, nil
	}
	return slices.Concat(words[:at], rest[verb:verb+1], rest[:verb], rest[verb+1:]), nil
}

// realDate says whether a date is on the calendar.
func realDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil && !strings.HasPrefix(text, "0000")
}
