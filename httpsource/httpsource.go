// Package httpsource lets pages have http and https sources. It is not part of the root package, so only programs that
// import it link net/http:
//
//	web, err := httpsource.New(httpsource.Options{})
//	sources := map[string]store.Source{}
//	web.Register(sources)
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Sources: sources})
//	s.Put(ctx, ctxpage.Artefact{ID: "policy", Source: "https://wiki.example/refunds.md"})
//
// # How a change is noticed
//
// A probe is a conditional GET: If-None-Match with the entity tag the page was loaded with, else If-Modified-Since. An
// unchanged source costs one exchange without a body. When the server does send a body, the probe hashes it, so a new
// tag over the same bytes is no change. A server that sends neither tag nor date is read and hashed at every probe:
// let reads of such sources check less often (ctxpage.WithCheck). A Last-Modified less than two seconds older than the answer is not used,
// because the source may be written again within the same second.
//
// Rejected: HEAD. Many servers answer it without validators, with other validators than GET, or not at all. It cannot
// tell a new tag over the same bytes from a change. And a source that has changed costs the GET in addition.
//
// # What is taken
//
// Text is taken as it is: text of any kind, JSON, XML, YAML and markdown, in UTF-8. HTML is not converted: tags reach
// the page, and the model, as they were written. The size of a body is limited before and after unpacking gzip.
//
// # Where it may go
//
// A source string may come from a model, and a server may send redirects, so the internal network is protected. A
// connection to a loopback, private, link-local or otherwise special address is refused. This is checked after the name
// was resolved, when the connection is made, so it does not matter who wrote the source or how it names the address.
// Hosts that the operator lists in Options.PrivateHosts are allowed, for sources and redirects alike. Link-local
// addresses, and those at which clouds hand out a machine's credentials (169.254.169.254, fd00:ec2::254 and others),
// are refused even then, and with "*", unless the address itself is listed.
//
// A redirect never leads from https to http. Proxies of the environment are not used, because they would resolve names
// where this package cannot check them.
package httpsource

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// Options configure a Client. The zero value is ready to use.
type Options struct {
	// MaxBytes limits a body as sent and as unpacked; 0: 4 MiB. The database takes no more than 16 MiB.
	MaxBytes int64
	// Timeout is for one exchange, redirects and body included; 0: 8 s, which stays below the database's own limit.
	Timeout time.Duration
	// MaxRedirects bounds the redirects that are followed; 0: 5, negative: none.
	MaxRedirects int
	// Retries bounds the repetitions of a Fetch after a failure that may pass; 0: 2, negative: never. A Probe is never
	// repeated. Before a retry the client waits for Backoff (0: 200 ms), doubled each time up to MaxWait (0: 5 s), or
	// for as long as the server asks by Retry-After. If the server asks for more than MaxWait, or the context would
	// end first, the failure is returned at once.
	Retries int
	Backoff time.Duration
	MaxWait time.Duration
	// PerHost bounds the exchanges with one host at a time; 0: 4.
	PerHost int
	// PrivateHosts are the hosts that may be at loopback, private or otherwise special addresses, also by redirect: names
	// or addresses as they stand in a URL, without a port. "*" stands for every host. Neither a name nor "*" allows a
	// link-local or metadata address: such an address must itself be listed ("169.254.169.254").
	PrivateHosts []string
	// Header returns the headers for a host, such as Authorization; nil: none. It is called for the host of each hop,
	// so a redirect cannot carry a secret to another host. host has a port if the URL has one. Header is called
	// concurrently.
	Header func(host string) http.Header
	// TLS configures certificates; nil: the roots of the system.
	TLS *tls.Config
	// Clock is for the times in validators; nil: time.Now.
	Clock func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.MaxBytes < 0 || o.Timeout < 0 || o.Backoff < 0 || o.MaxWait < 0 || o.PerHost < 0 {
		return o, fmt.Errorf("httpsource: negative limit in Options; expected 0 for the default, or more")
	}
	o.MaxBytes, o.Timeout = or(o.MaxBytes, 4<<20), or(o.Timeout, 8*time.Second)
	o.Backoff, o.MaxWait = or(o.Backoff, 200*time.Millisecond), or(o.MaxWait, 5*time.Second)
	o.PerHost = or(o.PerHost, 4)
	o.MaxRedirects, o.Retries = max(or(o.MaxRedirects, 5), 0), max(or(o.Retries, 2), 0)
	o.PrivateHosts = slices.Clone(o.PrivateHosts)
	for i, h := range o.PrivateHosts {
		o.PrivateHosts[i] = hostName(h)
		if _, err := netip.ParseAddr(o.PrivateHosts[i]); err != nil && (h == "" || strings.ContainsAny(h, ":/")) {
			return o, fmt.Errorf("httpsource: private host %q in Options; expected a name or an address without a port, or *", h)
		}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o, nil
}

func or[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Client holds the connections that its sources share. It is safe for concurrent use.
type Client struct {
	opts    Options
	guarded *http.Transport // refuses special addresses
	open    *http.Transport // for listed hosts; refuses metadata addresses
	hosts   hosts
	wait    func(context.Context, time.Duration) bool
}

// New makes a client.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Client{
		opts: o, guarded: transport(o, refuseSpecial), open: transport(o, refuseMetadata(o.PrivateHosts)),
		hosts: hosts{limit: o.PerHost, slots: map[string]*slot{}}, wait: loop.Wait,
	}, nil
}

// Register enters a source for http and one for https: a Source sees a source string without its scheme, so each scheme
// needs one.
func (c *Client) Register(sources map[string]store.Source) {
	sources["http"], sources["https"] = c.Source("http"), c.Source("https")
}

// Source returns the source of one scheme, http or https. Another scheme is refused at its first use.
func (c *Client) Source(scheme string) store.Source { return ofScheme{c, scheme} }

// CloseIdle closes connections that are kept for later use.
func (c *Client) CloseIdle() {
	c.guarded.CloseIdleConnections()
	c.open.CloseIdleConnections()
}

// ofScheme is the client as a source of one scheme.
type ofScheme struct {
	c      *Client
	scheme string
}

// Probe asks whether the content is still what have says. It returns have for an answer of 304, else what came.
func (s ofScheme) Probe(ctx context.Context, key string, have store.Validator) (store.Validator, error) {
	got, err := s.c.get(ctx, s.scheme, key, parseStamp(have))
	switch {
	case err != nil:
		return store.Validator{}, err
	case got == nil:
		return have, nil
	}
	return got.Validator, nil
}

// Fetch loads the content, with few repetitions. AsOf is its Last-Modified.
func (s ofScheme) Fetch(ctx context.Context, key string) (store.Fetched, error) {
	for try := 1; ; try++ {
		got, err := s.c.get(ctx, s.scheme, key, stamp{})
		if err == nil {
			return *got, nil
		}
		pause, retry := s.c.pause(err, try)
		if !retry || !s.c.wait(ctx, pause) {
			return store.Fetched{}, err
		}
	}
}

// target is the first hop of a key.
func target(scheme, key string) (*hop, error) {
	raw := scheme + ":" + key
	if scheme != "http" && scheme != "https" || !strings.HasPrefix(key, "//") {
		return nil, &Error{URL: raw, Err: expected(errURL, "expected http://host/path or https://host/path")}
	}
	u, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	return &hop{url: u, own: u}, nil
}
