package rendering

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// The rules by which Judge accepts drafts.
//
// A draft passes if each of its sentences stands, word for word, in a text that a context showed and that may support it.
//
// A sentence of a draft must be a whole sentence of one page, in the same order, with the same numbers, names, signs and
// negations. Only what does not change what is said may differ: see tokensOf. In a turn of the user "I prefer tabs"
// supports "The user prefers tabs".
//
// A sentence that refers to its predecessor ("It is free."), or that its successor limits ("But only on Mondays."), is
// supported only together with it. Ids, tags, subjects and metadata are labels: their words must be those of the
// supporting pages, or common words for labels.
//
// Judge does not know whether a page is true, nor what a page means as a whole: a sentence that another paragraph takes back
// is supported. It knows no synonyms and no grammar but that of the user's own words. What it does not recognise does not
// pass.

// Support is a text that may support a draft.
type Support struct {
	Ref      string
	Text     string
	User     bool // a turn of the user
	CutStart bool // the text does not begin where the page does
	CutEnd   bool // nor end there
}

// Draft is a text to be judged, and the labels it is filed under.
type Draft struct {
	ID     string
	Trace  string // of the context; an id may have it
	Text   string
	Labels []string // tags, and whatever else it is filed under
}

// maxTurn is the length in bytes above which a turn of the user is taken for something that they pasted.
const maxTurn = 4 << 10

// minWords is the length below which a sentence supports nothing: words such as "Always allowed." say nothing alone, and
// a row of them says what nobody said.
const minWords = 3

// Judge returns the references of the pages that support a draft, in the order of pages. If it is not supported, why
// is the reason. It quotes nothing: a verdict is kept in the audit, which has no contents.
func Judge(d Draft, pages []Support) (by []string, why string) {
	if hidden(d.Text) {
		return nil, "it has characters that are not seen"
	}
	if strings.Contains(d.Text, gap) {
		return nil, "it has a gap, as extracts have"
	}
	said, whole := sentences(d.Text, false)
	switch {
	case len(said) == 0:
		return nil, "it says nothing"
	case !whole:
		return nil, "it has a heading, a table, a quotation, code, or a list behind a colon; expected plain sentences"
	}
	from := make([]source, len(pages))
	for i, p := range pages {
		from[i] = read(p)
	}
	places, missing := match(said, from)
	if missing >= 0 {
		return nil, fmt.Sprintf("sentence %d is on no page that counts", missing+1)
	}
	for i, p := range pages {
		if slices.ContainsFunc(places, func(at []place) bool { return slices.ContainsFunc(at, func(x place) bool { return x.page == i }) }) {
			by = append(by, p.Ref)
		}
	}
	id := d.ID
	if d.Trace != "" {
		id = strings.ReplaceAll(id, d.Trace, " ")
	}
	if !labelled(id, from, pages) {
		return nil, "its id has words that are on no page that counts"
	}
	if slices.ContainsFunc(d.Labels, func(l string) bool { return !labelled(l, from, pages) }) {
		return nil, "its subject, a tag or its metadata has words that are on no page that counts"
	}
	return by, ""
}

// source is a page as sentences.
type source struct {
	said  []sentence
	forms map[string][]int // sentences by form
	words map[string]bool
	start bool // the first sentence begins the page
}

func read(p Support) source {
	s := source{forms: map[string][]int{}, words: map[string]bool{}, start: !p.CutStart}
	if p.User && len(p.Text) > maxTurn {
		return s
	}
	s.said, _ = sentences(p.Text, p.User)
	if p.CutStart && len(s.said) > 0 { // it may be the rest of one
		s.said = s.said[1:]
	}
	if n := len(s.said); p.CutEnd && n > 0 {
		s.said = s.said[:n-1]
	}
	for i, x := range s.said {
		if x.words >= minWords {
			for _, f := range x.forms {
				s.forms[f] = append(s.forms[f], i)
			}
		}
		for _, w := range labelWords(x.text) {
			s.words[w] = true
		}
	}
	for _, w := range labelWords(p.Ref) {
		s.words[w] = true
	}
	return s
}

// place is a sentence of a page.
type place struct{ page, at int }

// match finds where each sentence of a draft stands. missing is the first that stands nowhere, or only with another that
// the draft does not have next to it; -1: none.
func match(said []sentence, from []source) (places [][]place, missing int) {
	places = make([][]place, len(said))
	for i := range said {
		for p := range from {
			for _, at := range from[p].forms[said[i].forms[0]] {
				places[i] = append(places[i], place{p, at})
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range places {
			n := len(places[i])
			places[i] = slices.DeleteFunc(places[i], func(at place) bool { return !from[at.page].stands(at, i, places) })
			changed = changed || len(places[i]) < n
		}
	}
	for i := range places {
		if len(places[i]) == 0 {
			return nil, i
		}
	}
	return places, -1
}

// stands reports whether sentence i of a draft says at a place what it says there.
func (s *source) stands(at place, i int, places [][]place) bool {
	x := &s.said[at.at]
	if x.back {
		first := i == 0 && at.at == 0 && s.start && x.at == 0
		if !first && (i == 0 || at.at == 0 || s.said[at.at-1].at != x.at-1 || !slices.Contains(places[i-1], place{at.page, at.at - 1})) {
			return false
		}
	}
	if at.at+1 < len(s.said) && s.said[at.at+1].turns {
		return i+1 < len(places) && slices.Contains(places[i+1], place{at.page, at.at + 1})
	}
	return true
}

// neutral words name what a note is, and say nothing about anything.
var neutral = set(`user users note notes fact facts answer answers summary preference preferences policy rule rules decision result
	memory info profile topic status type kind name title lang language source category tag about key value limit limits setting
	settings option choice contact address location schedule hours price plan project team tool editor style format deadline version`)

// negating words turn what stands beside them, so they stand on a page beside it, too.
var negating = set(`no not non never none without nor neither cannot un anti kein keine nicht nie pas jamais sans nunca sin ni`)

// maxFree is the number of words of pages that a label may have in another order.
const maxFree = 2

// labelled reports whether pages have the words of a label. More than a few must stand together in one sentence, or in
// the name of a page: else a label could say what no page says.
func labelled(label string, from []source, pages []Support) bool {
	if hidden(label) {
		return false
	}
	words := labelWords(label)
	free := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return neutral[w] })
	for _, w := range free {
		if !slices.ContainsFunc(from, func(s source) bool { return s.words[w] || s.words[w+"s"] || s.words[strings.TrimSuffix(w, "s")] }) {
			return false
		}
	}
	if len(free) <= maxFree && !slices.ContainsFunc(free, func(w string) bool { return negating[w] }) {
		return true
	}
	run := " " + strings.Join(words, " ") + " "
	for i := range from {
		texts := []string{pages[i].Ref}
		for _, s := range from[i].said {
			texts = append(texts, s.text)
		}
		for _, t := range texts {
			if strings.Contains(" "+strings.Join(labelWords(t), " ")+" ", run) {
				return true
			}
		}
	}
	return false
}

// labelWords are the words of a label in lower case.
func labelWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(plain(text)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) })
}
