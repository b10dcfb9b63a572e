package httpsource

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// special are the networks that are not the public internet, beside those netip knows by name.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
}

// Networks whose addresses carry an IPv4 address.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	compat = netip.MustParsePrefix("::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// isSpecial tells addresses inside from those of the public internet. Addresses that carry an IPv4 address (mapped,
// NAT64, 6to4) are judged by it.
func isSpecial(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	b := a.As16()
	switch {
	case !a.Is6():
	case nat64.Contains(a), compat.Contains(a):
		return isSpecial(netip.AddrFrom4([4]byte(b[12:])))
	case sixTo4.Contains(a):
		return isSpecial(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return !a.IsValid() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() ||
		slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hostName is a host as it is compared: lower case, without a final dot and without brackets.
func hostName(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// namesSpecial says whether a host, as it is written, can only mean an address inside.
func namesSpecial(host string) bool {
	host = hostName(host)
	if a, err := netip.ParseAddr(host); err == nil {
		return isSpecial(a)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// refuseSpecial is asked with the address a connection is about to be made to, after the name was resolved: a name that
// resolves to one address when it is checked and to another when it is used gains nothing.
func refuseSpecial(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || isSpecial(ap.Addr()) {
		return expected(ErrAddress, "%s is not on the public internet; write the address into the source itself, or name the host in Options.PrivateHosts", address)
	}
	return nil
}

// transport makes a pool of connections. The two pools of a client are never mixed, so a connection that was allowed
// for one source cannot be taken over by a redirect of another.
func transport(o Options, control func(context.Context, string, string, syscall.RawConn) error) *http.Transport {
	d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second, ControlContext: control}
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

// pool chooses the connections a hop may use.
func (c *Client) pool(h *hop) *http.Transport {
	listed := slices.ContainsFunc(c.opts.PrivateHosts, func(p string) bool { return p == "*" || p == hostName(h.url.Hostname()) })
	if listed || h.named && sameOrigin(h.url, h.own) {
		return c.open
	}
	return c.guarded
}

func sameOrigin(a, b *url.URL) bool {
	return hostName(a.Hostname()) == hostName(b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
