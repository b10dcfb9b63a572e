package remote

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// writer is a message being written: an encoder of msgpack over memory, which keeps its first error.
type writer struct {
	b      bytes.Buffer
	e      *msgpack.Encoder
	record codec.Encoder // of the record that is written
	texts  []byte        // of the candidates that are written
	err    error
	depth  int // of errors in errors
}

// writers are used again, and a message is copied out of one: a buffer that grows with each message
// is garbage of four times its size.
var writers = sync.Pool{New: func() any { return newWriter() }}

// maxWriter is the size of a buffer that is used again.
const maxWriter = 1 << 20

func newWriter() *writer {
	w := new(writer)
	w.e = msgpack.NewEncoder(&w.b)
	return w
}

// done returns w to the pool, unless a large message made its buffers large.
func (w *writer) done() {
	if w.b.Cap()+cap(w.record.B)+cap(w.texts) > maxWriter {
		return
	}
	w.b.Reset()
	w.err, w.depth = nil, 0
	writers.Put(w)
}

func (w *writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// null, flag, uint, int, float32, float64, text and bytes write one value each; list and dict write
// how many elements or pairs follow.
func (w *writer) null()             { w.keep(w.e.EncodeNil()) }
func (w *writer) flag(v bool)       { w.keep(w.e.EncodeBool(v)) }
func (w *writer) uint(v uint64)     { w.keep(w.e.EncodeUint(v)) }
func (w *writer) int(v int64)       { w.keep(w.e.EncodeInt(v)) }
func (w *writer) float32(v float32) { w.keep(w.e.EncodeFloat32(v)) }
func (w *writer) float64(v float64) { w.keep(w.e.EncodeFloat64(v)) }
func (w *writer) text(v string)     { w.keep(w.e.EncodeString(v)) }
func (w *writer) list(n int)        { w.keep(w.e.EncodeArrayLen(n)) }
func (w *writer) dict(n int)        { w.keep(w.e.EncodeMapLen(n)) }

// bytes writes a byte string of some parts.
func (w *writer) bytes(parts ...[]byte) {
	n := 0
	for _, v := range parts {
		n += len(v)
	}
	w.keep(w.e.EncodeBytesLen(n))
	for _, v := range parts {
		w.b.Write(v)
	}
}

// reader is a message being read. Nothing in it is trusted: memory is taken as values come, not as
// lengths announce them, and only errors nest, which are bounded. Its results share no memory with the
// message, unless a method says so.
type reader struct {
	b      []byte
	in     *bytes.Reader // over b; d reads no further than it decodes
	d      *msgpack.Decoder
	record codec.Decoder     // of the record that is read
	room   []store.Candidate // memory for the first list
	field  [maxName]byte
	depth  int // of errors in errors
}

// maxName bounds the name of a field, also of one that this program does not know.
const maxName = 255

// readers are used again: one has half a kilobyte.
var readers = sync.Pool{New: func() any {
	in := new(bytes.Reader)
	return &reader{in: in, d: msgpack.NewDecoder(in)}
}}

func newReader(b []byte) *reader {
	r := readers.Get().(*reader)
	r.b, r.depth = b, 0
	r.in.Reset(b)
	r.d.Reset(r.in)
	return r
}

// done returns r to the pool, without the message.
func (r *reader) done() {
	r.b, r.record, r.room = nil, codec.Decoder{}, nil
	r.in.Reset(nil)
	readers.Put(r)
}

// null reads a nil, if one is next.
func (r *reader) null() bool {
	c, err := r.d.PeekCode()
	return err == nil && c == msgpcode.Nil && r.d.DecodeNil() == nil
}

// flag, int, uint, float64, text and bytes read one value each, and nil as zero. list and dict read
// how many elements or pairs follow; -1: nil.
func (r *reader) flag() (bool, error)       { return r.d.DecodeBool() }
func (r *reader) int() (int64, error)       { return r.d.DecodeInt64() }
func (r *reader) uint() (uint64, error)     { return r.d.DecodeUint64() }
func (r *reader) float64() (float64, error) { return r.d.DecodeFloat64() }
func (r *reader) list() (int, error)        { return r.d.DecodeArrayLen() }
func (r *reader) dict() (int, error)        { return r.d.DecodeMapLen() }

func (r *reader) text() (string, error) {
	b, err := r.borrow()
	return string(b), err
}

func (r *reader) bytes() ([]byte, error) {
	b, err := r.borrow()
	return bytes.Clone(b), err
}

// borrow is bytes without a copy: they are part of the message.
func (r *reader) borrow() ([]byte, error) {
	n, err := r.d.DecodeBytesLen()
	if err != nil || n < 0 {
		return nil, err
	}
	at := len(r.b) - r.in.Len()
	if err := codec.Pass(r.in, n, nil); err != nil {
		return nil, err
	}
	return r.b[at : at+n : at+n], nil
}

// skip passes over a value. It counts what nests: a call for each level would take up the stack.
func (r *reader) skip() error {
	for left := 1; left > 0; left-- {
		n, err := codec.Items(r.d, r.in)
		if err != nil {
			return err
		}
		left += n
	}
	return nil
}

// name reads the name of a field, in memory that the next name overwrites.
func (r *reader) name() ([]byte, error) {
	n, err := r.d.DecodeBytesLen()
	if err == nil && n > maxName {
		err = fmt.Errorf("the name of a field has %d bytes, expected at most %d", n, maxName)
	}
	if err != nil || n <= 0 {
		return nil, err
	}
	return r.field[:n], r.d.ReadFull(r.field[:n])
}
