package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Frames and how they are read. A writer appends frames without sums to the group buffer and
// completes them when the group is written, because only then is it known which record is durable
// and under which key they are written. A reader trusts nothing: it checks the head before it
// believes the length, and the whole frame before it passes the body on.
//
//	errTorn        the bytes are not what was written: a torn write, or bit rot. A crash explains it, if nothing proves otherwise
//	errSenseless   the bytes were written here, and cannot belong here. No crash does that, so it is never cut
//
// A frame is a record on disk; FORMAT.md has the table. The names below are the offsets of its fields.
const (
	frSum     = 0
	frHeadSum = 8
	frLength  = 12
	frSeq     = 16
	frDurable = 24
	frKind    = 32
	frFlags   = 33
	frZero    = 34
	frBody    = 40
	frameHead = 40
	frAlign   = 8
	maxBody   = 1 << 30 // longest body of the format, whatever Options.MaxRecord says
)

const (
	flagClose byte = 1 << iota // final record of a clean Close
	flagSeal                   // no record: the segment ends here, the next begins with this seq
)

// frame is a decoded frame. body points into the window it was read from.
type frame struct {
	seq, durable uint64
	kind         Kind
	flags        byte
	body         []byte
	size         int64
}

// errTorn is the cause when bytes are not what was written: what a torn write leaves, and bit rot
// too.
var errTorn = errors.New("checksum does not match")

// errSenseless: the checksum is right, so these bytes were written here on purpose and no crash
// tore them, but they cannot be at this place. They are never cut away.
var errSenseless = errors.New("checksum is right, but")

// frameSize returns the length of a frame with a body of that length, padding included.
func frameSize(body int) int64 {
	return (int64(frameHead) + int64(body) + frAlign - 1) &^ (frAlign - 1)
}

// appendFrame appends a frame without durable and sums: these are known when the group is written.
func appendFrame(buf []byte, kind Kind, flags byte, seq uint64, parts ...[]byte) []byte {
	start := len(buf)
	var head [frameHead]byte
	buf = append(buf, head[:]...)
	for _, p := range parts {
		buf = append(buf, p...)
	}
	n := len(buf) - start - frameHead
	var zero [frAlign]byte
	buf = append(buf, zero[:int(frameSize(n))-frameHead-n]...)
	h := buf[start:]
	binary.LittleEndian.PutUint32(h[frLength:], uint32(n))
	binary.LittleEndian.PutUint64(h[frSeq:], seq)
	h[frKind], h[frFlags] = byte(kind), flags
	return buf
}

// finishFrame fills in durable and the sums of the frame at the front of b and returns its size.
func finishFrame(b []byte, key, durable uint64) int {
	n := int(binary.LittleEndian.Uint32(b[frLength:]))
	binary.LittleEndian.PutUint64(b[frDurable:], durable)
	binary.LittleEndian.PutUint32(b[frHeadSum:], headSum(b, key))
	binary.LittleEndian.PutUint64(b[frSum:], frameSum(b[:frBody+n], key))
	return int(frameSize(n))
}

// finishGroup finishes every frame of a group buffer.
func finishGroup(group []byte, key, durable uint64) {
	for len(group) > 0 {
		group = group[finishFrame(group, key, durable):]
	}
}

// headSum covers the header alone, so that a search behind a damaged frame trusts no length that
// was not checked, and costs the same whatever the bytes claim.
func headSum(head []byte, key uint64) uint32 {
	var in [8 + frameHead - frLength]byte
	binary.LittleEndian.PutUint64(in[:], key)
	copy(in[8:], head[frLength:frameHead])
	return uint32(xxhash.Sum64(in[:]))
}

// frameSum covers the key and everything behind the sum. The key is put in the place of the sum, so
// that one call covers both in a row.
func frameSum(frame []byte, key uint64) uint64 {
	old := binary.LittleEndian.Uint64(frame[frSum:])
	binary.LittleEndian.PutUint64(frame[frSum:], key)
	sum := xxhash.Sum64(frame)
	binary.LittleEndian.PutUint64(frame[frSum:], old)
	return sum
}

// headOK reports whether head starts a frame that was written under key. Cheap tests come first:
// the search calls it at every eighth byte.
func headOK(head []byte, key uint64) bool {
	return binary.LittleEndian.Uint32(head[frLength:]) <= maxBody &&
		[6]byte(head[frZero:frBody]) == [6]byte{} &&
		binary.LittleEndian.Uint64(head[frSeq:]) != 0 &&
		binary.LittleEndian.Uint32(head[frHeadSum:]) == headSum(head, key)
}

