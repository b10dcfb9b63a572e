package loop

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

// At returns the place in a cursor that was made for the same thing. No other string has one.
func At(cursor string, of ...string) (at uint64, ok bool) {
	n, tail, _ := strings.Cut(cursor, ".")
	at, err := strconv.ParseUint(n, 10, 64)
	return at, err == nil && cursor == Cursor(at, of...) && tail != ""
}

// Bind makes a cursor of a text that says where the next part begins, for the listing of a thing.
func Bind(at string, of ...string) string { return bound(append(of, at)) + "." + at }

// Bound returns the text in a cursor that Bind made for the same thing. No other string has one.
func Bound(cursor string, of ...string) (at string, ok bool) {
	_, at, _ = strings.Cut(cursor, ".")
	return at, at != "" && cursor == Bind(at, of...)
}

func bound(of []string) string {
	var b []byte
	for _, s := range of {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
