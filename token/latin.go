package token

import (
	"unicode"
	"unicode/utf8"
)

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
