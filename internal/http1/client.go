package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// maxIdle is how many connections a client keeps for later.
const maxIdle = 32

// Client makes requests to one server. All methods may be called concurrently.
type Client struct {
	// Dial connects. Its error is returned as it is.
	Dial func(context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*conn // the latest used last
}

// conn is a connection and what was read of it ahead.
type conn struct {
	net.Conn
	r   *bufio.Reader
	out []byte // the last request, for the memory
}

// Response is an answer whose body is still to be read. Close must be called.
type Response struct {
	Status int
	Header Header
	Body   io.Reader

	c      *Client
	on     *conn
	detach func() bool // of the context
}

// ErrUnsent is matched by the error of a request of which no byte was sent.
var ErrUnsent = errors.New("nothing was sent")

// Do sends a request and reads the head of the answer. When the context ends, the connection is closed, also while the
// body is read.
func (c *Client) Do(ctx context.Context, method, path string, h Header, body []byte) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	on, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	detach := context.AfterFunc(ctx, func() { _ = on.Close() })
	res, err := exchange(on, method, path, h, body)
	if err != nil {
		detach()
		_ = on.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, err
	}
	res.c, res.on, res.detach = c, on, detach
	return res, nil
}

func exchange(on *conn, method, path string, h Header, body []byte) (*Response, error) {
	head := append(append(append(append(on.out[:0], method...), ' '), path...), " HTTP/1.1\r\nHost: ctxpage\r\n"...)
	for _, f := range h {
		head = append(append(append(append(head, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	head = append(strconv.AppendInt(append(head, "Content-Length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	n, out, err := writeMessage(on.Conn, head, body)
	if err != nil {
		if n == 0 {
			err = fmt.Errorf("%w: %w", ErrUnsent, err)
		}
		return nil, err
	}
	on.out = out
	for {
		_, _ = on.r.Peek(1) // then the head is here as a whole, mostly; readHead gives the error
		first, fields, err := readHead(on.r)
		if err != nil {
			return nil, err
		}
		version, rest, _ := strings.Cut(first, " ")
		code, _, _ := strings.Cut(rest, " ")
		status, err := strconv.Atoi(code)
		if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
			return nil, fmt.Errorf("%w: answer %.100q", errMalformed, first)
		}
		if status < 200 && status != 101 {
			continue
		}
		res := &Response{Status: status, Header: fields}
		res.Body, err = bodyOf(on.r, fields)
		return res, err
	}
}

// take gives a connection: an idle one that its server has not closed, or a new one.
func (c *Client) take(ctx context.Context) (*conn, error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			break
		}
		on := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if on.alive() {
			return on, nil
		}
		_ = on.Close()
	}
	raw, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: raw, r: bufio.NewReaderSize(raw, buffer)}, nil
}

// Close ends the answer. The connection is kept where its body was read to the end.
func (r *Response) Close() {
	var b [1]byte
	n, err := r.Body.Read(b[:])
	reusable := n == 0 && errors.Is(err, io.EOF) && !strings.EqualFold(r.Header.Get("connection"), "close")
	if !r.detach() || !reusable {
		_ = r.on.Close()
		return
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if len(r.c.idle) >= maxIdle {
		_ = r.on.Close()
		return
	}
	r.c.idle = append(r.c.idle, r.on)
}

// CloseIdle closes the connections that are kept for later.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, on := range idle {
		_ = on.Close()
	}
}
