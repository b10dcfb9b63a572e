package lexical

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/token"
	"github.com/kljensen/snowball/english"
)

// A word of a question that no page of its scopes has may be misspelt, or two words run together, or a part of a word that
// the pages write as one. It is then read as the words of those scopes that it most probably stands for:
//
//	joined   with a neighbour of the question it is a known word        data base   → database
//	edited   one letter added, left out, replaced, or two exchanged     refnud      → refund
//	split    it is two known words, or a known one and a stop word      filename    → file name
//
// A word that is common in English is hardly a slip, though no page has it: it is read as a word with two letters exchanged or
// one doubled (recieve, adress), or as two known words that are no stop words, and not as one that only looks like it.
//
// Only words of a–z are read so. The first letter is right: people seldom mistake it. Nothing is read as a word that no
// page has which the question may see, so a reading tells nothing of other scopes or of pages that a rule keeps out.
//
// Cost: a question whose words are all known costs nothing. For an unknown word every form of it at one edit is looked up,
// which is about 40 for each of its letters, whatever the number of pages. So mostRead words are read at most. The forms are
// looked up in the order of terms, so those that stand near each other need one row (know).

const (
	leastRead  = 4   // letters of a word that is read as another
	longestAsk = 24  // the same, at most
	leastPart  = 3   // letters of a part that is no stop word
	mostRead   = 4   // unknown words of a question that are read
	mostAsked  = 64  // words of a question that are looked at
	mostShown  = 256 // pages that are asked whether the question may see them, of each reading
)

// What a reading is worth is how often pages have it, times how often people make the mistake. Of 100 that type a word, so
// many make the one mistake that makes it this form: a word has few letters to leave out, and many to put in.
const (
	leftOut   = 20
	exchanged = 10
	doubled   = 6
	other     = 1
	familiar  = 10 // times, if the word that it is read as is common
)

// Typed is a question as it was typed. Search reads its words where no page has them.
type Typed struct {
	Words []string // from Analyzer.Words
	Terms []string // from Search: the terms that it looked for instead of those of the query; nil: those of the query
	Read  []Reading
}

// Reading says that words of a question were read as others.
type Reading struct{ Asked, As string }

// Words returns the words of a question in their order, as far as they can be misspelt. "" stands for one that cannot, and for
// anything between two words but spaces.
func (a *Analyzer) Words(query string) []string {
	rest := stripPhrases(query)
	if strings.TrimSpace(rest) == "" {
		rest = query
	}
	var out []string
	for rest != "" && len(out) < mostAsked {
		from := strings.IndexFunc(rest, inPhrase)
		if from < 0 {
			break
		}
		if strings.Trim(rest[:from], " \t\n") != "" && len(out) > 0 && out[len(out)-1] != "" {
			out = append(out, "")
		}
		rest = rest[from:]
		to := strings.IndexFunc(rest, func(r rune) bool { return !inPhrase(r) })
		if to < 0 {
			to = len(rest)
		}
		out = append(out, spelt(rest[:to]))
		rest = rest[to:]
	}
	return out
}

// spelt returns a word in lower case; "" if it is an identifier, a stop word, or has anything but a–z.
func spelt(word string) string {
	low := strings.ToLower(word)
	if len(word) > longestAsk || !isPlain([]byte(low)) || isStopWord(low) || word[1:] != low[1:] && strings.ToUpper(word) != word {
		return ""
	}
	return low
}

