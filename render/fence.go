package render

import (
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
