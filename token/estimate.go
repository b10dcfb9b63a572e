package token

import (
	_ "embed"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// Default returns the built-in estimator, named "est/2": an upper bound of o200k_base that needs no vocabulary. It
// loads nothing and allocates nothing.
//
// It splits a text as the encoding does. A piece that passes the filter of the encoding's tokens (filter.go) is one
// token. Any other piece is cut into short strings that pass, the longest first, and bytes. The encoding joins pairs up
// to longer tokens, so it mostly needs fewer. What the filter lets through wrongly is added as a margin, which shrinks with
// the length of the text.
func Default() Counter { return o200kEstimate }

// Estimate returns the estimator of an encoding: an upper bound without its vocabulary. It is Default but for CL100k.
func Estimate(encoding string) Counter {
	if encoding == CL100k {
		return cl100kEstimate
	}
	return o200kEstimate
}

//go:embed o200k_base.filter
var o200kFilter string

//go:embed cl100k_base.filter
var cl100kFilter string

var (
	o200kEstimate  = &estimator{name: "est/2", next: nextO200k, filter: filter(o200kFilter)}
	cl100kEstimate = &estimator{name: "est/2-cl100k", next: nextCL100k, filter: filter(cl100kFilter)}
)

type estimator struct {
	name   string
	next   func(text string) int // the length of the first piece of a text
	filter filter
	words  memo // the costs of pieces, by the key of plain
	starts memo // the results of longest, by startKey
}

func (e *estimator) Name() string { return e.name }

func (*estimator) Label() Label { return Estimated }

// Count implements Counter.
func (e *estimator) Count(text string) int { return e.Total(e.Part(text)) }

// Part counts a part of a text: the pieces that are tokens, and what the others are cut into. The parts of a text add up if no
// piece reaches from one into the next.
func (e *estimator) Part(text string) (sum, cut int) {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // as JSON encodes it
	}
	for len(text) > 0 {
		end, key := plain(text)
		if end == 0 {
			end = e.next(text)
		}
		if n := e.tokens(text[:end], key); n == 1 {
			sum++
		} else {
			cut += n
		}
		text = text[end:]
	}
	return sum, cut
}

// Total returns the tokens of a text whose parts add up to these.
func (e *estimator) Total(sum, cut int) int { return sum + cut + (cut*margin+99)/100 }

const (
	margin    = 12  // percent of what was cut: there the filter can be wrong, and the encoding can need more tokens
	few       = 4   // characters of the tokens that a piece is cut into
	longWord  = 12  // bytes: longer pieces are rarely tokens
	longToken = 128 // bytes: no token is longer
)

// tokens returns how many tokens a piece costs: 1 if it is a token, else the number of parts that it is cut into. key is
// the key of the piece by plain, or 0.
func (e *estimator) tokens(p string, key uint64) (n int) {
	if len(p) == 1 {
		return 1
	}
	if key != 0 {
		if n = e.words.get(key); n > 0 {
			return n
		}
	}
	if n = 1; !e.token(p, hash(p)) {
		n = e.cut(p)
	}
	if key != 0 {
		e.words.put(key, n)
	}
	return n
}

// plain returns the length and the key of the first piece of most texts, in either encoding: letters of ASCII, the first of
// which may be a capital, with a sign or a space before them or not; up to three digits; a single character. The length is
// 0 if the piece is any other, and the key is 0 if the piece has no key.
func plain(text string) (end int, key uint64) {
	first := codes[text[0]]
	key, end = uint64(text[0])|1<<7, 1
	switch {
	case first == asciiSpace || first == asciiSign:
		if len(text) == 1 || codes[text[1]]-1 >= letters {
			return signAlone(text), 0
		}
		key, end = nextKey(key, text[1]), 2
	case first-1 >= letters:
		return digitRun(text)
	}
	for ; end < len(text); end++ {
		code := codes[text[end]]
		if code-1 >= smalls {
			if code-1 < letters || code == otherByte {
				return 0, 0
			}
			break
		}
		key = key<<codeBits | uint64(code)
	}
	if end > longKey {
		key = 0
	}
	return end, key
}

