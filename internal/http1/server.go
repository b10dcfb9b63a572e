package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers requests with a handler. All methods may be called concurrently.
type Server struct {
	// Handle answers one request. It is called in a goroutine of its connection.
	Handle func(*Exchange)
	// Patience is for how long the head of a request may be on its way, once its first byte came, and then the rest of it;
	// 0: for ever. A request that is here as a whole has no deadline.
	Patience time.Duration
	// Reading is for how long the peer may take to read what one Write of an answer wrote; 0: for ever.
	Reading time.Duration
	// Conns is how many connections may be open; further ones are closed at once. 0: any number.
	Conns int

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]bool
	conns     map[net.Conn]bool
	running   sync.WaitGroup
}

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("the server is closed")

// Serve accepts connections until Close.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	if s.listeners == nil {
		s.listeners, s.conns = map[net.Listener]bool{}, map[net.Conn]bool{}
	}
	s.listeners[l] = true
	s.mu.Unlock()
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if err == nil {
			pause = 0
			s.begin(c)
			continue
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return ErrClosed
		}
		var slow interface{ Temporary() bool } // out of file descriptors, say
		if !errors.As(err, &slow) || !slow.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

func (s *Server) begin(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.Conns > 0 && len(s.conns) >= s.Conns {
		_ = c.Close()
		return
	}
	s.conns[c] = true
	s.running.Go(func() {
		s.serve(c)
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// Close closes listeners and connections, which ends the contexts of the requests under way, and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var errs []error
	for l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(errs...)
}

// serve answers the requests of a connection, one after the other.
func (s *Server) serve(c net.Conn) {
	r := bufio.NewReaderSize(c, buffer)
	out, ear := &outlet{conn: c, within: s.Reading}, &ear{conn: c, r: r}
	for {
		if _, err := r.Peek(1); err != nil {
			return
		}
		here, _ := r.Peek(r.Buffered())
		slow := s.Patience > 0 && !bytes.Contains(here, []byte("\r\n\r\n")) // mostly the head came as a whole
		if slow {
			_ = c.SetReadDeadline(time.Now().Add(s.Patience))
		}
		first, h, err := readHead(r)
		if err == nil && slow {
			err = c.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return
		}
		e := &Exchange{conn: c, out: out, r: r, ear: ear, Header: h}
		if e.Body, err = bodyOf(r, h); err == nil {
			err = e.parse(first)
		}
		if err != nil {
			e.Body, e.last = &counted{}, true
			_ = e.Reply(400, "text/plain", []byte(err.Error()+"\n"))
			return
		}
		if s.Patience > 0 && !e.Arrived() {
			e.expect(time.Now().Add(s.Patience))
		}
		if !e.run(s.Handle) {
			return
		}
	}
}

// Exchange is a request, and the answer to it.
type Exchange struct {
	Ctx    context.Context // ends when the answer does, or after Listen when the peer leaves
	Method string
	Path   string
	Header Header
	Body   io.Reader // of the request; Listen only after its end

	conn  net.Conn
	out   *outlet
	r     *bufio.Reader
	end   context.CancelFunc
	ear   *ear      // of the connection
	read  bool      // Listen was called
	until time.Time // by which the rest of the request must be here; zero: any time
	last  bool      // no request follows
	begun bool
	head  []byte // of the answer, until it is written with what comes first
	chunk bool
	left  int64 // bytes of the answer that were announced and not written
	cut   bool
}

func (e *Exchange) parse(first string) error {
	method, rest, ok := strings.Cut(first, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !strings.HasPrefix(version, "HTTP/1.") || !strings.HasPrefix(target, "/") {
		return fmt.Errorf("%w: request %.100q", errMalformed, first)
	}
	e.Method = method
	e.Path, _, _ = strings.Cut(target, "?")
	e.last = version == "HTTP/1.0" || strings.EqualFold(e.Header.Get("connection"), "close")
	if strings.EqualFold(e.Header.Get("expect"), "100-continue") {
		e.Body = &awaited{e, e.Body}
	}
	return nil
}

// awaited is a body that is sent once it is asked for.
type awaited struct {
	e    *Exchange
	from io.Reader
}

func (a *awaited) Read(p []byte) (int, error) {
	if a.e != nil && !a.e.begun {
		if err := a.e.out.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return 0, err
		}
	}
	a.e = nil
	return a.from.Read(p)
}

// run has the request answered; false: the connection is of no use any more.
func (e *Exchange) run(handle func(*Exchange)) bool {
	e.Ctx, e.end = context.WithCancel(context.Background())
	defer e.end()
	handle(e)
	e.ear.answered()
	e.expect(time.Time{})
	if e.cut || !e.begun || e.left > 0 {
		return false
	}
	if e.chunk {
		e.head = append(e.head, "0\r\n\r\n"...)
	}
	return e.out.write(e.head) == nil && !e.last
}

// outlet is the writing side of a connection.
type outlet struct {
	conn    net.Conn
	within  time.Duration
	until   time.Time // the deadline of a write
	scratch []byte    // the last message, for the memory
}

// outletSlack is how much longer than within a write may take: the deadline is not moved for each of them.
const outletSlack = time.Second

func (o *outlet) write(head []byte, parts ...[]byte) error {
	if o.within > 0 {
		if now := time.Now(); o.until.Sub(now) < o.within {
			o.until = now.Add(o.within + outletSlack)
			if err := o.conn.SetWriteDeadline(o.until); err != nil {
				return err
			}
		}
	}
	_, scratch, err := writeMessage(o.conn, head, parts...)
	o.scratch = scratch
	return err
}

// drain reads what is left of the request, else its sender waits until it is read, and does not see the answer. Who waits
// to be asked for it gets the answer instead, and the connection ends.
func (e *Exchange) drain() {
	if a, ok := e.Body.(*awaited); ok && a.e != nil {
		e.last = true
		return
	}
	if e.read {
		return
	}
	if e.Arrived() {
		_, _ = io.Copy(io.Discard, e.Body)
		return
	}
	if !e.until.IsZero() && !time.Now().Before(e.until) {
		e.last = true // who sent it a byte at a time is not waited for twice
		return
	}
	n, err := io.Copy(io.Discard, io.LimitReader(e.Body, maxDrain))
	e.last = e.last || err != nil || n == maxDrain // the rest would be taken for the next request
}

// expect sets the time by which the rest of the request must be here; zero: there is none to be expected.
func (e *Exchange) expect(until time.Time) {
	if !e.until.Equal(until) {
		e.until = until
		_ = e.conn.SetReadDeadline(until)
	}
}

// maxDrain is what is read of a request that nobody wants.
const maxDrain = 256 << 20

// ear notices that the peer of a connection leaves while its request is answered. Most answers are given before it listens.
//
// Its timer is set once for all answers of a while, and is not stopped when one is given: a timer for each of them woke a
// thread that slept until a later one.
type ear struct {
	conn net.Conn
	r    *bufio.Reader

	mu    sync.Mutex
	timer *time.Timer
	set   bool               // the timer is running
	since time.Time          // when the answer was begun
	end   context.CancelFunc // of the answer; nil: there is none
	heard chan struct{}      // closed when nobody listens any more; nil: nobody did
}

// earAfter is how long an answer may take before anybody listens: most are given at once, and a goroutine that waits for
// the peer costs them more than the answer.
const earAfter = 2 * time.Millisecond

func (l *ear) begin(end context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end, l.since = end, time.Now()
	switch {
	case l.set:
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(earAfter, l.look)
	default:
		l.timer.Reset(earAfter)
	}
	l.set = true
}

// look listens if the answer has taken long enough, and is called again if it has not.
func (l *ear) look() {
	l.mu.Lock()
	if left := earAfter - time.Since(l.since); l.end != nil && left > 0 {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.set = false
	if l.end == nil {
		l.mu.Unlock()
		return
	}
	end, heard := l.end, make(chan struct{})
	l.heard = heard
	l.mu.Unlock()
	defer close(heard)
	if _, err := l.r.Peek(1); err != nil { // a byte is of the next request
		end()
	}
}

// answered is called after the answer was sent. Nobody reads from the connection afterwards.
func (l *ear) answered() {
	l.mu.Lock()
	heard := l.heard
	l.end, l.heard = nil, nil
	l.mu.Unlock()
	if heard != nil { // it stops: its deadline has passed
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
		<-heard
		_ = l.conn.SetReadDeadline(time.Time{})
	}
}

// Listen ends Ctx when the peer leaves, within a few milliseconds. Call it once the request was read to its end.
func (e *Exchange) Listen() {
	e.read = true
	e.expect(time.Time{})
	e.ear.begin(e.end)
}

// Arrived tells that the whole request is here: reading it waits for nobody.
func (e *Exchange) Arrived() bool {
	b, ok := e.Body.(*counted)
	return ok && b.left <= int64(e.r.Buffered())
}

// Cut closes the connection without an answer, or in the middle of one.
func (e *Exchange) Cut() { e.cut = true; _ = e.conn.Close() }

// Begin begins the answer; what is left of the request is read and dropped. Its body is what Write gets: length bytes, or below 0 as many as come.
func (e *Exchange) Begin(status int, contentType string, length int64) error {
	if e.begun {
		return errors.New("the answer has begun")
	}
	e.drain()
	e.begun = true
	h := append(strconv.AppendInt(append(e.out.scratch[:0], "HTTP/1.1 "...), int64(status), 10), ' ')
	h = append(appendDate(append(append(h, reasons[status]...), "\r\nDate: "...)), "\r\n"...)
	if contentType != "" {
		h = append(append(append(h, "Content-Type: "...), contentType...), "\r\n"...)
	}
	switch {
	case length >= 0 && status != 204:
		e.left = length
		h = append(strconv.AppendInt(append(h, "Content-Length: "...), length, 10), "\r\n"...)
	case length < 0 && !e.last:
		e.chunk = true
		h = append(h, "Transfer-Encoding: chunked\r\n"...)
	}
	if e.last {
		h = append(h, "Connection: close\r\n"...)
	}
	e.head = append(h, "\r\n"...)
	return nil
}

// dates is the last date that was written.
var dates atomic.Pointer[dated]

type dated struct {
	second int64
	text   string
}

func appendDate(b []byte) []byte {
	now := time.Now()
	d := dates.Load()
	if d == nil || d.second != now.Unix() {
		d = &dated{now.Unix(), now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		dates.Store(d)
	}
	return append(b, d.text...)
}

// Write writes a part of the answer, at once.
func (e *Exchange) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // a chunk of no bytes is the end
	}
	head := e.head
	e.head = nil
	var err error
	if e.chunk {
		err = e.out.write(fmt.Appendf(head, "%x\r\n", len(p)), p, []byte("\r\n"))
	} else {
		err = e.out.write(head, p)
		e.left -= int64(len(p))
	}
	if err != nil {
		e.cut = true
		return 0, err
	}
	return len(p), nil
}

// Reply is a whole answer.
func (e *Exchange) Reply(status int, contentType string, body []byte) error {
	if err := e.Begin(status, contentType, int64(len(body))); err != nil {
		return err
	}
	_, err := e.Write(body)
	return err
}
