package lexical

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Rows of the index, all keys big-endian:
//
//	"L"                          list: version, analyzer, next id, through, segments, dead segments
//	"R"                          numbers removed, but still in a segment
//	"D" segment first            pages of a segment, up to docsInRow a row, and who speaks in them
//	"T" segment scope term       postings of this term, and of some before it (block.go)
//
// Every value ends in the low half of xxhash64(key ‖ value). Numbers in values
// are unsigned varints.
const (
	rowList     = 'L'
	rowRemoved  = 'R'
	rowDocs     = 'D'
	rowTerm     = 'T'
	rowVersion  = 1
	sumSize     = 4
	docsInRow   = 1024
	scopeSize   = 4
	termPrefix  = segPrefix + scopeSize
	segPrefix   = 1 + 4
	docsKeySize = segPrefix + 8
)

// segmentKey begins the keys of a segment's rows of a kind.
func segmentKey(kind byte, segment uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, segment)
}

// docsKey is the key of a row of pages, by the first of them.
func docsKey(segment uint32, first uint64) []byte {
	return binary.BigEndian.AppendUint64(segmentKey(rowDocs, segment), first)
}

// appendTermKey appends to dst, so that a query needs one buffer for all keys.
func appendTermKey[T string | []byte](dst []byte, segment, scope uint32, term T) []byte {
	dst = append(dst, rowTerm)
	dst = binary.BigEndian.AppendUint32(dst, segment)
	dst = binary.BigEndian.AppendUint32(dst, scope)
	return append(dst, term...)
}

// seal appends the checksum of a row to its value.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(key, value))
}

// unseal checks a row and returns its value without the checksum.
func unseal(key, row []byte) ([]byte, error) {
	n := len(row) - sumSize
	if n < 0 {
		return nil, corrupt(key, "value of %d bytes is shorter than its checksum", len(row))
	}
	if binary.BigEndian.Uint32(row[n:]) != sum(key, row[:n]) {
		return nil, corrupt(key, "checksum does not match")
	}
	return row[:n], nil
}

// sum is the checksum of a row: a row under another key has another one.
func sum(key, value []byte) uint32 {
	var d xxhash.Digest
	d.Reset()
	d.Write(key)
	d.Write(value)
	return uint32(d.Sum64())
}

// corrupt is the error for a damaged row. It wraps ErrCorrupt.
func corrupt(key []byte, format string, args ...any) error {
	return fmt.Errorf("%w: row %q: %s", ErrCorrupt, key, fmt.Sprintf(format, args...))
}

// reader takes varints off a value. After a fault every further read gives 0, so
// a decoder may look at bad once, at its end.
type reader struct {
	b   []byte
	bad bool
}

// uvarint reads an unsigned number. Its fault empties the value, so that a loop over what is left
// ends.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// uint32 reads a number of 32 bits and refuses a larger one.
func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// count reads a number of elements of at least one byte each, so a damaged count
// cannot ask for more memory than the row has bytes.
func (r *reader) count() int {
	v := r.uvarint()
	if v > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(v)
}

