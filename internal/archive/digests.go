package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
)

// The digests of the rows that a batch wrote are the last field of its leaf,
// and their numbers are the last bytes of that field. So one digest can be
// read at a known distance from the end: loading a page must not decode a leaf
// of a thousand writes.
//
//	Rows, 32 bytes each; State, 24 bytes each; number of State (u32); number of Rows (u32)

// The sizes of the digest of a row and of the entry of a state row, bytes.
const (
	rowDigest = 32
	StateSize = 24
)

// MaxState bounds the entries of state rows in a leaf.
const MaxState = 1 << 17

// checkRows refuses digests that the end of a leaf could not hold.
func (w *wire) checkRows() error {
	if len(w.Rows) > MaxPages || len(w.State) > MaxState {
		return fmt.Errorf("%d rows, %d state rows; the limits are %d and %d: split the call", len(w.Rows), len(w.State), MaxPages, MaxState)
	}
	for _, d := range w.Rows {
		if len(d) != rowDigest {
			return fmt.Errorf("a digest of %d bytes, expected %d", len(d), rowDigest)
		}
	}
	for _, d := range w.State {
		if len(d) != StateSize {
			return fmt.Errorf("a digest of %d bytes, expected %d", len(d), StateSize)
		}
	}
	return nil
}

// writeRows appends the digests and then their numbers.
func writeRows(e *codec.Encoder, w *wire) {
	if len(w.Rows)+len(w.State) == 0 {
		return
	}
	for _, d := range w.Rows {
		e.Raw(d)
	}
	for _, d := range w.State {
		e.Raw(d)
	}
	e.U32(uint32(len(w.State)))
	e.U32(uint32(len(w.Rows)))
}

// readRows reads what writeRows wrote. The numbers must account for every byte.
func readRows(d *codec.Decoder, w *wire) {
	n := len(d.B)
	t, err := tallyOf(d.B)
	if err != nil || t.bytes() != n {
		d.FailAs(fmt.Errorf("digests of rows in %d bytes", n))
		return
	}
	for range t.rows {
		w.Rows = append(w.Rows, bytes.Clone(d.Take(rowDigest)))
	}
	for range t.state {
		w.State = append(w.State, bytes.Clone(d.Take(StateSize)))
	}
	d.Take(tallySize)
}

// tally counts the digests of a leaf, according to its last bytes.
type tally struct{ rows, state int }

var errRow = errors.New("a leaf ends within its digests of rows")

// tallySize is the length of the numbers, bytes.
const tallySize = 8

func (t tally) bytes() int { return t.rows*rowDigest + t.state*StateSize + tallySize }

// row and entry return how far before the end of the leaf element k begins.
func (t tally) row(k int) int64   { return int64(t.bytes() - k*rowDigest) }
func (t tally) entry(k int) int64 { return int64(tallySize + (t.state-k)*StateSize) }

// tallyOf reads the numbers at the end of b.
func tallyOf(b []byte) (t tally, err error) {
	n := len(b) - tallySize
	if n < 0 {
		return t, errRow
	}
	t.state, t.rows = int(binary.BigEndian.Uint32(b[n:])), int(binary.BigEndian.Uint32(b[n+4:]))
	if t.rows > MaxPages || t.state > MaxState || t.rows+t.state == 0 {
		return t, errRow
	}
	return t, nil
}

// RowDigest returns element k of Rows in leaf i, without reading the rest of
// the leaf. ErrNoLeaf: there is no such element.
func (l *Log) RowDigest(i uint64, k int) (d [rowDigest]byte, err error) {
	e := leafEnds.Get().(*leafEnd)
	defer e.done()
	t, err := e.open(l, i)
	if err == nil && (k < 0 || k >= t.rows) {
		err = fmt.Errorf("%w: leaf %d has the digests of %d rows, number %d was asked for", manifest.ErrNoLeaf, i, t.rows, k)
	}
	if err == nil {
		err = e.read(d[:], t.row(k))
	}
	return d, err
}

// StateEntry returns element k of State in leaf i, in the same way.
func (l *Log) StateEntry(i uint64, k int) (d [StateSize]byte, err error) {
	e := leafEnds.Get().(*leafEnd)
	defer e.done()
	t, err := e.open(l, i)
	if err == nil && (k < 0 || k >= t.state) {
		err = fmt.Errorf("%w: leaf %d has entries of %d state rows, number %d was asked for", manifest.ErrNoLeaf, i, t.state, k)
	}
	if err == nil {
		err = e.read(d[:], t.entry(k))
	}
	return d, err
}

