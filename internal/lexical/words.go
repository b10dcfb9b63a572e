package lexical

import (
	"bytes"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// An identifier is indexed as a whole and by its parts, in pages and in questions alike: whoever
// asks for one of the parts finds it, and a page that has the identifier itself comes first, because
// it matches by the whole, which is rare, too.
//
//	getUserById    getuserbyid      get user
//	get_user_by_id get_user_by_id   get user
//	HTML5Document  html5document    html5 html document
//	log4j2         log4j2           log4j
//	OAuth2Token    oauth2token      oauth2 oauth auth2 auth token
//	sha256sum      sha256sum        sha256

// mostParts bounds the parts of an identifier, and longMixed its length if it has digits: what is
// longer is a key or encoded bytes.
const (
	mostParts = 12
	longMixed = 40
)

// capital reports whether the letter at a place of the word was a capital.
func (s *scanner) capital(i int) bool { return i < 64 && s.upper>>i&1 == 1 }

// hump reports whether a part of an identifier begins at a capital: after a letter that is none, or
// before two that are none, as in XMLHttp. One is a plural: APIs.
func (s *scanner) hump(word []byte, i int) bool {
	if !s.capital(i) {
		return false
	}
	before := i - 1
	for before > 0 && !utf8.RuneStart(word[before]) {
		before--
	}
	if !s.capital(before) {
		return true
	}
	for range 2 {
		_, size := utf8.DecodeRune(word[i:])
		if i += size; i >= len(word) || s.capital(i) || !lowerCase(word[i]) {
			return false
		}
	}
	return true
}

// lowerCase reports whether a letter begins with a byte, if it is no capital.
func lowerCase(c byte) bool { return 'a' <= c && c <= 'z' || c >= utf8.RuneSelf }

// parts takes the parts of a word that is an identifier: see above.
func (s *scanner) parts(word []byte) {
	if len(word) > longMixed && bytes.ContainsAny(word, "0123456789") {
		return
	}
	var begin [mostParts]int
	n := 1
	for i := 1; i < len(word); i++ {
		if s.hump(word, i) {
			if n == mostParts {
				return
			}
			begin[n] = i
			n++
		}
	}
	for i, from := range begin[:n] {
		to := len(word)
		if i+1 < n {
			to = begin[i+1]
		}
		part := word[from:to]
		if n > 1 && len(part) > 1 {
			s.take(part)
			s.unnumbered(part)
		}
		if len(part) == 1 && i+1 < n { // OAuth, iPhone, XRay
			if to = len(word); i+2 < n {
				to = begin[i+2]
			}
			if part = word[from:to]; len(part) < len(word) {
				s.take(part)
				s.unnumbered(part)
			}
		}
	}
	if n == 1 {
		s.unnumbered(word)
	} else if name := unnumbered(word); name != nil {
		s.take(name)
	}
}

// unnumbered takes what a word with a number is named without it, and what it is named with the number alone.
func (s *scanner) unnumbered(word []byte) {
	if name := unnumbered(word); name != nil {
		s.take(name)
	}
	if name := numbered(word); name != nil {
		s.take(name)
	}
}

// numbered returns the beginning of a word up to its number, as sha256 of sha256sum, and nil of others: two letters or more,
// one number, two letters or more.
func numbered(word []byte) []byte {
	from := bytes.IndexFunc(word, func(r rune) bool { return '0' <= r && r <= '9' })
	if from < 2 {
		return nil
	}
	to := from
	for to < len(word) && isDigit(word[to]) {
		to++
	}
	rest := bytes.TrimRight(word[to:], "0123456789")
	if len(rest) < 2 || slices.ContainsFunc(rest, isDigit) {
		return nil
	}
	return word[:to]
}

// unnumbered returns a name without the number at its end, as log4j of log4j2, and nil of others: a
// name begins with two letters, and if it has digits itself, a number of one or two is taken off.
func unnumbered(word []byte) []byte {
	name := bytes.TrimRight(word, "0123456789")
	switch digits := len(word) - len(name); {
	case digits == 0, len(name) < 2, isDigit(name[0]), isDigit(name[1]):
		return nil
	case digits > 2 && bytes.ContainsAny(name, "0123456789"):
		return nil
	}
	return name
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// maxStems is the number of words in a cache, wayStems the number of places for a word
// in it; powers of two.
const (
	maxStems = 1 << 16
	wayStems = 4
)

// stemCache remembers the stem of lower-case English words: stemming is nine tenths of the time of
// an analysis without it. A word is in the first of its places that was free. If none is free, it
// replaces the word in the first. No lock is needed: an entry never changes, it is only replaced.
type stemCache [maxStems]atomic.Pointer[stemmed]

// stems serves all analyzers of the process: a word has one stem, and a table of
// its own would cost each database that is opened half a megabyte.
var stems stemCache

// Stem returns the stem of a word of letters a–z, also of a stop word. It shares its cache with the
// analyzers, so a text that other rules read too is stemmed once. It is safe for concurrent use.
func Stem(word []byte) string {
	switch {
	case len(word) > maxTerm:
		return english.Stem(string(word), true)
	case len(word) > keyLetters:
		return stems.long(word).term()
	}
	key := keyOf(word)
	first := placeOf(key)
	if s := stems[first].Load(); s != nil && s.is(key) {
		return s.term()
	}
	return stems.short(key, first).term()
}

// The key of a word of at most keyLetters letters is the word itself, letterBits a letter, so that
// words are told apart without a look at their text, which lies elsewhere in memory. Longer words
// have the key 0.
const (
	keyLetters = 12
	letterBits = 5
)

// keyOf is the key of a word of at most keyLetters letters.
func keyOf(word []byte) (key uint64) {
	for _, c := range word {
		key = key<<letterBits | uint64(c-'a'+1)
	}
	return key
}

// stemmed is a word and its stem. It is as small as it can be, because there are many, and whoever
// asks for one waits for memory: half a line of a cache.
type stemmed struct {
	key  uint64 // of the word, with stopWord or longWord
	text string // the stem; of a long word the word before it
	hash uint32 // of the stem
	id   uint32 // no other one of this process has it; 0: they have run out
}

// Of a key that has its word in it, keyLetters*letterBits bits are used.
const (
	stopWord = 1 << 63 // the word says nothing about what a text is about
	longWord = 1 << 62 // the rest is how many bytes of text are the word
)

// term is the stem.
func (s *stemmed) term() string {
	if s.key&longWord != 0 {
		return s.text[s.key&^(longWord|stopWord):]
	}
	return s.text
}

// is reports whether this is the word with a key.
func (s *stemmed) is(key uint64) bool { return s.key&^stopWord == key }

// isLong does what is does, for words too long to have a key.
func (s *stemmed) isLong(word []byte) bool {
	return s.is(longWord|uint64(len(word))) && s.text[:len(word)] == string(word)
}

// waiting are the keys of words whose stems were not asked for yet. The table is larger than a
// cache of the processor: of words looked up one by one each waits for memory, of these all wait at
// once.
type waiting struct {
	keys [lookups]uint64
	n    int
	text []byte // the words without a key, one behind the other
	ends []int  // where each of them ends
}

const lookups = 32

// add takes a word of a–z; it is not empty.
func (w *waiting) add(word []byte) {
	if len(word) > keyLetters {
		w.text = append(w.text, word...)
		w.ends = append(w.ends, len(w.text))
		w.key(0)
	} else {
		w.key(keyOf(word))
	}
}

func (w *waiting) key(key uint64) {
	w.keys[w.n] = key
	w.n++
}

// stems puts the stems of the words into out, and forgets them.
func (w *waiting) stems(c *stemCache, out *[lookups]*stemmed) []*stemmed {
	var first [lookups]uint32
	for i, key := range w.keys[:w.n] {
		first[i] = placeOf(key)
		out[i] = c[first[i]].Load()
	}
	at, long := 0, w.ends
	for i, key := range w.keys[:w.n] {
		switch {
		case key == 0:
			out[i] = c.long(w.text[at:long[0]])
			at, long = long[0], long[1:]
		case out[i] == nil || !out[i].is(key):
			out[i] = c.short(key, first[i])
		}
	}
	found := out[:w.n]
	w.text, w.ends, w.n = w.text[:0], w.ends[:0], 0
	return found
}

// keySeed differs in each process, like hashSeed, so nobody can choose words that share their
// places. Answers do not depend on it.
var keySeed = [2]uint64{maphash.String(hashSeed, "add"), maphash.String(hashSeed, "multiply") | 1}

// placeOf is the first place of a word with a key.
func placeOf(key uint64) uint32 {
	high, low := bits.Mul64(key^keySeed[0], keySeed[1])
	return uint32(high^low) % maxStems
}

// short returns the stem of a word that has a key.
func (c *stemCache) short(key uint64, first uint32) *stemmed {
	return c.stem(first, func(s *stemmed) bool { return s.is(key) }, func() string {
		var word [keyLetters]byte
		at := keyLetters
		for ; key > 0; key >>= letterBits {
			at--
			word[at] = byte(key&(1<<letterBits-1)) + 'a' - 1
		}
		return string(word[at:])
	})
}

// long returns the stem of a word that is too long for a key.
func (c *stemCache) long(word []byte) *stemmed {
	return c.stem(uint32(maphash.Bytes(hashSeed, word)%maxStems), func(s *stemmed) bool { return s.isLong(word) }, func() string { return string(word) })
}

// stem returns the stem of a word of a–z whose first place is known. It is in one of its places, or
// the word is stemmed.
func (c *stemCache) stem(first uint32, is func(*stemmed) bool, word func() string) *stemmed {
	place := &c[first]
	for i := range uint32(wayStems) {
		p := &c[first^i]
		s := p.Load()
		if s == nil {
			place = p
			break
		}
		if is(s) {
			return s
		}
	}
	s := newStemmed(word())
	place.Store(s)
	return s
}

// newStemmed stems a word.
func newStemmed(word string) *stemmed {
	stem := english.Stem(word, true)
	s := &stemmed{text: stem, hash: hash(stem), id: newStemID()}
	if len(word) <= keyLetters {
		s.key = keyOf([]byte(word))
	} else {
		s.key, s.text = longWord|uint64(len(word)), word+stem
	}
	if isStopWord(word) {
		s.key |= stopWord
	}
	return s
}

// stemIDs is the id that was given last.
var stemIDs atomic.Uint32

// newStemID returns an id that no other stem has had. There are enough for years of texts whose words
// are all new; then there are no more.
func newStemID() uint32 {
	for {
		last := stemIDs.Load()
		if last == math.MaxUint32 {
			return 0
		}
		if stemIDs.CompareAndSwap(last, last+1) {
			return last + 1
		}
	}
}

// A word with accents or marks is indexed twice, as it is written and folded, in pages and in
// questions alike. So each form finds the other, and a page that has the word as it was asked for
// matches by one term more.
//
// Folded are Latin, Greek, Arabic and Hebrew, and of Cyrillic ё and marks of stress: й and ї are
// letters of their own. Marks of other scripts are vowels, which are never dropped.

// folds are letters that do not decompose into what they are folded to.
var folds = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ħ': "h", 'ŧ': "t",
	'ς': "σ", 'ё': "е", 'ѐ': "е", 'ѝ': "и", // Cyrillic е and и
	'ٱ': "ا", 'ى': "ي", 'ة': "ه", 'ـ': "", // the last is only a stroke
}

// foldable is the range of letters and marks that are folded, beside appendFolded.
const foldable = 0x1FFF

// appendFolded appends the folded form of a letter in lower case, or of a mark.
func appendFolded(b []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		return append(b, byte(r))
	case r > foldable || 0x0700 <= r && r < 0x1E00:
		return utf8.AppendRune(b, r)
	case 0x0400 <= r && r < 0x0530 && folds[r] == "": // Cyrillic
		return utf8.AppendRune(b, r)
	case unicode.IsMark(r):
		return b
	}
	return append(b, foldings()[r]...)
}

