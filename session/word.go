package session

import (
	"errors"
	"slices"
	"strings"
	"unicode"
)

// A contract is written in a small language. A line is split into words. A word is a name unless the language keeps it
// for itself, or it is a number or a date.

// wordSort is the sort of a word.
type wordSort uint8

const (
	aName wordSort = 1 + iota
	anAsker
	aChanger
	aLink
	anOperator
	anArticle
	aNumber
	aDate
	aQuote
	aColon
)

// word is one word of a line: in lower case, quoted text unchanged.
type word struct {
	sort wordSort
	text string
}

func (w word) is(sort wordSort, texts ...string) bool {
	return w.sort == sort && (len(texts) == 0 || slices.Contains(texts, w.text))
}

// kept are the words of the language, by their sort. An asker is a verb that changes nothing that is remembered. cite and
// verify come with the pack for sessions.
var kept = func() map[string]wordSort {
	out := map[string]wordSort{}
	for sort, words := range map[wordSort]string{
		anAsker:    "show keep count sum each choose require forbid permit expect compare cite verify about",
		aChanger:   "remember add remove filter gather finish weakens assign sort transform define",
		aLink:      "where and or from with called to how as of if otherwise when unless includes within over then by because starting until",
		anOperator: "is above below not plus minus reverse inherited highest lowest",
		anArticle:  "the a an",
	} {
		for _, w := range strings.Fields(words) {
			out[w] = sort
		}
	}
	return out
}()

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

// wordsOf splits a line that is neither blank nor a comment.
func wordsOf(text string) ([]word, error) {
	var out []word
	for text = strings.TrimLeftFunc(text, spaced); text != ""; text = strings.TrimLeftFunc(text, spaced) {
		switch text[0] {
		case '"':
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				return nil, errOpen
			}
			if end == 0 {
				return nil, errEmpty
			}
			out = append(out, word{aQuote, text[1 : 1+end]})
			text = text[end+2:]
		case ':':
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
	}
	return out, nil
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
