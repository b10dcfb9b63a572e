package token

import (
	_ "embed"
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
func (e *estimator) Count(text string) int {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // as JSON encodes it
	}
	sum, cut := 0, 0
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
	return sum + cut + (cut*margin+99)/100
}

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