// foldings has the folded form of every letter up to foldable that may have one.
var foldings = sync.OnceValue(func() *[foldable + 1]string {
	out := new([foldable + 1]string)
	for r := range rune(len(out)) {
		to, ok := folds[r]
		for _, part := range norm.NFD.String(string(r)) {
			if !ok && !unicode.IsMark(part) {
				to += string(part)
			}
		}
		out[r] = to
	}
	return out
})

// articles of Arabic are written as part of the word, with prepositions before them; the longest
// first.
var articles = [...]string{"وال", "بال", "كال", "فال", "لل", "ال"}

// stemmable is the fewest bytes of an Arabic word without its article.
const stemmable = 2 * 3

// folded returns the folded form of a word, nil if it is the word itself. It uses the memory of b.
func folded(b, word []byte) []byte {
	b = b[:0]
	for _, r := range string(word) {
		b = appendFolded(b, r)
	}
	for _, a := range articles {
		if rest, ok := bytes.CutPrefix(b, []byte(a)); ok && len(rest) >= stemmable {
			b = rest
			break
		}
	}
	if len(b) == 0 || bytes.Equal(b, word) {
		return nil
	}
	return cut(b)
}

// digit returns the value of a decimal digit of any script. In Unicode they stand in runs of ten.
func digit(r rune) byte {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	return 0
}

