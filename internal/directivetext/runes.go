package directivetext

import (
	"sync/atomic"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

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
