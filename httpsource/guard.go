package httpsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// special are the networks that are not the public internet, beside those netip knows by name: the special-purpose
// registries of IANA, and the addresses at which clouds answer for a machine (see metadata).
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
	"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", // Teredo, benchmarking (2001:2::/48), ORCHID (2001:10::/28, 2001:20::/28), remote identification
	"2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "168.63.129.16/32",
)

// metadata are the addresses at which a machine finds what it must not tell: its own credentials, above all. No name and
// no "*" opens them, only the address itself.
var metadata = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local: 169.254.169.254, 169.254.170.2 and their like
	"fd00:ec2::/32", "fd20:ce::/32", "fd00:42::42/128", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
)

// public is the part of IPv6 that is handed out for the internet. What lies outside is special, whatever it will be called.
var public = netip.MustParsePrefix("2000::/3")

// Networks whose addresses carry an IPv4 address.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
	siit   = netip.MustParsePrefix("::ffff:0:0:0/96")
	compat = netip.MustParsePrefix("::/96")
	local  = netip.MustParsePrefix("64:ff9b:1::/48") // NAT64 of one's own network
)

func prefixes(cidrs ...string) (out []netip.Prefix) {
	for _, c := range cidrs {
		out = append(out, netip.MustParsePrefix(c))
	}
	return out
}

func within(a netip.Addr, in []netip.Prefix) bool {
	return slices.ContainsFunc(in, func(p netip.Prefix) bool { return p.Contains(a) })
}

// unzoned is an address as it is compared: mapped IPv4 as IPv4, without a zone.
func unzoned(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// carried is the IPv4 address in an IPv6 address that carries one; the zero Addr: none.
func carried(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return netip.Addr{}
	}
	b := a.As16()
	isatap := b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
	switch {
	case nat64.Contains(a), siit.Contains(a), compat.Contains(a), local.Contains(a), isatap:
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return netip.Addr{}
}

// isSpecial reports whether an address is outside the public internet. An address that carries an IPv4 address is no more
// public than that.
func isSpecial(a netip.Addr) bool {
	if a = unzoned(a); !a.IsValid() {
		return true
	}
	if v4 := carried(a); v4.IsValid() && isSpecial(v4) {
		return true
	}
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || within(a, special) ||
		a.Is6() && !public.Contains(a) && !nat64.Contains(a)
}

// isMetadata reports whether an address, or the IPv4 address it carries, is one that only its own name opens.
func isMetadata(a netip.Addr) bool {
	a = unzoned(a)
	v4 := carried(a)
	return within(a, metadata) || v4.IsValid() && within(v4, metadata)
}

// hostName is a host as it is compared: lower case, without a final dot and without brackets, an address in its one form.
func hostName(host string) string {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return unzoned(a).String()
	}
	return host
}

// control is asked with the address a connection is about to be made to.
type control func(ctx context.Context, network, address string, _ syscall.RawConn) error

// refuseSpecial is asked after the name was resolved: a name that resolves to one address when it is checked and to
// another when it is used gains nothing. The error does not tell which address a name has inside.
func refuseSpecial(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || isSpecial(ap.Addr()) {
		return expected(errAddress, "the host is not on the public internet; the operator can allow it in Options.PrivateHosts")
	}
	return nil
}

// refuseMetadata lets a listed host be anywhere but where only an address that is itself listed may be.
func refuseMetadata(listed []string) control {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || isMetadata(ap.Addr()) && !slices.Contains(listed, unzoned(ap.Addr()).String()) {
			return expected(errAddress, "the host has a link-local or metadata address; the operator can allow it by writing that very address in Options.PrivateHosts")
		}
		return nil
	}
}

// transport makes a pool of connections. The two pools of a client are never mixed, so a connection that was allowed
// for a listed host cannot be taken over by a redirect or a source of another.
func transport(o Options, ask control) *http.Transport {
	d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second, ControlContext: ask}
	t := &http.Transport{
		DialContext: d.DialContext, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true,
		DisableCompression: true, // unpacked here, where both sizes can be limited
		MaxIdleConns:       64, MaxIdleConnsPerHost: 2, IdleConnTimeout: 60 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	if o.TLS != nil {
		t.TLSClientConfig = o.TLS.Clone()
	} else {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return t
}

// pool chooses the connections a hop may use. The author of the source makes no difference: it may have been a model.
func (c *Client) pool(h *hop) *http.Transport {
	host := hostName(h.url.Hostname())
	if slices.ContainsFunc(c.opts.PrivateHosts, func(p string) bool { return p == "*" || p == host }) {
		return c.open
	}
	return c.guarded
}

// hosts bounds the exchanges with each host. A host that nobody asks has no entry, so the table is as large as what is
// going on now.
type hosts struct {
	mu    sync.Mutex
	limit int
	slots map[string]*slot
}

type slot struct {
	free  chan struct{} // holds a token for each exchange under way
	users int           // under way or waiting; guarded by hosts.mu
}

// enter waits for a place with a host; leave frees it.
func (h *hosts) enter(ctx context.Context, host string) (leave func(), err error) {
	h.mu.Lock()
	s := h.slots[host]
	if s == nil {
		s = &slot{free: make(chan struct{}, h.limit)}
		h.slots[host] = s
	}
	s.users++
	h.mu.Unlock()
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free; h.forget(host, s) }, nil
	case <-ctx.Done():
		h.forget(host, s)
		return nil, ctx.Err()
	}
}

func (h *hosts) forget(host string, s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(h.slots, host)
	}
}

// Why a source could not be read. Every error of this package is an *Error: its text says the reason. It matches one of these, a network
// error, or the end of the context.
var (
	// errURL means that the source is not a URL that this package may request.
	errURL = errors.New("not a source of this kind")
	// ErrNotFound is status 404, ErrGone 410. A page whose source is gone stays stored; it is not served as current.
	ErrNotFound = errors.New("not found")
	ErrGone     = errors.New("gone")
	// errStatus means any other status than one that comes with the content.
	errStatus = errors.New("unexpected status")
	// errTooLarge means that the body, or what it unpacks to, exceeds Options.MaxBytes.
	errTooLarge = errors.New("too large")
	// errType means that the content is no text, JSON, XML or markdown.
	errType = errors.New("not a type of text")
	// errCharset means that the body is not UTF-8.
	errCharset = errors.New("not UTF-8")
	// errTruncated means that the connection ended before the body did.
	errTruncated = errors.New("truncated")
	// errRedirect means that the server redirected too often, in a circle, or to a place where a redirect
	// may not lead.
	errRedirect = errors.New("redirect not followed")
	// errAddress means that a name or a redirect led to a loopback, private or otherwise special address.
	errAddress = errors.New("address not allowed")
)

// Error says what was requested, what was answered and what was expected. It contains no header and
// no body.
type Error struct {
	URL    string // of the last hop
	Status int    // of its answer, 0: none
	Err    error
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("httpsource: %s: status %d: %v", e.URL, e.Status, e.Err)
	}
	return fmt.Sprintf("httpsource: %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// expected puts a sentinel before what was found and what would have been right.
func expected(sentinel error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...))
}
