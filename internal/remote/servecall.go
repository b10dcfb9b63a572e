package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// The server handles one call in four steps: read the whole request, find the session, run the
// method, write the answer. Requests are read before a method runs, so a client that sends slowly
// holds a connection and nothing else. Deadlines apply to transfers over the socket, not to the
// work: a call may take hours, but reading its request or writing one part of its answer at most
// frameTime.
//
// Until a method runs, an error is a refusal, and the client knows that nothing was done. From then
// on the answer is frames that end in the result or an error.

// answer answers a call in frames. alive ends when the client leaves.
func (s *Server) answer(alive context.Context, h callHead, ask []byte, progress func(string, uint64, uint64)) ([]byte, error) {
	switch h.name {
	case "Hello":
		return s.serveHello(alive)
	case "Status":
		return packFrame(frameEnd, s.status())
	case "Bye":
		if sess := s.find(h.session); sess != nil {
			s.forget(sess)
		}
		return packFrame(frameEnd, none{})
	case "Stop":
		if s.opts.Stop == nil {
			return nil, refuse(refusedStop, "this process serves the database beside its own work: end it there")
		}
		return packFrame(frameEnd, s.status())
	case "Wait": // never answered: the connection ends with the server
		<-alive.Done()
		return nil, refuseClosing()
	}
	m, ok := methods[h.name]
	if !ok {
		return nil, refuse(refusedMethod, fmt.Sprintf("there is no call %q", h.name))
	}
	return s.makeCall(alive, m, h, ask, progress)
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
	return refuse(refusedSession, "the session is not known or has lapsed: say hello again")
}

// reply is the answer to a call on its way.
//
// A job must not wait for the client that it reports to: a client that was stopped would hold up the
// job, what the job has locked, and a server that drains. So tell writes the reports, in a goroutine
// of its own, and end waits for it when the job is over. Nobody else writes meanwhile.
type reply struct {
	// write sends frames, or refuses the call, which is for the first write only.
	write  func(frames []byte, no *refused) error
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
func (r *reply) send(frames []byte, no *refused) {
	if r.failed != nil {
		return
	}
	r.begun = true
	r.failed = r.write(frames, no)
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
		r.send(message, nil)
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
		r.send(given, nil)
		return
	case errors.As(err, &no) && !r.begun:
		r.send(nil, no)
		return
	case errors.As(err, &bad) && !r.begun:
		r.send(nil, refuse(refusedBody, bad.Error()))
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
	r.send(message, nil)
}
