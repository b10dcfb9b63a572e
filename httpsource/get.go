package httpsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// hop is one request of an exchange: where it goes, and what the source itself was.
type hop struct {
	url *url.URL
	own *url.URL // the source
}

// answer is the result of one hop: a place to go on to, a body, or, with neither, that nothing changed.
type answer struct {
	next    string
	fetched *store.Fetched
}

// busy is a failure that may pass, with the wait the server asked for.
type busy struct {
	error
	after time.Duration
}

func (b *busy) Unwrap() error { return b.error }

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, &Error{URL: raw, Err: expected(errURL, "expected scheme://host/path: %v", errors.Unwrap(err))}
	case u.Hostname() == "":
		return nil, &Error{URL: raw, Err: expected(errURL, "it names no host")}
	case u.User != nil:
		return nil, &Error{URL: u.Redacted(), Err: expected(errURL, "it carries credentials, which would be stored and shown; give them by Options.Header")}
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// get asks for a key and follows where it leads. A nil answer means that the content is unchanged since have.
func (c *Client) get(ctx context.Context, scheme, key string, have stamp) (*store.Fetched, error) {
	h, err := target(scheme, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	for hops := 0; ; hops++ {
		a, err := c.exchange(ctx, h, have)
		switch {
		case err != nil:
			return nil, err
		case a.next == "":
			return a.fetched, nil
		case hops == c.opts.MaxRedirects:
			return nil, &Error{URL: h.url.String(), Err: expected(errRedirect, "more than %d", c.opts.MaxRedirects)}
		}
		if h, err = h.follow(a.next); err != nil {
			return nil, err
		}
	}
}

// follow is the hop a redirect leads to.
func (h *hop) follow(location string) (*hop, error) {
	ref, err := url.Parse(location)
	if err != nil {
		return nil, &Error{URL: h.url.String(), Err: expected(errRedirect, "its location is no URL")}
	}
	u := h.url.ResolveReference(ref)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, &Error{URL: h.url.String(), Err: expected(errRedirect, "to scheme %q, expected http or https", u.Scheme)}
	case u.Scheme == "http" && h.url.Scheme == "https":
		return nil, &Error{URL: h.url.String(), Err: expected(errRedirect, "from https to http")}
	}
	if u, err = parseURL(u.String()); err != nil {
		return nil, err
	}
	return &hop{url: u, own: h.own}, nil
}

// exchange is one request and its answer. It holds a place with its host from the request to the end of the body.
func (c *Client) exchange(ctx context.Context, h *hop, have stamp) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return answer{}, &Error{URL: h.url.String(), Err: expected(errURL, "%v", err)}
	}
	c.header(req, h, have)
	leave, err := c.hosts.enter(ctx, req.URL.Host)
	if err != nil {
		return answer{}, &Error{URL: h.url.String(), Err: fmt.Errorf("waiting for a place with the host: %w", err)}
	}
	defer leave()
	res, err := c.pool(h).RoundTrip(req)
	if err != nil {
		return answer{}, &Error{URL: h.url.String(), Err: c.transient(ctx, err)}
	}
	defer res.Body.Close()
	a, err := c.read(h, res, have)
	if err != nil {
		return a, &Error{URL: h.url.String(), Status: notOK(res.StatusCode), Err: err}
	}
	return a, nil
}

func notOK(code int) int {
	if code == http.StatusOK {
		return 0
	}
	return code
}

const accept = "text/markdown, text/plain, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.8, */*;q=0.1"

func (c *Client) header(req *http.Request, h *hop, have stamp) {
	if c.opts.Header != nil {
		for name, values := range c.opts.Header(h.url.Host) {
			req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
		}
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "gzip")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "ctxpage")
	}
	if have.at == h.moved() { // a tag means something at its own place only
		have.ask(req.Header)
	}
}

// transient marks a failed connection as one that may pass, unless we ended it ourselves.
func (c *Client) transient(ctx context.Context, err error) error {
	if op := (*net.OpError)(nil); errors.Is(err, errAddress) && errors.As(err, &op) {
		return op.Err // what a name resolves to inside is nobody's business
	}
	var cert *tls.CertificateVerificationError
	if ctx.Err() != nil || errors.Is(err, errAddress) || errors.As(err, &cert) {
		return err
	}
	return &busy{error: err}
}

// read turns a response into an answer.
func (c *Client) read(h *hop, res *http.Response, have stamp) (answer, error) {
	switch code := res.StatusCode; code {
	case http.StatusOK:
		f, err := c.content(h, res)
		return answer{fetched: f}, err
	case http.StatusNotModified:
		if have.zero() || have.at != h.moved() {
			return answer{}, expected(errStatus, "expected the content: nothing was given to compare with")
		}
		return answer{}, nil
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		next := res.Header.Get("Location")
		if next == "" {
			return answer{}, expected(errRedirect, "expected a Location")
		}
		_, _ = io.CopyN(io.Discard, res.Body, 4<<10) // so that the connection can be used again
		return answer{next: next}, nil
	case http.StatusNotFound:
		return answer{}, ErrNotFound
	case http.StatusGone:
		return answer{}, ErrGone
	default:
		err := expected(errStatus, "expected 200, or 304 to a probe")
		if loop.Retryable(code) {
			after, _ := loop.RetryAfter(res.Header.Get("Retry-After"), c.opts.Clock())
			return answer{}, &busy{err, after}
		}
		return answer{}, err
	}
}

// moved is the address that redirects have led to; "": there were none.
func (h *hop) moved() string {
	if h.url == h.own {
		return ""
	}
	return h.url.String()
}

// content reads a body and says what it can be recognised by.
func (c *Client) content(h *hop, res *http.Response) (*store.Fetched, error) {
	kind, err := typeOf(res.Header)
	if err != nil {
		return nil, err
	}
	b, err := readBody(res, c.opts.MaxBytes)
	if err != nil {
		return nil, err
	}
	if b, err = kind.text(b); err != nil {
		return nil, err
	}
	v := store.Validator{Hash: xxhash.Sum64(b), At: c.opts.Clock()}
	if s := stampOf(res.Header); !s.zero() {
		s.at = h.moved()
		v.Stamp = s.String()
	}
	return &store.Fetched{Text: string(b), Validator: v, AsOf: asOf(res.Header)}, nil
}

// pause returns the time to wait before try number try is repeated, if it may be.
func (c *Client) pause(err error, try int) (time.Duration, bool) {
	var b *busy
	if !errors.As(err, &b) || try > c.opts.Retries {
		return 0, false
	}
	d := max(loop.Backoff(c.opts.Backoff, c.opts.MaxWait, try), b.after)
	return d, d <= c.opts.MaxWait
}

// truncated tells a body that ended early from other failures of reading.
func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return &busy{error: expected(errTruncated, "the connection ended before the body did: %v", err)}
	}
	return err
}