// signAlone is plain for a sign or a space with no letter behind it.
func signAlone(text string) int {
	if codes[text[0]] == asciiSign && len(text) > 1 && text[1] == ' ' {
		return 1
	}
	return 0
}

// digitRun is plain for digits of ASCII.
func digitRun(text string) (end int, key uint64) {
	key = 1 << 7
	for end < 3 && end < len(text) && codes[text[end]]-1-letters < 10 {
		key = nextKey(key, text[end])
		end++
	}
	if end == 0 || end < 3 && end < len(text) && text[end] >= utf8.RuneSelf {
		return 0, 0
	}
	return end, key
}

// token reports whether a piece with a hash is one token.
func (e *estimator) token(p string, h sum) bool {
	switch {
	case len(p) == 1:
		return true
	case len(p) > longToken || !e.filter.has(p, h):
		return false
	case len(p) <= longWord && p[len(p)-1] < utf8.RuneSelf:
		return true
	}
	var sums [longToken]sum
	h = emptySum
	for i := range len(p) {
		h = h.add(p[i])
		sums[i] = h
	}
	return e.joins(p, sums[:len(p)])
}

// cut returns how many tokens a piece is cut into.
func (e *estimator) cut(p string) (n int) {
	for first := true; len(p) > 0; first = false {
		end := e.longest(p)
		if n++; first && end == 1 && p[0] == ' ' && len(p) > 1 && p[1] >= 0xe0 {
			n++ // the blank joins the first bytes of a character, and takes them from it
		}
		p = p[end:]
	}
	return n
}

// longest returns the length of the longest token at the beginning of p: a few whole characters, or bytes of the first.
func (e *estimator) longest(p string) int {
	key := startKey(p)
	if key == 0 {
		return e.search(p)
	}
	n := e.starts.get(key)
	if n == 0 {
		n = e.search(p)
		e.starts.put(key, n)
	}
	return n
}

// search is longest without the memo.
func (e *estimator) search(p string) int {
	var sums [few * utf8.UTFMax]sum
	n, chars, ends, h := 0, 0, 0, emptySum // ends: where characters end, as bits
	for ; n < len(p) && n < len(sums); n++ {
		if utf8.RuneStart(p[n]) {
			if ends |= 1 << n; chars == few || n > 0 && !utf8.RuneStart(p[0]) {
				break
			}
			chars++
		}
		h = h.add(p[n])
		sums[n] = h
	}
	ends |= 1 << n
	if _, size := utf8.DecodeRuneInString(p); repeats(p, size, 3) {
		if n = size; size == 1 {
			if n = e.repeated(p); n > few {
				return n
			}
		}
	}
	for ; n > 1; n-- {
		inFirst := ends&(1<<n-2) == 0
		if (ends&(1<<n) != 0 || inFirst) && e.filter.has(p[:n], sums[n-1]) && e.joins(p[:n], sums[:n]) {
			return n
		}
	}
	return 1
}

// repeated returns how many of the equal bytes at the beginning of p are a token; such runs are tokens in powers of two. A shorter
// token may exist that the encoding does not come to.
func (e *estimator) repeated(p string) int {
	for n := longToken; n > few; n /= 2 {
		if len(p) >= n && repeats(p, 1, n) && e.filter.has(p[:n], hash(p[:n])) && e.filter.has(p[:n/2], hash(p[:n/2])) {
			return n
		}
	}
	return 2
}

// repeats reports whether p begins with the same character of that size, so many times.
func repeats(p string, size, times int) bool {
	return len(p) >= size*times && p[:size*(times-1)] == p[size:size*times]
}

