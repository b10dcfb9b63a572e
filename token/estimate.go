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

// word prices the letters at i, one stretch of a script at a time.
func (s *scan) word(i int) int {
	r, _ := utf8.DecodeRuneInString(s.text[i:])
	end := i
	switch sc := scriptOf(r); sc {
	case latin:
		return s.latinWord(i)
	case han, hangul, kana:
		end = s.ideographs(i)
	default:
		end = s.otherWord(i, sc)
	}
	s.lead = leadNone
	return end
}

type script int8

const (
	latin script = iota
	cyrillic
	greek
	han
	kana
	hangul
	abjad  // Arabic, Hebrew
	indic  // Devanagari and its kin
	thai   // and Lao
	others // scripts that encodings know little of
)

func scriptOf(r rune) script {
	switch {
	case r < 0x370, r >= 0x1e00 && r < 0x1f00, r >= 0x2c60 && r < 0x2c80, r >= 0xa720 && r < 0xa800:
		return latin
	case r < 0x400, r >= 0x1f00 && r < 0x2000:
		return greek
	case r < 0x530:
		return cyrillic
	case r >= 0x590 && r < 0x780:
		return abjad
	case r >= 0x900 && r < 0xe00:
		return indic
	case r >= 0xe00 && r < 0xf00:
		return thai
	case r >= 0x3040 && r < 0x3100:
		return kana
	case r >= 0x3400 && r < 0xa000, r >= 0xf900 && r < 0xfb00, r >= 0x20000:
		return han
	case r >= 0xac00 && r < 0xd7b0:
		return hangul
	}
	return others
}

// latinWord prices one piece of Latin letters: capitals and then small ones, as encodings split camel case.
// Bytes of ASCII, which are nearly all, are not decoded: these loops are most of what counting costs.
func (s *scan) latinWord(i int) int {
	text := s.text
	end, bits, prev := i, 0, boundary
	for end < len(text) && letterOf[text[end]]&^(capitals-1) == capitals {
		c := int(letterOf[text[end]]) - capitals
		bits += pairBits(prev, c)
		prev = c
		end++
	}
	upper := end - i
	for end < len(text) && letterOf[text[end]] < capitals {
		c := int(letterOf[text[end]])
		bits += pairBits(prev, c)
		prev = c
		end++
	}
	if end < len(text) && letterOf[text[end]] > noLetter {
		return s.accented(i)
	}
	s.latinPiece(end-i, upper, bits+pairBits(prev, boundary))
	return end
}

// accented is latinWord where a letter may be none of ASCII.
func (s *scan) accented(i int) int {
	text := s.text
	end, upper, odd, bits, prev := i, 0, 0, 0, boundary
	for lower := false; end < len(text); {
		c := int(letterOf[text[end]])
		n, capital := 1, c >= capitals
		if c >= noLetter {
			if c == noLetter {
				break
			}
			c, n, capital = latinLetter(text[end:])
		}
		if n == 0 || capital && lower {
			break
		}
		if capital {
			upper++
		} else {
			lower = true
		}
		c &= capitals - 1
		if c == boundary {
			bits += oddBits
		} else {
			bits += pairBits(prev, c)
		}
		prev, end, odd = c, end+n, odd+n-1
	}
	s.latinPiece(end-i-odd, upper, bits+pairBits(prev, boundary))
	return end
}

// latinPiece prices a word of so many letters, whose pairs are worth so many bits.
func (s *scan) latinPiece(letters, upper, bits int) {
	bits = share(bits, letters+1)
	if letters > 2 {
		s.latin.see(bits, latinSpan)
	}
	s.milli += s.wordCost(letters, upper, bits)
	s.lead = leadNone
}

// share is bits a letter in thousandths. Every word needs one division, and multiplying by an inverse takes a third of
// its time; for words of usual length, whose bits are few, it is exact.
func share(bits, letters int) int {
	if letters < len(inverse) {
		return int(uint64(bits*1000) * inverse[letters] >> 40)
	}
	return bits * 1000 / letters
}

