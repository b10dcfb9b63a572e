package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
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

// request is a call under way.
type request struct {
	*caller
	srv *Server
}

// call is one entry of the table of calls.
type call struct {
	name  string
	least Role // that may make it
	about string
	in    func() (*jsonschema.Schema, error)
	out   func() (*jsonschema.Schema, error)
	run   func(ctx context.Context, r *request, body []byte) (any, error)
	// flow is set instead of run for an answer of many lines. Each line is of the type of out.
	flow func(ctx context.Context, r *request, body []byte, line func(any) error) error
}

// unary makes a call with one answer.
func unary[In, Out any](name string, least Role, about string, do func(context.Context, *request, In) (Out, error)) call {
	return call{name: name, least: least, about: about, in: schemaOf[In], out: schemaOf[Out], run: func(ctx context.Context, r *request, body []byte) (any, error) {
		var in In
		if err := decode(body, &in); err != nil {
			return nil, err
		}
		return do(ctx, r, in)
	}}
}

// stream makes a call whose answer is a line of JSON for each event.
func stream[In, Line any](name string, least Role, about string, do func(context.Context, *request, In, func(Line) error) error) call {
	return call{name: name, least: least, about: about, in: schemaOf[In], out: schemaOf[Line], flow: func(ctx context.Context, r *request, body []byte, line func(any) error) error {
		var in In
		if err := decode(body, &in); err != nil {
			return err
		}
		return do(ctx, r, in, func(l Line) error { return line(l) })
	}}
}

// decode reads the argument of a call. A field that the call does not know is an error: it may be
// one that was meant to restrict something.
func decode(body []byte, in any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(in)
	if err == nil && d.More() {
		err = errors.New("more follows the object")
	}
	if err != nil {
		return refuse("body", "expected one JSON object with the fields of the call: "+inJSON(err), "GET /v1/schema lists them")
	}
	return nil
}

// inJSON says what is wrong with an argument in the words of JSON, where the decoder names types of
// Go.
func inJSON(err error) string {
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	switch {
	case errors.As(err, &kind):
		return fmt.Sprintf("%s: got a %s, expected %s", cmp.Or(kind.Field, "the argument"), kind.Value, jsonName(kind.Type))
	case errors.As(err, &moment):
		return fmt.Sprintf("got %q, expected a time such as 2026-03-01T09:00:00Z", moment.Value)
	}
	return err.Error()
}

func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return jsonName(t.Elem())
	}
	return "a number (" + t.Kind().String() + ")"
}

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// answer answers one HTTP request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if err := s.enter(); err != nil {
		writeError(w, err)
		return
	}
	defer s.leave()
	most, err := s.granted(r)
	if err == nil {
		err = s.dispatch(w, r, most)
	}
	if err != nil {
		writeError(w, err)
	}
}

// dispatch finds the call of a request, and answers it unless it returns an error.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, most Role) error {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	switch {
	case !ok:
		return refuse("call", fmt.Sprintf("there is no %.100s", r.URL.Path), "paths begin with /v1/; GET /v1/schema lists them")
	case name == "schema":
		return only(w, r, http.MethodGet, func() (any, error) { return Schema() })
	case name == "status" && r.Method == http.MethodGet:
		v, err := s.status(r.Context(), most)
		return give(w, v, err)
	case name == "hello":
		return s.withBody(w, r, func(body []byte) (any, error) {
			var in helloIn
			if err := decode(body, &in); err != nil {
				return nil, err
			}
			return s.hello(in, most)
		})
	case name == "bye":
		return only(w, r, http.MethodPost, func() (any, error) { s.bye(r.Header.Get(headerKey)); return struct{}{}, nil })
	case name == "stop":
		return only(w, r, http.MethodPost, func() (any, error) { return struct{}{}, s.askToStop(most) })
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
	return s.run(w, r, c, &request{who, s})
}

// run runs a call for a caller who may make it.
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
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	return flow(ctx, w, c, req, body)
}

// timeout is how long a call may take, from its header.
func timeout(given string) (time.Duration, error) {
	if given == "" {
		return DefaultTimeout, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > int(MaxTimeout/time.Second) {
		return 0, refuse("body", fmt.Sprintf("%s: %.40q", headerTimeout, given), fmt.Sprintf("1 to %d seconds", int(MaxTimeout/time.Second)))
	}
	return time.Duration(n) * time.Second, nil
}

// only answers requests of one method without a body.
func only(w http.ResponseWriter, r *http.Request, method string, do func() (any, error)) error {
	if r.Method != method {
		return wrongMethod(r, method)
	}
	v, err := do()
	return give(w, v, err)
}

// wrongMethod is the refusal of a request by another method of HTTP.
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
	return give(w, v, err)
}

// readBody reads the argument of a call, under a deadline.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, wrongMethod(r, http.MethodPost)
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(partTime)) // a recorder of a test has no deadlines
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
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

// give writes an answer, unless there is an error to be written.
func give(w http.ResponseWriter, v any, err error) error {
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

// errCut is of an answer that could not be written to its end: nothing more can be.
var errCut = errors.New("serve: the answer was cut")

// writeJSON writes an answer, part by part under a deadline, so that a caller that does not read is
// cut off.
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

// writeParts writes bytes, a MiB at a time, each under a deadline.
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

// flow answers with lines, each written at once. An error before the first line is an answer of its
// own; a later one is a last line with an error.
func flow(ctx context.Context, w http.ResponseWriter, c *call, req *request, body []byte) error {
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

// limited is a listener with a limit on open connections. Connections above it get an error and are
// closed.
type limited struct {
	net.Listener
	room chan struct{}
}

// Accept returns the next connection for which there is room.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &counted{Conn: c, leave: func() { <-l.room }}, nil
		default:
			go tellFull(c)
		}
	}
}

// tellFull answers a connection for which there is no room.
func tellFull(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, out := errorOf(refuse("full", fmt.Sprintf("%d connections are open, which is the limit", maxConnections), "connect again later"))
	b, err := encode(out)
	if err == nil {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", jsonType, len(b), b)
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close closes the connection and gives its place back, once.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}
