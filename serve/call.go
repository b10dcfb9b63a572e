package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
)

// The server answers a request in these steps:
//
//	enter      refused while the server is closing; Close waits for those that entered
//	granted    the highest role that the connection may have
//	dispatch   finds the call by its path; hello, bye, status, stop and schema need no caller
//	caller     by the key from hello, or by headers; the role must suffice for the call
//	run        decodes the argument strictly, works, and returns one value; or flow writes a line for each event
//
// An error before the first byte of an answer is an HTTP status with a body of JSON (errors.go). A
// stream that fails later ends with a line that has the error, because its status was sent.

type request struct {
	*caller
	srv *Server
}

// call is one entry of the table of calls, which both dispatch and GET /v1/schema read: no call can be served without a description.
type call struct {
	name  string
	least Role // that may make it
	about string
	in    reflect.Type
	out   reflect.Type
	run   func(ctx context.Context, r *request, body []byte) (any, error)
	// flow is set instead of run for an answer of many lines. Each line is of the type of out.
	flow func(ctx context.Context, r *request, body []byte, line func(any) error) error
}

func unary[In, Out any](name string, least Role, about string, do func(context.Context, *request, In) (Out, error)) call {
	return call{name: name, least: least, about: about, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), run: func(ctx context.Context, r *request, body []byte) (any, error) {
		var in In
		if err := decode(body, &in); err != nil {
			return nil, err
		}
		return do(ctx, r, in)
	}}
}

func stream[In, Line any](name string, least Role, about string, do func(context.Context, *request, In, func(Line) error) error) call {
	return call{name: name, least: least, about: about, in: reflect.TypeFor[In](), out: reflect.TypeFor[Line](), flow: func(ctx context.Context, r *request, body []byte, line func(any) error) error {
		var in In
		if err := decode(body, &in); err != nil {
			return err
		}
		return do(ctx, r, in, func(l Line) error { return line(l) })
	}}
}

// decode reads the argument of a call. Unknown fields, fields in another case, repeated fields and text that is not Unicode are errors:
// programs differ in how they read them.
func decode(body []byte, in any) error {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		body = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := view.CheckFields(body, in)
	if err == nil {
		err = d.Decode(in)
	}
	switch {
	case err != nil:
	case body[0] != '{':
		err = fmt.Errorf("the argument: got %.20s, expected an object", body)
	case int(d.InputOffset()) < len(body):
		err = errors.New("more follows the object")
	default:
		err = view.CheckUnicode(body)
	}
	if err != nil {
		return refuse("body", "expected one JSON object with the fields of the call: "+view.ExplainJSON(err).Error(), "GET /v1/schema lists them")
	}
	return nil
}

// The types of an answer: one value, or a line for each event.
const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// answer answers one HTTP request. Each request is counted, even one that is refused later, so that Close waits for it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	view.LimitUnread(w, r)
	if err := s.enter(); err != nil {
		writeError(w, err)
		return
	}
	defer s.leave()
	if trace := r.Header.Get(headerTrace); trace != "" {
		r = r.WithContext(loop.WithTraceparent(r.Context(), trace))
	}
	most, err := s.granted(r)
	if err == nil {
		err = s.dispatch(w, r, most)
	}
	if err != nil {
		// Who is no caller is not waited for. A caller whose role is too low may still be sending: it would find its connection cut
		// in place of the answer.
		switch _, out := errorOf(err); out.Error.Code {
		case "unauthorized", "host", "origin", "too_large":
			view.RefuseRequest(w, r)
		}
		writeError(w, err)
	}
}

// dispatch finds the call of a request, and answers it unless it returns an error. Calls without a caller come first.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, most Role) error {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	switch {
	case !ok:
		return refuse("call", fmt.Sprintf("there is no %.100s", r.URL.Path), "paths begin with /v1/; GET /v1/schema lists them")
	case name == "schema":
		return without(w, r, func() (any, error) { return Schema() })
	case name == "status":
		return without(w, r, func() (any, error) { return s.status(r.Context(), most) })
	case name == "hello":
		return s.withBody(w, r, func(body []byte) (any, error) {
			var in helloIn
			if err := decode(body, &in); err != nil {
				return nil, err
			}
			return s.hello(in, most)
		})
	case name == "bye":
		return s.bare(w, r, func() error { s.bye(r.Header.Get(headerKey)); return nil })
	case name == "stop":
		return s.bare(w, r, func() error { return s.askToStop(most) })
	}
	c, ok := byName[name]
	if !ok {
		return refuse("call", fmt.Sprintf("there is no call %.100q", name), "GET /v1/schema lists the calls")
	}
	who, err := s.callerOf(r, most)
	if err != nil {
		return err
	}
	if who.role < c.least {
		return refuse("role", fmt.Sprintf("%s is for the role %s, and this caller is %s", name, c.least, who.role), "say hello as "+c.least.String()+", if that is granted to you")
	}
	if err := s.admit(who); err != nil {
		return err
	}
	return s.run(w, r, c, &request{who, s})
}

