package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/internal/http1"
)

// GetStatus asks the server at a socket for its status. It works with every protocol version. Errors: *UnavailableError,
// ErrForeign.
func GetStatus(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return bare(ctx, path, opts, status)
}

// Stop asks the server at a socket to end and returns its last status. It returns before the server has ended. A server
// inside a program with other work refuses.
func Stop(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return bare(ctx, path, opts, func(ctx context.Context, h *http1.Client) (Status, error) {
		return plain(ctx, h, "POST", "stop", 202)
	})
}

// bare makes a request without a session.
func bare(ctx context.Context, path string, opts ClientOptions, do func(context.Context, *http1.Client) (Status, error)) (Status, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Status{}, err
	}
	opts.Socket = func() string { return path }
	c := &Client{path: path, opts: opts, http: &http1.Client{Dial: dialer(opts)}}
	defer c.http.CloseIdle()
	short, cancel := context.WithTimeout(ctx, opts.Answer)
	defer cancel()
	is, err := do(short, c.http)
	if err != nil {
		err = c.noWelcome(ctx, err)
	}
	return is, err
}

func status(ctx context.Context, h *http1.Client) (Status, error) {
	return plain(ctx, h, "GET", "status", 200)
}

func plain(ctx context.Context, h *http1.Client, verb, path string, want int) (is Status, err error) {
	res, err := h.Do(ctx, verb, "/"+path, nil, nil)
	if err != nil {
		return is, err
	}
	defer res.Close()
	if res.Status != want {
		return is, readRefusal(res)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&is); err != nil {
		return is, fmt.Errorf("ctxpage: status: %w", err)
	}
	return is, nil
}
