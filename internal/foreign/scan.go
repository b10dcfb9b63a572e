package foreign

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/encoding/unicode"

	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// Bounds of a file.
const (
	MaxItem  = 32 << 20 // bytes of an item
	MaxChat  = 64 << 20 // bytes of an item that is a whole conversation
	MaxDepth = 64
	maxKey   = 4096 // bytes
)

// element is one value of a file: an item of a list, or a value of its own.
type element struct {
	raw       []byte // borrowed until the next one
	line      int    // in which it begins
	key       string // under which its list is; "": the list, or the value, stands by itself
	container int    // which list of the file it is in, from 0
	index     int    // its place there
	rest      bool   // the container itself, without the list that was in it
	path      string // of a value within the element; "": the element
	undated   *int   // counts the times that cannot be read
}

// scanner cuts a file into elements and keeps one in memory. A file is a list, an object that has a list under one of
// some keys, or any number of such values one after the other, as in JSONL.
type scanner struct {
	ctx   context.Context
	r     *bufio.Reader
	line  int
	buf   []byte
	lists []string // keys of an object under which the items are
	limit int
	bytes int64
	// values counts the values at the top level. Where reading goes on in a file, it begins with those before.
	values int
	// told hears how many bytes were read; nil: nobody does.
	told func(bytes int64)
}

func newScanner(ctx context.Context, r io.Reader, lists ...string) *scanner {
	return &scanner{ctx: ctx, r: bufio.NewReaderSize(r, 64<<10), line: 1, lists: lists, limit: MaxItem}
}

func (s *scanner) fail(got, expected string) error {
	return &portable.LineError{Line: s.line, Err: store.Invalid("file", got, expected)}
}

// within is an error in the value that is being read, of which the buffer has the beginning.
func (s *scanner) within(got, expected string) error {
	err := s.fail(got, expected)
	var at, to *portable.LineError
	if errors.As(newChecker(element{raw: s.buf, line: s.line}).value(0), &to) && errors.As(err, &at) {
		at.Field = to.Field
	}
	return err
}

// byte reads one byte and counts lines.
func (s *scanner) byte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, err
	}
	if b == '\n' {
		s.line++
	}
	return b, s.read(1)
}

// skip returns the next byte that is no blank, without taking it. It goes through what the reader has buffered: a file may be a
// gigabyte of blanks.
func (s *scanner) skip() (byte, error) {
	for {
		b, err := s.r.Peek(1)
		if err != nil {
			return 0, err
		}
		if !blank(b[0]) {
			return b[0], nil
		}
		part, _ := s.r.Peek(s.r.Buffered())
		n := 1
		for n < len(part) && blank(part[n]) {
			n++
		}
		s.line += bytes.Count(part[:n], []byte{'\n'})
		_, _ = s.r.Discard(n)
		if err := s.read(n); err != nil {
			return 0, err
		}
	}
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// take skips blanks and takes the byte that is expected.
func (s *scanner) take(want byte) error {
	b, err := s.skip()
	if errors.Is(err, io.EOF) {
		return s.fail("its end, within a value", "the whole file")
	}
	if err != nil {
		return err
	}
	if b != want {
		return s.fail(fmt.Sprintf("%q", b), fmt.Sprintf("%q", want))
	}
	_, err = s.byte()
	return err
}

// each calls fn for the elements of the file.
func (s *scanner) each(fn func(element) error) error {
	if bom, err := s.r.Peek(3); err == nil && bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = s.r.Discard(3)
	}
	if mark, err := s.r.Peek(2); err == nil && (bytes.Equal(mark, []byte("\xff\xfe")) || bytes.Equal(mark, []byte("\xfe\xff"))) {
		s.r = bufio.NewReaderSize(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Reader(s.r), 64<<10)
	}
	for ; ; s.values++ {
		b, err := s.skip()
		switch {
		case errors.Is(err, io.EOF) && s.values == 0:
			return s.fail("nothing", "JSON")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case b == '[':
			err = s.list(s.values, "", fn)
		case b == '{':
			err = s.object(s.values, fn)
		default:
			return s.fail(portable.FormatHint(b), "a list or an object")
		}
		if err != nil {
			return err
		}
	}
}

// list returns the elements of a list.
func (s *scanner) list(container int, key string, fn func(element) error) error {
	if err := s.take('['); err != nil {
		return err
	}
	if b, err := s.skip(); err == nil && b == ']' {
		return s.take(']')
	}
	for i := 0; ; i++ {
		e := element{key: key, container: container, index: i}
		if _, err := s.skip(); err == nil {
			e.line = s.line
		}
		s.buf = s.buf[:0]
		if err := s.value(); err != nil {
			return err
		}
		e.raw = s.buf
		if err := fn(e); err != nil {
			return err
		}
		if b, err := s.skip(); err == nil && b == ']' {
			return s.take(']')
		}
		if err := s.take(','); err != nil {
			return err
		}
	}
}

