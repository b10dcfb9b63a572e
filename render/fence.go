package render

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// fenceDigits is the length of a fence. Nine digits are three tokens whatever
// their value in the vocabularies that cut digits into threes, so the cost of a
// page does not depend on the fence drawn; 30 bits are enough because a fence
// need not be secret: it is only ever used where it does not occur.
const (
	fenceDigits = 9
	fenceSpan   = 1_000_000_000
	fenceNone   = "000000000" // stands for the fence where only the cost is asked
)

// fence returns the number that fences pages. It derives from seed (database id and scope) alone, so that prefixes
// stay cached; if the number occurs in one of the texts, it derives from seed and a counter. Digits of other scripts
// and full-width, super- and subscript digits count as digits, and invisible characters between them are skipped, so
// a look-alike counts as an occurrence. A page that contains the number invalidates the cached prefix once when it
// enters the window and once when it leaves.
func fence(seed string, texts func(yield func(string) bool)) string {
	h := xxhash.Sum64String(seed)
	first := fenceString(uint32(h % fenceSpan))
	free := true
	for t := range texts {
		if free = !containsFence(t, first); !free {
			break
		}
	}
	if free {
		return first
	}
	return nextFence(h, texts)
}

// nextFence steps on until a number is free. All numbers the texts hold are
// collected first: a page full of guesses costs one pass, not one a guess.
func nextFence(h uint64, texts func(yield func(string) bool)) string {
	taken := map[uint32]bool{}
	for t := range texts {
		numbers(t, func(v uint32) bool { taken[v] = true; return true })
	}
	step := h/fenceSpan%(fenceSpan/10)*10 + 1 // coprime to the span: every number comes up
	v := h % fenceSpan
	for taken[uint32(v)] {
		v = (v + step) % fenceSpan
	}
	return fenceString(uint32(v))
}

func fenceString(v uint32) string {
	var b [fenceDigits]byte
	for i := fenceDigits - 1; i >= 0; i-- {
		b[i], v = byte('0'+v%10), v/10
	}
	return string(b[:])
}

func containsFence(text, fence string) bool {
	if isASCII(text) {
		return strings.Contains(text, fence)
	}
	found := false
	want := uint32(0)
	for _, c := range []byte(fence) {
		want = want*10 + uint32(c-'0')
	}
	numbers(text, func(v uint32) bool { found = v == want; return !found })
	return found
}

func isASCII(s string) bool {
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56 // one load
		if w&0x8080808080808080 != 0 {
			return false
		}
	}
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// numbers yields the value of every run of fenceDigits digits in s.
func numbers(s string, yield func(uint32) bool) {
	run, v := 0, uint64(0)
	for _, r := range s {
		d := digit(r)
		if d < 0 {
			if run > 0 && (r < utf8.RuneSelf || !hidden(r)) {
				run, v = 0, 0
			}
			continue
		}
		run, v = run+1, (v*10+uint64(d))%fenceSpan
		if run >= fenceDigits && !yield(uint32(v)) {
			return
		}
	}
}

// digit returns the value of a decimal digit of any script, or -1.
func digit(r rune) int {
	switch {
	case r >= '0' && r <= '9':
		return int(r - '0')
	case r < 0x660: // Latin, Greek, Cyrillic, Hebrew have no digits of their own but ¹²³
		if r == 0xB2 || r == 0xB3 {
			return int(r - 0xB0)
		}
		if r == 0xB9 {
			return 1
		}
		return -1
	case r > 0x24EA && r < 0xA620 || r >= 0xAC00 && r < 0xFF10: // nor have Han, Kana, Hangul
		return -1
	case r == 0x2070 || r >= 0x2074 && r <= 0x2079:
		return int(r - 0x2070)
	case r >= 0x2080 && r <= 0x2089:
		return int(r - 0x2080)
	case r >= 0x2460 && r <= 0x2468:
		return int(r-0x2460) + 1
	case r == 0x24EA:
		return 0
	case unicode.IsDigit(r):
		return decimal(r)
	}
	return -1
}

// decimal relies on Unicode's guarantee that the digits of a script stand
// together, zero first: each range of Nd holds whole tens.
func decimal(r rune) int {
	for _, g := range unicode.Nd.R16 {
		if r >= rune(g.Lo) && r <= rune(g.Hi) {
			return int(r-rune(g.Lo)) % 10
		}
	}
	for _, g := range unicode.Nd.R32 {
		if r >= rune(g.Lo) && r <= rune(g.Hi) {
			return int(r-rune(g.Lo)) % 10
		}
	}
	return -1
}

// A string can stand in two places, each with a table of its own, so that the common byte costs one look-up. A marked byte
// needs a closer look, not necessarily an escape.
var (
	textTable = lookTable("\\<[~")                     // the body of a page; newline and tab stay
	attrTable = headerTable(lookTable("\\<[~>\"\n\t")) // between quotes in a header: one line, no quote, no bracket
)

func headerTable(t table) table { t.header = true; return t }

// table marks bytes with 1.
type table struct {
	marks  [256]uint8
	header bool
}

func lookTable(marked string) (t table) {
	for i := range t.marks {
		if i < ' ' && i != '\n' && i != '\t' || i >= 0x7f || strings.IndexByte(marked, byte(i)) >= 0 {
			t.marks[i] = 1
		}
	}
	return t
}

// next returns the first marked byte of s at or behind i, or len(s). Eight bytes
// are judged at once: most text has no marked byte for long stretches.
func (t *table) next(s string, i int) int {
	m := &t.marks
	for ; i+8 <= len(s); i += 8 {
		w := s[i : i+8]
		if m[w[0]]|m[w[1]]|m[w[2]]|m[w[3]]|m[w[4]]|m[w[5]]|m[w[6]]|m[w[7]] != 0 {
			break
		}
	}
	for i < len(s) && m[s[i]] == 0 {
		i++
	}
	return i
}

