package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// serveCall answers one call: its session is found, its body read, the method run, the answer written. Until the method
// runs a call is refused as a whole, in JSON; from then on it ends in a frame.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) {
	m, ok := methods[r.PathValue("method")]
	if !ok {
		refuse(w, &refused{http.StatusNotFound, refusal{Code: refusedMethod, Message: fmt.Sprintf("there is no call %q", r.PathValue("method"))}})
		return
	}
	sess := s.find(r.Header.Get(headerSession))
	if sess == nil || !sess.enter() {
		refuse(w, &refused{http.StatusGone, refusal{Code: refusedSession, Message: "the session is not known or has lapsed: say hello again"}})
		return
	}
	defer sess.leave()
	out := &body{w: w, control: http.NewResponseController(w)}
	ask, err := out.read(r)
	number, bad := strconv.ParseUint(r.Header.Get(headerCall), 10, 64)
	if err = errors.Join(err, bad); err != nil {
		refuse(w, &refused{http.StatusBadRequest, refusal{Code: refusedBody, Message: err.Error()}})
		return
	}
	ctx := r.Context()
	if m.whole {
		ctx = context.WithoutCancel(ctx)
	}
	run := func() ([]byte, error) {
		return m.run(&request{ctx: ctx, store: s.store, session: sess, progress: out.progress}, ask)
	}
	var given []byte
	if m.once {
		given, err = sess.once(r.Context(), number, run)
	} else {
		given, err = run()
	}
	out.end(given, err)
}

// body is the answer to a call on its way.
type body struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	told    time.Time // when progress was written last
}

// read takes the request. While it arrives there is a deadline; none when the method runs, so that the connection tells
// when the client leaves.
func (b *body) read(r *http.Request) ([]byte, error) {
	if err := b.control.SetReadDeadline(time.Now().Add(frameTime)); err != nil {
		return nil, err
	}
	kind, ask, err := readMessage(r.Body, maxRequest, nil)
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("a request ends in a frame %q", kind)
	}
	if err != nil {
		return nil, err
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 { // to its end, from where the server listens for the client leaving
		return nil, errors.New("bytes follow the request")
	}
	return ask, b.control.SetReadDeadline(time.Time{})
}

// progressEvery keeps a fast job from being slowed by who listens.
const progressEvery = 20 * time.Millisecond

func (b *body) progress(what string, done, total uint64) {
	if now := time.Now(); done != total && now.Sub(b.told) < progressEvery {
		return
	} else {
		b.told = now
	}
	message, err := pack(progress{what, done, total})
	if err == nil && b.write(framed(frameProgress, message)) == nil {
		_ = b.control.Flush()
	}
}

// end writes the answer, or the error. A call that was refused by its session, or cannot be read, was not made.
func (b *body) end(given []byte, err error) {
	var no *refused
	var bad *malformed
	switch {
	case err == nil:
		_ = b.write(framed(frameEnd, given))
		return
	case errors.As(err, &no) && !b.begun:
		refuse(b.w, &refused{http.StatusConflict, no.refusal})
		return
	case errors.As(err, &bad) && !b.begun:
		refuse(b.w, &refused{http.StatusBadRequest, refusal{Code: refusedBody, Message: bad.Error()}})
		return
	}
	message, failed := pack(struct{ Err error }{err})
	if failed != nil {
		message, _ = pack(struct{ Err error }{&sent{text: err.Error()}})
	}
	_ = b.write(framed(frameError, message))
}

// write sends bytes, part by part under a deadline, so that a client that does not read is cut off.
func (b *body) write(p []byte) error {
	if !b.begun {
		b.w.Header().Set("Content-Type", packType)
		b.begun = true
	}
	for len(p) > 0 {
		n := min(len(p), 1<<20)
		if err := b.control.SetWriteDeadline(time.Now().Add(frameTime)); err != nil {
			return err
		}
		if _, err := b.w.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return b.control.SetWriteDeadline(time.Time{})
}
