package codec

import (
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Unpack decodes msgpack that came from a file: checksum (the caller's), then lengths and depth,
// then decode.
func Unpack(b []byte, v any) error {
	if err := manifest.Scan(b); err != nil {
		return err
	}
	return msgpack.Unmarshal(b, v)
}

// Fields keeps the first error; after it all values are zero.
type Fields struct {
	D   *msgpack.Decoder
	Err error
}

// Value reads one value with a method of msgpack.Decoder, unless an earlier read failed.
func Value[T any](x *Fields, read func(*msgpack.Decoder) (T, error)) (v T) {
	if x.Err == nil {
		v, x.Err = read(x.D)
	}
	return v
}

// Uint, Int, Text and Bool read one element each; zero after an error.
func (x *Fields) Uint() uint64 { return Value(x, (*msgpack.Decoder).DecodeUint64) }

func (x *Fields) Int() int64 { return Value(x, (*msgpack.Decoder).DecodeInt64) }

func (x *Fields) Text() string { return Value(x, (*msgpack.Decoder).DecodeString) }

func (x *Fields) Bool() bool { return Value(x, (*msgpack.Decoder).DecodeBool) }

func (x *Fields) Array(want int) {
	if n := Value(x, (*msgpack.Decoder).DecodeArrayLen); x.Err == nil && n != want {
		x.Err = fmt.Errorf("%d fields, expected %d", n, want)
	}
}

// Null takes a nil, if one is next.
func (x *Fields) Null() bool {
	next := Value(x, (*msgpack.Decoder).PeekCode)
	if x.Err == nil && next == msgpcode.Nil {
		x.Err = x.D.DecodeNil()
		return true
	}
	return x.Err != nil
}

// Texts reads a list of strings; nil where the row has a nil.
func (x *Fields) Texts() (out []string) {
	if x.Null() {
		return nil
	}
	out = make([]string, max(0, Value(x, (*msgpack.Decoder).DecodeArrayLen)))
	for i := range out {
		out[i] = x.Text()
	}
	return out
}

// Slice reads what few rows have.
func Slice[T any](x *Fields, v *[]T) {
	if !x.Null() {
		x.Err = x.D.Decode(v)
	}
}
