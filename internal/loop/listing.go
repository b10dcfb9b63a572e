// Package loop has the loops around calls that return one part at a time, take long, or fail for a while: a list that is read in
// parts becomes a sequence for range (All), and a cursor names a place in it; a function of the host is called under a
// deadline (Call); requests over HTTP are repeated within one (Retryable, Backoff, Wait).
package loop

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"iter"
	"strconv"
	"strings"
)

// All ranges over a list that read returns in parts, from start on. Read returns a part, the place of the next part, and
// whether there is one.
//
// An error is yielded once, as the last pair, with the zero value. If read returns an error and says that there is a
// next part, the error is about items it left out: the others are yielded first and the error at the end, joined with
// those of other parts. The context is checked before each item; its end is an error like any other. Breaking out of
// the loop reads no further part and reports nothing. Each range over the sequence reads the list anew.
func All[T, P any](ctx context.Context, start P, read func(at P) (part []T, next P, more bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var left error // what is wrong with items that were left out
		fail := func(err error) {
			if left != nil {
				err = errors.Join(left, err)
			}
			yield(none, err)
		}
		for at, more := start, true; more; {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			part, next, ok, err := read(at)
			for _, x := range part {
				if err := ctx.Err(); err != nil {
					fail(err)
					return
				}
				if !yield(x, nil) {
					return
				}
			}
			switch {
			case err != nil && !ok:
				fail(err)
				return
			case err != nil:
				left = errors.Join(left, err)
			}
			at, more = next, ok
		}
		if left != nil {
			yield(none, left)
		}
	}
}

// Collect reads a sequence to its end. It returns the items before an error beside the error.
func Collect[T any](seq iter.Seq2[T, error]) (out []T, err error) {
	for x, failed := range seq {
		if failed != nil {
			return out, failed
		}
		out = append(out, x)
	}
	return out, nil
}

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
