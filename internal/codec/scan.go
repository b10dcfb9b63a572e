package codec

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// maxDepth bounds how deeply arrays and maps nest. Ours nest three deep.
const maxDepth = 32

var (
	errShort = errors.New("a length points past the end")
	errDeep  = fmt.Errorf("nested deeper than %d", maxDepth)
)

// Scan checks that b is exactly one msgpack value whose lengths fit into b and which nests at most
// 32 deep. Call it before every decoding, because the decoder allocates what a length promises:
// five bytes that announce four thousand million items would take all memory (vmihailenco/msgpack
// issue #401). Scan allocates nothing.
func Scan(b []byte) error {
	var left [maxDepth + 1]uint64 // values still to come on each level
	depth, need := 0, uint64(1)   // need: values still to come on all of them
	left[0] = 1
	for at := 0; need > 0; {
		size, items, err := scanHead(b[at:])
		if err != nil {
			return fmt.Errorf("msgpack at byte %d: %w", at, err)
		}
		at += size
		left[depth]--
		need += items - 1
		if need > uint64(len(b)-at) { // every value takes a byte
			return fmt.Errorf("msgpack at byte %d: %w", at, errShort)
		}
		if items > 0 {
			if depth++; depth > maxDepth {
				return fmt.Errorf("msgpack at byte %d: %w", at, errDeep)
			}
			left[depth] = items
		}
		for depth > 0 && left[depth] == 0 {
			depth--
		}
		if need == 0 && at != len(b) {
			return fmt.Errorf("msgpack ends at byte %d of %d", at, len(b))
		}
	}
	return nil
}

// scanHead reads one value without its items: the bytes it takes, and how many
// values follow as its items. Both are checked against len(b).
func scanHead(b []byte) (size int, items uint64, err error) {
	if len(b) == 0 {
		return 0, 0, errShort
	}
	c := b[0]
	switch {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		return 1, 0, nil
	case c <= 0x8f:
		return 1, 2 * uint64(c&0x0f), nil
	case c <= 0x9f:
		return 1, uint64(c & 0x0f), nil
	case c <= 0xbf:
		return payload(b, 1, uint64(c&0x1f))
	}
	switch c {
	case 0xc4, 0xd9: // bin8, str8
		return counted(b, 1, 0)
	case 0xc5, 0xda:
		return counted(b, 2, 0)
	case 0xc6, 0xdb:
		return counted(b, 4, 0)
	case 0xc7, 0xc8, 0xc9: // ext: one byte of type before the payload
		return counted(b, 1<<(c-0xc7), 1)
	case 0xca, 0xce, 0xd2:
		return payload(b, 1, 4)
	case 0xcb, 0xcf, 0xd3:
		return payload(b, 1, 8)
	case 0xcc, 0xd0:
		return payload(b, 1, 1)
	case 0xcd, 0xd1:
		return payload(b, 1, 2)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1, 2, 4, 8, 16
		return payload(b, 2, 1<<(c-0xd4))
	case 0xdc, 0xde:
		return many(b, 2, c == 0xde)
	case 0xdd, 0xdf:
		return many(b, 4, c == 0xdf)
	}
	return 0, 0, fmt.Errorf("byte %#x begins no value", c)
}

// payload is a value of head bytes and n more.
func payload(b []byte, head int, n uint64) (int, uint64, error) {
	if len(b) < head || uint64(len(b)-head) < n {
		return 0, 0, errShort
	}
	return head + int(n), 0, nil
}

// counted is a value whose length is in width bytes after the first.
func counted(b []byte, width, extra int) (int, uint64, error) {
	n, ok := bigEndian(b[1:], width)
	if !ok {
		return 0, 0, errShort
	}
	return payload(b, 1+width+extra, n)
}

// many is an array or map whose count is in width bytes after the first.
func many(b []byte, width int, pairs bool) (int, uint64, error) {
	n, ok := bigEndian(b[1:], width)
	if !ok {
		return 0, 0, errShort
	}
	if pairs {
		n *= 2
	}
	return 1 + width, n, nil
}

// bigEndian reads a number of 1, 2 or 4 bytes; false: there are fewer.
func bigEndian(b []byte, width int) (uint64, bool) {
	if len(b) < width {
		return 0, false
	}
	switch width {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	}
	return uint64(binary.BigEndian.Uint32(b)), true
}

// Unpack decodes msgpack that came from a file: checksum (the caller's), then lengths and depth,
// then decode.
func Unpack(b []byte, v any) error {
	if err := Scan(b); err != nil {
		return err
	}
	return msgpack.Unmarshal(b, v)
}
