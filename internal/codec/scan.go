package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// maxDepth bounds how deeply the arrays and maps of a row nest. Ours nest twice.
const maxDepth = 32

var (
	errShort = errors.New("a length points past the end")
	errDeep  = fmt.Errorf("nested deeper than %d", maxDepth)
	errMore  = errors.New("a value follows that nobody expects")
)

// Unpack decodes msgpack that came from a file: checksum (the caller's), then lengths and depth,
// then decode. The decoder allocates what a length promises: five bytes that announce four thousand
// million items would take all memory (vmihailenco/msgpack issue #401).
func Unpack(b []byte, v any) error {
	if err := scan(b); err != nil {
		return err
	}
	return msgpack.Unmarshal(b, v)
}

// scan checks that b is exactly one value whose lengths fit into b and which nests at most 32 deep.
func scan(b []byte) error {
	r := bytes.NewReader(b)
	d := msgpack.NewDecoder(r)
	var left [maxDepth + 1]int // values still to come on each level
	depth := 0
	for left[0] = 1; left[0] > 0 || depth > 0; {
		if left[depth] == 0 {
			depth--
			continue
		}
		left[depth]--
		items, err := Items(d, r)
		switch {
		case err != nil:
			return fmt.Errorf("msgpack at byte %d: %w", len(b)-r.Len(), err)
		case items > r.Len(): // every value takes a byte
			return fmt.Errorf("msgpack at byte %d: %w", len(b)-r.Len(), errShort)
		case items > 0 && depth == maxDepth:
			return fmt.Errorf("msgpack at byte %d: %w", len(b)-r.Len(), errDeep)
		case items > 0:
			depth++
			left[depth] = items
		}
	}
	if r.Len() > 0 {
		return fmt.Errorf("msgpack at byte %d: %w", len(b)-r.Len(), errMore)
	}
	return nil
}

// Items passes over the next value of in, which d reads, or over the head of an array or map, and returns how many values follow as
// its items.
func Items(d *msgpack.Decoder, in *bytes.Reader) (int, error) {
	c, err := d.PeekCode()
	switch {
	case err != nil:
		return 0, err
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return d.DecodeArrayLen()
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		n, err := d.DecodeMapLen()
		return 2 * n, err
	case msgpcode.IsString(c), msgpcode.IsBin(c):
		n, err := d.DecodeBytesLen()
		return 0, Pass(in, n, err)
	case msgpcode.IsExt(c):
		_, n, err := d.DecodeExtHeader()
		return 0, Pass(in, n, err)
	}
	return 0, d.Skip()
}

// Pass passes over the bytes of a value, after the decoder read their length. The decoder itself would take memory for a length whose
// bytes never come. It keeps that and takes more each time, so one that is used again would grow to gigabytes.
func Pass(in *bytes.Reader, n int, err error) error {
	if err != nil {
		return err
	}
	if n < 0 || n > in.Len() {
		return io.ErrUnexpectedEOF
	}
	_, err = in.Seek(int64(n), io.SeekCurrent)
	return err
}
