package token

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Default returns the built-in estimator, named "est/1". It needs no vocabulary, reads the text once and errs high.
//
// Modern encodings first split a text into pieces (a word with the character before it, up to three digits, a run of
// punctuation, a run of white space) and then spend one or more tokens on each. The split is simple and is followed
// here; what a piece costs is estimated from its class and length, and for words also from how usual the letters
// around it are. The costs were fitted to o200k_base over English and two dozen other languages, code, JSON, logs,
// random letters and random ideographs, and then raised.
func Default() Counter { return estimator{} }

type estimator struct{}

func (estimator) Name() string { return "est/1" }

func (estimator) Label() Label { return Estimated }

// Count implements Counter.
func (estimator) Count(text string) int {
	if text == "" {
		return 0
	}
	s := scan{text: text, latin: usual{at: latinPrior}, han: usual{at: rarePrior}, hangul: usual{at: rarePrior}}
	for i := 0; i < len(text); {
		switch {
		case class[text[i]] == letter:
			i = s.latinWord(i)
		case text[i] == ' ' && i+1 < len(text) && class[text[i+1]] == letter: // most of a text is this
			s.lead = leadSpace
			i = s.latinWord(i + 1)
		default:
			i = s.piece(i)
		}
	}
	return (s.milli + s.milli/margin + 999) / 1000
}

// margin raises every estimate by its reciprocal: an estimate that is too low breaks a budget, one that is too high
// wastes a little of it.
const margin = 33

// scan walks over a text. Costs are thousandths of a token, in integers, so that every machine gets the same count.
type scan struct {
	text  string
	milli int
	lead  lead // what stands before the next word

	latin, han, hangul usual
}

// lead is the character that a word takes into its piece.
type lead int8

const (
	leadNone lead = iota
	leadSpace
	leadSymbol
)

// usual is a running mean of how unusual what came by is, in thousandths. It follows a text that changes its language.
type usual struct{ at int }

func (u *usual) see(x, span int) { u.at += (x - u.at) / span }

const (
	latinPrior = 3900 // mean bits per letter pair: a little above English
	rarePrior  = 500  // share of rare characters
	latinSpan  = 24   // words that a mean remembers
	rareSpan   = 40   // characters
)

// Bytes are told apart by a table: nearly all text is ASCII, and what stands in the table is not decoded.
const (
	symbol = iota
	letter
	digit
	blank
	wide // the start of a rune outside ASCII, or a broken byte
	none // of these
)

var class = func() (of [256]uint8) {
	for b := range of {
		switch r := rune(b); {
		case r >= utf8.RuneSelf:
			of[b] = wide
		case isLetter(r):
			of[b] = letter
		case isNumber(r):
			of[b] = digit
		case isSpace(r):
			of[b] = blank
		}
	}
	return of
}()

// piece prices the piece at i and returns where the next one starts.
func (s *scan) piece(i int) int {
	switch class[s.text[i]] {
	case digit:
		return s.number(i)
	case blank:
		return s.space(i)
	case symbol:
		return s.symbols(i)
	}
	r, n := utf8.DecodeRuneInString(s.text[i:])
	switch {
	case r == utf8.RuneError && n == 1:
		s.milli += 1500 // a broken byte is a token, and breaks what is around it
		s.lead = leadNone
		return i + 1
	case isLetter(r):
		return s.word(i)
	case isNumber(r):
		return s.number(i)
	case isSpace(r):
		return s.space(i)
	}
	return s.symbols(i)
}

func isLetter(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return unicode.In(r, unicode.L, unicode.M)
}

func isNumber(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return unicode.Is(unicode.N, r)
}

func isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || '\t' <= r && r <= '\r'
	}
	return unicode.IsSpace(r)
}

// run returns the end of the run of runes at i that are of a class or satisfy f, and how many they are. Both must mean
// the same.
func (s *scan) run(i int, of uint8, f func(rune) bool) (end, runes int) {
	for i < len(s.text) {
		plain := s.plain(i, of)
		runes += plain - i
		if i = plain; i == len(s.text) || class[s.text[i]] != wide {
			break
		}
		r, n := utf8.DecodeRuneInString(s.text[i:])
		if r == utf8.RuneError && n == 1 || !f(r) {
			break
		}
		i += n
		runes++
	}
	return i, runes
}