// read decodes the frame at off. Errors: errTorn, errSenseless, or an error of the file; f must not
// be used then.
func (f *frame) read(w *window, off int64, key uint64) error {
	head, err := w.at(off, frameHead)
	if err != nil {
		return err
	}
	if !headOK(head, key) {
		return fmt.Errorf("header: %w", errTorn)
	}
	n := int(binary.LittleEndian.Uint32(head[frLength:]))
	b, err := w.at(off, int(frameSize(n)))
	if err != nil {
		return err
	}
	if frameSum(b[:frBody+n], key) != binary.LittleEndian.Uint64(b[frSum:]) || !allZero(b[frBody+n:]) {
		return fmt.Errorf("body: %w", errTorn)
	}
	f.seq = binary.LittleEndian.Uint64(b[frSeq:])
	f.durable = binary.LittleEndian.Uint64(b[frDurable:])
	f.kind, f.flags = Kind(b[frKind]), b[frFlags]
	f.body = b[frBody : frBody+n : frBody+n]
	f.size = int64(len(b))
	return f.sense()
}

// sense returns errSenseless for what no writer of this format writes.
func (f *frame) sense() error {
	switch {
	case f.durable >= f.seq:
		return fmt.Errorf("%w record %d claims to be written after record %d was durable", errSenseless, f.seq, f.durable)
	case f.flags == flagSeal:
		if f.kind != 0 || len(f.body) != 0 {
			return fmt.Errorf("%w the seal is not empty", errSenseless)
		}
	case f.flags&^flagClose != 0:
		return fmt.Errorf("%w flags %#x are unknown", errSenseless, f.flags)
	case !f.kind.known():
		return fmt.Errorf("%w kind %#x is unknown", errSenseless, byte(f.kind))
	}
	return nil
}

// known reports whether this program writes records of a kind.
func (k Kind) known() bool { return k == KindCommit || k == KindAudit || k == KindMark }

// allZero reports whether bytes are padding as it is written.
func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// window reads a file in large pieces and returns small ones. It is not safe for concurrent use.
type window struct {
	f    File
	size int64
	buf  []byte
	off  int64 // of buf in the file
}

const windowBytes = 256 << 10

// windowBufs has the buffers of windows that were released.
var windowBufs sync.Pool

// newWindow makes a window. Release it when nothing that it returned is in use any more.
func newWindow(f File) (*window, error) {
	size, err := f.Size()
	w := &window{f: f, size: size}
	if buf, ok := windowBufs.Get().(*[]byte); ok {
		w.buf = (*buf)[:0]
	}
	return w, err
}

// release leaves the buffer to the next window. Bytes that at returned must not be used any more.
func (w *window) release() {
	if buf := w.buf; cap(buf) <= windowBytes { // a single record may be far larger
		windowBufs.Put(&buf)
	}
	w.buf = nil
}

// at returns n bytes at off, valid until the next call; errTorn when the file ends before them.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off < 0 || int64(n) > w.size-off {
		return nil, fmt.Errorf("the file ends inside it: %w", errTorn)
	}
	if off < w.off || off+int64(n) > w.off+int64(len(w.buf)) {
		if err := w.fill(off, n); err != nil {
			return nil, err
		}
	}
	return w.buf[off-w.off : off-w.off+int64(n)], nil
}

// fill reads from off on, at least n bytes, up to a buffer full. A record larger than windowBytes
// makes the buffer as large as itself; its length was checked by the head sum before.
func (w *window) fill(off int64, n int) error {
	want := int(min(int64(max(n, windowBytes)), w.size-off))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.off, w.buf = off, w.buf[:want]
	got, err := w.f.ReadAt(w.buf, off)
	w.buf = w.buf[:got]
	if got >= n {
		return nil
	}
	w.buf = w.buf[:0]
	if err == io.EOF { // it shrank under us
		return fmt.Errorf("the file ends inside it: %w", errTorn)
	}
	return err
}

// refresh drops the buffered bytes: the next at sees the file as it is now.
func (w *window) refresh() { w.buf = w.buf[:0] }

// contentEnd returns the offset behind the last byte from off on that is not zero; off if all are
// zero.
func (w *window) contentEnd(off int64) (int64, error) {
	end := off
	holes, _ := w.f.(interface{ nextData(off int64) int64 })
	for off < w.size {
		if holes != nil { // skip holes: the file may be larger than its data
			next := holes.nextData(off)
			if next < 0 || next >= w.size { // a live writer may have made it longer
				break
			}
			off = max(off, next)
		}
		n := int(min(64<<10, w.size-off))
		b, err := w.at(off, n)
		if errors.Is(err, errTorn) { // a live writer gave preallocated space back
			if now, serr := w.f.Size(); serr == nil && now < w.size {
				w.size = now
				continue
			}
		}
		if err != nil {
			return 0, err
		}
		zero := bytes.Equal(b, zeros[:n]) // as most are: byte by byte, a step of preallocation took a fifth of a ms of each open
		for i := n - 1; i >= 0 && !zero; i-- {
			if b[i] != 0 {
				end = off + int64(i) + 1
				break
			}
		}
		off += int64(n)
	}
	return end, nil
}
