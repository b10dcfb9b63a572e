package remote

import "context"

// GetStatus asks the server at a socket for its status. Errors: *UnavailableError, *SkewError,
// ErrForeign.
func GetStatus(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return withoutSession(ctx, path, opts, "Status")
}

// Stop asks the server at a socket to end and returns its last status. It returns before the server
// has ended. A server inside a program with other work refuses.
func Stop(ctx context.Context, path string, opts ClientOptions) (Status, error) {
	return withoutSession(ctx, path, opts, "Stop")
}

// withoutSession makes a call that is answered with the status.
func withoutSession(ctx context.Context, path string, opts ClientOptions, name string) (is Status, err error) {
	c, err := newClient(path, opts)
	if err != nil {
		return is, err
	}
	defer c.end()
	short, cancel := context.WithTimeout(ctx, c.opts.Answer)
	defer cancel()
	if err = c.plain(short, name, "", &is, true); err != nil {
		err = c.noWelcome(ctx, err)
	}
	return is, err
}
