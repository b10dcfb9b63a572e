package directivetext

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Why not norm.NFKC.String: into a run of more than 30 combining marks it puts a
// U+034F that nobody wrote, Unicode's stream-safe format, and it takes longer for a
// few words than all the rest of a step. The properties of runes are the package's.

// plain is compatibility composition (Unicode Standard Annex 15), for runs of
// combining marks of any length, with typewriter apostrophes. Bytes that are no
// UTF-8 become U+FFFD, so that whatever is kept can be exported.
//
// It goes by segments: a rune and those after it that may change places with, or
// join, one before. Only a segment that may be changed is written anew.
func plain(s string) string {
	if isPlainASCII(s) {
		return s
	}
	var buf [256]byte
	out, done := buf[:0], 0 // out is made of s[:done]
	start, unsure, class := 0, false, uint8(0)
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return plain(Valid(s))
		}
		if !unsure && r < utf8.RuneSelf && r != '`' {
			start, class = i, 0
			continue
		}
		in := infoOf(r)
		if !in.is(joined) {
			if unsure {
				out = appendComposed(append(out, s[done:start]...), s[start:i])
				done = i
			}
			start, unsure, class = i, in.is(unsettled), in.class
			continue
		}
		unsure = unsure || in.is(unsettled) || in.class < class
		class = in.class
	}
	if unsure {
		out = appendComposed(append(out, s[done:start]...), s[start:])
		done = len(s)
	}
	if done == 0 {
		return s
	}
	return string(append(out, s[done:]...))
}

func isPlainASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c == '`' {
			return false
		}
	}
	return true
}

// mark is a rune with its combining class.
type mark struct {
	r     rune
	class uint8
}

// appendComposed appends a segment: decomposed, its marks in order, composed.
func appendComposed(out []byte, s string) []byte {
	if r, n := utf8.DecodeRuneInString(s); n == len(s) {
		if alone := infoOf(r).alone; alone != 0 {
			return utf8.AppendRune(out, alone)
		}
	}
	var buf [16]mark
	for _, m := range composed(decomposed(buf[:0], s)) {
		out = utf8.AppendRune(out, straight(m.r))
	}
	return out
}

// decomposed appends the full compatibility decomposition with its marks in order.
func decomposed(out []mark, s string) []mark {
	for i, r := range s {
		in := infoOf(r)
		if !in.is(split) {
			out = append(out, mark{r, in.class})
			continue
		}
		d := norm.NFKC.PropertiesString(s[i:]).Decomposition()
		for len(d) > 0 {
			r, n := utf8.DecodeRune(d)
			out = append(out, mark{r, infoOf(r).class})
			d = d[n:]
		}
	}
	sortMarks(out)
	return out
}

// sortMarks sorts each run of marks by class; those of one class keep their order.
func sortMarks(marks []mark) {
	start := 0
	for i, m := range marks {
		switch {
		case m.class == 0:
			start = i + 1
		case i > start && m.class < marks[i-1].class:
			end := i + 1
			for end < len(marks) && marks[end].class != 0 {
				end++
			}
			slices.SortStableFunc(marks[start:end], func(a, b mark) int { return cmp.Compare(a.class, b.class) })
		}
	}
}

