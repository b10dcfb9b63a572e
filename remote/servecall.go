package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/internal/http1"
)

// The server handles one call in four steps: find the session, read the whole request, run the method, write the answer.
// Requests are read before a method runs, so a client that sends slowly holds a connection and nothing else. Deadlines
// apply to transfers over the socket, not to the work: a call may take hours, but reading its request or writing one part
// of its answer at most frameTime.
//
// Until a method runs, an error is an HTTP status with a refusal in JSON, and the client knows that nothing was done. From
// then on the answer is a stream of frames that ends in the result or an error.

// serveCall answers one call: its session is found, its body read, the method run, the answer written. Until the method
// runs a call is refused as a whole, in JSON; from then on it ends in a frame.
func (s *Server) serveCall(e *http1.Exchange, name string) {
	m, ok := methods[name]
	if !ok {
		refuse(e, &refused{404, refusal{Code: refusedMethod, Message: fmt.Sprintf("there is no call %q", name)}})
		return
	}
	if s.find(e.Header.Get(headerSession)) == nil && s.drained.Err() == nil { // a long request need not be read for that
		refuse(e, noSession())
		return
	}
	out := &body{e: e}
	ask, err := out.read()
	number, bad := strconv.ParseUint(e.Header.Get(headerCall), 10, 64)
	if err = errors.Join(err, bad); err != nil {
		refuse(e, &refused{400, refusal{Code: refusedBody, Message: err.Error()}})
		return
	}
	out.end(s.makeCall(e, m, number, ask, out.progress))
}

// makeCall runs a method in its session. A server that drains waits for it, not for the client that reads the answer.
func (s *Server) makeCall(e *http1.Exchange, m method, number uint64, ask []byte, progress func(string, uint64, uint64)) ([]byte, error) {
	if !s.begins() {
		return nil, closing()
	}
	defer s.calls.Done()
	sess := s.find(e.Header.Get(headerSession))
	if sess == nil || !sess.enter() {
		return nil, noSession()
	}
	defer sess.leave()
	ctx := e.Ctx
	if m.whole {
		ctx = context.WithoutCancel(ctx)
	}
	if m.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.drained, cancel)()
	}
	run := func() ([]byte, error) {
		b, err := m.run(&request{ctx: ctx, store: s.store, session: sess, progress: progress}, ask)
		if err != nil && m.long && s.drained.Err() != nil {
			err = errClosing
		}
		return b, err
	}
	if m.once {
		return sess.once(e.Ctx, number, run)
	}
	return run()
}

func noSession() *refused {
	return &refused{410, refusal{Code: refusedSession, Message: "the session is not known or has lapsed: say hello again"}}
}

// body is the answer to a call on its way.
type body struct {
	e     *http1.Exchange
	begun bool
	told  time.Time // when progress was written last
}

// read takes the request. While it arrives there is a deadline (http1.Server.Patience); none when the method runs, so that
// the connection tells when the client leaves.
func (b *body) read() ([]byte, error) {
	kind, ask, err := readMessage(b.e.Body, maxRequest, nil)
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("a request ends in a frame %q", kind)
	}
	if err != nil {
		return nil, err
	}
	if n, _ := b.e.Body.Read(make([]byte, 1)); n > 0 {
		return nil, errors.New("bytes follow the request")
	}
	b.e.Listen()
	return ask, nil
}

// progressEvery limits reports of progress, so that a slow listener does not slow a fast job.
const progressEvery = 20 * time.Millisecond

func (b *body) progress(what string, done, total uint64) {
	if now := time.Now(); done != total && now.Sub(b.told) < progressEvery {
		return
	} else {
		b.told = now
	}
	message, err := packFrame(frameProgress, progress{what, done, total})
	if err == nil {
		_ = b.write(message, false)
	}
}

// end writes the answer, or the error. A call that was refused by its session, or cannot be read, was not made.
func (b *body) end(given []byte, err error) {
	var no *refused
	var bad *malformed
	switch {
	case err == nil:
		_ = b.write(given, true)
		return
	case errors.As(err, &no) && !b.begun:
		refuse(b.e, no)
		return
	case errors.As(err, &bad) && !b.begun:
		refuse(b.e, &refused{400, refusal{Code: refusedBody, Message: bad.Error()}})
		return
	}
	message, failed := packFrame(frameError, struct{ Err error }{err})
	if failed != nil {
		message, _ = packFrame(frameError, struct{ Err error }{&sent{text: err.Error()}})
	}
	_ = b.write(message, true)
}

// write sends bytes, part by part, each under a deadline (http1.Server.Reading), so that a client that does not read is cut off. All: nothing was
// written before, and nothing follows.
func (b *body) write(p []byte, all bool) error {
	if !b.begun {
		length := int64(-1)
		if all {
			length = int64(len(p))
		}
		if err := b.e.Begin(200, packType, length); err != nil {
			return err
		}
		b.begun = true
	}
	for len(p) > 0 {
		n := min(len(p), 1<<20)
		if _, err := b.e.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