// elides reports whether a word drops its vowel before another word: l’utilisateur, dell’arte. In
// French and Italian the two are written as one.
func elides(prefix []byte) bool {
	switch string(prefix) {
	case "l", "d", "j", "m", "t", "s", "n", "c", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu",
		"un", "all", "dall", "dell", "nell", "sull", "quell", "quest", "bell", "sant":
		return true
	}
	return false
}

// pictograph reports whether a symbol is an emoji or stands like one for a word. Lines, bullets and
// the modifiers of other emoji do not.
func pictograph(r rune) bool {
	switch {
	case r < 0x231A, 0x1F3FB <= r && r <= 0x1F3FF:
		return false
	case r >= 0x1F000, 0x2600 <= r && r < 0x2800, 0x2B00 <= r && r < 0x2C00, r == 0x231A, r == 0x231B, 0x23E9 <= r && r <= 0x23FA:
		return unicode.Is(unicode.So, r)
	}
	return false
}

// StopWords returns the terms of a query that has nothing but stop words, each once, ascending; nil: it has others.
// Search finds by them only what the index keeps of stop words: names, and texts of nothing but stop words.
// ScoreStopWords finds them in any text.
func (a *Analyzer) StopWords(query string) (terms []string) {
	s := a.borrow()
	defer a.release(s)
	if s.text(query); s.length > 0 {
		return nil
	}
	s.whole(query)
	for _, t := range s.terms {
		terms = append(terms, t.Term)
	}
	slices.Sort(terms)
	return terms
}