var inverse = func() (of [64]uint64) {
	for n := 1; n < len(of); n++ {
		of[n] = 1<<40/uint64(n) + 1
	}
	return of
}()

// latinLetter reads the letter outside ASCII at the start of a text; n 0: there is none of Latin script.
func latinLetter(text string) (c, n int, capital bool) {
	r, n := utf8.DecodeRuneInString(text)
	if !isLetter(r) || scriptOf(r) != latin {
		return 0, 0, false
	}
	return letterIndex(r), n, unicode.IsUpper(r)
}

// Letters are numbered 0 to 25; boundary is the edge of a word, and any letter that is not one of these.
const (
	boundary = 26
	oddBits  = 9
)

func letterIndex(r rune) int {
	if r |= 0x20; 'a' <= r && r <= 'z' {
		return int(r - 'a')
	}
	return boundary
}

// letterOf numbers the letters of ASCII by their bytes, capitals from capitals on.
var letterOf = func() (of [256]uint8) {
	for b := range of {
		switch r := rune(b); {
		case r >= utf8.RuneSelf:
			of[b] = noLetter + 1 // to be decoded
		case !isLetter(r):
			of[b] = noLetter
		case r&0x20 == 0:
			of[b] = capitals + uint8(letterIndex(r))
		default:
			of[b] = uint8(letterIndex(r))
		}
	}
	return of
}()

const (
	capitals = 32
	noLetter = 64
)

func pairBits(a, b int) int { return int(bitsOf[(a*capitals+b)%len(bitsOf)]) }

// bitsOf is pairs as numbers, in rows of 32.
var bitsOf = func() (of [1024]uint8) {
	for i, c := range []byte(pairs) {
		n := c - '0'
		if c >= 'a' {
			n = c - 'a' + 10
		}
		of[i/27*capitals+i%27] = n
	}
	return of
}()

// pairs is how many bits the second letter of a pair is worth after the first, in hex, counted over the words of
// English prose and source code; rows and columns are a to z and the word's edge.
const pairs = "" +
	"c544b7585a6343b5b3436678585" + // a
	"47772abb45b38938b457398b5b5" + // b
	"3a6939b35b449a29b5735b9d7d4" + // c
	"59a6297a3bd6984ad65957ad7d1" + // d
	"484356797a9553867335a6757b2" + // e
	"397934ac2c94793ac4754c8c6a3" + // f
	"499c39644ca68548c4575ccc8c1" + // g
	"28c929c93cc87739c6746cbc7c3" + // h
	"6645455ea9845236a543b5e8e67" + // i
	"399929997979992999593999995" + // j
	"5888276b3b9795768b397b6b7b2" + // k
	"3a95268b3d738837d955579d4d3" + // l
	"35a828cc3c775843cc585abc6c3" + // m
	"4a44362a49679659a84366be7e3" + // n
	"6655866869644255e35445597a4" + // o
	"3d9839854d839a34d3545bbd6d4" + // p
	"888888888887878888880888883" + // q
	"3866276a3e676648e544678e5e3" + // r
	"6a5a38a54e788755aa435b8e6e1" + // s
	"4b6929b43ee69947a4455c795c2" + // t
	"5555465a5cb44374a333a9c9986" + // u
	"3bbb1b8b2bbbbb4bb98999bbbb5" + // v
	"3a783b933bb6b53ab458bb7bab3" + // w
	"483a47a73aa778a2aaa3aaa66a2" + // x
	"779a49ac5cc87644c745ac7cc81" + // y
	"499919993996996997569999544" + // z
	"44345455477545549434665979f" // _

