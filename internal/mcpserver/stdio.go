package mcpserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainFor bounds how long the end of the input is held back for calls that have no answer yet.
const drainFor = 10 * time.Second

// listens is the one call that has no end of its own, so the end of the input does not wait for it.
const listens = "subscriptions/listen"

// ServeStdio serves one client over in and out until in ends or ctx does. Every call that was read gets its answer first,
// also when the input ends at once, as it does in a pipe.
func ServeStdio(ctx context.Context, s *mcp.Server, in io.ReadCloser, out io.WriteCloser) error {
	err := s.Run(ctx, draining{&mcp.IOTransport{Reader: in, Writer: out}})
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