// controlWords are exact; controlWordAt also knows patterns.
var controlWords = []string{
	"<|", "<｜", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<s>", "</s>", "[INST]", "[/INST]",
	openPage, "</page", openCall, "</call", openStale,
}

// Escape writes every character that hides, reorders or ends text as a visible escape: \u{HEX} for
// a character, \x{HH} for a byte that is not UTF-8. Escaped are controls but newline and tab (so
// every carriage return), DEL, C1, U+2028 and U+2029, bidi, zero-width and other default-ignorable
// characters, tag characters, variation selectors, noncharacters, the control words of chat
// templates (see controlWordAt), what looks like a line of ours ("<page ", "</page"), and a
// backslash that would read as an escape. U+FE0F directly after a symbol stays, because emoji are
// written with it.
//
// The result is valid UTF-8 and Unescape(Escape(s)) == s for every s.
func Escape(s string) string {
	if clean(s, &textTable) {
		return s
	}
	return string(appendEscaped(nil, s, &textTable))
}

func appendText(dst []byte, s string) []byte { return appendEscaped(dst, s, &textTable) }

func appendAttr(dst []byte, s string) []byte { return appendEscaped(dst, s, &attrTable) }

// clean reports whether s needs no escape.
func clean(s string, t *table) bool {
	for i := t.next(s, 0); i < len(s); i = t.next(s, i) {
		size, esc := look(s, i, t)
		if esc {
			return false
		}
		i += size
	}
	return true
}

func appendEscaped(dst []byte, s string, t *table) []byte {
	start := 0
	for i := t.next(s, 0); i < len(s); i = t.next(s, i) {
		size, esc := look(s, i, t)
		if esc {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, s[i:i+size])
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:]...)
}

// look judges what stands at i, which the table marked: its size in bytes and
// whether it must be escaped. A size may cover a run of harmless characters.
func look(s string, i int, t *table) (size int, esc bool) {
	c := s[i]
	switch {
	case c >= utf8.RuneSelf:
		if n := plainScript(s[i:]); n > 0 {
			return n, false
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			return 1, true
		}
		return size, hidden(r) && !(r == 0xFE0F && afterSymbol(s[:i])) || (r == 0xFF1C || r == 0xFE64 || r == 0xFF3B) && controlWordAt(s, i)
	case c == '\\':
		return 1, i+2 < len(s) && s[i+2] == '{' && (s[i+1] == 'u' || s[i+1] == 'x')
	case c == '<' && !t.header || c == '[' || c == '~' && i > 0:
		return 1, controlWordAt(s, i)
	case c == '~':
		return 1, false
	}
	return 1, true
}

// plainScript returns the length of the run of two- and three-byte characters s
// starts with that come from blocks without hidden ones: most of Latin, Greek,
// Cyrillic, Hebrew, and Han from U+4000 on. Only a short cut.
func plainScript(s string) (n int) {
	for {
		switch w := s[n:]; {
		case len(w) >= 2 && w[0] >= 0xC3 && w[0] <= 0xD7 && w[0] != 0xCD && w[1]&0xC0 == 0x80:
			n += 2
		case len(w) >= 3 && w[0] >= 0xE4 && w[0] <= 0xE9 && w[1]&0xC0 == 0x80 && w[2]&0xC0 == 0x80:
			n += 3
		default:
			return n
		}
	}
}

func isControlWord(s string) bool {
	for _, w := range controlWords {
		if strings.HasPrefix(s, w) {
			return true
		}
	}
	return false
}

// afterSymbol: U+FFFD is a symbol, too, but not where it stands for no character.
func afterSymbol(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return unicode.Is(unicode.So, r) && (r != utf8.RuneError || size > 1)
}

// hidden reports whether r, beyond ASCII, is not shown as itself: controls,
// separators, and what Unicode calls default ignorable (DerivedCoreProperties),
// with the noncharacters.
func hidden(r rune) bool {
	if r >= 0x2100 && r < 0xFDD0 { // the bulk of the scripts beyond Latin, with two exceptions
		return r == 0x3164
	}
	switch {
	case r < 0xA0, r == 0xAD, r == 0x034F, r == 0x061C:
	case r >= 0x115F && r <= 0x1160, r == 0x17B4, r == 0x17B5, r >= 0x180B && r <= 0x180F:
	case r >= 0x200B && r <= 0x200F, r >= 0x2028 && r <= 0x202E, r >= 0x2060 && r <= 0x206F:
	case r >= 0xFDD0 && r <= 0xFDEF, r >= 0xFE00 && r <= 0xFE0F, r == 0xFEFF, r == 0xFFA0:
	case r >= 0xFFF0 && r <= 0xFFFB, r&0xFFFE == 0xFFFE:
	case r >= 0x1BCA0 && r <= 0x1BCA3, r >= 0x1D173 && r <= 0x1D17A, r >= 0xE0000 && r <= 0xE0FFF:
	default:
		return false
	}
	return true
}

// appendEscape writes one character (or one byte that is none).
func appendEscape(dst []byte, char string) []byte {
	r, size := utf8.DecodeRuneInString(char)
	if r == utf8.RuneError && size == 1 {
		const hex = "0123456789ABCDEF"
		return append(dst, '\\', 'x', '{', hex[char[0]>>4], hex[char[0]&15], '}')
	}
	dst = append(dst, '\\', 'u', '{')
	at := len(dst)
	dst = strconv.AppendUint(dst, uint64(r), 16)
	for i := at; i < len(dst); i++ {
		if dst[i] >= 'a' {
			dst[i] -= 'a' - 'A'
		}
	}
	return append(dst, '}')
}
