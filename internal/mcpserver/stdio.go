package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage/internal/view"
)

// drainFor bounds how long the end of the input is held back for calls that have no answer yet.
const drainFor = 10 * time.Second

// listens is the one call that has no end of its own, so the end of the input does not wait for it.
const listens = "subscriptions/listen"

// ServeStdio serves one client over in and out until in ends or ctx does. Every call that was read gets its answer first,
// also when the input ends at once, as it does in a pipe.
func ServeStdio(ctx context.Context, s *mcp.Server, in io.ReadCloser, out io.WriteCloser) error {
	to := &wholeLines{WriteCloser: out}
	err := s.Run(ctx, draining{&mcp.IOTransport{Reader: &messages{in: bufio.NewReader(in), Closer: in, out: to}, Writer: to}})
	if errors.Is(err, io.EOF) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return err
}

// draining wraps a transport whose owner stops writing as soon as the input has ended (go-sdk issue 1061): answers to the
// last calls were lost then.
type draining struct{ mcp.Transport }

func (t draining) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &drainConn{Connection: conn, open: map[any]bool{}, changed: make(chan struct{}, 1)}, nil
}

// drainConn tells the end of the input only when every call that was read has its answer, or after drainFor.
type drainConn struct {
	mcp.Connection
	mu      sync.Mutex
	open    map[any]bool  // ids of calls without an answer
	changed chan struct{} // an answer was written
}

func (c *drainConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if errors.Is(err, io.EOF) {
		c.drain(ctx)
		return nil, err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && err == nil && req.IsCall() && req.Method != listens {
		c.mu.Lock()
		c.open[req.ID.Raw()] = true
		c.mu.Unlock()
	}
	return msg, err
}

func (c *drainConn) drain(ctx context.Context) {
	deadline := time.NewTimer(drainFor)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		left := len(c.open)
		c.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-c.changed:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *drainConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if res, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.open, res.ID.Raw())
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	return err
}

// wholeLines writes one line at a time: answers come from the session and from messages.
type wholeLines struct {
	io.WriteCloser
	mu sync.Mutex
}

func (w *wholeLines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.WriteCloser.Write(p)
}

// messages passes on the lines of a client that are messages, and answers the others itself: the
// session would end at the first such line, and with it the calls under way.
type messages struct {
	io.Closer
	in   *bufio.Reader
	out  io.Writer
	left []byte // of the line that is being passed on
	id   idFinder
}

// Read returns the next line that is a message.
func (m *messages) Read(p []byte) (int, error) {
	for len(m.left) == 0 {
		line, err := m.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			continue
		}
		if no := problem(line); no != nil {
			if err := m.refuse(line, no); err != nil {
				return 0, err
			}
			continue
		}
		m.left = append(line, '\n')
	}
	n := copy(p, m.left)
	m.left = m.left[n:]
	return n, nil
}

// line reads a line, without the white space around it. Of one that is too long it keeps so much
// that problem sees it, and the id, which may come after the part that is kept.
func (m *messages) line() ([]byte, error) {
	var line []byte
	m.id = idFinder{}
	for {
		part, err := m.in.ReadSlice('\n')
		kept := min(len(part), maxBody+2-len(line))
		if line = append(line, part[:kept]...); len(line) > maxBody {
			if m.id.seen == 0 {
				m.id.read(line)
				part = part[kept:]
			}
			m.id.read(part)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) == 0 && err != nil {
			return nil, err
		}
		return bytes.TrimSpace(line), nil // the input may have ended in it: then the next call says so
	}
}

// refusal is the error of JSON-RPC for a line that is no message.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// The codes of JSON-RPC.
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// problem returns why a line is not a message; nil: it is one.
func problem(line []byte) *refusal {
	switch {
	case len(line) > maxBody:
		return &refusal{codeInvalid, fmt.Sprintf("the message has more than %d bytes", maxBody)}
	case !json.Valid(line):
		return &refusal{codeParse, "expected one message of JSON in each line"}
	}
	if err := single(line); err != nil {
		return &refusal{codeInvalid, err.Error()}
	}
	if err := unambiguous(line); err != nil {
		return &refusal{codeParse, err.Error()}
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return &refusal{codeInvalid, err.Error()}
	}
	return nil
}

// single refuses a batch. The protocol has none since 2025-06-18. The SDK ends the session at one, and in an older session it takes any
// number of calls at once.
func single(message []byte) error {
	if m := bytes.TrimSpace(message); len(m) > 0 && m[0] == '[' {
		return errors.New("expected one message, not a batch")
	}
	return nil
}

// unambiguous refuses a message that programs read in different ways: with a text that is not
// Unicode, or with an object that has a field twice.
func unambiguous(message []byte) error {
	if err := view.CheckUnicode(message); err != nil {
		return err
	}
	return view.CheckFields(message, nil)
}

// refuse answers a line, under its id if it has one.
func (m *messages) refuse(line []byte, no *refusal) error {
	var of struct {
		ID any `json:"id"`
	}
	if json.Unmarshal(line, &of) != nil { // without an id the answer has null, as JSON-RPC says
		_ = json.Unmarshal(m.id.id, &of.ID)
	}
	switch of.ID.(type) {
	case string, float64:
	default:
		of.ID = nil
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": of.ID, "error": no})
	if err != nil {
		return err
	}
	_, err = m.out.Write(append(b, '\n'))
	return err
}

// idFinder finds the id of a message that is too long to be kept: the value of the field "id" of the outermost object. The
// zero value is ready.
type idFinder struct {
	seen            int    // bytes
	id              []byte // as JSON
	depth           int
	quoted, escaped bool
	isID            bool   // the value that is being read is the id's
	token           []byte // of the outermost object, its first bytes
}

// maxID bounds the id of a message that is too long.
const maxID = 256

func (f *idFinder) read(part []byte) {
	f.seen += len(part)
	for _, c := range part {
		switch {
		case f.quoted:
			f.keep(c)
			f.quoted = f.escaped || c != '"'
			f.escaped = !f.escaped && c == '\\'
		case c == '"':
			f.quoted = true
			f.keep(c)
		case c == ':' && f.depth == 1:
			f.isID, f.token = string(f.token) == `"id"`, f.token[:0]
		case c == ',' || c == '}' || c == ']':
			if f.depth == 1 {
				if f.isID && len(f.token) < maxID {
					f.id = slices.Clone(f.token)
				}
				f.isID, f.token = false, f.token[:0]
			}
			if c != ',' {
				f.depth--
			}
		case c == '{' || c == '[':
			f.depth++
		case c > ' ':
			f.keep(c)
		}
	}
}

// keep adds a byte to the token of the outermost object.
func (f *idFinder) keep(c byte) {
	if f.depth == 1 && len(f.token) < maxID {
		f.token = append(f.token, c)
	}
}
