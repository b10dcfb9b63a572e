package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// A connection at the server: one goroutine reads a call, runs it and writes the answer, so nobody
// is woken in between. A request has the server's patience to arrive once its first byte came, and
// each part of an answer has frameTime to be read. A client that leaves ends the context of its
// call.

// readBuffer is the size of one read: most messages, whole.
const readBuffer = 16 << 10

// serveConn answers the calls of a connection until the client leaves or the server ends. Close cuts
// the connection, so one that waits for its next call ends too.
func (s *Server) serveConn(c net.Conn) {
	st := &served{s: s, conn: c, r: bufio.NewReaderSize(c, readBuffer)}
	st.ear = &ear{conn: c, r: st.r}
	for err := st.greet(); err == nil && st.next() == nil && !s.isClosed(); {
		err = st.call()
	}
}

// served is a connection at the server.
type served struct {
	s       *Server
	conn    net.Conn
	r       *bufio.Reader
	ear     *ear
	scratch [frameHeader + maxCallHead]byte
	arrive  time.Time // by which the rest of a message must be here; zero: nobody waits for it
	leave   time.Time // the deadline of a write
}

// greet exchanges greetings. A *SkewError is for a client that greets differently; it was told so.
func (st *served) greet() error {
	said := make([]byte, len(greeting))
	if _, err := io.ReadFull(st, said); err != nil {
		return err
	}
	if err := st.arrived(); err != nil {
		return err
	}
	answer, err := greeting, error(nil)
	if string(said) != greeting {
		skew := &SkewError{Said: string(said)}
		if err = skew; skew.Before() {
			answer = refusedRequest
		}
	}
	if bad := st.writeAll([]byte(answer)); err == nil {
		err = bad
	}
	return err
}

// next waits until a message begins, for as long as the connection is there.
func (st *served) next() error {
	_, err := st.r.Peek(1)
	return err
}

// Read reads a part of a message. The whole message has as long as the server's patience lasts,
// unless it is here already.
func (st *served) Read(p []byte) (int, error) {
	if st.r.Buffered() == 0 && st.arrive.IsZero() {
		st.arrive = time.Now().Add(st.s.opts.patience)
		if err := st.conn.SetReadDeadline(st.arrive); err != nil {
			return 0, err
		}
	}
	return st.r.Read(p)
}

// arrived ends the deadline of a message that was read to its end.
func (st *served) arrived() error {
	if st.arrive.IsZero() {
		return nil
	}
	st.arrive = time.Time{}
	return st.conn.SetReadDeadline(st.arrive)
}

// call answers one call. After an error the connection cannot be used: nobody knows where the next
// call begins.
func (st *served) call() error {
	h, err := readCall(st, &st.scratch)
	if err != nil {
		return err
	}
	kind, ask, err := readMessage(st, maxRequest, nil)
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("a request ends in a frame %q", kind)
	}
	if err != nil {
		_ = st.writeAll(refusalFrame(refuse(refusedBody, err.Error())))
		return err
	}
	ctx, end := context.WithCancel(background)
	defer end()
	if err := st.arrived(); err != nil {
		return err
	}
	st.ear.begin(end)
	out := &reply{write: st.write}
	given, err := st.s.answer(ctx, h, ask, out.progress)
	st.ear.answered()
	out.end(given, err)
	if h.name == "Stop" && err == nil { // after the answer: the end of the server cuts it
		st.s.stop.Do(func() { go st.s.opts.Stop() })
	}
	return out.failed
}

// write sends frames, or a refusal.
func (st *served) write(p []byte, no *refused) error {
	if no != nil {
		p = refusalFrame(no)
	}
	for len(p) > 0 { // each part has a deadline
		n := min(len(p), writePart)
		if err := st.writeAll(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// writePart is the size of a write under one deadline.
const writePart = 1 << 20

// writeSlack is how much longer than frameTime a write may take: the deadline is not moved for each
// of them.
const writeSlack = time.Second

// writeAll writes a message, or a part of one.
func (st *served) writeAll(p []byte) error {
	if now := time.Now(); st.leave.Sub(now) < frameTime {
		st.leave = now.Add(frameTime + writeSlack)
		if err := st.conn.SetWriteDeadline(st.leave); err != nil {
			return err
		}
	}
	_, err := st.conn.Write(p)
	return err
}
