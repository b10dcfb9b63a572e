// Package http1 implements the part of HTTP/1.1 that processes of one machine use over a unix socket: requests and
// answers with a length or in chunks, connections that are reused, and a server that notices when its peer leaves. It
// exists so that a program that opens a database does not link net/http. Curl and net/http understand it.
package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Header are the fields of a message, their names in lower case. There are few, so a list is quicker than a map.
type Header []Field

// Field is one of them.
type Field struct{ Name, Value string }

// Get returns the value of a field, the last one where there are several; "": there is none.
func (h Header) Get(name string) string {
	v, _ := h.get(name)
	return v
}

func (h Header) get(name string) (value string, ok bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Name == name {
			return h[i].Value, true
		}
	}
	return "", false
}

// Limits of a message's head, and of a line that says how long a chunk is.
const (
	maxHead  = 64 << 10
	maxChunk = 64
)

// buffer is what is read at once: most messages, whole. A body of at most as much is written with its head.
const buffer = 16 << 10

// writeMessage writes a head and what comes behind it, where they are short as one piece. scratch is kept for the next one.
func writeMessage(to net.Conn, head []byte, parts ...[]byte) (n int64, scratch []byte, err error) {
	size := len(head)
	for _, p := range parts {
		size += len(p)
	}
	if size > 0 && len(head) == 0 && len(parts) == 1 {
		wrote, err := to.Write(parts[0])
		return int64(wrote), head, err
	}
	if size > buffer {
		all := append(net.Buffers{head}, parts...)
		n, err = all.WriteTo(to)
		return n, head, err
	}
	scratch = head
	for _, p := range parts {
		scratch = append(scratch, p...)
	}
	if len(scratch) == 0 {
		return 0, scratch, nil // the kernel need not be asked
	}
	wrote, err := to.Write(scratch)
	return int64(wrote), scratch, err
}

// errMalformed means that what came is not HTTP/1.1 as this package speaks it.
var errMalformed = errors.New("malformed HTTP message")

// readLine reads a line of at most limit bytes, without its end.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return "", fmt.Errorf("%w: a line of more than %d bytes", errMalformed, limit)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			if len(line) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}

// readHead reads the first line and the fields of a message. Mostly it is here as a whole, and is read as one text.
func readHead(r *bufio.Reader) (first string, h Header, err error) {
	here, _ := r.Peek(r.Buffered())
	if n := headEnd(here); n > 0 && n <= maxHead {
		text := string(here[:n])
		_, _ = r.Discard(n) // it is buffered
		return parseHead(text)
	}
	if first, err = readLine(r, maxHead); err != nil {
		return "", nil, err
	}
	for left := maxHead - len(first); ; {
		line, err := readLine(r, left)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || line == "" {
			return first, h, err
		}
		left -= len(line)
		if h, err = h.with(line); err != nil {
			return "", nil, err
		}
	}
}

// headEnd is where a head ends that is here as a whole, behind its empty line; 0: it is not.
func headEnd(here []byte) int {
	for at, lines := 0, 0; ; lines++ {
		n := bytes.IndexByte(here[at:], '\n')
		if n < 0 {
			return 0
		}
		empty := len(bytes.TrimRight(here[at:at+n], "\r")) == 0
		if at += n + 1; empty && lines > 0 {
			return at
		}
	}
}

func parseHead(text string) (first string, h Header, err error) {
	first, text, _ = strings.Cut(text, "\n")
	h = make(Header, 0, 8)
	for {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line = strings.TrimRight(line, "\r"); line == "" {
			return strings.TrimRight(first, "\r"), h, nil
		}
		if h, err = h.with(line); err != nil {
			return "", nil, err
		}
	}
}

// with adds the field of a line.
func (h Header) with(line string) (Header, error) {
	name, value, ok := strings.Cut(line, ":")
	name = strings.ToLower(name)
	_, twice := h.get(name)
	if !ok || name == "" || strings.ContainsAny(name, " \t") || twice && (name == "content-length" || name == "transfer-encoding") {
		return nil, fmt.Errorf("%w: field %.100q", errMalformed, line)
	}
	return append(h, Field{name, strings.TrimSpace(value)}), nil
}

// bodyOf is the body that a head announces. Without a length and without chunks it is empty.
func bodyOf(r *bufio.Reader, h Header) (io.Reader, error) {
	coding, chunks := h.get("transfer-encoding")
	length, sized := h.get("content-length")
	switch {
	case chunks && (!strings.EqualFold(coding, "chunked") || sized):
		return nil, fmt.Errorf("%w: transfer encoding %.100q, length %.100q", errMalformed, coding, length)
	case chunks:
		return &chunked{r: r}, nil
	case !sized:
		return &counted{r: r}, nil
	}
	n, err := strconv.ParseUint(length, 10, 63)
	if err != nil {
		return nil, fmt.Errorf("%w: length %.100q", errMalformed, length)
	}
	return &counted{r: r, left: int64(n)}, nil
}

// counted is a body of a known length.
type counted struct {
	r    io.Reader
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunked is a body in chunks.
type chunked struct {
	r     *bufio.Reader
	left  int64 // of the chunk
	begun bool
	err   error
}

func (c *chunked) Read(p []byte) (int, error) {
	if c.err == nil && c.left == 0 {
		c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// next reads how long the next chunk is. After the last one come fields that nobody asked for, and an empty line.
func (c *chunked) next() {
	var line string
	if c.begun {
		if line, c.err = readLine(c.r, maxChunk); c.err == nil && line != "" {
			c.err = fmt.Errorf("%w: %.100q after a chunk", errMalformed, line)
		}
	}
	c.begun = true
	if c.err == nil {
		line, c.err = readLine(c.r, maxChunk)
	}
	if c.err == nil {
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 63)
		if c.left = int64(n); err != nil {
			c.err = fmt.Errorf("%w: a chunk of %.100q bytes", errMalformed, line)
		}
	}
	for left := maxHead; c.err == nil && c.left == 0; left -= len(line) {
		if line, c.err = readLine(c.r, left); c.err == nil && line == "" {
			c.err = io.EOF
			return
		}
	}
	if errors.Is(c.err, io.EOF) {
		c.err = io.ErrUnexpectedEOF
	}
}

// reasons are the texts of the statuses that this project's servers give.
var reasons = map[int]string{
	101: "Switching Protocols", 200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
	409: "Conflict", 410: "Gone", 500: "Internal Server Error", 503: "Service Unavailable",
}
