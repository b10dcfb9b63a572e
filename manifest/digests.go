package manifest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// The digests of the rows that a batch wrote are the last element of its leaf, and their number the last bytes of that,
// so that one of them is read at a known distance from the end: whoever loads a page must not decode a leaf of a
// thousand writes. Therefore no element may follow this one in a leaf that has it.

// rowDigest is the size of each.
const rowDigest = 32

func emptyRows(w *wire) bool { return len(w.Rows) == 0 }

func encRows(e *msgpack.Encoder, w *wire) error {
	if len(w.Rows) > MaxPages {
		return fmt.Errorf("%d rows; the limit is %d: split the call", len(w.Rows), MaxPages)
	}
	b := make([]byte, 0, len(w.Rows)*rowDigest+4)
	for _, d := range w.Rows {
		if len(d) != rowDigest {
			return fmt.Errorf("a digest of %d bytes, expected %d", len(d), rowDigest)
		}
		b = append(b, d...)
	}
	return e.EncodeBytes(binary.BigEndian.AppendUint32(b, uint32(len(w.Rows))))
}

func decRows(d *msgpack.Decoder, w *wire) error {
	b, err := d.DecodeBytes()
	if err != nil || len(b) == 0 {
		return err
	}
	n := len(b) / rowDigest * rowDigest
	if n == 0 || len(b) != n+4 || int(binary.BigEndian.Uint32(b[n:])) != n/rowDigest || n/rowDigest > MaxPages {
		return fmt.Errorf("digests of rows in %d bytes", len(b))
	}
	for ; n > 0; n -= rowDigest {
		w.Rows = append(w.Rows, Digest(b[:rowDigest:rowDigest]))
		b = b[rowDigest:]
	}
	return nil
}

// RowDigest is element k of Rows in leaf i, read without the rest of the leaf. ErrNoLeaf: it has none of that number.
func (l *Log) RowDigest(i uint64, k int) (d [rowDigest]byte, err error) {
	v, err := l.view()
	if err != nil {
		return d, err
	}
	if i >= v.size() {
		return d, fmt.Errorf("%w: %d of %d", ErrNoLeaf, i, v.size())
	}
	end, err := v.endOf(i)
	if err != nil {
		return d, err
	}
	var n [4]byte
	if err := end(n[:], 4); err != nil {
		return d, err
	}
	count := int(binary.BigEndian.Uint32(n[:]))
	if k < 0 || k >= count || count > MaxPages {
		return d, fmt.Errorf("%w: leaf %d has the digests of %d rows, number %d was asked for", ErrNoLeaf, i, count, k)
	}
	return d, end(d[:], int64(4+(count-k)*rowDigest))
}

// endOf gives what reads the last bytes of a leaf that ends in digests of rows: into b, from so far before its end.
func (v *view) endOf(i uint64) (func(b []byte, before int64) error, error) {
	none := fmt.Errorf("%w: leaf %d has no digests of rows", ErrNoLeaf, i)
	if i >= v.archived {
		t := v.tail[i-v.archived]
		if !t.row.rows {
			return nil, none
		}
		return func(b []byte, before int64) error {
			if before > int64(len(t.body)) {
				return errRow
			}
			copy(b, t.body[int64(len(t.body))-before:])
			return nil
		}, nil
	}
	r, err := v.row(i)
	if err != nil {
		return nil, err
	}
	if !r.rows {
		return nil, none
	}
	s, err := v.segment(i)
	if err != nil {
		return nil, err
	}
	return func(b []byte, before int64) error {
		if before > int64(r.size) {
			return corrupt(segmentName(s.first), int64(r.off), int64(i), errors.New("more digests of rows than the leaf has bytes"))
		}
		at := r.end() - before
		if _, err := s.file.ReadAt(b, at); err != nil {
			return readError(segmentName(s.first), at, int64(i), err)
		}
		return nil
	}, nil
}

// FirstRows is the first leaf that has digests of rows; false: none has. Rows that are older cannot be compared.
func (l *Log) FirstRows(ctx context.Context) (*Record, bool, error) {
	v, err := l.view()
	if err != nil {
		return nil, false, err
	}
	for i := uint64(0); i < v.size(); {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		rows, err := v.rowsFrom(i)
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			if r.rows {
				leaf, err := v.leaf(i)
				return leaf, err == nil, err
			}
			i++
		}
	}
	return nil, false, nil
}

// rowsFrom reads some rows of the index from leaf i on, or all of the tail.
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
