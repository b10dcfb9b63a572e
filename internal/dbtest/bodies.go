package dbtest

import (
	"encoding/binary"
	"path/filepath"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// Readable is a file as somebody reads it who knows its format: a segment of the archive is followed by the bodies of its leaves that are in
// their dense or brief form, where a word may be in parts.
func Readable(path string, b []byte) []byte {
	const header, frame = 24, 12
	if !strings.HasPrefix(filepath.Base(path), "leaves-") {
		return b
	}
	all := append([]byte(nil), b...)
	for at := header; at+frame <= len(b); {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if at += frame; n > len(b)-at {
			break
		}
		if body, err := codec.FromDense(b[at : at+n]); err == nil {
			all = append(all, body...)
		}
		if body, err := codec.FromBrief(0, b[at:at+n]); err == nil {
			all = append(all, body...)
		}
		at += n
	}
	return all
}
