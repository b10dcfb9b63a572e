package portable

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/store"
)

// A file is read in one pass, a line at a time. It is not trusted: lines are bounded, unknown fields are refused, and each error names
// line and field. The last line has counts and a digest of all lines before it, which tells a file that was cut off from a damaged one.

// maxLine bounds one line: the texts of the largest batch as JSON, or of the largest artefact if all of it is escaped.
const maxLine = 128 << 20

// maxHeader bounds the first line, which names the erases of the database: some 30 bytes each.
const maxHeader = 16 << 20

type lineReader struct {
	r     *bufio.Reader
	sum   hash.Hash
	line  int
	bytes int64
	buf   []byte
	limit int
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), sum: sha256.New(), limit: maxLine}
}

// errPartial is a last line without an end: the file was cut off there.
var errPartial = errors.New("ctxpage: the last line has no end")

// next returns the next line, borrowed until the next call. io.EOF; errPartial.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	if cap(l.buf) > 4<<20 {
		l.buf = nil
	}
	for {
		part, err := l.r.ReadSlice('\n')
		l.buf = append(l.buf, part...)
		switch {
		case len(l.buf) > l.limit:
			return nil, &LineError{Line: l.line + 1, Err: store.Invalid("line", fmt.Sprintf("more than %d bytes", l.limit), "a shorter one")}
		case err == nil:
			l.line, l.bytes = l.line+1, l.bytes+int64(len(l.buf))
			return l.buf, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(l.buf) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, errPartial
		default:
			return nil, fmt.Errorf("ctxpage: read: %w", err)
		}
	}
}

// decode reads a line into v. An import that ignored unknown fields would lose what a later release wrote.
func (l *lineReader) decode(b []byte, v any) error {
	if !utf8.Valid(b) {
		return &LineError{Line: l.line, Err: store.Invalid("line", "bytes that are not UTF-8", "UTF-8 text")}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return l.jsonError(err)
	}
	if d.More() {
		return &LineError{Line: l.line, Err: store.Invalid("line", "more than one JSON value", "one")}
	}
	return nil
}

func (l *lineReader) jsonError(err error) error {
	out := &LineError{Line: l.line, Err: err}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		out.Field, out.Err = kind.Field, store.Invalid("value", "a "+kind.Value, "a "+kind.Type.String())
	} else if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		out.Field, out.Err = strings.Trim(field, `"`), fmt.Errorf("%w: this program does not know the field; use a newer release", store.ErrNewerFormat)
	} else {
		out.Err = store.Invalid("line", "no JSON ("+err.Error()+")", "one JSON object")
	}
	return out
}

// FormatHint says what a file that is not JSON probably is, judged by its first byte: compressed,
// UTF-16, or text with a byte order mark.
func FormatHint(first byte) string {
	switch first {
	case 0x1f:
		return "a file that is compressed; unpack it first"
	case 0xfe, 0xff:
		return "UTF-16; convert it to UTF-8 first"
	case 0xef:
		return "a byte order mark"
	}
	return strconv.QuoteRune(rune(first))
}

func (l *lineReader) in(err error) error {
	var at *LineError
	if err == nil || errors.As(err, &at) && at.Line != 0 {
		return err
	}
	if errors.As(err, &at) {
		at.Line = l.line
		return err
	}
	return &LineError{Line: l.line, Err: err}
}

func (l *lineReader) header() (*Header, error) {
	b, err := l.next()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, errPartial) {
			got := "no line"
			if len(l.buf) > 0 && l.buf[0] != '{' {
				got = FormatHint(l.buf[0])
			}
			err = &LineError{Line: 1, Err: store.Invalid("file", got, "an export: its header")}
		}
		return nil, err
	}
	if len(b) > 0 && b[0] != '{' {
		return nil, l.in(store.Invalid("file", FormatHint(b[0]), "an export: its header"))
	}
	var is raw
	if err := json.Unmarshal(b, &is); err != nil {
		return nil, l.jsonError(err)
	}
	h := &Header{}
	if is.Type == typeHeader {
		err = l.decode(b, h)
	}
	if err == nil {
		err = l.in(h.check())
	}
	l.sum.Write(b)
	return h, err
}

// ReadHeader reads the first line of an export. ErrInvalid: it is not a header.
func ReadHeader(r io.Reader) (*Header, error) {
	l := newLineReader(r)
	l.limit = maxHeader
	return l.header()
}

// Verify reads a whole export and compares it with its last line. It does not prove the origin of the file.
func Verify(ctx context.Context, r io.Reader, progress store.Progress) (*Header, Counts, error) {
	l := newLineReader(r)
	head, err := l.header()
	if err != nil {
		return nil, Counts{}, err
	}
	for {
		b, err := l.next()
		if err == nil && l.line%1024 == 0 {
			if err = ctx.Err(); progress != nil {
				progress("bytes read", uint64(l.bytes), 0)
			}
		}
		if err != nil {
			return nil, Counts{}, l.cutOff(err)
		}
		if !bytes.HasPrefix(b, []byte(`{"type":"`+typeEnd+`"`)) {
			l.sum.Write(b)
			continue
		}
		end, err := l.end(b)
		return head, end.Counts, err
	}
}

// cutOff replaces the end of a file that came too early with an error.
func (l *lineReader) cutOff(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, errPartial) {
		return err
	}
	return &LineError{Line: l.line + 1, Err: store.Invalid("file", "its end, before the last line of an export", "the whole export; finish it with --resume, or make it again")}
}

func (l *lineReader) end(b []byte) (end endLine, err error) {
	if err := l.decode(b, &end); err != nil {
		return end, err
	}
	if !bytes.Equal(end.Digest, l.sum.Sum(nil)) || end.Lines != uint64(l.line) {
		return end, &LineError{Line: l.line, Field: "digest", Err: store.Invalid("file", "other lines than were exported", "the export as it was written; it was edited or damaged")}
	}
	if _, err := l.next(); !errors.Is(err, io.EOF) {
		return end, &LineError{Line: l.line, Err: store.Invalid("file", "more lines after the last", "nothing after the line of type end")}
	}
	return end, nil
}

// Position is the place up to which an interrupted export is whole.
type Position struct {
	Bytes    int64 // of whole lines: truncate the file to this size and append to it
	header   Header
	counts   Counts
	versions uint64 // lines
	lines    uint64
	sum      hash.Hash
}

// ReadPosition finds where to continue an interrupted export. The lines after the versions are few, and are written
// again. *InvalidError: the export is complete, or it is no export.
func ReadPosition(r io.Reader) (*Position, error) {
	l := newLineReader(r)
	head, err := l.header()
	if err != nil {
		return nil, err
	}
	at := &Position{header: *head, Bytes: l.bytes, lines: 1}
	for {
		b, err := l.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errPartial) {
			break
		}
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(b, []byte(`{"type":"`+typeEnd+`"`)) {
			return nil, store.Invalid("resume", "an export that is complete", "one that was cut off")
		}
		if at.lines != uint64(l.line-1) || !bytes.HasPrefix(b, []byte(`{"type":"`+typeVersion+`"`)) {
			continue // on to the end, which shows if it is complete
		}
		var line versionLine
		if err := l.decode(b, &line); err != nil {
			return nil, err
		}
		l.sum.Write(b)
		at.Bytes, at.lines, at.versions = l.bytes, at.lines+1, at.versions+1
		at.counts.Versions += uint64(1 + len(line.Before))
		for i := range line.Pages {
			if line.Pages[i].Text != nil {
				at.counts.Pages++
			}
		}
	}
	at.sum = l.sum
	return at, nil
}
