package listing

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
)

// Cursor names a place in the listing of something, such as a scope and an id. The cursor says what it was made for, in a
// few bytes, so that a list of something else does not go on at a number that means nothing there. It is no secret: who
// may read a list is decided without it.
func Cursor(at uint64, of ...string) string {
	return strconv.FormatUint(at, 10) + "." + bound(of)
}

// At gives the place in a cursor that was made for the same thing. No other string has one.
func At(cursor string, of ...string) (at uint64, ok bool) {
	n, tail, _ := strings.Cut(cursor, ".")
	at, err := strconv.ParseUint(n, 10, 64)
	return at, err == nil && cursor == Cursor(at, of...) && tail != ""
}

func bound(of []string) string {
	var b []byte
	for _, s := range of {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
