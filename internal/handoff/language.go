package handoff

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/internal/prose"
)

// parser reads the words of one statement.
type parser struct {
	l     *Ledger
	words []word
}

func (p *parser) next() (w word) {
	if len(p.words) > 0 {
		w, p.words = p.words[0], p.words[1:]
	}
	return w
}

// skip reads a word that may be there.
func (p *parser) skip(sort wordSort, texts ...string) bool {
	if len(p.words) == 0 || !p.words[0].is(sort, texts...) {
		return false
	}
	p.words = p.words[1:]
	return true
}

// plain applies a statement that says all by itself: remember, add or remove with values that are written there. It
// reports false for any other statement.
func (l *Ledger) plain(words []word) (bool, error) {
	p := &parser{l, words}
	inherited := p.skip(anOperator, "inherited")
	var apply func(why string) error
	switch w := p.next(); {
	case w.is(aChanger, "add"):
		apply = p.change("to", l.add)
	case w.is(aChanger, "remove"):
		apply = p.change("from", l.remove)
	case w.is(aChanger, "remember"):
		apply = p.remember()
	}
	why := ""
	if p.skip(aLink, "because") {
		if len(p.words) == 0 || p.words[0].sort != aQuote {
			return false, nil
		}
		why = p.next().text
	}
	if inherited && p.skip(aLink, "from") && !p.skip(aName) {
		return false, nil
	}
	if apply == nil || len(p.words) > 0 {
		return false, nil
	}
	return true, apply(why)
}

// literal returns the value that a word stands for, and false for a name whose value is not known.
func (p *parser) literal(w word) (item, bool) {
	switch w.sort {
	case aQuote:
		return item{kind: aText, text: w.text}, true
	case aNumber:
		return item{kind: number, text: w.text}, true
	case aDate:
		return item{kind: date, text: w.text}, true
	case aName:
		v, remembered := p.l.names[w.text]
		if !remembered {
			return item{kind: aText, text: w.text}, true // the language takes it for a text
		}
		return item{kind: v.kind, text: v.text}, slices.Contains([]string{aText, number, date}, v.kind)
	}
	return item{}, false
}

// change reads what follows add or remove.
func (p *parser) change(link string, apply func(list string, i item) error) func(why string) error {
	p.skip(anArticle)
	i, ok := p.literal(p.next())
	ok = p.skip(aLink, link) && ok
	p.skip(anArticle)
	list := p.next()
	if !ok || list.sort != aName {
		return nil
	}
	return func(why string) error {
		i.why = why
		return apply(list.text, i)
	}
}

// remember reads what follows that verb.
func (p *parser) remember() func(why string) error {
	list := false
	for !p.skip(aLink, "called") {
		w := p.next()
		if w.sort != anArticle && w.sort != aName {
			return nil
		}
		list = list || w.text == "list"
	}
	name := p.next()
	v, ok := value{kind: aList}, list
	if p.skip(aLink, "with") {
		v, ok = p.with(list)
	}
	if !ok || name.sort != aName {
		return nil
	}
	return func(string) error {
		p.l.names[name.text] = v
		return nil
	}
}

// with reads one value, several, or fields.
func (p *parser) with(list bool) (v value, ok bool) {
	for more := true; more; more = p.skip(aLink, "and") {
		w := p.next()
		field := p.skip(aLink, "as")
		of := w
		if field {
			of = p.next()
		}
		i, ok := p.literal(of)
		switch {
		case !ok || field && w.sort != aName || field != (v.fields != nil) && (len(v.items) > 0 || v.fields != nil):
			return v, false
		case !field:
			v.items = append(v.items, i)
		default:
			if v.fields == nil {
				v.fields = map[string]item{}
			}
			v.fields[w.text] = i // of two with one name the last holds
		}
	}
	switch {
	case v.fields != nil:
		v.kind = record
	case list || len(v.items) > 1:
		v.kind = aList
	default:
		v = value{kind: v.items[0].kind, text: v.items[0].text}
	}
	return v, true
}

// list returns the list of that name. A name that a statement may have made a list is taken for one.
func (l *Ledger) list(name string) (value, error) {
	v, remembered := l.names[name]
	switch {
	case remembered && v.kind == "":
		return value{kind: aList, partial: true}, nil
	case v.kind != aList:
		return v, fmt.Errorf("list %s is not declared; declare it with: remember a list called %s", name, name)
	}
	return v, nil
}

func (l *Ledger) add(name string, i item) error {
	v, err := l.list(name)
	if err != nil {
		return err
	}
	if len(v.items) == 1 && v.items[0].same(item{kind: aText, text: empty}) {
		v.items = nil
	}
	v.items = append(v.items, i)
	l.names[name] = v
	return nil
}

// remove takes the first such item out of a list. One that is not known may stand there in other digits, or come from a
// statement that was passed over; no other item is certain then.
func (l *Ledger) remove(name string, i item) error {
	v, err := l.list(name)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(v.items, i.same); at >= 0 {
		v.items = slices.Concat(v.items[:at], v.items[at+1:])
	} else {
		v.items, v.partial = nil, true
	}
	l.names[name] = v
	return nil
}

// passOver passes over a statement, and forgets what it may change: each name that it mentions, and each that a composition
// mentions which it may call.
func (l *Ledger) passOver(words []word) {
	if at := slices.IndexFunc(words, func(w word) bool { return w.is(aLink, "how") }); at >= 0 && at+2 < len(words) {
		name := words[at+2].text
		l.bodies[name], l.names[name] = words[at+3:], value{}
		words = words[:at]
	}
	l.touch(words, map[string]bool{})
}

func (l *Ledger) touch(words []word, seen map[string]bool) {
	asks := slices.ContainsFunc(words, func(w word) bool { return w.sort == anAsker })
	changes := !asks || slices.ContainsFunc(words, func(w word) bool { return w.sort == aChanger || w.sort == aName && l.bodies[w.text] != nil })
	for i, w := range words {
		switch {
		case w.is(anAsker, "verify"): // the pack keeps what came of it
			l.names["verification-status"], l.names["verification-divergences"] = value{}, value{}
		case w.sort != aName || seen[w.text]:
		case l.bodies[w.text] != nil:
			seen[w.text] = true
			l.touch(l.bodies[w.text], seen)
		case i > 1 && words[i-1].is(aLink, "called") && words[i-2].is(aName, "list"):
			l.names[w.text] = value{kind: aList, partial: true}
		case changes && l.names[w.text].kind == aList && !(i > 0 && words[i-1].is(aLink, "called")):
			l.names[w.text] = value{kind: aList, partial: true}
		case changes:
			l.names[w.text] = value{}
		}
	}
}

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
	isNumber = prose.Expression(`^-?\p{Nd}+(?:\.\p{Nd}+)?$`)
	isDate   = prose.Expression(`^\p{Nd}{4}-\p{Nd}{2}-\p{Nd}{2}$`)
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
			if bare := prose.Lower(strings.Trim(text[:end], ",.?!")); bare != "" {
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