// ScoreStopWords scores texts that are in no index by the terms that StopWords returned, as Search would if these were
// all pages and stop words were words like others. A text without any scores 0.
func (a *Analyzer) ScoreStopWords(terms, texts []string) []float64 {
	docs, st := make([]Doc, len(texts)), Stats{Pages: uint64(len(texts)), DF: make([]uint64, len(terms))}
	for i, text := range texts {
		docs[i].Analysis = a.count(terms, text)
		st.Length += uint64(docs[i].Analysis.Length)
		for _, t := range docs[i].Analysis.Terms {
			at, _ := slices.BinarySearch(terms, t.Term)
			st.DF[at]++
		}
	}
	scores := make([]float64, len(texts))
	for i := range docs {
		scores[i] = ScoreDoc(st, docs[i], Query{Terms: terms}).Own
	}
	return scores
}

// count analyses a text with its stop words and keeps the given terms only. Length is of the whole text.
func (a *Analyzer) count(terms []string, text string) (out Analysis) {
	s := a.borrow()
	defer a.release(s)
	s.whole(text)
	out.Length = s.length
	for _, t := range s.terms {
		if _, found := slices.BinarySearch(terms, t.Term); found {
			out.Terms = append(out.Terms, t)
		}
	}
	return out
}

// isStopWord reports whether a word is too common in English to say what a text
// is about. Single letters are left alone: they name things (plan b, vitamin c).
// Contractions appear as the scanner leaves them.
func isStopWord(word string) bool {
	switch word {
	case
		// articles, demonstratives
		"a", "an", "the", "this", "that", "these", "those",
		// pronouns
		"i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "you", "your", "yours",
		"he", "him", "his", "she", "her", "hers", "it", "its", "they", "them", "their", "theirs",
		// to be, to have, to do, modals
		"am", "is", "are", "was", "were", "be", "been", "being",
		"have", "has", "had", "having", "do", "does", "did", "doing",
		"can", "could", "will", "would", "shall", "should", "may", "might", "must",
		// contractions
		"dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont", "wouldnt",
		"cant", "couldnt", "shouldnt", "havent", "hasnt", "hadnt", "im", "ive", "id",
		// conjunctions, prepositions
		"and", "or", "but", "if", "then", "than", "so", "because", "as", "while", "of", "at", "by",
		"for", "with", "about", "into", "to", "from", "in", "on", "off", "out", "up", "over",
		// questions
		"what", "which", "who", "whom", "whose", "when", "where", "why", "how",
		// small adverbs
		"not", "no", "nor", "too", "very", "just", "also", "there", "here", "such", "some", "any", "both", "each":
		return true
	}
	return false
}
