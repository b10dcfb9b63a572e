package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/http1"
)

// GetStatus asks the server at a socket for its status. It works with every protocol version.
// Errors: *UnavailableError, ErrForeign.
func GetStatus(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return withoutSession(ctx, path, opts, status)
}

// Stop asks the server at a socket to end and returns its last status. It returns before the server
// has ended. A server inside a program with other work refuses.
func Stop(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return withoutSession(ctx, path, opts, func(ctx context.Context, h *http1.Client) (Status, error) {
		return requestStatus(ctx, h, "POST", "stop", 202)
	})
}

// Backup asks the server at a socket to copy its database to out, which must not exist on the
// server's file system. It returns the size of the copy in bytes and the head of the audit. It
// works with any server from protocol 2 on, also where a Client does not; a Client has Maintain. If
// the server is silent for longer than opts.Answer, it is asked for its status, as in any call.
func Backup(ctx context.Context, path, out string, opts ClientOptions) (bytes int64, head string, err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return 0, "", fmt.Errorf("ctxpage: backup: %w", err)
	}
	ask, err := json.Marshal(backupAsk{out})
	if err != nil {
		return 0, "", fmt.Errorf("ctxpage: backup: %w", err)
	}
	opts, err = opts.withDefaults()
	if err != nil {
		return 0, "", err
	}
	opts.Socket = func() string { return path }
	c := &Client{path: path, opts: opts, http: &http1.Client{Dial: dialer(opts, new(atomic.Int64))}}
	defer c.http.CloseIdle()
	var done backupDone
	err = c.request(ctx, "POST", "/backup", http1.Header{{Name: "content-type", Value: jsonType}}, ask, func(res *http1.Response) error {
		if res.Status != 200 {
			return readRefusal(res)
		}
		return json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&done)
	})
	if err != nil {
		err = c.noWelcome(ctx, err)
	}
	return done.Bytes, done.Head, err
}

// withoutSession makes a request without a session.
func withoutSession(ctx context.Context, path string, opts ClientOptions, do func(context.Context, *http1.Client) (Status, error)) (Status, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Status{}, err
	}
	opts.Socket = func() string { return path }
	c := &Client{path: path, opts: opts, http: &http1.Client{Dial: dialer(opts, new(atomic.Int64))}}
	defer c.http.CloseIdle()
	short, cancel := context.WithTimeout(ctx, opts.Answer)
	defer cancel()
	is, err := do(short, c.http)
	if err != nil {
		err = c.noWelcome(ctx, err)
	}
	return is, err
}

// status asks for the status.
func status(ctx context.Context, h *http1.Client) (Status, error) {
	return requestStatus(ctx, h, "GET", "status", 200)
}

// requestStatus makes a request that every version of the server answers with its status.
func requestStatus(ctx context.Context, h *http1.Client, verb, path string, want int) (is Status, err error) {
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
