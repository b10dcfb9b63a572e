package http1

import (
	"bufio"
	"context"
	"net"
	"strings"
	"time"
)

// A connection can leave HTTP: the client asks for another protocol by its name, the server answers 101, and from then on
// both sides write what that protocol says. A head of fields for each message cost two programs of this project more than
// most messages.
//
// Who may write: one side at a time, by turns. Only the goroutine that serves the connection reads and writes it, except
// that the server's ear peeks while an answer is worked out, as it does for HTTP.

// Upgraded is the server's side of a connection that left HTTP.
type Upgraded struct {
	*outlet
	r        *bufio.Reader
	ear      *ear
	patience time.Duration
	until    time.Time // by which the rest of a message must be here; zero: nobody waits for it
}

// Wants tells that the request asks for a protocol.
func (e *Exchange) Wants(protocol string) bool {
	return !e.last && strings.EqualFold(e.Header.Get("upgrade"), protocol)
}

// Upgrade answers that the connection speaks the protocol now. It is closed when the handler returns.
func (e *Exchange) Upgrade(protocol string, patience time.Duration) (*Upgraded, error) {
	e.drain()
	e.begun, e.last = true, true
	e.expect(time.Time{})
	head := "HTTP/1.1 101 " + reasons[101] + "\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
	return &Upgraded{outlet: e.out, r: e.r, ear: e.ear, patience: patience}, e.out.write([]byte(head))
}

// Next waits until a message begins, for as long as the connection is there.
func (u *Upgraded) Next() error {
	_, err := u.r.Peek(1)
	return err
}

// Read reads a part of a message. The whole message has as long as the server's patience lasts, unless it is here already.
func (u *Upgraded) Read(p []byte) (int, error) {
	if u.r.Buffered() == 0 && u.patience > 0 && u.until.IsZero() {
		u.until = time.Now().Add(u.patience)
		if err := u.conn.SetReadDeadline(u.until); err != nil {
			return 0, err
		}
	}
	return u.r.Read(p)
}

// Listen ends a context when the peer leaves, within a few milliseconds. The message was read to its end, and Answered
// follows.
func (u *Upgraded) Listen(end context.CancelFunc) error {
	if !u.until.IsZero() {
		u.until = time.Time{}
		if err := u.conn.SetReadDeadline(u.until); err != nil {
			return err
		}
	}
	u.ear.begin(end)
	return nil
}

// Answered is called before the next message is read.
func (u *Upgraded) Answered() { u.ear.answered() }

// WriteAll writes a message, or a part of one.
func (u *Upgraded) WriteAll(p []byte) error { return u.write(nil, p) }

// Upgrade asks the server for another protocol. The connection is the caller's where the answer is nil; else the answer
// says why there is none, and must be closed. When the context ends before the server answered, the connection is closed.
func (c *Client) Upgrade(ctx context.Context, path, protocol string, h Header) (net.Conn, *bufio.Reader, *Response, error) {
	h = append(Header{{"Connection", "Upgrade"}, {"Upgrade", protocol}}, h...)
	res, err := c.Do(ctx, "POST", path, h, nil)
	if err != nil || res.Status != 101 {
		return nil, nil, res, err
	}
	if !res.detach() {
		_ = res.on.Close()
		return nil, nil, nil, ctx.Err()
	}
	return res.on.Conn, res.on.r, nil, nil
}
