package lexical

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// From text to terms, in one pass over the bytes:
//
//	text         NFKC, if it is not normal already
//	words        runs of letters, digits and marks, lower-cased; apostrophes inside a word are dropped
//	             in scripts without spaces: each letter, and each pair of neighbours
//	             emoji, one by one
//	more words   parts of identifiers; forms without accents and marks (words.go)
//	stop words   dropped, unless they are names, or all that a part of the text has
//	stems        of words of a–z (words.go)
//	terms        counted, in the order in which they first came
//
// The rules have a version (AnalyzerVersion). In an index made by other rules a question would look
// for terms that are not there, so it is made again.

// maxTerm bounds a term in bytes. Longer runs (keys, base64) are cut there, so
// that a hostile page cannot make long rows.
const maxTerm = 64

// Analysis has the terms of a text for the index.
type Analysis struct {
	Terms  []TermCount // in the order of their first occurrence, no term twice
	Length int         // number of terms in the text, repetitions counted
	Traits Traits      // of a turn: what its author says about themselves; see TraitsOf

	lender *Analyzer // takes back the memory of Terms; nil: nobody does
}

// done returns the memory of the terms, if it was lent.
func (a *Analysis) done() {
	if a.lender != nil {
		clear(a.Terms)
		terms := a.Terms[:0]
		a.lender.lent.Put(&terms)
	}
}

// TermCount is a term and how often it occurs.
type TermCount struct {
	Term string
	N    uint32
	hash uint32 // of Term; 0: not known
	stem uint32 // id of the stem that it was first; 0: of none
}

// hashed is the hash of the term.
func (c *TermCount) hashed() uint32 {
	if c.hash != 0 {
		return c.hash
	}
	return hash(c.Term)
}

// Analyzer turns text into terms. It is safe for concurrent use. Stems are
// remembered, within bounds; that never changes a result.
type Analyzer struct {
	stems    *stemCache
	scanners sync.Pool // of *scanner
	lent     sync.Pool // of *[]TermCount, empty
}

// NewAnalyzer returns an analyzer.
func NewAnalyzer() *Analyzer { return &Analyzer{stems: &stems} }

// Analyze splits the parts into words, lower-cases them, drops stop words and
// stems the rest. The parts are indexed as one text: a header (author, date,
// source name) counts like the words below it.
func (a *Analyzer) Analyze(parts ...string) Analysis {
	s := a.scan(parts...)
	defer a.release(s)
	return Analysis{Terms: slices.Clone(s.terms), Length: s.length}
}

// Lend returns what Analyze returns. Pass the result to an Index or to Built and use it nowhere else: once its terms are
// entered, their memory is used again.
func (a *Analyzer) Lend(parts ...string) Analysis {
	s := a.scan(parts...)
	defer a.release(s)
	if len(s.terms) > maxScanner { // the scanner reads no other text
		return Analysis{Terms: s.terms, Length: s.length}
	}
	out := Analysis{Terms: s.terms, Length: s.length, lender: a}
	if l, _ := a.lent.Get().(*[]TermCount); l != nil {
		s.terms = *l
	} else {
		s.terms = make([]TermCount, 0, 64)
	}
	return out
}

// Terms returns the terms of a query, each once, ascending. Polite phrases around the question
// (frame.go) are left out, unless there is nothing else.
func (a *Analyzer) Terms(query string) []string {
	s := a.scan(stripPhrases(query))
	if len(s.terms) == 0 {
		a.release(s)
		s = a.scan(query)
	}
	defer a.release(s)
	var terms []string
	for _, t := range s.terms {
		terms = append(terms, t.Term)
	}
	slices.Sort(terms)
	return terms
}

// borrow returns a scanner that has read nothing.
func (a *Analyzer) borrow() *scanner {
	s, _ := a.scanners.Get().(*scanner)
	if s == nil {
		s = &scanner{stems: a.stems, terms: make([]TermCount, 0, 256), table: make(table, 512)}
	}
	return s
}

// scan borrows a scanner and lets it read the parts.
func (a *Analyzer) scan(parts ...string) *scanner {
	s := a.borrow()
	for _, p := range parts {
		before := s.length
		if s.text(p); s.length == before { // it has nothing but stop words
			s.whole(p)
		}
	}
	return s
}

