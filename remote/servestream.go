package remote

import (
	"context"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/http1"
)

// A stream at the server: one goroutine reads a call, runs it and writes the answer, so nobody is
// woken in between. What bounds a connection of HTTP bounds a stream: a request has frameTime to
// arrive once its first byte came, so has each part of an answer to be read, and a client that
// leaves ends the context of its call.

// serveStream turns a connection into a stream and answers its calls until the client leaves or the
// server ends. Close cuts the connection, so a stream that waits for its next call ends too.
func (s *Server) serveStream(e *http1.Exchange) {
	if !e.Wants(streamProtocol) {
		refuse(e, &refused{400, refusal{Code: refusedBody, Message: "expected the field Upgrade: " + streamProtocol}})
		return
	}
	u, err := e.Upgrade(streamProtocol, s.opts.patience)
	if err != nil {
		return
	}
	for st := (&served{s: s, u: u}); err == nil && u.Next() == nil && !s.isClosed(); {
		err = st.call()
	}
}

// served is a stream at the server.
type served struct {
	s       *Server
	u       *http1.Upgraded
	scratch [frameHeader + maxCallHead]byte
}

// call answers one call. After an error the stream cannot be used: nobody knows where the next call
// begins.
func (st *served) call() error {
	h, err := readCall(st.u, &st.scratch)
	if err != nil {
		return err
	}
	kind, ask, err := readMessage(st.u, maxRequest, nil)
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("a request ends in a frame %q", kind)
	}
	if err != nil {
		_ = st.u.WriteAll(refusalFrame(&refused{400, refusal{Code: refusedBody, Message: err.Error()}}))
		return err
	}
	ctx, end := context.WithCancel(background)
	defer end()
	// Listen comes before the name is looked up: it ends the deadline of the request.
	if err := st.u.Listen(end); err != nil {
		return err
	}
	out := &reply{write: st.write}
	m, ok := methods[h.name]
	var given []byte
	if ok {
		given, err = st.s.makeCall(ctx, m, h, ask, out.progress)
	} else {
		err = noMethod(h.name)
	}
	st.u.Answered()
	out.end(given, err)
	return out.failed
}

// write sends frames, or a refusal.
func (st *served) write(p []byte, no *refused, _ bool) error {
	if no != nil {
		p = refusalFrame(no)
	}
	for len(p) > 0 { // each part has a deadline
		n := min(len(p), writePart)
		if err := st.u.WriteAll(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
