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
//	"D" segment first            pages of a segment, up to docsInRow a row
//	"T" segment scope term       postings
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
	termPrefix  = 1 + 4 + 4
	segPrefix   = 1 + 4
	docsKeySize = segPrefix + 8
)

func segmentKey(kind byte, segment uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, segment)
}

func docsKey(segment uint32, first uint64) []byte {
	return binary.BigEndian.AppendUint64(segmentKey(rowDocs, segment), first)
}

// appendTermKey appends to dst, so that a query needs one buffer for all keys.
func appendTermKey(dst []byte, segment, scope uint32, term string) []byte {
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

func sum(key, value []byte) uint32 {
	var d xxhash.Digest
	d.Reset()
	d.Write(key)
	d.Write(value)
	return uint32(d.Sum64())
}

func corrupt(key []byte, format string, args ...any) error {
	return fmt.Errorf("%w: row %q: %s", ErrCorrupt, key, fmt.Sprintf(format, args...))
}

// reader takes varints off a value. After a fault every further read gives 0, so
// a decoder may look at bad once, at its end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

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

func (p *postings) add(num uint64, tf uint32) {
	d := (num - p.last) << 1
	if tf != 1 {
		p.body = binary.AppendUvarint(p.body, d|1)
		p.body = binary.AppendUvarint(p.body, uint64(tf))
	} else {
		p.body = binary.AppendUvarint(p.body, d)
	}
	p.df++
	p.last = num
}

func (p *postings) value() []byte {
	return append(binary.AppendUvarint(make([]byte, 0, len(p.body)+binary.MaxVarintLen32+sumSize), p.df), p.body...)
}

// list is a posting list in its encoded form: what a cursor reads.
type list struct {
	segment segment
	df      uint64
	body    []byte
}

func parseList(s segment, key, row []byte) (list, error) {
	value, err := unseal(key, row)
	if err != nil {
		return list{}, err
	}
	r := reader{b: value}
	df := r.count()
	if r.bad || df == 0 {
		return list{}, corrupt(key, "count of postings does not fit %d bytes", len(value))
	}
	return list{segment: s, df: uint64(df), body: r.b}, nil
}

// each calls fn for every posting in ascending order of the number. It reports
// whether the list was sound: as many postings as it says, numbers ascending and
// inside the segment, no byte left over.
func (l list) each(fn func(num uint64, tf uint32)) bool {
	b, num, n := l.body, l.segment.first, uint64(0)
	for len(b) > 0 {
		d, tf, size := posting(b)
		if size <= 0 {
			return false
		}
		b = b[size:]
		if d == 0 && n > 0 || d > l.segment.last-num {
			return false
		}
		num += d
		n++
		fn(num, tf)
	}
	return n == l.df
}

// posting decodes one posting; size ≤ 0 when there is none.
func posting(b []byte) (distance uint64, tf uint32, size int) {
	v, n := uint64(b[0]), 1
	if v >= 0x80 {
		if v, n = binary.Uvarint(b); n <= 0 {
			return 0, 0, 0
		}
	}
	if v&1 == 0 {
		return v >> 1, 1, n
	}
	t, m := binary.Uvarint(b[n:])
	if m <= 0 || t == 0 || t > math.MaxUint32 {
		return 0, 0, 0
	}
	return v >> 1, uint32(t), n + m
}