// whole reads one part of a text and keeps its stop words.
func (s *scanner) whole(text string) {
	s.stops = true
	s.text(text)
	s.stops = false
}

// maxScanner is the most terms of a scanner that is kept for the next text.
const maxScanner = 4096

// release keeps a scanner for the next text, unless a large text made it large.
func (a *Analyzer) release(s *scanner) {
	if len(s.terms) > maxScanner {
		return
	}
	clear(s.terms)
	clear(s.table)
	s.terms, s.length, s.initials = s.terms[:0], 0, 0
	a.scanners.Put(s)
}

// scanner collects the terms of one text.
//
// A word is a run of letters, digits and combining marks; an apostrophe inside
// a word belongs to it. Scripts that write no spaces give every letter and every
// pair of neighbours as a term, in pages and in queries alike, so that one
// letter, a word and a phrase can all be found.
type scanner struct {
	stems *stemCache

	terms  []TermCount
	table  table // of terms
	length int

	words  waiting
	word   []byte // lower case, waiting for its end
	plain  bool   // word is a–z only, so it can be stemmed
	beyond bool   // word has letters beyond ASCII
	upper  uint64 // bit i: the letter at byte i of word was a capital
	quote  int    // offset of the last apostrophe in word, -1 for none
	prev   string // last letter of a script without spaces, "" for none

	snake []byte // words joined by underscores so far, each with its underscore
	title bool   // only a space stands between here and a word that began with a capital
	stops bool   // stop words are words like others
	fold  []byte // memory of folded

	initials uint32 // see looksUp; 0: all words are looked up
	looked   int
}

// count adds a term.
func (s *scanner) count(term string, hash, stem uint32) {
	s.length++
	i := s.table.first(hash)
	for ; s.table[i] > 0; i = s.table.next(i) {
		if e := s.table[i]; e.hash() == hash && s.terms[e.at()].Term == term {
			s.terms[e.at()].N++
			return
		}
	}
	s.table[i] = newEntry(hash, uint32(len(s.terms)))
	s.terms = append(s.terms, TermCount{Term: term, N: 1, hash: hash, stem: stem})
	if len(s.terms) > len(s.table)/2 {
		s.table = s.table.grown()
	}
}