// read returns the question with the terms that no page has replaced by those that they are read as.
func (w *work) read(rows Rows, scopes []uint32, q Query, st Stats) (Query, error) {
	lists, tails, start := w.lists, w.tails, w.start // of the question: it needs them if nothing is read
	w.lists, w.tails, w.start = nil, nil, nil
	defer func() { w.lists, w.tails, w.start = lists, tails, start }()
	words, left := slices.Clone(q.Typed.Words), mostRead
	q.Typed.Terms, q.Typed.Read = nil, nil
	unknown := func(i int) bool {
		if i < 0 || i >= len(words) || words[i] == "" {
			return false
		}
		term := Stem([]byte(words[i]))
		at, ok := slices.BinarySearch(q.Terms, term)
		_, month := months[words[i]]
		return ok && st.DF[at] == 0 && formsOf(term) == nil && !month
	}
	terms := q.Terms
	for i := range words {
		if !unknown(i) {
			continue
		}
		if left--; left < 0 {
			break
		}
		from, to, as, err := w.reading(rows, scopes, words, i)
		if err != nil {
			return q, err
		}
		if as == nil {
			continue
		}
		q.Typed.Read = append(q.Typed.Read, Reading{strings.Join(words[from:to+1], " "), strings.Join(as, " ")})
		for at := from; at <= to; at++ {
			if unknown(at) {
				terms = slices.DeleteFunc(slices.Clone(terms), func(t string) bool { return t == Stem([]byte(words[at])) })
				words[at] = ""
			}
		}
		for _, word := range as {
			if !isStopWord(word) {
				terms = append(terms, english.Stem(word, true))
			}
		}
	}
	if q.Typed.Read != nil {
		slices.Sort(terms)
		q.Terms = slices.Compact(terms)
		q.Typed.Terms = q.Terms
	}
	return q, nil
}

// reading returns what an unknown word is read as, nil for nothing, and the words of the question that are read so.
func (w *work) reading(rows Rows, scopes []uint32, words []string, i int) (from, to int, as []string, err error) {
	for from := i; from >= max(i-1, 0); from-- {
		to := from + 1
		if to >= len(words) || words[from] == "" || words[to] == "" {
			continue
		}
		as, err := w.likeliest(rows, scopes, []guess{{word: words[from] + words[to], worth: other}})
		if as != nil || err != nil {
			return from, to, as, err
		}
	}
	if len(words[i]) < leastRead {
		return i, i, nil, nil
	}
	guesses, usual := edits(words[i]), common(words[i])
	if usual {
		guesses = slices.DeleteFunc(guesses, func(g guess) bool { return !g.slip || !common(g.word) })
	}
	if as, err = w.likeliest(rows, scopes, guesses); as == nil && err == nil {
		as, err = w.split(rows, scopes, words[i], usual)
	}
	return i, i, as, err
}

// guess is a word that another may stand for.
type guess struct {
	word  string
	worth uint64
	slip  bool // the other is it with two letters exchanged, or with one letter twice or once too few
}

// common reports whether a word is one that a tokenizer of English texts has.
func common(word string) bool { return token.Default().Count(" "+word) == 1 }

// edits returns the words at one edit from a word, with the same first letter.
func edits(word string) []guess {
	var text strings.Builder // of all of them: one string for each took as long as to look it up
	text.Grow(54 * len(word) * (len(word) + 1))
	out := make([]guess, 0, 54*len(word))
	add := func(worth uint64, slip bool, parts ...string) {
		from := text.Len()
		for _, part := range parts {
			text.WriteString(part)
		}
		out = append(out, guess{text.String()[from:], worth, slip})
	}
	for i := 1; i <= len(word); i++ {
		before, behind := word[:i], word[i:]
		for c := range len(letters) {
			letter := letters[c : c+1]
			add(leftOut, letter == before[i-1:], before, letter, behind)
			if behind != "" && behind[:1] != letter {
				add(other, false, before, letter, behind[1:])
			}
		}
		switch {
		case behind == "":
			continue
		case behind[0] == before[i-1]:
			add(doubled, true, before, behind[1:])
		default:
			add(other, false, before, behind[1:])
		}
		if len(behind) > 1 && behind[0] != behind[1] {
			add(exchanged, true, before, behind[1:2], behind[:1], behind[2:])
		}
	}
	return out
}