// EachState calls fn with the entries of state rows of the first size leaves, oldest first: StateSize
// bytes each, borrowed until fn returns. It skips damaged leaves. An error means that the files could
// not be read, or that ctx ended.
func (l *Log) EachState(ctx context.Context, size uint64, fn func(i uint64, entries []byte)) error {
	v, err := l.snapshot(size)
	if err != nil {
		return err
	}
	return v.each(ctx, 0, size, false, func(s slot) error {
		var damaged *codec.CorruptError
		if s.err != nil && !errors.As(s.err, &damaged) {
			return s.err
		}
		if s.err != nil || !s.row.rows {
			return nil
		}
		if t, err := tallyOf(s.body); err == nil && t.bytes() <= len(s.body) {
			entries := s.body[len(s.body)-int(t.entry(0)):]
			fn(s.index, entries[:t.state*StateSize])
		}
		return nil
	})
}

// leafEnd reads the end of a leaf. Each page that is loaded from the file is
// compared with a digest there. So it takes one read of the segment for the
// numbers and, in a leaf of few rows, the digest, both through blocks; and no
// memory of its own, except from leafEnds.
type leafEnd struct {
	i       uint64
	blocks  *blocks
	tail    []byte // the last bytes of the leaf: the whole leaf if it is not archived, otherwise buf
	r       row    // of an archived leaf
	segment segment
	buf     [256]byte // the numbers and the digests of seven rows; or a leaf in its brief form and its numbers
}

var leafEnds = sync.Pool{New: func() any { return new(leafEnd) }}

// done returns e to the pool. It keeps neither a leaf nor a file alive.
func (e *leafEnd) done() {
	e.tail, e.segment, e.blocks = nil, segment{}, nil
	leafEnds.Put(e)
}

// open finds the end of leaf i, which must have digests of rows, and reads the
// numbers there.
func (e *leafEnd) open(l *Log, i uint64) (t tally, err error) {
	v, err := l.view()
	if err != nil {
		return t, err
	}
	if i >= v.size() {
		return t, fmt.Errorf("%w: %d of %d", manifest.ErrNoLeaf, i, v.size())
	}
	if err := e.find(v, i); err != nil {
		return t, err
	}
	if t, err = tallyOf(e.tail); err != nil {
		err = corruptAt(leavesName, 0, int64(i), err)
	}
	return t, err
}

// find looks up leaf i and reads its last bytes into tail. A leaf that is not archived is in memory
// as a whole; a sealed one must be opened as a whole; of any other the last bytes are read from the
// file. The dense form keeps them as they are.
func (e *leafEnd) find(v *view, i uint64) (err error) {
	e.i = i
	if i >= v.archived {
		t := &v.tail[i-v.archived]
		e.r, e.segment, e.tail = t.row, segment{}, t.body
	} else if err = e.row(v, i); err != nil {
		return err
	}
	if !e.r.rows {
		return fmt.Errorf("%w: leaf %d has no digests of rows", manifest.ErrNoLeaf, i)
	}
	if i >= v.archived {
		return nil
	}
	if v.arch.seal != nil { // it opens as a whole
		e.segment = segment{}
		e.tail, err = v.arch.opened.body(v, i, e.r)
		return err
	}
	if e.segment, err = v.segment(i); err != nil {
		return err
	}
	if e.r.brief {
		return e.wholeBrief()
	}
	e.tail = e.buf[:min(len(e.buf), int(e.r.size))]
	return e.readAt(e.tail, int64(len(e.tail)))
}

// wholeBrief reads a leaf in its brief form, which implies the numbers.
func (e *leafEnd) wholeBrief() error {
	form := e.buf[:min(codec.BriefMost+1, int(e.r.size))] // one more: too long
	if err := e.readAt(form, int64(e.r.size)); err != nil {
		return err
	}
	rows, state, err := codec.BriefRows(form)
	if err != nil {
		return corruptAt(e.segment.name(), int64(e.r.off), int64(e.i), err)
	}
	b := codec.Encoder{B: form}
	b.U32(uint32(state))
	b.U32(uint32(rows))
	e.tail = b.B
	return nil
}

// row reads the row of an archived leaf.
func (e *leafEnd) row(v *view, i uint64) (err error) {
	e.blocks = &v.arch.read
	b := e.buf[:rowSize]
	if err := e.blocks.readAt(ofIndex, v.arch.index, b, rowOffset(i), rowOffset(v.archived)); err != nil {
		return readError(indexName, rowOffset(i), int64(i), err)
	}
	e.r, err = parseRow(b, i)
	return err
}

// read fills b with the bytes that begin before bytes ahead of the end of the
// leaf.
func (e *leafEnd) read(b []byte, before int64) error {
	switch n := int64(len(e.tail)); {
	case before <= n:
		copy(b, e.tail[n-before:])
		return nil
	case e.segment.file == nil:
		return errRow
	case before > int64(e.r.size):
		return corruptAt(e.segment.name(), int64(e.r.off), int64(e.i), errors.New("more digests of rows than the leaf has bytes"))
	}
	return e.readAt(b, before)
}

