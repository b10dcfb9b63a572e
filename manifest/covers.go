package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Two late elements of a leaf: what a prune covers, and what is known of the prune that took a
// body.

// The covered leaves of a prune are pairs of varints: leaves since the end of the range before, and
// how many.

func emptyCovers(w *wire) bool { return len(w.Covers) == 0 }

// encCovers appends the ranges. They must ascend and be disjoint, and may touch.
func encCovers(out []byte, w *wire) ([]byte, error) {
	var b []byte
	at, n := uint64(0), uint64(0)
	for _, s := range w.Covers {
		if s[0] < at || s[1] <= s[0] {
			return out, fmt.Errorf("covered leaves [%d,%d) are none or not ascending", s[0], s[1])
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, s[0]-at), s[1]-s[0])
		at, n = s[1], n+s[1]-s[0]
	}
	if n > MaxCovers {
		return out, fmt.Errorf("%d covered leaves; the limit is %d", n, MaxCovers)
	}
	return appendBytes(out, b), nil
}

// decCovers reads the ranges. Its limits keep every sum within 64 bits.
func decCovers(d *msgpack.Decoder, w *wire) error {
	b, err := decBytes(d)
	for at := uint64(0); err == nil && len(b) > 0; {
		gap, k := binary.Uvarint(b)
		n, m := uint64(0), 0
		if k > 0 {
			n, m = binary.Uvarint(b[k:])
		}
		if m <= 0 || n == 0 || gap > maxLeaves || n > MaxCovers || at > maxLeaves {
			return errors.New("covered leaves that are no ranges")
		}
		w.Covers = append(w.Covers, Span{at + gap, at + gap + n})
		at, b = at+gap+n, b[k+m:]
	}
	return err
}

func emptyPruned(w *wire) bool { return w.Pruned == nil }

// encPruned appends what is known of a prune, for another process. It never goes into a file: there
// a stub names its prune leaf, and that leaf says the rest.
func encPruned(b []byte, w *wire) ([]byte, error) {
	p := w.Pruned
	b = appendUint(appendUint(appendString(appendArrayLen(b, 5), p.Trace), p.Leaf), uint64(p.At))
	return appendString(appendString(b, p.By), p.Action), nil
}

func decPruned(d *msgpack.Decoder, w *wire) error {
	if code, err := d.PeekCode(); err != nil || code == msgpcode.Nil {
		return errors.Join(err, d.DecodeNil())
	}
	p := &Pruned{}
	var at uint64
	err := decTuple(d, 5, &p.Trace, &p.Leaf, &at, &p.By, &p.Action)
	if p.At = int64(at); err == nil {
		w.Pruned = p
	}
	return err
}