// text reads one part of a text. A word does not go on into the next part.
func (s *scanner) text(text string) {
	if !isASCII(text) && !norm.NFKC.IsNormalString(text) {
		text = norm.NFKC.String(text)
	}
	s.reset()
	for i := 0; i < len(text); {
		if n, key := lower(text[i:]); n > 0 { // most of a text
			if len(s.word) == 0 && n <= keyLetters && s.prev == "" && len(s.snake) == 0 && endsWord(text[i+n:]) {
				if s.looksUp(text[i]) {
					s.key(key)
				}
				s.title = false
				i += n + 1
				continue
			}
			s.letters(text[i : i+n])
			i += n
			continue
		}
		if c := text[i]; c < utf8.RuneSelf {
			s.ascii(c, text[i+1:])
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		s.rune(r, text, i-size, i)
	}
	s.flush()
	s.stem()
	s.title = false
}

// reset forgets the word that was begun.
func (s *scanner) reset() {
	s.word, s.plain, s.beyond, s.upper, s.quote, s.prev = s.word[:0], true, false, 0, -1, ""
}

// ascii takes a byte that is no letter a–z; rest is the text behind it.
func (s *scanner) ascii(c byte, rest string) {
	switch {
	case 'A' <= c && c <= 'Z':
		s.byte(c + 'a' - 'A')
		s.upper |= 1 << (len(s.word) - 1) // none beyond 63
	case '0' <= c && c <= '9':
		s.byte(c)
		s.plain = false
	case c == '\'' || c == '`':
		s.apostrophe(rest)
	case c == '_':
		s.underscore()
	default:
		if len(s.word) > 0 || s.prev != "" || len(s.snake) > 0 {
			s.flush()
		}
		s.title = s.title && c == ' '
	}
}

// underscore ends a word and remembers it as a part of an identifier.
func (s *scanner) underscore() {
	if len(s.word) == 0 {
		return // before, behind, or a second one
	}
	if len(s.snake) < maxTerm {
		s.snake = append(append(s.snake, s.word...), '_')
	}
	s.end()
}

// rune takes the rune text[at:end].
func (s *scanner) rune(r rune, text string, at, end int) {
	switch {
	case r == '’' || r == '‘' || r == 'ʼ':
		s.apostrophe(text[end:])
	case unspaced(r):
		s.letter(text, at, end)
	case unicode.IsDigit(r):
		s.byte('0' + digit(r))
		s.plain = false
	case unicode.IsLetter(r) || len(s.word) > 0 && unicode.IsMark(r) && !styles(r):
		if s.prev != "" {
			s.flush()
		}
		if n := len(s.word); n < 64 && unicode.IsUpper(r) {
			s.upper |= 1 << n
		}
		s.word = utf8.AppendRune(s.word, unicode.ToLower(r))
		s.plain, s.beyond = false, true
	case unicode.IsMark(r): // belongs to a letter of a script without spaces, or to an emoji
	case unicode.Is(unicode.Cf, r): // invisible: soft hyphens, joiners, direction marks
	default:
		s.flush()
		if s.title = false; pictograph(r) {
			s.other(text[at:end])
		}
	}
}

// styles reports whether a mark chooses how the symbol before it looks.
func styles(r rune) bool { return 0xFE00 <= r && r <= 0xFE0F || r == 0x20E3 }

// lower returns how many letters a–z a text begins with, and their key if they are few enough.
func lower(text string) (n int, key uint64) {
	for n < len(text) && 'a' <= text[n] && text[n] <= 'z' {
		key = key<<letterBits | uint64(text[n]-'a'+1)
		n++
	}
	return n, key
}

// endsWord reports whether the first byte of a text ends the word before it, and does nothing else. The
// end of the text is left to others.
func endsWord(text string) bool {
	if text == "" {
		return false
	}
	switch c := text[0]; {
	case c >= utf8.RuneSelf, '0' <= c && c <= '9', 'A' <= c && c <= 'Z', c == '\'', c == '`', c == '_':
		return false
	}
	return true
}

// key takes a word of a–z that has a key.
func (s *scanner) key(key uint64) {
	if s.words.key(key); s.words.n == lookups {
		s.stem()
	}
}

// letters takes letters a–z.
func (s *scanner) letters(run string) {
	if s.prev != "" {
		s.flush()
	}
	s.word = append(s.word, run...)
}

// byte adds a byte to the word.
func (s *scanner) byte(c byte) {
	if s.prev != "" {
		s.flush()
	}
	s.word = append(s.word, c)
}

// apostrophe keeps the mark when a letter follows; else it ends the word.
func (s *scanner) apostrophe(rest string) {
	r, _ := utf8.DecodeRuneInString(rest)
	if len(s.word) == 0 || !unicode.IsLetter(r) || unspaced(r) {
		s.flush()
		return
	}
	s.quote = len(s.word)
	s.word = append(s.word, '\'')
}

// letter takes the letter text[at:end] of a script without spaces. Its terms are pieces of the text
// where they can be: in such a script each letter makes two, and most pairs are new.
func (s *scanner) letter(text string, at, end int) {
	if len(s.word) > 0 {
		s.flush()
	}
	letter := text[at:end]
	s.other(letter)
	if before := at - len(s.prev); s.prev != "" && text[before:at] == s.prev {
		s.other(text[before:end])
	} else if s.prev != "" { // marks stand between them
		s.other(s.prev + letter)
	}
	s.prev = letter
}

// flush ends the word, if there is one, the identifier that it is part of, and the run of letters
// without spaces.
func (s *scanner) flush() {
	if len(s.snake) == 0 {
		s.end()
		return
	}
	joined := len(s.word) > 0
	s.snake = append(s.snake, s.word...)
	s.end()
	if joined {
		s.other(string(cut(s.snake)))
	}
	s.snake = s.snake[:0]
}

// end ends the word, if there is one, and the run of letters without spaces.
func (s *scanner) end() {
	if len(s.word) > 0 {
		s.emit()
	}
	s.reset()
}

// emit takes the word that has ended.
func (s *scanner) emit() {
	if s.plain && s.upper == 0 && s.quote < 0 { // most of those that have no key
		s.title = false
		s.wait(cut(s.word))
		return
	}
	var elided, suffixed []byte
	if s.quote >= 0 {
		elided, suffixed = s.contraction()
	}
	w := cut(s.word)
	if s.upper != 0 && s.named(w) {
		s.other(Stem(w))
	} else {
		s.take(w)
	}
	s.title = s.upper&1 == 1
	if s.upper&^1 != 0 || !s.plain {
		s.parts(w)
	}
	if elided != nil {
		s.take(elided)
	}
	if suffixed != nil {
		s.take(suffixed)
	}
}

// named reports whether a stop word is a name by its capitals: IT, US, The Who.
func (s *scanner) named(w []byte) bool {
	return s.plain && len(w) > 1 && (s.upper == 1<<len(w)-1 || s.title && s.upper == 1) && isStopWord(string(w))
}

// take adds a word or a part of one, and its folded form.
func (s *scanner) take(w []byte) {
	if !isPlain(w) {
		s.other(string(w))
		if !s.beyond {
			return
		}
		if s.fold = folded(s.fold, w); s.fold == nil {
			return
		}
		if w = s.fold; !isPlain(w) {
			s.other(string(w))
			return
		}
	}
	s.wait(w)
}

// wait queues a word of a–z, whose stem will be looked up with others.
func (s *scanner) wait(w []byte) {
	if s.words.add(w); s.words.n == lookups {
		s.stem()
	}
}

// isPlain reports whether a word is of a–z only, so that it can be stemmed.
func isPlain(w []byte) bool {
	for _, c := range w {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// stem takes the stems of the words that wait.
func (s *scanner) stem() {
	var found [lookups]*stemmed
	for _, t := range s.words.stems(s.stems, &found) {
		if t.key&stopWord == 0 || s.stops {
			s.count(t.term(), t.hash, t.id)
		}
	}
}

// other adds a term that is not the stem of a word.
func (s *scanner) other(term string) {
	s.stem() // those before it in the text
	s.count(term, hash(term), 0)
}

// contraction drops an ending like 's or 'll and joins what is left over the
// apostrophes: don't becomes dont, o'brien obrien. It returns words that are found by themselves, too: the
// one behind an elided one, and the name before a suffix, as in Ankara'da; nil: there is none.
func (s *scanner) contraction() (elided, suffixed []byte) {
	at := s.quote
	switch string(s.word[at+1:]) {
	case "s", "m", "d", "re", "ve", "ll":
		s.word = s.word[:at]
	default:
		if elides(s.word[:at]) && len(s.word) > at+2 {
			elided = s.word[at:] // where the apostrophe goes
		} else if n := len(s.word) - at - 1; at >= nameBytes && (n > 1 || s.word[at+1] != 't') && n <= suffixBytes && !slices.Contains(s.word[:at], '\'') {
			suffixed = s.word[:at]
		}
	}
	s.word = slices.DeleteFunc(s.word, func(c byte) bool { return c == '\'' })
	if elided != nil {
		elided = s.word[at:]
	}
	if s.upper != 0 && s.upper != 1 {
		s.upper &= 1 // the letters behind the apostrophe have moved
	}
	return elided, cut(suffixed)
}

// In Turkish and other languages an apostrophe stands between a name and its suffix. Shorter names than that have none.
const (
	nameBytes   = 3
	suffixBytes = 8
)

// cut bounds a word at the start of a rune.
func cut(w []byte) []byte {
	if len(w) <= maxTerm {
		return w
	}
	n := maxTerm
	for n > 0 && !utf8.RuneStart(w[n]) {
		n--
	}
	return w[:n]
}

// isASCII reports whether a text has only bytes below 128; such a text is normal as it is.
func isASCII(s string) bool {
	const high = 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] { // one load
		if (uint64(s[0])|uint64(s[1])<<8|uint64(s[2])<<16|uint64(s[3])<<24|
			uint64(s[4])<<32|uint64(s[5])<<40|uint64(s[6])<<48|uint64(s[7])<<56)&high != 0 {
			return false
		}
	}
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unspaced reports whether r belongs to a script that writes words without
// spaces between them (Korean has spaces, but its words carry their particles).
func unspaced(r rune) bool {
	return r >= 0x0E00 && (r == 'ー' || unicode.In(r,
		unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) && unicode.IsLetter(r))
}
