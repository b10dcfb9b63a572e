package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/http1"
	"github.com/ctxpage/ctxpage/store"
)

// The server handles one call in four steps: find the session, read the whole request, run the
// method, write the answer. Requests are read before a method runs, so a client that sends slowly
// holds a connection and nothing else. Deadlines apply to transfers over the socket, not to the
// work: a call may take hours, but reading its request or writing one part of its answer at most
// frameTime.
//
// Until a method runs, an error is an HTTP status with a refusal in JSON, and the client knows that
// nothing was done. From then on the answer is a stream of frames that ends in the result or an
// error.

// serveCall answers one call: its session is found, its body read, the method run, the answer
// written. Until the method runs a call is refused as a whole, in JSON; from then on it ends in a
// frame.
func (s *Server) serveCall(e *http1.Exchange, name string) {
	m, ok := methods[name]
	if !ok {
		refuse(e, noMethod(name))
		return
	}
	h := callHead{name: name, session: e.Header.Get(headerSession)}
	if s.find(h.session) == nil && s.drained.Err() == nil { // a long request need not be read for that
		refuse(e, noSession())
		return
	}
	ask, err := readAsk(e)
	var bad error
	h.number, bad = strconv.ParseUint(e.Header.Get(headerCall), 10, 64)
	if err = errors.Join(err, bad); err != nil {
		refuse(e, &refused{400, refusal{Code: refusedBody, Message: err.Error()}})
		return
	}
	out := &reply{write: (&body{e: e}).write}
	out.end(s.makeCall(e.Ctx, m, h, ask, out.progress))
}

// noMethod is the refusal of a call that this server does not know, as a newer client gets it.
func noMethod(name string) *refused {
	return &refused{404, refusal{Code: refusedMethod, Message: fmt.Sprintf("there is no call %q", name)}}
}

// makeCall runs a method in its session. A server that drains waits for it, not for the client that
// reads the answer. alive ends when the client leaves.
func (s *Server) makeCall(alive context.Context, m method, h callHead, ask []byte, progress func(string, uint64, uint64)) ([]byte, error) {
	if !s.begins() {
		return nil, refuseClosing()
	}
	defer s.calls.Done()
	sess := s.find(h.session)
	if sess == nil || !sess.enter() {
		return nil, noSession()
	}
	defer sess.leave()
	ctx := alive
	if m.whole {
		ctx = context.WithoutCancel(ctx)
	}
	if m.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.drained, cancel)()
	}
	run := func() (b []byte, err error) {
		defer func() {
			if why := recover(); why != nil {
				err = s.panicked(m, h.name, why)
			}
		}()
		r := &request{ctx: ctx, store: s.store, session: sess, progress: progress}
		b, err = m.run(r, ask)
		switch {
		case err == nil || !m.long || s.drained.Err() == nil:
			return b, err
		case r.made: // the client must not send it again
			return b, fmt.Errorf("%w: its process ended: %w", store.ErrOutcomeUnknown, err)
		}
		return b, errClosing
	}
	if m.once {
		return sess.once(alive, h.number, run)
	}
	return run()
}

// noSession is the refusal that makes a client say hello and send the call again.
func noSession() *refused {
	return &refused{410, refusal{Code: refusedSession, Message: "the session is not known or has lapsed: say hello again"}}
}

// readAsk takes the request. While it arrives there is a deadline (http1.Server.Patience); none
// when the method runs, so that the connection tells when the client leaves.
func readAsk(e *http1.Exchange) ([]byte, error) {
	kind, ask, err := readMessage(e.Body, maxRequest, nil)
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("a request ends in a frame %q", kind)
	}
	if err != nil {
		return nil, err
	}
	if n, _ := e.Body.Read(make([]byte, 1)); n > 0 {
		return nil, errors.New("bytes follow the request")
	}
	e.Listen()
	return ask, nil
}

// reply is the answer to a call on its way.
//
// A job must not wait for the client that it reports to: a client that was stopped would hold up the
// job, what the job has locked, and a server that drains. So tell writes the reports, in a goroutine
// of its own, and end waits for it when the job is over. Nobody else writes meanwhile.
type reply struct {
	// write sends frames, or refuses the call, which is for the first write only. all: nothing was
	// written before, and nothing follows.
	write  func(frames []byte, no *refused, all bool) error
	begun  bool
	failed error // of the last write

	mu      sync.Mutex    // guards the fields below
	reports chan []byte   // to be written; nil: there was none
	told    chan struct{} // closed when all reports are written
	last    time.Time     // when a report was made last
	over    bool
}

// send writes frames or a refusal. After a failed write nothing that follows can arrive, and each
// further write would wait for its whole deadline.
func (r *reply) send(frames []byte, no *refused, last bool) {
	if r.failed != nil {
		return
	}
	all := last && !r.begun
	r.begun = true
	r.failed = r.write(frames, no, all)
}

// progressEvery limits reports of progress, so that a slow listener does not slow a fast job.
const progressEvery = 20 * time.Millisecond

// reportsWaiting is how many reports wait for a client that does not read; further ones are dropped.
const reportsWaiting = 64

// progress has a report of a job sent, unless one was sent a moment ago. It does not wait.
func (r *reply) progress(what string, done, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.over || done != total && now.Sub(r.last) < progressEvery {
		return
	}
	r.last = now
	message, err := packFrame(frameProgress, progress{what, done, total})
	if err != nil {
		return
	}
	if r.reports == nil {
		r.reports, r.told = make(chan []byte, reportsWaiting), make(chan struct{})
		go r.tell(r.reports)
	}
	select {
	case r.reports <- message:
	default:
	}
}

// tell writes reports until the job is over.
func (r *reply) tell(reports <-chan []byte) {
	defer close(r.told)
	for message := range reports {
		r.send(message, nil, false)
	}
}

// settle waits until the reports are written. None is made afterwards.
func (r *reply) settle() {
	r.mu.Lock()
	r.over = true
	reports, told := r.reports, r.told
	r.mu.Unlock()
	if reports != nil {
		close(reports)
		<-told
	}
}

// end writes the answer, or the error. A call that was refused by its session, or cannot be read,
// was not made.
func (r *reply) end(given []byte, err error) {
	r.settle()
	var no *refused
	var bad *malformed
	switch {
	case err == nil:
		r.send(given, nil, true)
		return
	case errors.As(err, &no) && !r.begun:
		r.send(nil, no, true)
		return
	case errors.As(err, &bad) && !r.begun:
		r.send(nil, &refused{400, refusal{Code: refusedBody, Message: bad.Error()}}, true)
		return
	}
	var beside *partial
	out := callError{Err: err}
	if errors.As(err, &beside) {
		out = callError{beside.error, beside.value}
	}
	message, failed := packFrame(frameError, out)
	if failed != nil {
		message, _ = packFrame(frameError, callError{Err: &sent{text: err.Error()}})
	}
	r.send(message, nil, true)
}

// writePart is what is written under one deadline.
const writePart = 1 << 20

// body is an answer as the body of an answer of HTTP.
type body struct {
	e     *http1.Exchange
	begun bool
}

// write sends bytes, part by part, each under a deadline (http1.Server.Reading), so that a client
// that does not read is cut off. All: nothing was written before, and nothing follows.
func (b *body) write(p []byte, no *refused, all bool) error {
	if no != nil {
		refuse(b.e, no)
		return nil
	}
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
		n := min(len(p), writePart)
		if _, err := b.e.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