// commonHan and commonHangul are characters that natural text cannot do without. Where they are missing, characters
// are rare ones, and those cost two or three tokens each.
const (
	commonHan    = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从知使两间文但本女新正量理动点明高手机长样问现数据系统内容由名部件请些把被這為來個們說國時會後對著裡過發經當學進種將還沒從兩間問現數據係統內樣關開機長實無與電業合入見思言語今度場物"
	commonHangul = "이다는을가에의로하고한은지를있기도서사으나리시해정어그자인대수아일과라전상만보부제원들면것게할여안성적니조주공우스동국장소습했된합되며였요까네세무신"
)

// slopes is what each letter beyond the third costs by how unusual the words around are, in thousandths of a bit per
// pair: English and code at the low end, then other European languages, at the high end random letters.
var slopes = [...]struct{ bits, cost int }{
	{3350, 20}, {3650, 80}, {3900, 165}, {4300, 300}, {4900, 395}, {5700, 450}, {6400, 650}, {8000, 800},
}

// slopeAt is slopes drawn out between its points: a search and a division for every word would be a tenth of a count.
var slopeAt = func() (at [8001]int16) {
	last := slopes[0]
	for _, p := range slopes {
		for bits := last.bits; bits < p.bits; bits++ {
			at[bits] = int16(last.cost + (p.cost-last.cost)*(bits-last.bits)/(p.bits-last.bits))
		}
		last = p
	}
	at[last.bits] = int16(last.cost)
	return at
}()

func slope(bits int) int {
	return int(slopeAt[min(max(bits, slopes[0].bits), len(slopeAt)-1)])
}

// wordCost is one token and what the letters beyond the third add; capitals and a missing blank make a word rarer.
func (s *scan) wordCost(n, upper, bits int) int {
	k := slope((2*s.latin.at + bits) / 3)
	extra := k * max(0, n-3)
	switch {
	case n < 2:
	case upper == n:
		extra = extra*7/4 + max(0, n-3)*140
	case upper > 1:
		extra += 900
	case upper == 1:
		extra = extra*6/5 + k
	}
	switch s.lead {
	case leadNone:
		extra += k
	case leadSymbol:
		extra += min(n, 3) * (60 + k/3)
	}
	return 1000 + extra
}

// ideographs prices a run of Chinese, Japanese or Korean. Common characters are about a token each or less, since
// usual pairs are tokens too; where the common ones are missing the others are rare and cost two or three.
func (s *scan) ideographs(i int) int {
	for i < len(s.text) {
		r, n := utf8.DecodeRuneInString(s.text[i:])
		if !isLetter(r) {
			break
		}
		switch scriptOf(r) {
		case kana:
			s.milli += 780
		case han:
			s.milli += s.han.rare(r, commonHan, 910, 1500)
		case hangul:
			s.milli += s.hangul.rare(r, commonHangul, 760, 2100)
		default:
			return i
		}
		i += n
	}
	return i
}

// rare prices a character: the base, and a share of the surcharge that grows once fewer than usual are common.
func (u *usual) rare(r rune, common string, base, surcharge int) int {
	seen := 1000
	if strings.ContainsRune(common, r) {
		seen = 0
	}
	u.see(seen, rareSpan)
	return base + surcharge*max(0, u.at-rareFrom)/(1000-rareFrom)
}

// rareFrom is the share of characters outside the common ones that natural text stays around.
const rareFrom = 720

// otherWord prices a word of another alphabet: so much a word, so much a letter beyond the second.
func (s *scan) otherWord(i int, sc script) int {
	end, n := s.run(i, none, func(r rune) bool { return isLetter(r) && scriptOf(r) == sc })
	c := scriptCosts[sc]
	s.milli += c.word + max(0, n-2)*c.letter
	if s.lead != leadSpace {
		s.milli += c.letter
	}
	return end
}

var scriptCosts = [...]struct{ word, letter int }{
	cyrillic: {1000, 260},
	greek:    {1000, 390},
	abjad:    {1000, 370},
	indic:    {1000, 400},
	thai:     {1000, 540},
	others:   {1500, 1150},
}
