package httpsource

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// contentType is the type and charset that a server declares for a body.
type contentType struct {
	media   string // "": it does not say
	charset string // lower case, "": it does not say
}

func typeOf(h http.Header) (contentType, error) {
	v := h.Get("Content-Type")
	if v == "" {
		return contentType{}, nil
	}
	media, params, err := mime.ParseMediaType(v)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return contentType{}, expected(errType, "content type %.80q cannot be read", v)
	}
	if !isText(media) {
		return contentType{}, expected(errType, "content type %.80q; expected text, JSON, XML, YAML or markdown", media)
	}
	return contentType{media, strings.ToLower(params["charset"])}, nil
}

func isText(media string) bool {
	if strings.HasPrefix(media, "text/") {
		return true
	}
	sub, ok := strings.CutPrefix(media, "application/")
	if !ok {
		return media == "image/svg+xml"
	}
	switch sub {
	case "json", "xml", "yaml", "x-yaml", "markdown", "x-markdown", "x-ndjson", "jsonlines", "xml-dtd":
		return true
	}
	return strings.HasSuffix(sub, "+json") || strings.HasSuffix(sub, "+xml") || strings.HasSuffix(sub, "+yaml")
}

// asciiAlike are charsets in which bytes below 128 mean what they mean in UTF-8.
var asciiAlike = []string{"us-ascii", "ascii", "latin1", "iso-8859-", "windows-125"}

// text checks that a body is UTF-8, by what the server says and by what it is. A mark of byte order before it is
// dropped; nothing else is changed.
func (t contentType) text(b []byte) ([]byte, error) {
	if t.media == "" && !strings.HasPrefix(http.DetectContentType(b), "text/") {
		return nil, expected(errType, "the server names no content type and the body does not look like text")
	}
	if cs := t.charset; cs != "" && cs != "utf-8" && cs != "utf8" && !(likeASCII(cs) && isASCII(b)) {
		return nil, expected(errCharset, "charset %.40q; expected utf-8", cs)
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if !utf8.Valid(b) {
		return nil, expected(errCharset, "the body has bytes that are not UTF-8, the first at offset %d", firstInvalid(b))
	}
	return b, nil
}

func likeASCII(charset string) bool {
	for _, p := range asciiAlike {
		if strings.HasPrefix(charset, p) {
			return true
		}
	}
	return false
}

func isASCII(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
}

func firstInvalid(b []byte) int {
	at := 0
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// readBody reads a body, unpacked, up to a limit on both sides of the unpacking.
func readBody(res *http.Response, limit int64) ([]byte, error) {
	if res.ContentLength > limit {
		return nil, expected(errTooLarge, "%d bytes; expected at most %d", res.ContentLength, limit)
	}
	switch enc := strings.ToLower(res.Header.Get("Content-Encoding")); enc {
	case "", "identity":
		return readLimited(res.Body, limit)
	case "gzip", "x-gzip":
		packed := &limited{r: res.Body, left: limit}
		z, err := gzip.NewReader(packed)
		if err != nil {
			return nil, unpackError(err, packed, limit)
		}
		b, err := readLimited(z, limit)
		if err != nil {
			return nil, unpackError(err, packed, limit)
		}
		return b, nil
	default:
		return nil, expected(errType, "content encoding %.40q; expected none or gzip", enc)
	}
}

func readLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, truncated(err)
	}
	if int64(len(b)) > limit {
		return nil, expected(errTooLarge, "more than %d bytes", limit)
	}
	return b, nil
}

func unpackError(err error, packed *limited, limit int64) error {
	switch {
	case packed.exceeded:
		return expected(errTooLarge, "more than %d bytes, packed", limit)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return &busy{error: expected(errTruncated, "the body is no sound gzip: %v", err)}
	case errors.Is(err, io.EOF):
		return truncated(io.ErrUnexpectedEOF)
	}
	return truncated(err)
}

// limited is an io.LimitedReader that knows whether there was more.
type limited struct {
	r        io.Reader
	left     int64
	exceeded bool
}

func (l *limited) Read(b []byte) (int, error) {
	if int64(len(b)) > l.left+1 {
		b = b[:l.left+1]
	}
	n, err := l.r.Read(b)
	if l.left -= int64(n); l.left < 0 {
		l.exceeded = true
		return n + int(l.left), io.ErrUnexpectedEOF
	}
	return n, err
}