// bytes reads a length and so many bytes, borrowed from the value.
func (r *reader) bytes() []byte {
	n := r.count()
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// A posting list is its length, then for each posting the distance to the page
// number before it (the first: to the first number of the segment) times two,
// plus one when a count of occurrences follows; without it the count is 1.

// postings builds a list.
type postings struct {
	body []byte
	df   uint64
	last uint64
}

// add appends a posting. Numbers rise; a count of 1, which most postings have, takes no byte.
func (p *postings) add(num uint64, tf uint32) {
	d := (num - p.last) << 1
	if tf == 1 && d < 0x80 { // nine of ten
		p.body = append(p.body, byte(d))
	} else if tf != 1 {
		p.body = binary.AppendUvarint(p.body, d|1)
		p.body = binary.AppendUvarint(p.body, uint64(tf))
	} else {
		p.body = binary.AppendUvarint(p.body, d)
	}
	p.df++
	p.last = num
}

// list is a posting list in its encoded form: what a cursor reads.
type list struct {
	segment segment // or the part of the tail: number 0
	df      uint64
	body    []byte
	last    uint64 // number of its last page, in a part of the tail that knows it; 0: reading the list tells
	removed bool   // some pages of segment or part were, and are to be left out
}

// each calls fn for every posting in ascending order of the number. It reports
// whether the list was sound: as many postings as it says, numbers ascending and
// inside the segment, no byte left over.
func (l list) each(fn func(num uint64, tf uint32)) bool {
	var buf [blockSize]posting
	c := l.cursor()
	for {
		block := c.next(&buf)
		if len(block) == 0 {
			return c.end()
		}
		for _, p := range block {
			fn(p.num, p.tf)
		}
	}
}

// blockSize postings are decoded at once: the decoder and the code that uses
// them are two small loops then, without a call for each posting.
const blockSize = 128

// posting says that a page has a term, and how often.
type posting struct {
	num uint64
	tf  uint32
}

// cursor walks a list. It can be given any bytes. num only rises and distance bounds it, so a page
// outside the segment is never returned; left bounds how many there are; a fault stops it for good.
// So callers ask end once, when next gave nothing.
type cursor struct {
	b        []byte
	num      uint64 // of the posting before
	distance uint64 // distance to the last number of the segment
	left     uint64 // postings that must follow
	first    bool
	broken   bool
}

// cursor walks the list from its first posting.
func (l list) cursor() cursor {
	return cursor{b: l.body, num: l.segment.first, distance: l.segment.last - l.segment.first, left: l.df, first: true}
}

// end reports whether the list was sound; it is asked when next gave nothing.
func (c *cursor) end() bool { return !c.broken && c.left == 0 && len(c.b) == 0 }

// next decodes up to blockSize postings into buf.
func (c *cursor) next(buf *[blockSize]posting) []posting {
	b, num, distance := c.b, c.num, c.distance
	n := 0
	for limit := int(min(blockSize, c.left)); n < limit; n++ {
		if len(b) == 0 {
			break
		}
		v, tf := uint64(b[0]), uint32(1)
		if v&0x81 == 0 { // one byte, one occurrence: nine of ten
			b = b[1:]
		} else if v, tf, b = decodePosting(b); tf == 0 {
			c.broken = true
			break
		}
		d := v >> 1
		if d > distance || d == 0 && !c.first {
			c.broken = true
			break
		}
		c.first = false
		num, distance = num+d, distance-d
		buf[n] = posting{num, tf}
	}
	c.b, c.num, c.distance, c.left = b, num, distance, c.left-uint64(n)
	return buf[:n]
}

// until decodes up to blockSize postings of pages below end into buf. next is the page of the
// posting that follows, or done where none does.
func (c *cursor) until(buf *[blockSize]posting, end uint64) (block []posting, next uint64) {
	n, limit := 0, int(min(blockSize, c.left))
	for b := c.b; n < limit; n++ {
		if len(b) == 0 {
			c.broken = true
			break
		}
		v, tf := uint64(b[0]), uint32(1)
		if v&0x81 == 0 {
			b = b[1:]
		} else if v, tf, b = decodePosting(b); tf == 0 {
			c.broken = true
			break
		}
		d := v >> 1
		if d > c.distance || d == 0 && !c.first {
			c.broken = true
			break
		}
		if c.num+d >= end {
			c.left -= uint64(n)
			return buf[:n], c.num + d
		}
		c.b, c.num, c.distance, c.first = b, c.num+d, c.distance-d, false
		buf[n] = posting{c.num, tf}
	}
	if c.left -= uint64(n); c.broken || c.left == 0 {
		return buf[:n], done
	}
	return buf[:n], c.num
}

// decodePosting decodes any posting; tf is 0 if there is none.
func decodePosting(b []byte) (v uint64, tf uint32, rest []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, nil
	}
	if v&1 == 0 {
		return v, 1, b[n:]
	}
	t, m := binary.Uvarint(b[n:])
	if m <= 0 || t > math.MaxUint32 {
		return 0, 0, nil
	}
	return v, uint32(t), b[n+m:]
}

// append adds a whole list; false: it is not sound. Only its first distance depends on where it
// stands; the rest is copied. It is decoded only where its last number is not known.
func (p *postings) append(l list) bool {
	last, ok := l.last, l.last > 0
	if !ok {
		if last, ok = l.end(); !ok {
			return false
		}
	}
	v, tf, rest := decodePosting(l.body)
	p.add(l.segment.first+v>>1, tf)
	p.body = append(p.body, rest...)
	p.df, p.last = p.df+l.df-1, last
	return true
}

// end reads a list for the number of its last page; false: it is not sound.
func (l list) end() (num uint64, ok bool) {
	num, distance := l.segment.first, l.segment.last-l.segment.first
	b := l.body
	for n := range l.df {
		if len(b) == 0 {
			return 0, false
		}
		v, tf := uint64(b[0]), uint32(1)
		if v&0x81 == 0 {
			b = b[1:]
		} else if v, tf, b = decodePosting(b); tf == 0 {
			return 0, false
		}
		d := v >> 1
		if d > distance || d == 0 && n > 0 {
			return 0, false
		}
		num, distance = num+d, distance-d
	}
	return num, l.df > 0 && len(b) == 0
}
