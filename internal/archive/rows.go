package archive

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
)

// Pages are written as rows without tags: a served page takes about 17 bytes, and pages are most
// of a read leaf. A row is
//
//	length, num, version, bits, reason, tokens, Score, R, P, S,
//	LexOwn, LexNear, LexGroup, Via, number of ranges, ranges, Vector,
//	LexSpeaker, LexFirst, LexDate, LexForms, LexLevel
//
// Scores take two bytes; everything else is an unsigned varint. Zero fields at
// the end are left off, and bytes behind the known fields are skipped, so a row
// can grow like a leaf.

// Bits of a row: form in the lowest two, tag in the next three.
const (
	rowTagShift  = 2
	rowDirty     = 1 << 5
	rowRefetched = 1 << 6
	rowStale     = 1 << 7
)

// reasonPlace returns the number that a row uses for a reason; 0: none.
func (w *wire) reasonPlace(s string) uint64 {
	return uint64(slices.Index(w.reasons, s) + 1)
}

// reason is the inverse of reasonPlace.
func (w *wire) reason(d *codec.Decoder, place uint64) string {
	if place > uint64(len(w.reasons)) {
		d.FailAs(fmt.Errorf("reason %d of %d", place, len(w.reasons)))
		return ""
	}
	if place == 0 || d.Err != nil {
		return ""
	}
	return w.reasons[place-1]
}

// appendPages appends the rows of pages.
func (w *wire) appendPages(e *codec.Encoder, pages []manifest.Page) {
	for i := range pages {
		from := e.Begin()
		e.B = appendRow(e.B, w, &pages[i])
		e.End(from)
	}
}

// checkPages refuses pages whose rows could not be read back.
func checkPages(pages []manifest.Page) error {
	for i := range pages {
		if err := checkPage(&pages[i]); err != nil {
			return fmt.Errorf("page %d: %w", pages[i].Num, err)
		}
	}
	return nil
}

// checkPage refuses what a row could not be read back from.
func checkPage(p *manifest.Page) error {
	if p.Form > manifest.FormStub || p.Tag > manifest.TagBlack || p.Tokens < 0 {
		return fmt.Errorf("form %d, tag %d or token count %d out of range", p.Form, p.Tag, p.Tokens)
	}
	if len(p.Ranges) > 0 && p.Form != manifest.FormRange {
		return fmt.Errorf("byte ranges on form %s; only range has them", p.Form)
	}
	at := uint32(0)
	for _, r := range p.Ranges {
		if r[0] < at || r[1] <= r[0] {
			return fmt.Errorf("range [%d,%d) is empty or not ascending", r[0], r[1])
		}
		at = r[1]
	}
	return nil
}

// appendRow writes the fields and cuts the zero ones off the end.
func appendRow(b []byte, w *wire, p *manifest.Page) []byte {
	end := len(b)
	num := func(v uint64) {
		if b = binary.AppendUvarint(b, v); v != 0 {
			end = len(b)
		}
	}
	score := func(s manifest.Score) {
		if b = binary.BigEndian.AppendUint16(b, uint16(s)); s != 0 {
			end = len(b)
		}
	}
	num(p.Num)
	num(uint64(p.Version))
	num(bitsOf(p))
	num(w.reasonPlace(p.Reason))
	num(uint64(p.Tokens))
	for _, s := range [...]manifest.Score{p.Score, p.R, p.P, p.S, p.LexOwn, p.LexNear, p.LexGroup} {
		score(s)
	}
	num(p.Via)
	num(uint64(len(p.Ranges)))
	at := uint32(0)
	for _, r := range p.Ranges {
		num(uint64(r[0] - at))
		num(uint64(r[1] - r[0]))
		at = r[1]
	}
	for _, s := range [...]manifest.Score{p.Vector, p.LexSpeaker, p.LexFirst, p.LexDate, p.LexForms, p.LexLevel} {
		score(s)
	}
	return b[:end]
}

// bitsOf are the small fields of a page in one number.
func bitsOf(p *manifest.Page) uint64 {
	v := uint64(p.Form) | uint64(p.Tag)<<rowTagShift
	if p.Dirty {
		v |= rowDirty
	}
	if p.Refetched {
		v |= rowRefetched
	}
	if p.Stale {
		v |= rowStale
	}
	return v
}

// rowNumber reads a varint of at most limit; 0 past the end of the row.
func rowNumber(d *codec.Decoder, limit uint64) uint64 {
	if len(d.B) == 0 || d.Err != nil {
		return 0
	}
	v := d.Uvarint()
	if v > limit {
		d.FailAs(fmt.Errorf("%d is above the limit %d", v, limit))
		return 0
	}
	return v
}

// rowScore reads two bytes; 0 past the end of the row.
func rowScore(d *codec.Decoder) manifest.Score {
	if len(d.B) == 0 || d.Err != nil {
		return 0
	}
	if b := d.Take(2); b != nil {
		return manifest.Score(binary.BigEndian.Uint16(b))
	}
	return 0
}

// readPages reads rows: all that the decoder has. Memory is reserved by the bytes that are there.
func (w *wire) readPages(d *codec.Decoder) []manifest.Page {
	if len(d.B) == 0 || d.Err != nil {
		return nil
	}
	out := make([]manifest.Page, 0, min(len(d.B)/12+1, MaxPages)) // 17 bytes a row as a rule
	for len(d.B) > 0 && d.Err == nil {
		if w.pages++; w.pages > MaxPages {
			d.FailAs(fmt.Errorf("more than %d pages", MaxPages))
			return nil
		}
		row := d.Bytes()
		rest := d.B
		d.B = row
		out = append(out, w.readRow(d))
		d.B = rest
	}
	return out
}

// readRow reads the fields of one row. Bytes behind the known fields come from a later program.
func (w *wire) readRow(d *codec.Decoder) manifest.Page {
	p := manifest.Page{Num: rowNumber(d, math.MaxUint64), Version: uint32(rowNumber(d, math.MaxUint32))}
	bits := rowNumber(d, math.MaxUint64)
	p.Form, p.Tag = manifest.Form(bits&3), manifest.Tag(bits>>rowTagShift&7)
	p.Dirty, p.Refetched, p.Stale = bits&rowDirty != 0, bits&rowRefetched != 0, bits&rowStale != 0
	p.Reason = w.reason(d, rowNumber(d, math.MaxUint64))
	p.Tokens = int(rowNumber(d, math.MaxInt))
	for _, s := range [...]*manifest.Score{&p.Score, &p.R, &p.P, &p.S, &p.LexOwn, &p.LexNear, &p.LexGroup} {
		*s = rowScore(d)
	}
	p.Via = rowNumber(d, math.MaxUint64)
	p.Ranges = readRanges(d)
	for _, s := range [...]*manifest.Score{&p.Vector, &p.LexSpeaker, &p.LexFirst, &p.LexDate, &p.LexForms, &p.LexLevel} {
		*s = rowScore(d)
	}
	return p
}

// readRanges reads the byte ranges. A count beyond the bytes of the row is refused.
func readRanges(d *codec.Decoder) (out [][2]uint32) {
	n := rowNumber(d, uint64(len(d.B)))
	at := uint64(0)
	for ; n > 0 && d.Err == nil; n-- {
		from := at + rowNumber(d, math.MaxUint32)
		at = from + rowNumber(d, math.MaxUint32)
		if at > math.MaxUint32 {
			d.FailAs(fmt.Errorf("range ends at %d", at))
			return nil
		}
		out = append(out, [2]uint32{uint32(from), uint32(at)})
	}
	return out
}