// readAt fills b with the bytes of an archived leaf that begin before bytes ahead of its end.
func (e *leafEnd) readAt(b []byte, before int64) error {
	at := e.r.end() - before
	if err := e.blocks.readAt(e.segment.first, e.segment.file, b, at, max(e.segment.end, e.r.end())); err != nil {
		return readError(e.segment.name(), at, int64(e.i), err)
	}
	return nil
}

// rowsFrom reads some rows of the index from leaf i on, or all rows of the
// tail.
func (v *view) rowsFrom(i uint64) (out []row, err error) {
	if i >= v.archived {
		for _, t := range v.tail[i-v.archived:] {
			out = append(out, t.row)
		}
		return out, nil
	}
	slots := make([]slot, min(rowBlock, v.archived-i))
	for k := range slots {
		slots[k].index = i + uint64(k)
	}
	v.blockRows(slots)
	for k := range slots {
		if slots[k].err != nil {
			return nil, slots[k].err
		}
		out = append(out, slots[k].row)
	}
	return out, nil
}

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
func (w *wire) reason(place uint64, fail func(error)) string {
	if place == 0 {
		return ""
	}
	if place > uint64(len(w.reasons)) {
		fail(fmt.Errorf("reason %d of %d", place, len(w.reasons)))
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

// cells are the fields of a row as they are read. They count what was read: to cut it off would be a write barrier for each field.
type cells struct {
	b   []byte
	at  int
	err error
}

// fail ends the row; the first error counts.
func (c *cells) fail(err error) {
	if c.at = len(c.b); c.err == nil {
		c.err = err
	}
}

// number reads a varint of at most limit; 0 past the end of the row.
func (c *cells) number(limit uint64) uint64 {
	if c.at >= len(c.b) {
		return 0
	}
	v, n := uint64(c.b[c.at]), 1
	if v >= 0x80 {
		v, n = binary.Uvarint(c.b[c.at:])
	}
	switch {
	case n <= 0:
		c.fail(codec.ErrMalformed)
		return 0
	case v > limit:
		c.fail(fmt.Errorf("%d is above the limit %d", v, limit))
		return 0
	}
	c.at += n
	return v
}

// scores reads scores of two bytes; those past the end of the row stay 0.
func (c *cells) scores(to ...*manifest.Score) {
	for _, s := range to {
		switch len(c.b) - c.at {
		case 0:
			return
		case 1:
			c.fail(codec.ErrMalformed)
			return
		}
		*s = manifest.Score(binary.BigEndian.Uint16(c.b[c.at:]))
		c.at += 2
	}
}

// readPages reads rows: all that the decoder has. Memory is reserved by the bytes that are there.
func (w *wire) readPages(d *codec.Decoder) []manifest.Page {
	if len(d.B) == 0 || d.Err != nil {
		return nil
	}
	count := 0
	for ahead := *d; len(ahead.B) > 0 && ahead.Err == nil && count < MaxPages-w.pages; count++ {
		ahead.Bytes()
	}
	out := make([]manifest.Page, 0, count)
	for len(d.B) > 0 && d.Err == nil {
		if w.pages++; w.pages > MaxPages {
			d.FailAs(fmt.Errorf("more than %d pages", MaxPages))
			return nil
		}
		row := cells{b: d.Bytes()}
		out = append(out, manifest.Page{})
		if w.readRow(&row, &out[len(out)-1]); row.err != nil {
			d.FailAs(row.err)
		}
	}
	return out
}

// readRow reads the fields of one row. Bytes behind the known fields come from a later program.
func (w *wire) readRow(c *cells, p *manifest.Page) {
	p.Num, p.Version = c.number(math.MaxUint64), uint32(c.number(math.MaxUint32))
	bits := c.number(math.MaxUint64)
	p.Form, p.Tag = manifest.Form(bits&3), manifest.Tag(bits>>rowTagShift&7)
	p.Dirty, p.Refetched, p.Stale = bits&rowDirty != 0, bits&rowRefetched != 0, bits&rowStale != 0
	p.Reason = w.reason(c.number(math.MaxUint64), c.fail)
	p.Tokens = int(c.number(math.MaxInt))
	c.scores(&p.Score, &p.R, &p.P, &p.S, &p.LexOwn, &p.LexNear, &p.LexGroup)
	p.Via = c.number(math.MaxUint64)
	p.Ranges = readRanges(c)
	c.scores(&p.Vector, &p.LexSpeaker, &p.LexFirst, &p.LexDate, &p.LexForms, &p.LexLevel)
}

// readRanges reads the byte ranges. A count beyond the bytes of the row is refused.
func readRanges(c *cells) (out [][2]uint32) {
	n := c.number(uint64(len(c.b) - c.at))
	at := uint64(0)
	for ; n > 0 && c.err == nil; n-- {
		from := at + c.number(math.MaxUint32)
		at = from + c.number(math.MaxUint32)
		if at > math.MaxUint32 {
			c.fail(fmt.Errorf("range ends at %d", at))
			return nil
		}
		out = append(out, [2]uint32{uint32(from), uint32(at)})
	}
	return out
}
