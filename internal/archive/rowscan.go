package archive

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
)

// RowScan reads the row digests of many leaves, as the log was when the scan was made. It keeps a
// block of the index and one of a segment, so leaves that are asked for in rising order do not cost
// a read each. Only one goroutine may use it.
type RowScan struct {
	v       *view
	first   uint64 // leaf of rows[0]
	rows    []byte // of the index
	segment uint64 // first leaf of the segment whose bytes are in window
	at      int64
	window  []byte
}

// Blocks that a RowScan reads, bytes.
const (
	scanRows   = 512 * rowSize
	scanWindow = 32 << 10
)

// ScanRows begins a scan.
func (l *Log) ScanRows() (*RowScan, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	return &RowScan{v: v}, nil
}

// Size returns how many leaves there are.
func (s *RowScan) Size() uint64 { return s.v.size() }

// Leaf decodes a leaf.
func (s *RowScan) Leaf(i uint64) (*manifest.Record, error) { return s.v.leaf(i) }

// RowDigests are the digests of one leaf, borrowed until the next call of the
// scan.
type RowDigests struct {
	Rows  []byte // 32 bytes each
	State []byte // StateSize bytes each
	Any   bool   // the leaf has digests
}

// Digests returns the digests of the rows of leaf i. Damage is a corrupt.Error;
// any other error means that the files could not be read.
func (s *RowScan) Digests(i uint64) (RowDigests, error) {
	if i >= s.v.archived {
		if i >= s.v.size() {
			return RowDigests{}, manifest.ErrNoLeaf
		}
		t := s.v.tail[i-s.v.archived]
		if !t.row.rows {
			return RowDigests{}, nil
		}
		return digestsAt(t.body, i)
	}
	r, err := s.row(i)
	if err != nil || !r.rows {
		return RowDigests{}, err
	}
	body, err := s.body(i, r)
	if err != nil {
		return RowDigests{}, err
	}
	return digestsAt(body, i)
}

// digestsAt cuts the digests from the end of a body.
func digestsAt(body []byte, i uint64) (RowDigests, error) {
	t, err := tallyOf(body)
	if err == nil && t.bytes() > len(body) {
		err = errRow
	}
	if err != nil {
		return RowDigests{}, corruptAt(leavesName, 0, int64(i), fmt.Errorf("digests of rows: %w", err))
	}
	body = body[len(body)-t.bytes():]
	n := t.rows * rowDigest
	return RowDigests{Rows: body[:n:n], State: body[n : n+t.state*StateSize : n+t.state*StateSize], Any: true}, nil
}

// row returns the index row of a leaf. It reads a block of rows from that leaf on, so rising
// indexes cost one read for 512.
func (s *RowScan) row(i uint64) (row, error) {
	if i < s.first || i >= s.first+uint64(len(s.rows)/rowSize) {
		b, err := readUpTo(s.v.arch.index, rowOffset(i), min(scanRows, int(s.v.archived-i)*rowSize))
		if err != nil {
			return row{}, readError(indexName, rowOffset(i), int64(i), err)
		}
		s.first, s.rows = i, b
		if len(b) < rowSize {
			s.rows = nil
			return row{}, corruptAt(indexName, rowOffset(i), int64(i), errors.New("the file ends before the row"))
		}
	}
	at := int(i-s.first) * rowSize
	return parseRow(s.rows[at:at+rowSize], i)
}

// body returns the bytes of a leaf, from the window if it has them.
func (s *RowScan) body(i uint64, r row) ([]byte, error) {
	seg, err := s.v.segment(i)
	if err != nil {
		return nil, err
	}
	if s.v.arch.seal != nil {
		return s.v.arch.opened.body(s.v, i, r)
	}
	from, to := int64(r.off)+frameSize, r.end()
	if s.window == nil || seg.first != s.segment || from < s.at || to > s.at+int64(len(s.window)) {
		b, err := readUpTo(seg.file, from, max(scanWindow, int(to-from)))
		if err != nil {
			return nil, readError(seg.name(), from, int64(i), err)
		}
		s.segment, s.at, s.window = seg.first, from, b
	}
	if to > s.at+int64(len(s.window)) {
		return nil, corruptAt(seg.name(), from, int64(i), errors.New("the file ends within the leaf"))
	}
	return s.window[from-s.at : to-s.at], nil
}