const letters = "abcdefghijklmnopqrstuvwxyz"

// likeliest returns the guess that is worth most, of equal ones the first in the order of words; nil: no page has any, or a stop
// word is worth more, as if all pages had it.
func (w *work) likeliest(rows Rows, scopes []uint32, guesses []guess) ([]string, error) {
	terms := make([]string, len(guesses))
	for i, g := range guesses {
		terms[i] = stemOnce(g.word)
	}
	known, err := w.know(rows, scopes, terms)
	if err != nil {
		return nil, err
	}
	found := guesses[:0]
	for i, g := range guesses {
		if isStopWord(g.word) {
			g.worth *= w.x.cols.total(scopes).pages
			found = append(found, g)
		} else if df := known[i]; df > 0 {
			if g.worth *= df; common(g.word) {
				g.worth *= familiar
			}
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(a, b guess) int {
		return cmp.Or(cmp.Compare(b.worth, a.worth), cmp.Compare(a.word, b.word))
	})
	for _, g := range found {
		if isStopWord(g.word) {
			break
		}
		if shown, err := w.shown(rows, scopes, english.Stem(g.word, true)); shown || err != nil {
			return []string{g.word}, err
		}
	}
	return nil, nil
}

// split returns the two known words that a word consists of; of several pairs the one whose rarer word has more pages. A stop
// word counts as one that all pages have. nil: there are none.
func (w *work) split(rows Rows, scopes []uint32, word string, usual bool) (as []string, err error) {
	most := uint64(0)
	for i := 2; i <= len(word)-2; i++ {
		pair, least, words := [2]string{word[:i], word[i:]}, ^uint64(0), 0
		for _, part := range pair {
			if isStopWord(part) {
				continue
			}
			df := uint64(0)
			if len(part) >= leastPart {
				term := Stem([]byte(part))
				if df, err = w.look(rows, scopes, term); err != nil {
					return nil, err
				}
				if df > most {
					var shown bool
					if shown, err = w.shown(rows, scopes, term); err != nil {
						return nil, err
					} else if !shown {
						df = 0
					}
				}
			}
			words, least = words+1, min(least, df)
		}
		if words > 0 && (words == 2 || !usual) && least > most {
			as, most = pair[:], least
		}
	}
	return as, nil
}

// stemOnce returns the stem of a word of a–z that nobody may ask for again: it takes no place in the cache of stems. Most words
// end as no suffix does that the stemmer changes, so they are their own stems, or lose an e at most.
func stemOnce(word string) string {
	n := len(word)
	if n < 4 {
		return english.Stem(word, true)
	}
	as := word
	switch word[n-1] {
	case 's', 'y':
		return english.Stem(word, true)
	case 'e':
		if !twoSyllables(word[:n-1]) {
			return english.Stem(word, true)
		}
		as = word[:n-1]
	}
	switch word[n-2:] {
	case "al", "ed", "er", "ic", "ll":
		return english.Stem(word, true)
	case "li":
		if strings.IndexByte("bcdeghklmnrst", word[n-3]) >= 0 {
			return english.Stem(word, true)
		}
	}
	switch word[n-3:] {
	case "ant", "ate", "ble", "ent", "ful", "ing", "ion", "ism", "iti", "ive", "ize", "nce", "nci", "ogi", "tor":
		return english.Stem(word, true)
	}
	return as
}

// twoSyllables reports whether a word surely ends in what the stemmer calls R2: behind two vowels, a consonant after each.
func twoSyllables(word string) bool {
	if strings.HasPrefix(word, "gener") || strings.HasPrefix(word, "commun") || strings.HasPrefix(word, "arsen") {
		return false
	}
	n, vowel := 0, false
	for i := range len(word) {
		switch word[i] {
		case 'y': // either
			return false
		case 'a', 'e', 'i', 'o', 'u':
			vowel = true
		default:
			if vowel {
				n++
			}
			vowel = false
		}
	}
	return n >= 2
}

// wanted is a term of many that are looked up.
type wanted struct {
	head uint64
	key  string // as in the key of its list
	at   int
}

// know counts the pages with each of many terms.
func (w *work) know(rows Rows, scopes []uint32, terms []string) (df []uint64, err error) {
	m, masked := rows.(Masked)
	masked = masked && m.Masks()
	df = make([]uint64, len(terms))
	keys := make([]wanted, len(terms))
	for _, scope := range scopes {
		if w.x.cols.scopes[w.x.cols.scopeAt[scope]].pages == 0 {
			continue
		}
		for i, term := range terms {
			n, err := w.findTail(0, scope, term)
			if err != nil {
				return nil, err
			}
			df[i] += n
			if masked {
				w.key = w.rowKey(rows, 0, scope, term)
				key, _ := termAndScope(w.key[segPrefix:])
				term = string(key)
			}
			keys[i] = wanted{head(term), term, i}
		}
		slices.SortFunc(keys, func(a, b wanted) int {
			if a.head != b.head {
				return cmp.Compare(a.head, b.head)
			}
			return strings.Compare(a.key, b.key)
		})
		for _, s := range w.x.manifest.segments {
			if err := w.knowIn(rows, s, scope, keys, df); err != nil {
				return nil, err
			}
		}
	}
	w.forget()
	return df, nil
}

// knowIn counts the pages of a segment. Each row is read once, for all terms that can be in it.
func (w *work) knowIn(rows Rows, s segment, scope uint32, keys []wanted, df []uint64) error {
	from, err := w.startOf(rows, s, scope)
	if from == 0 || err != nil {
		return err
	}
	for r := &w.reader; len(keys) > 0; {
		w.key = appendTermKey(w.key[:0], s.id, scope, keys[0].key)
		k, v := rows.Next(w.key)
		if !bytes.HasPrefix(k, w.key[:segPrefix]) {
			return nil
		}
		if err := r.begin(s, k, v); err != nil {
			return err
		}
		for len(keys) > 0 && keys[0].key <= string(r.last) && r.next() {
			for len(keys) > 0 && (keys[0].key < string(r.term) || keys[0].key == string(r.term) && scope < r.scope) {
				keys = keys[1:]
			}
			if len(keys) == 0 || keys[0].key != string(r.term) {
				r.others(scope, false)
				continue
			}
			if scope != r.scope {
				continue
			}
			l := r.list
			l.from, l.removed = from, w.x.pending[s.id] > 0
			n, err := w.live(l)
			if err != nil {
				return err
			}
			for ; len(keys) > 0 && keys[0].key == string(r.term); keys = keys[1:] {
				df[keys[0].at] += n
			}
		}
		if err := r.unsound(k); err != nil {
			return err
		}
	}
	return nil
}

// look counts the pages with a term, and finds its lists.
func (w *work) look(rows Rows, scopes []uint32, term string) (df uint64, err error) {
	w.forget()
	for _, scope := range scopes {
		n, err := w.find(rows, 0, scope, term)
		if err != nil {
			return 0, err
		}
		df += n
	}
	return df, nil
}

// shown reports whether the question may see one of the first pages with a term.
func (w *work) shown(rows Rows, scopes []uint32, term string) (bool, error) {
	if df, err := w.look(rows, scopes, term); df == 0 || err != nil {
		return false, err
	}
	w.start = append(w.start, 0, len(w.lists))
	left, shown := mostShown, false
	err := w.eachBlock(0, func(block []posting) {
		for _, p := range block {
			if left--; shown || left < 0 {
				return
			}
			_, shown = w.resolve(uint32(p.num - w.x.cols.base))
		}
	})
	return shown, err
}

// forget drops the lists that were found.
func (w *work) forget() {
	w.lists, w.tails, w.start = w.lists[:0], w.tails[:0], w.start[:0]
}
