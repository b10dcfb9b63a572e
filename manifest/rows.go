package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Pages are written as rows of varints in one byte string, not as msgpack
// arrays: a served page takes about 17 bytes instead of 24, and pages are most
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

// rowCapacity is the memory that is reserved for a row, in bytes; most take less.
const rowCapacity = 28

var errRow = errors.New("a page row ends within a field")

// reasonPlace returns the number that a row uses for a reason; 0: none.
func (w *wire) reasonPlace(s string) uint64 {
	return uint64(slices.Index(w.reasons, s) + 1)
}

// reason is the inverse of reasonPlace.
func (w *wire) reason(place uint64) (string, error) {
	switch {
	case place == 0:
		return "", nil
	case place > uint64(len(w.reasons)):
		return "", fmt.Errorf("reason %d of %d", place, len(w.reasons))
	}
	return w.reasons[place-1], nil
}

// appendPages returns the rows of pages; they are valid until the next call.
func (w *wire) appendPages(pages []Page) ([]byte, error) {
	if w.pages += len(pages); w.pages > MaxPages {
		return nil, fmt.Errorf("more than %d pages; split the call", MaxPages)
	}
	b, row := slices.Grow(w.buf.rows[:0], len(pages)*rowCapacity), w.buf.row
	for i := range pages {
		if err := checkPage(&pages[i]); err != nil {
			return nil, fmt.Errorf("page %d: %w", pages[i].Num, err)
		}
		row = appendRow(row[:0], w, &pages[i])
		b = binary.AppendUvarint(b, uint64(len(row)))
		b = append(b, row...)
	}
	w.buf.rows, w.buf.row = b, row
	return b, nil
}

// checkPage refuses what a row could not be read back from.
func checkPage(p *Page) error {
	if p.Form > FormStub || p.Tag > TagBlack || p.Tokens < 0 {
		return fmt.Errorf("form %d, tag %d or token count %d out of range", p.Form, p.Tag, p.Tokens)
	}
	if len(p.Ranges) > 0 && p.Form != FormRange {
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
func appendRow(b []byte, w *wire, p *Page) []byte {
	end := len(b)
	num := func(v uint64) {
		if b = binary.AppendUvarint(b, v); v != 0 {
			end = len(b)
		}
	}
	score := func(s Score) {
		if b = binary.BigEndian.AppendUint16(b, uint16(s)); s != 0 {
			end = len(b)
		}
	}
	num(p.Num)
	num(uint64(p.Version))
	num(bitsOf(p))
	num(w.reasonPlace(p.Reason))
	num(uint64(p.Tokens))
	for _, s := range [...]Score{p.Score, p.R, p.P, p.S, p.LexOwn, p.LexNear, p.LexGroup} {
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
	for _, s := range [...]Score{p.Vector, p.LexSpeaker, p.LexFirst, p.LexDate, p.LexForms, p.LexLevel} {
		score(s)
	}
	return b[:end]
}

// bitsOf are the small fields of a page in one number.
func bitsOf(p *Page) uint64 {
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

// rowReader reads the fields of one row; past the end everything is zero.
type rowReader struct {
	b   []byte
	err error
}

// num reads a varint of at most limit; 0 past the end of the row.
func (r *rowReader) num(limit uint64) uint64 {
	if len(r.b) == 0 || r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err = errRow
		return 0
	}
	if v > limit {
		r.err = fmt.Errorf("%d is above the limit %d", v, limit)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// score reads two bytes; 0 past the end of the row.
func (r *rowReader) score() Score {
	if len(r.b) == 0 || r.err != nil {
		return 0
	}
	if len(r.b) < 2 {
		r.err = errRow
		return 0
	}
	v := binary.BigEndian.Uint16(r.b)
	r.b = r.b[2:]
	return Score(v)
}

// readPages reads the rows of a byte string. Memory is reserved by the bytes that are there.
func (w *wire) readPages(rows []byte) ([]Page, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	out := make([]Page, 0, min(len(rows)/12+1, MaxPages)) // 17 bytes a row as a rule
	for len(rows) > 0 {
		n, k := binary.Uvarint(rows)
		if k <= 0 || n > uint64(len(rows)-k) {
			return nil, errRow
		}
		if w.pages++; w.pages > MaxPages {
			return nil, fmt.Errorf("more than %d pages", MaxPages)
		}
		p, err := w.readRow(rows[k : k+int(n)])
		if err != nil {
			return nil, fmt.Errorf("page row %d: %w", len(out), err)
		}
		out = append(out, p)
		rows = rows[k+int(n):]
	}
	return out, nil
}

// readRow reads the fields of one row. Bytes behind the known fields are those of a later program.
func (w *wire) readRow(row []byte) (Page, error) {
	r := rowReader{b: row}
	p := Page{Num: r.num(math.MaxUint64), Version: uint32(r.num(math.MaxUint32))}
	bits := r.num(math.MaxUint64)
	p.Form, p.Tag = Form(bits&3), Tag(bits>>rowTagShift&7)
	p.Dirty, p.Refetched, p.Stale = bits&rowDirty != 0, bits&rowRefetched != 0, bits&rowStale != 0
	reason := r.num(math.MaxUint64)
	p.Tokens = int(r.num(math.MaxInt))
	for _, s := range [...]*Score{&p.Score, &p.R, &p.P, &p.S, &p.LexOwn, &p.LexNear, &p.LexGroup} {
		*s = r.score()
	}
	p.Via = r.num(math.MaxUint64)
	p.Ranges = r.ranges()
	for _, s := range [...]*Score{&p.Vector, &p.LexSpeaker, &p.LexFirst, &p.LexDate, &p.LexForms, &p.LexLevel} {
		*s = r.score()
	}
	if r.err != nil {
		return p, r.err
	}
	var err error
	p.Reason, err = w.reason(reason)
	return p, err
}

// ranges reads the byte ranges. A count beyond the bytes of the row is refused.
func (r *rowReader) ranges() (out [][2]uint32) {
	n := r.num(uint64(len(r.b)))
	at := uint64(0)
	for ; n > 0 && r.err == nil; n-- {
		from := at + r.num(math.MaxUint32)
		at = from + r.num(math.MaxUint32)
		if at > math.MaxUint32 {
			r.err = fmt.Errorf("range ends at %d", at)
			return nil
		}
		out = append(out, [2]uint32{uint32(from), uint32(at)})
	}
	return out
}
