package view

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// CheckUnicode finds in valid JSON what no Unicode text can have: bytes that are not UTF-8, and the
// escape of half a surrogate pair. A decoder puts U+FFFD in its place, and what is stored then is
// not what was sent.
func CheckUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("got bytes that are not UTF-8, expected UTF-8")
	}
	for {
		at := bytes.IndexByte(b, '\\') // an escape has two bytes at least
		if at < 0 || at+2 > len(b) {
			return nil
		}
		b = b[at:]
		r := escaped(b)
		switch {
		case !utf16.IsSurrogate(r):
			b = b[2:]
		case utf16.DecodeRune(r, escaped(b[6:])) == utf8.RuneError:
			return fmt.Errorf("got %s, half of a surrogate pair, expected both halves", b[:6])
		default:
			b = b[12:]
		}
	}
}

// escaped is the code unit that an escape such as \u00e9 stands for; 0: the text begins otherwise.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