// plain is run for bytes of ASCII.
func (s *scan) plain(i int, of uint8) int {
	for i < len(s.text) && class[s.text[i]] == of {
		i++
	}
	return i
}

// number: pieces of up to three digits, one token each; digits outside ASCII cost up to two.
func (s *scan) number(i int) int {
	end, n := s.run(i, digit, isNumber)
	s.milli += (n + 2) / 3 * 1000
	s.milli += (end - i - n) * 700
	s.lead = leadNone
	return end
}

// space: everything up to the last line end is a piece, the rest another; the last blank goes to what follows.
func (s *scan) space(i int) int {
	if rest := s.text[i:]; len(rest) > 1 && rest[0] == ' ' { // the usual case, told from the rest before anything is scanned
		switch class[rest[1]] {
		case letter, symbol:
			s.lead = leadSpace
			return i + 1
		case digit:
			s.lead = leadNone
			s.milli += 1000
			return i + 1
		}
	}
	end, _ := s.run(i, blank, isSpace)
	ws := s.text[i:end]
	if nl := strings.LastIndexAny(ws, "\r\n"); nl >= 0 {
		s.milli += blanks(ws[:nl+1])
		ws = ws[nl+1:]
	}
	s.lead = leadNone
	if ws == "" {
		return end
	}
	next, _ := utf8.DecodeRuneInString(s.text[end:])
	switch {
	case end == len(s.text):
		s.milli += blanks(ws)
		return end
	case isNumber(next):
		s.milli += 1000
	case isLetter(next) || strings.HasSuffix(ws, " "):
		s.lead = leadSpace
	default:
		s.milli += 1000
	}
	if len(ws) > 1 {
		s.milli += blanks(ws[1:])
	}
	return end
}

// blanks is the cost of a run of white space: long runs of one character are single tokens, changes break them.
func blanks(ws string) int {
	changes := 0
	for i := 1; i < len(ws); i++ {
		if ws[i] != ws[i-1] && ws[i] != '\r' && ws[i-1] != '\r' {
			changes++
		}
	}
	return 1000 + len(ws)/48*1000 + changes*550
}

// symbols: a single one before a letter goes to the word, anything else is a piece of its own.
func (s *scan) symbols(i int) int {
	end := s.plain(i, symbol)
	n := end - i
	if n == 0 || end < len(s.text) && class[s.text[end]] == wide {
		end, n = s.run(i, symbol, isSymbol)
	}
	if end == i {
		end, n = i+1, 1
	}
	if n == 1 && end == i+1 && s.lead == leadNone && end < len(s.text) {
		if r, _ := utf8.DecodeRuneInString(s.text[end:]); isLetter(r) {
			s.lead = leadSymbol
			return end
		}
	}
	s.milli += punctuation(s.text[i:end])
	s.lead = leadNone
	if end < len(s.text) && s.text[end] == '\n' {
		end++ // a line end right after belongs to the piece
	}
	return end
}

func isSymbol(r rune) bool { return !isLetter(r) && !isNumber(r) && !isSpace(r) }

// punctuation is the cost of a run of symbols. Two or three usual ones are one token, a long run of the same few; each
// further change of character costs, and symbols outside ASCII cost by their width.
func punctuation(p string) int {
	if len(p) == 1 || len(p) == 2 && p[0] < utf8.RuneSelf && p[1] < utf8.RuneSelf {
		return 1000
	}
	cost, changes, same, prev := 1000, 0, 0, rune(-1)
	for _, r := range p {
		switch {
		case r >= 0x10000:
			cost += 1700
		case r >= utf8.RuneSelf && !plainSymbol(r):
			cost += 1300
		case r == prev:
			same++
		case prev >= 0:
			changes++
		}
		prev = r
	}
	if changes > 1 {
		cost += (changes - 1) * 220
	}
	if changes > 3 {
		cost += (changes - 3) * 450
	}
	return cost + same/12*1000
}

// plainSymbol are the symbols outside ASCII that are tokens of their own: dashes, quotes, bullets, wide punctuation.
func plainSymbol(r rune) bool {
	return r >= 0x2010 && r <= 0x2026 || r >= 0x3000 && r <= 0x3011 || r >= 0xff01 && r <= 0xff1f || r <= 0xbf
}