// run runs a call. A call with one answer has a deadline. A stream ends with its caller, with the server, or by its own limits.
func (s *Server) run(w http.ResponseWriter, r *http.Request, c *call, req *request) error {
	limit, err := timeout(r.Header.Get(headerTimeout))
	if err != nil {
		return err
	}
	if c.run != nil {
		return s.withBody(w, r, func(body []byte) (any, error) {
			ctx, cancel := context.WithTimeout(r.Context(), limit)
			defer cancel()
			return c.run(ctx, req, body)
		})
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	end, err := s.beginStream(req.caller)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	return streamAnswer(ctx, w, c, req, body)
}

// timeout returns the time limit of a call. It starts when the argument has arrived.
func timeout(given string) (time.Duration, error) {
	if given == "" {
		return defaultTimeout, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > int(maxTimeout/time.Second) {
		return 0, refuse("body", fmt.Sprintf("%s: %.40q", headerTimeout, given), fmt.Sprintf("1 to %d seconds", int(maxTimeout/time.Second)))
	}
	return time.Duration(n) * time.Second, nil
}

// without answers a call that has no argument.
func without(w http.ResponseWriter, r *http.Request, do func() (any, error)) error {
	if r.Method != http.MethodGet {
		return wrongMethod(r, http.MethodGet)
	}
	v, err := do()
	return writeAnswer(w, v, err)
}

func wrongMethod(r *http.Request, method string) error {
	return refuse("method", fmt.Sprintf("%s %.100s", r.Method, r.URL.Path), "use "+method)
}

// withBody reads the argument, and answers with what do returns.
func (s *Server) withBody(w http.ResponseWriter, r *http.Request, do func([]byte) (any, error)) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	v, err := do(body)
	return writeAnswer(w, v, err)
}

// bare answers a call whose argument and answer have no fields.
func (s *Server) bare(w http.ResponseWriter, r *http.Request, do func() error) error {
	return s.withBody(w, r, func(body []byte) (any, error) {
		if err := decode(body, new(struct{})); err != nil {
			return nil, err
		}
		return struct{}{}, do()
	})
}

// readBody reads the argument of a call, which must arrive within partTime.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, wrongMethod(r, http.MethodPost)
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(partTime)) // a recorder of a test has no deadlines
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	_ = c.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse("too_large", fmt.Sprintf("the request has more than %d bytes", large.Limit), "send it in parts")
	case err != nil:
		return nil, refuse("body", "the request did not arrive whole: "+err.Error(), "send it again")
	}
	return body, nil
}

func writeAnswer(w http.ResponseWriter, v any, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// writeError answers with an error, unless the answer was cut.
func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, errCut) {
		return
	}
	status, out := errorOf(err)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = writeJSON(w, status, out)
}

// errCut means that an answer could not be written to its end: nothing more can be.
var errCut = errors.New("serve: the answer was cut")

func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	return writeParts(w, b)
}

// encode is JSON without the escapes that HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("ctxpage: answer: %w", err)
	}
	return b.Bytes(), nil
}

// writeParts writes bytes, a MiB at a time, each under a deadline: a caller that does not read is cut off.
func writeParts(w http.ResponseWriter, b []byte) error {
	c := http.NewResponseController(w)
	for len(b) > 0 {
		n := min(len(b), 1<<20)
		_ = c.SetWriteDeadline(time.Now().Add(partTime))
		if _, err := w.Write(b[:n]); err != nil {
			return errCut
		}
		b = b[n:]
	}
	_ = c.SetWriteDeadline(time.Time{})
	return nil
}

// streamAnswer writes each line at once. An error after the first line becomes the last line.
func streamAnswer(ctx context.Context, w http.ResponseWriter, c *call, req *request, body []byte) error {
	begun := false
	out := http.NewResponseController(w)
	begin := func() {
		if !begun {
			w.Header().Set("Content-Type", linesType)
			w.WriteHeader(http.StatusOK)
			begun = true
		}
	}
	err := c.flow(ctx, req, body, func(v any) error {
		b, err := encode(v)
		if err != nil {
			return err
		}
		begin()
		if err := writeParts(w, b); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return errCut
		}
		return nil
	})
	ended := errors.Is(err, context.Canceled) && ctx.Err() != nil // the caller left, or the server ends
	switch {
	case err == nil || ended:
		begin()
		return nil
	case !begun || errors.Is(err, errCut):
		return err
	}
	_, last := errorOf(err)
	if b, err := encode(last); err == nil {
		_ = writeParts(w, b)
	}
	return nil
}

// noPlace is the response when the connection limit is reached.
func noPlace() []byte {
	_, out := errorOf(refuse("full", fmt.Sprintf("%d connections are open, which is the limit", maxConnections), "connect again later"))
	b, err := encode(out)
	if err != nil {
		b = nil
	}
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", jsonType, len(b), b)
}