// joins reports whether a string that passes the filter consists of two tokens, as tokens do. Few others pass that, too.
func (e *estimator) joins(p string, sums []sum) bool {
	for i := 1; i < len(p); i++ {
		if (i == 1 || e.filter.has(p[:i], sums[i-1])) && (i == len(p)-1 || e.filter.has(p[i:], hash(p[i:]))) {
			return true
		}
	}
	return false
}

// The encodings publish how they split as regular expressions, whose first alternative that matches is the next piece:
//
//	cl100k_base:
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
//	o200k_base, with C for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and S for [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
//	[^\r\n\p{L}\p{N}]?C*S+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?C+S*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	and white space as above
//
// The functions here follow them; the tests of package token/bpe compare the two.

// kind is the set of classes of the expressions that a character is in.
type kind uint8

const (
	capital kind = 1 << iota // C
	small                    // S
	letter
	number
	space
	newline
)

// NextPiece returns the function that splits texts as an encoding does, O200k or CL100k: it returns the length of the first
// piece of a text that is not empty. No token of the encoding reaches beyond a piece.
func NextPiece(encoding string) func(text string) int {
	if encoding == CL100k {
		return nextCL100k
	}
	return nextO200k
}

var ascii = func() (kinds [utf8.RuneSelf]kind) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

func kindOf(r rune) kind {
	switch {
	case r == '\r' || r == '\n':
		return space | newline
	case unicode.IsSpace(r):
		return space
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return letter | capital
	case unicode.Is(unicode.Ll, r):
		return letter | small
	case unicode.IsLetter(r):
		return letter | capital | small
	case unicode.IsMark(r):
		return capital | small
	case unicode.IsNumber(r):
		return number
	}
	return 0
}

// first returns the kind and the length of the first character; 0, 0 for an empty text.
func first(text string) (kind, int) {
	if text == "" {
		return 0, 0
	}
	if text[0] < utf8.RuneSelf {
		return ascii[text[0]], 1
	}
	r, n := utf8.DecodeRuneInString(text)
	return kindOf(r), n
}

// run returns the length of the longest prefix whose characters are of one of these kinds; with not, of none.
func run(text string, of kind, not bool) int {
	i := 0
	for i < len(text) {
		k, n := first(text[i:])
		if (k&of == 0) != not {
			break
		}
		i += n
	}
	return i
}

func nextCL100k(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	return next(text, func(text string) (int, bool) { return run(text, letter, false), true }, "\r\n")
}

func nextO200k(text string) int { return next(text, word, "\r\n/") }

// next matches a word with at most one sign before it, up to three digits, signs with a space before and ends behind them, or
// white space.
//
// A mark is both a sign and a small letter. Before capitals alone it is a word of its own, because the expression for words
// that end in small letters comes first.
func next(text string, word func(string) (n int, ends bool), signEnds string) int {
	k, n := first(text)
	switch {
	case k&number != 0:
		return n + digits(text[n:], 2)
	case k&(letter|newline) == 0:
		if w, ends := word(text[n:]); w > 0 && (ends || k&small == 0) {
			return n + w
		}
	}
	if w, _ := word(text); w > 0 {
		return w
	}
	blank := 0
	if text[0] == ' ' {
		blank = 1
	}
	if n := run(text[blank:], letter|number|space, true); n > 0 {
		after := text[blank+n:]
		return blank + n + len(after) - len(strings.TrimLeft(after, signEnds))
	}
	return white(text)
}

// word matches capitals and then small letters. A letter without case, or a mark, is both: without small letters, the word
// ends at the last such character. ends reports whether the word ends in small letters or in such a character.
func word(text string) (i int, ends bool) {
	both := 0
	for i < len(text) {
		k, n := first(text[i:])
		if k&capital == 0 {
			break
		}
		i += n
		if k&small != 0 {
			both = i
		}
	}
	n := run(text[i:], small, false)
	switch {
	case n > 0:
		i += n
	case both > 0:
		i = both
	}
	if ends = n > 0 || both > 0; i > 0 {
		i += contraction(text[i:])
	}
	return i, ends
}

