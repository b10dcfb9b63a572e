package conversation

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// The words of a turn in its row: their hashes ascend below 2^32, so the steps between them are stored, each as a Rice
// code: what the step has above its low bits as that many ones and a zero, then the low bits. A word takes 29 bits in a turn
// of 20, 23 in one of a thousand; the hashes of 64 bits before took 64, which was the largest part of a row.
//
// 32 bits are enough because a false match does little: of a conversation of 100,000 turns of 30 words, one pass for 20 words
// takes in one of 70 cases one turn for nearer to the intent than it is.

// packWords appends hashes, ascending and distinct: uvarint count, then the codes from the low end of each byte on.
func packWords(b []byte, hashes []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(hashes)))
	w, low, next := bitWriter{b: b}, lowBits(len(hashes)), uint64(0)
	for _, h := range hashes {
		step := h - next
		for q := step >> low; q > 0; {
			n := min(q, 32)
			w.put(1<<n-1, uint(n))
			q -= n
		}
		w.put(0, 1)
		w.put(step&(1<<low-1), low)
		next = h + 1
	}
	return w.end()
}

// lowBits is how many bits of a step follow its ones. The step is about 2^32 / n.
func lowBits(n int) uint { return uint(max(0, 32-bits.Len(uint(n)))) }

// readWords takes what packWords wrote, and nothing else.
func readWords(d *codec.Decoder) []uint64 {
	size := len(d.B)
	n := d.Uvarint()
	size -= len(d.B)
	r := bitReader{b: d.Rest()}
	if n == 0 || n > 8*uint64(len(r.b)) || size > 1 && n < 1<<(7*size-7) { // each takes a bit; a count has one form
		d.Fail()
		return nil
	}
	out, low, next := make([]uint64, n), lowBits(int(n)), uint64(0)
	for i := range out {
		h := next + r.ones()<<low
		h += r.take(low)
		if h > math.MaxUint32 || r.short {
			d.Fail()
			return nil
		}
		out[i], next = h, h+1
	}
	if !r.done() {
		d.Fail()
		return nil
	}
	return out
}

// bitWriter appends bits, the first at the low end of a byte.
type bitWriter struct {
	b    []byte
	bits uint64
	n    uint // below 8 between calls
}

// put appends the n low bits of v, which has no others; n is at most 32.
func (w *bitWriter) put(v uint64, n uint) {
	w.bits |= v << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.b, w.bits = append(w.b, byte(w.bits)), w.bits>>8
	}
}

func (w *bitWriter) end() []byte {
	if w.n > 0 {
		w.b = append(w.b, byte(w.bits))
	}
	return w.b
}

// bitReader reads what a bitWriter wrote.
type bitReader struct {
	b     []byte
	bits  uint64
	n     uint
	short bool // more was asked for than there is
}

// fill makes at least 32 bits ready, where there are so many.
func (r *bitReader) fill() {
	for r.n <= 56 && len(r.b) > 0 {
		r.bits |= uint64(r.b[0]) << r.n
		r.b, r.n = r.b[1:], r.n+8
	}
}

func (r *bitReader) take(n uint) uint64 {
	if r.fill(); r.n < n {
		r.short = true
		return 0
	}
	v := r.bits & (1<<n - 1)
	r.bits, r.n = r.bits>>n, r.n-n
	return v
}

// ones counts ones up to a zero, and takes it as well.
func (r *bitReader) ones() (n uint64) {
	for {
		r.fill()
		some := min(uint(bits.TrailingZeros64(^r.bits)), r.n)
		r.bits, r.n, n = r.bits>>some, r.n-some, n+uint64(some)
		if r.n > 0 {
			r.bits, r.n = r.bits>>1, r.n-1
			return n
		}
		if len(r.b) == 0 {
			r.short = true
			return n
		}
	}
}

// done reports whether nothing but the zeros that fill the last byte is left.
func (r *bitReader) done() bool {
	return !r.short && len(r.b) == 0 && r.n < 8 && r.bits == 0
}