// object returns the elements of the list in an object, then the rest of it. An object without such a list is an element.
func (s *scanner) object(container int, fn func(element) error) error {
	whole := element{line: s.line, container: container, rest: true}
	if err := s.take('{'); err != nil {
		return err
	}
	rest := []byte{'{'}
	var lists []string
	for first := true; ; first = false {
		b, err := s.skip()
		if err == nil && b == '}' {
			if err := s.take('}'); err != nil {
				return err
			}
			whole.raw = append(rest, '}')
			whole.rest = len(lists) > 0
			return fn(whole)
		}
		if !first {
			if err := s.take(','); err != nil {
				return err
			}
			if _, err := s.skip(); err != nil {
				return s.fail("its end, within an object", "the whole file")
			}
		}
		s.buf = s.buf[:0]
		if err := s.key(); err != nil {
			return err
		}
		key := string(s.buf)
		if err := s.take(':'); err != nil {
			return err
		}
		if b, err := s.skip(); err == nil && b == '[' && slices.Contains(s.lists, strings.Trim(key, `"`)) {
			if slices.Contains(lists, key) {
				return s.fail("the list "+key+" twice", "each key of an object once")
			}
			lists = append(lists, key)
			var name string
			if err := json.Unmarshal([]byte(key), &name); err != nil {
				return s.fail("a key that is no string", "a string")
			}
			if err := s.list(container, name, fn); err != nil {
				return err
			}
			continue
		}
		s.buf = s.buf[:0]
		if err := s.value(); err != nil {
			return err
		}
		if len(rest)+len(s.buf) > s.limit {
			return s.fail(fmt.Sprintf("a value of more than %d bytes", s.limit), "a smaller one")
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, key...), ':'), s.buf...)
	}
}

// key reads a string with its quotes.
func (s *scanner) key() error {
	if b, err := s.skip(); err != nil || b != '"' {
		return s.fail(fmt.Sprintf("%q", b), "a key in quotes")
	}
	limit := s.limit
	s.limit = maxKey
	defer func() { s.limit = limit }()
	return s.value()
}

// value reads one value into the buffer. It counts quotes and brackets only; check looks at the rest. It goes through what the
// reader has buffered, and not byte by byte.
func (s *scanner) value() error {
	if _, err := s.skip(); err != nil {
		if errors.Is(err, io.EOF) {
			return s.fail("its end, where a value is expected", "the whole file")
		}
		return err
	}
	var at nesting
	for {
		_, err := s.r.Peek(1)
		if errors.Is(err, io.EOF) && at.scalar && !at.quoted {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return s.within("its end, within a value", "the whole file")
		}
		if err != nil {
			return fmt.Errorf("ctxpage: import: %w", err)
		}
		part, _ := s.r.Peek(s.r.Buffered())
		n, done := at.through(part)
		if at.deep {
			return s.fail(fmt.Sprintf("more than %d levels", MaxDepth), "fewer")
		}
		if len(s.buf)+n > s.limit {
			return s.within(fmt.Sprintf("a value of more than %d bytes", s.limit), "a smaller one")
		}
		s.buf = append(s.buf, part[:n]...)
		s.line += bytes.Count(part[:n], []byte{'\n'})
		_, _ = s.r.Discard(n)
		if err := s.read(n); err != nil || done {
			return err
		}
	}
}

// nesting is the place of a value.
type nesting struct {
	depth                         int
	quoted, escaped, scalar, deep bool
}

// through goes on with the next bytes, and says how many are of the value, and whether it ends with them.
func (v *nesting) through(b []byte) (n int, done bool) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case v.escaped:
			v.escaped = false
		case v.quoted && c == '\\':
			v.escaped = true
		case v.quoted && c == '"':
			if v.quoted = false; v.depth == 0 {
				return i + 1, true
			}
		case v.quoted:
			// Not IndexByte, which would look for the quote up to the end of b again behind each escape.
			for i+1 < len(b) && b[i+1] != '"' && b[i+1] != '\\' {
				i++
			}
		case v.scalar && bytes.IndexByte([]byte(" \t\r\n,]}:"), c) >= 0:
			return i, true
		case c == '"':
			v.quoted = true
		case c == '{' || c == '[':
			if v.depth++; v.depth > MaxDepth {
				v.deep = true
				return i, true
			}
		case c == '}' || c == ']':
			if v.depth--; v.depth <= 0 {
				return i + 1, true
			}
		case v.depth == 0:
			v.scalar = true
		}
	}
	return len(b), false
}

// read counts bytes and reports them.
func (s *scanner) read(n int) error {
	was := s.bytes
	if s.bytes += int64(n); was>>20 == s.bytes>>20 {
		return nil
	}
	if s.told != nil {
		s.told(s.bytes)
	}
	return s.ctx.Err()
}