func digits(text string, most int) int {
	i := 0
	for range most {
		if k, n := first(text[i:]); k&number != 0 {
			i += n
		}
	}
	return i
}

// white matches white space up to and including its last newline. Without a newline it leaves its last character to the word
// that follows.
func white(text string) int {
	i, last, end := 0, 0, 0
	for i < len(text) {
		k, n := first(text[i:])
		if k&space == 0 {
			break
		}
		last, i = i, i+n
		if k&newline != 0 {
			end = i
		}
	}
	switch {
	case end > 0:
		return end
	case i == len(text) || last == 0:
		return i
	}
	return last
}

// contraction matches an apostrophe with an English ending. The long s is an s in another case.
func contraction(text string) int {
	if text == "" || text[0] != '\'' {
		return 0
	}
	for _, w := range []string{"s", "t", "re", "ve", "m", "ll", "d", "ſ"} {
		if after := text[1:]; len(after) >= len(w) && strings.EqualFold(after[:len(w)], w) {
			return 1 + len(w)
		}
	}
	return 0
}

// memo remembers small results by key. One word holds a whole key and its result, so no lock is needed and a result never
// belongs to another key. A new key replaces an older one.
type memo [1 << indexBits]atomic.Uint64

const (
	indexBits  = 14
	codeBits   = 6                        // of each byte after the first
	longKey    = 10                       // bytes
	keyBits    = 8 + (longKey-1)*codeBits // the first byte has 8, of which the highest is set: no key is 0
	tagBits    = keyBits - indexBits      // what the place of an entry does not tell of its key
	resultBits = 4                        // of results from 1 to 15
	spreadKeys = 0x9e3779b97f4a7c15       // odd, so keys stay different
)

// place returns the entry of a key, and the rest of the key.
func (m *memo) place(key uint64) (entry *atomic.Uint64, tag uint64) {
	key = key * spreadKeys & (1<<keyBits - 1)
	return &m[key>>tagBits], key & (1<<tagBits - 1)
}

// get returns the result of a key; 0 if it is not known.
func (m *memo) get(key uint64) int {
	entry, tag := m.place(key)
	if e := entry.Load(); e>>resultBits == tag {
		return int(e & (1<<resultBits - 1))
	}
	return 0
}

func (m *memo) put(key uint64, result int) {
	entry, tag := m.place(key)
	entry.Store(tag<<resultBits | uint64(result))
}

// codes numbers small letters from 1, then capitals, then digits. Other bytes get a class above those.
var codes = func() (of [256]uint8) {
	for b := range of {
		switch {
		case b >= utf8.RuneSelf, b == '\'':
			of[b] = otherByte
		case b == '\r', b == '\n':
			of[b] = asciiLine
		case b == ' ', b == '\t', b == '\v', b == '\f':
			of[b] = asciiSpace
		default:
			of[b] = asciiSign
		}
	}
	for i, b := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
		of[b] = uint8(i + 1)
	}
	return of
}()

const (
	smalls     = 26
	letters    = 52
	asciiSign  = 1 << 6
	asciiSpace = asciiSign + 1
	asciiLine  = asciiSign + 2
	otherByte  = asciiSign + 3 // the byte may continue a word: an apostrophe, or a byte outside ASCII
)

// nextKey returns the key of a string with one more letter or digit.
func nextKey(key uint64, b byte) uint64 { return key<<codeBits | uint64(codes[b]) }

// startKey returns the key of the characters that longest reads, if they are ASCII and not repeated; else 0.
func startKey(p string) uint64 {
	if repeats(p, 1, 3) {
		return 0
	}
	key := uint64(1)
	for i := range min(len(p), few) {
		if p[i] >= utf8.RuneSelf {
			return 0
		}
		key = key<<7 | uint64(p[i])
	}
	return key
}