// composed joins each rune, in place, to the last starter before it where the
// two have a composite and no rune of the same or a higher class is in between.
func composed(marks []mark) []mark {
	out, pairs := marks[:0], composites()
	starter, last := -1, uint8(0)
	for _, m := range marks {
		if starter >= 0 && (starter == len(out)-1 || last < m.class) {
			if c := pairs.composite(out[starter].r, m.r); c != 0 {
				out[starter].r = c
				continue
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		last = m.class
		out = append(out, m)
	}
	return out
}

// The Hangul syllables are made by counting.
const (
	hangulL, hangulLs = 0x1100, 19
	hangulV, hangulVs = 0x1161, 21
	hangulT, hangulTs = 0x11A7, 28 // the first stands for none
	hangulS           = 0xAC00
)

// composite is the rune that two compose to, 0 when there is none.
func (t *pairTable) composite(a, b rune) rune {
	switch l, v, s, t := a-hangulL, b-hangulV, a-hangulS, b-hangulT; {
	case 0 <= l && l < hangulLs && 0 <= v && v < hangulVs:
		return hangulS + (l*hangulVs+v)*hangulTs
	case 0 <= s && s < hangulLs*hangulVs*hangulTs && s%hangulTs == 0 && 0 < t && t < hangulTs:
		return a + t
	}
	return rune(t[t.slot(a, b)] & (1<<21 - 1))
}

// pairTable is a hash table of pairs with their composites, three times 21 bits;
// 0 ends a search. There are about a thousand pairs.
type pairTable [2048]uint64

func (t *pairTable) slot(a, b rune) int {
	key := uint64(a)<<21 | uint64(b)
	i := int(key * 0x9E3779B97F4A7C15 >> 53)
	for t[i] != 0 && t[i]>>21 != key {
		i = (i + 1) % len(t)
	}
	return i
}

// composites reads all pairs, once, from where they are; Hangul is not among them.
var composites = sync.OnceValue(func() *pairTable {
	t := new(pairTable)
	for _, span := range [...][2]rune{{0xC0, 0x3400}, {0x10000, 0x12000}, {0x16000, 0x17000}} {
		var b [utf8.UTFMax]byte
		for r := span[0]; r < span[1]; r++ {
			s := utf8.AppendRune(b[:0], r)
			if d := norm.NFC.Properties(s).Decomposition(); d != nil && norm.NFC.IsNormal(s) {
				t.add(d, r)
			}
		}
	}
	return t
})

// add takes in a composite by its full canonical decomposition.
func (t *pairTable) add(d []byte, composite rune) {
	b, n := utf8.DecodeLastRune(d)
	a := []rune(string(norm.NFC.Bytes(d[:len(d)-n])))
	if len(a) == 1 {
		t[t.slot(a[0], b)] = uint64(a[0])<<42 | uint64(b)<<21 | uint64(composite)
	}
}

// runeInfo has the properties of a rune that normalising needs. The zero runeInfo belongs to a
// rune that stays as it is, whatever stands before or after it.
type runeInfo struct {
	alone rune  // what plain makes of it when no other rune is near, 0 if that is several
	lower int32 // what to add for lower case
	class uint8 // canonical combining class
	flags runeFlags
}

type runeFlags uint8

const (
	space     runeFlags = 1 << iota // white space
	unsettled                       // plain may change it, or join it to the rune before
	split                           // it has a decomposition
	joined                          // it begins no segment
)

func (in *runeInfo) is(f runeFlags) bool { return in.flags&f != 0 }

// runePage holds the runes that differ in the last byte. A page is made when one
// of its runes is first met, in 20 µs or so: those of all scripts together take 0.3
// MB, and 0.1 s to make.
type runePage [256]runeInfo

var (
	runePages [(unicode.MaxRune + 1) >> 8]atomic.Pointer[runePage]
	inertPage runePage // Chinese, Hangul, and all above the second plane
)

func infoOf(r rune) *runeInfo {
	page := runePages[r>>8].Load()
	if page == nil {
		page = newPage(r)
	}
	return &page[uint8(r)]
}

func newPage(r rune) *runePage {
	page := new(runePage)
	for low := range page {
		page[low] = newInfo(r&^0xFF | rune(low))
	}
	if *page == inertPage {
		page = &inertPage
	}
	runePages[r>>8].Store(page) // two that make it at once make the same
	return page
}

func newInfo(r rune) runeInfo {
	s := string(r)
	p := norm.NFKC.PropertiesString(s)
	in := runeInfo{lower: unicode.ToLower(r) - r, class: p.CCC()}
	if unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F {
		in.flags |= space
	}
	if norm.NFKC.QuickSpanString(s) < len(s) {
		in.flags |= unsettled
		if alone := []rune(norm.NFKC.String(s)); len(alone) == 1 {
			in.alone = straight(alone[0])
		}
	}
	if straight(r) != r {
		in.flags |= unsettled
		in.alone = straight(r)
	}
	if d := p.Decomposition(); d != nil {
		in.flags |= split
		p = norm.NFKC.Properties(d)
	}
	if !p.BoundaryBefore() {
		in.flags |= joined
	}
	return in
}

// straight makes a typewriter apostrophe of those that stand for one.
func straight(r rune) rune {
	if r == '`' || r == '\u2019' {
		return '\''
	}
	return r
}
