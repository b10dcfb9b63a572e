package httpsource

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { dbtest.NoLeaks(m, func() error { return goleak.Find() }) }

// site is a server on loopback and a client for it.
type site struct {
	*httptest.Server
	c     *Client
	asked atomic.Int64
	waits []time.Duration // what Fetch waited, without waiting
}

func newSite(t *testing.T, o Options, h http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.asked.Add(1); h(w, r) }))
	if o.PrivateHosts == nil {
		o.PrivateHosts = []string{"127.0.0.1"}
	}
	s.c = must(New(o))(t)
	var mu sync.Mutex
	s.c.wait = func(ctx context.Context, d time.Duration) bool {
		mu.Lock()
		defer mu.Unlock()
		s.waits = append(s.waits, d)
		return ctx.Err() == nil
	}
	t.Cleanup(func() { s.c.CloseIdle(); s.Close() })
	return s
}

func (s *site) key(path string) string { return strings.TrimPrefix(s.URL, "http:") + path }

func (s *site) fetch(t *testing.T) (store.Fetched, error) {
	return s.c.Source("http").Fetch(t.Context(), s.key("/"))
}

func (s *site) probe(t *testing.T, have store.Validator) (store.Validator, error) {
	return s.c.Source("http").Probe(t.Context(), s.key("/"), have)
}

func plain(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, text)
	}
}

func TestConditional(t *testing.T) {
	const old, date = "Mon, 02 Mar 2026 10:00:00 GMT", "Mon, 02 Mar 2026 10:00:30 GMT"
	for _, c := range []struct {
		name, etag, modified, date string
		header, stamp              string
	}{
		{"tag", `"v1"`, "", date, "If-None-Match", `etag "v1"`},
		{"weak tag", `W/"v1"`, "", date, "If-None-Match", `etag W/"v1"`},
		{"date", "", old, date, "If-Modified-Since", "modified " + old},
		{"tag before date", `"v1"`, old, date, "If-None-Match", `etag "v1"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text atomic.Value
			text.Store("refunds up to $400")
			s := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", c.etag)
				w.Header().Set("Last-Modified", c.modified)
				w.Header().Set("Date", c.date)
				for _, h := range []string{"If-None-Match", "If-Modified-Since"} {
					if (h == c.header) != (r.Header.Get(h) != "") && s304(r) {
						t.Errorf("%s: %q", h, r.Header.Get(h))
					}
				}
				if s304(r) && text.Load() == "refunds up to $400" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				plain(text.Load().(string))(w, r)
			})
			f := must(s.fetch(t))(t)
			require.Equal(t, "refunds up to $400", f.Text)
			require.Equal(t, c.stamp, f.Validator.Stamp)
			require.Equal(t, xxhash.Sum64String(f.Text), f.Validator.Hash)
			v := must(s.probe(t, f.Validator))(t)
			require.Equal(t, f.Validator, v, "304 gives back what was known")
			text.Store("refunds up to $200")
			v = must(s.probe(t, f.Validator))(t)
			require.NotEqual(t, f.Validator.Hash, v.Hash)
		})
	}
}

func s304(r *http.Request) bool {
	return r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Modified-Since") != ""
}

func TestFreshDateProvesNothing(t *testing.T) {
	s := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if s304(r) {
			t.Error("asked by a date within the second of its answer")
		}
		w.Header().Set("Date", "Mon, 02 Mar 2026 10:00:01 GMT")
		w.Header().Set("Last-Modified", "Mon, 02 Mar 2026 10:00:00 GMT")
		plain("x")(w, r)
	})
	f := must(s.fetch(t))(t)
	require.Empty(t, f.Validator.Stamp)
	require.Equal(t, time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), f.AsOf.UTC())
	must(s.probe(t, f.Validator))(t)
}

func TestChangedTagSameBody(t *testing.T) {
	var n atomic.Int64
	s := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", fmt.Sprintf(`"build-%d"`, n.Add(1)))
		plain("the same")(w, r)
	})
	f := must(s.fetch(t))(t)
	v := must(s.probe(t, f.Validator))(t)
	require.Equal(t, f.Validator.Hash, v.Hash)
	require.NotEqual(t, f.Validator.Stamp, v.Stamp)
}

func TestNoValidators(t *testing.T) {
	var text atomic.Value
	text.Store("one")
	s := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) { plain(text.Load().(string))(w, r) })
	f := must(s.fetch(t))(t)
	require.Empty(t, f.Validator.Stamp)
	require.True(t, f.AsOf.IsZero())
	v := must(s.probe(t, f.Validator))(t)
	require.Equal(t, f.Validator.Hash, v.Hash)
	text.Store("two")
	v = must(s.probe(t, f.Validator))(t)
	require.NotEqual(t, f.Validator.Hash, v.Hash)
}

func TestStatus(t *testing.T) {
	for code, want := range map[int]error{404: ErrNotFound, 410: ErrGone, 500: errStatus, 503: errStatus, 403: errStatus, 204: errStatus, 206: errStatus, 304: errStatus, 301: errRedirect} {
		s := newSite(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		_, err := s.probe(t, store.Validator{})
		require.ErrorIs(t, err, want, code)
		require.EqualValues(t, 1, s.asked.Load(), "a probe is not repeated")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, code, e.Status)
		require.ErrorIs(t, errOf(s.fetch(t)), want, code)
		tries := int64(1)
		if code == 500 || code == 503 {
			tries = 3
		}
		require.Equal(t, tries, s.asked.Load()-1, code)
	}
}

func TestRetry(t *testing.T) {
	var n atomic.Int64
	s := newSite(t, Options{Retries: 3}, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			plain("at last")(w, r)
		}
	})
	f := must(s.fetch(t))(t)
	require.Equal(t, "at last", f.Text)
	require.Equal(t, []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second}, s.waits)
}

func TestRetryAfterTooLong(t *testing.T) {
	s := newSite(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	require.ErrorIs(t, errOf(s.fetch(t)), errStatus)
	require.Empty(t, s.waits)
	require.EqualValues(t, 1, s.asked.Load())
}

func TestSlow(t *testing.T) {
	for limit, where := 50*time.Millisecond, []string{"header", "body"}; len(where) > 0; {
		release := make(chan struct{})
		s := newSite(t, Options{Timeout: limit}, func(w http.ResponseWriter, r *http.Request) {
			if where[0] == "body" {
				plain("first ")(w, r)
				w.(http.Flusher).Flush()
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		require.ErrorIs(t, errOf(s.fetch(t)), context.DeadlineExceeded, where[0])
		close(release)
		if s.Close(); s.asked.Load() == 0 && limit < time.Minute { // on a busy machine the time was over before the server was asked
			limit *= 4
			continue
		}
		require.EqualValues(t, 1, s.asked.Load(), "a slow server is not asked again")
		where = where[1:]
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newSite(t, Options{}, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	require.ErrorIs(t, errOf(s.c.Source("http").Fetch(ctx, s.key("/"))), context.Canceled)
	require.ErrorIs(t, errOf(s.c.Source("http").Fetch(ctx, s.key("/"))), context.Canceled)
	require.EqualValues(t, 1, s.asked.Load())
	require.Empty(t, s.c.hosts.slots)
}

func packed(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	must(z.Write(b))(t)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestSize(t *testing.T) {
	const limit = 64 << 10
	full := bytes.Repeat([]byte("x"), limit)
	noise := make([]byte, 2*limit) // hardly shrinks, though it is text
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = ' ' + byte(state>>25)%94
	}
	for _, c := range []struct {
		name    string
		body    []byte
		packed  bool
		declare bool
		want    error
	}{
		{"exactly the limit", full, false, true, nil},
		{"one more, declared", append(bytes.Clone(full), 'x'), false, true, errTooLarge},
		{"one more, undeclared", append(bytes.Clone(full), 'x'), false, false, errTooLarge},
		{"packed, the limit", full, true, true, nil},
		{"gzip bomb", bytes.Repeat([]byte("x"), 8<<20), true, true, errTooLarge},
		{"packed and still too large", noise, true, false, errTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			if c.packed {
				body = packed(t, body)
			}
			s := newSite(t, Options{MaxBytes: limit}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				if c.packed {
					w.Header().Set("Content-Encoding", "gzip")
				}
				if c.declare {
					w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				}
				half := len(body) / 2
				_, _ = w.Write(body[:half])
				w.(http.Flusher).Flush()
				_, _ = w.Write(body[half:])
			})
			f, err := s.fetch(t)
			require.ErrorIs(t, err, c.want)
			require.EqualValues(t, 1, s.asked.Load())
			if c.want == nil {
				require.Equal(t, string(c.body), f.Text)
			}
		})
	}
}

func TestTruncated(t *testing.T) {
	whole := packed(t, []byte(strings.Repeat("refunds up to $400. ", 500)))
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 1
	for name, c := range map[string]struct {
		packed   bool
		body     []byte
		declared int
	}{
		"plain":        {false, []byte("half of"), 100},
		"packed":       {true, whole[:len(whole)-9], len(whole) - 9},
		"packed empty": {true, nil, 0},
		"bad checksum": {true, broken, len(broken)},
		"no gzip":      {true, []byte("refunds, and no gzip at all"), 27},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				if c.packed {
					w.Header().Set("Content-Encoding", "gzip")
				}
				w.Header().Set("Content-Length", fmt.Sprint(c.declared))
				_, _ = w.Write(c.body)
			})
			require.ErrorIs(t, errOf(s.fetch(t)), errTruncated)
			require.EqualValues(t, 3, s.asked.Load(), "it may pass")
		})
	}
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		kind, enc, body string
		want            error
		text            string
	}{
		{"text/plain", "", "plain", nil, "plain"},
		{"text/html; charset=UTF-8", "", "<p>tags stay</p>", nil, "<p>tags stay</p>"},
		{"text/markdown", "", "# é", nil, "# é"},
		{"application/json", "", `{"a":1}`, nil, `{"a":1}`},
		{"application/vnd.api+json", "", `{}`, nil, `{}`},
		{"application/rss+xml", "", `<rss/>`, nil, `<rss/>`},
		{"text/plain", "", "\ufeffwith mark", nil, "with mark"},
		{"text/plain", "", "", nil, ""},
		{"-", "", "no type, but text", nil, "no type, but text"},
		{"-", "", "\x00\x01\x02\x03", errType, ""},
		{"text/plain; charset=iso-8859-1", "", "only ascii", nil, "only ascii"},
		{"text/plain; charset=iso-8859-1", "", "caf\xe9", errCharset, ""},
		{"text/plain; charset=utf-16", "", "a\x00b\x00", errCharset, ""},
		{"text/plain; charset=utf-8", "", "caf\xe9", errCharset, ""},
		{"text/plain", "", "\xff\xfea\x00", errCharset, ""},
		{"application/pdf", "", "%PDF-1.7", errType, ""},
		{"image/png", "", "png", errType, ""},
		{"application/octet-stream", "", "bytes", errType, ""},
		{";;;", "", "x", errType, ""},
		{"text/plain", "br", "x", errType, ""},
	} {
		s := newSite(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{c.kind}
			if c.kind == "-" {
				w.Header()["Content-Type"] = nil
			}
			if c.enc != "" {
				w.Header().Set("Content-Encoding", c.enc)
			}
			fmt.Fprint(w, c.body)
		})
		f, err := s.fetch(t)
		require.ErrorIs(t, err, c.want, "%s %q", c.kind, c.body)
		require.Equal(t, c.text, f.Text, c.kind)
		require.EqualValues(t, 1, s.asked.Load())
	}
}

func TestRedirects(t *testing.T) {
	s := newSite(t, Options{MaxRedirects: 3}, func(w http.ResponseWriter, r *http.Request) {
		n := 0
		switch _, err := fmt.Sscanf(r.URL.Path, "/hop/%d", &n); {
		case err == nil && n > 0:
			http.Redirect(w, r, fmt.Sprintf("/hop/%d", n-1), http.StatusFound)
		case r.URL.Path == "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case r.URL.Path == "/ftp":
			w.Header().Set("Location", "ftp://127.0.0.1/x")
			w.WriteHeader(http.StatusMovedPermanently)
		case r.URL.Path == "/secret":
			w.Header().Set("Location", "http://user:secret@"+r.Host+"/")
			w.WriteHeader(http.StatusMovedPermanently)
		default:
			w.Header().Set("ETag", `"end"`)
			if r.Header.Get("If-None-Match") == `"end"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			plain("arrived")(w, r)
		}
	})
	get := func(path string) (store.Fetched, error) {
		return s.c.Source("http").Fetch(t.Context(), s.key(path))
	}
	f := must(get("/hop/3#part"))(t)
	require.Equal(t, "arrived", f.Text)
	require.Equal(t, "etag \"end\"\nat "+s.URL+"/hop/0", f.Validator.Stamp)
	v := must(s.c.Source("http").Probe(t.Context(), s.key("/hop/3"), f.Validator))(t)
	require.Equal(t, f.Validator, v)
	// The same tag at another place is another thing.
	v = must(s.c.Source("http").Probe(t.Context(), s.key("/"), f.Validator))(t)
	require.Equal(t, `etag "end"`, v.Stamp)

	for _, path := range []string{"/hop/4", "/loop", "/ftp"} {
		require.ErrorIs(t, errOf(get(path)), errRedirect, path)
	}
	_, err := get("/secret")
	require.ErrorIs(t, err, errURL)
	require.NotContains(t, err.Error(), ":secret@")
}

func TestNeverFromHTTPSToHTTP(t *testing.T) {
	var there atomic.Int64
	down := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { there.Add(1) }))
	defer down.Close()
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			http.Redirect(w, r, down.URL, http.StatusFound)
			return
		}
		plain("safe")(w, r)
	}))
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.StartTLS()
	defer up.Close()
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	c := must(New(Options{TLS: &tls.Config{RootCAs: roots}, PrivateHosts: []string{"*"}}))(t)
	defer c.CloseIdle()
	key := strings.TrimPrefix(up.URL, "https:")
	f := must(c.Source("https").Fetch(t.Context(), key))(t)
	require.Equal(t, "safe", f.Text)
	require.ErrorIs(t, errOf(c.Source("https").Fetch(t.Context(), key+"/down")), errRedirect)
	require.Zero(t, there.Load())

	distrustful := must(New(Options{PrivateHosts: []string{"*"}}))(t)
	defer distrustful.CloseIdle()
	_, err := distrustful.Source("https").Fetch(t.Context(), key)
	var cert *tls.CertificateVerificationError
	require.ErrorAs(t, err, &cert)
}

// TestInside: nobody reaches a service inside by writing its address, by a name that resolves to it, or by a redirect.
func TestInside(t *testing.T) {
	inner := newSite(t, Options{}, plain("secret of the inner network"))
	outer := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, http.StatusFound) })
	_, port, _ := strings.Cut(strings.TrimPrefix(inner.URL, "http://"), ":")
	away := newSite(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://localhost:"+port, http.StatusFound)
	})
	fetch := func(source string, private ...string) error {
		c := must(New(Options{PrivateHosts: private, Retries: -1}))(t)
		defer c.CloseIdle()
		scheme, key, _ := strings.Cut(source, ":")
		_, err := c.Source(scheme).Fetch(t.Context(), key)
		return err
	}
	for _, url := range []string{inner.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://[::ffff:7f00:1]:" + port, outer.URL} {
		err := fetch(url)
		require.ErrorIs(t, err, errAddress, url)
		require.Contains(t, err.Error(), "Options.PrivateHosts", "it says who can allow it")
	}
	err := fetch("http://localhost:" + port)
	require.NotContains(t, err.Error(), "127.0.0.1", "what a name resolves to inside is not told")
	require.ErrorIs(t, fetch(away.URL, "127.0.0.1"), errAddress, "a redirect to a host that is not listed")
	require.ErrorIs(t, fetch(inner.URL, "example.com"), errAddress)
	require.Zero(t, inner.asked.Load())
	// Connections of a listed host are not taken over by one that is not.
	c := must(New(Options{PrivateHosts: []string{"127.0.0.1"}}))(t)
	defer c.CloseIdle()
	must(c.Source("http").Fetch(t.Context(), inner.key("/")))(t)
	require.ErrorIs(t, errOf(c.Source("http").Fetch(t.Context(), away.key("/"))), errAddress)
	require.EqualValues(t, 1, inner.asked.Load())
	// The negative controls: whoever is listed is reached.
	for _, ok := range [][2]string{
		{inner.URL, "127.0.0.1"}, {outer.URL, "127.0.0.1"}, {inner.URL, "*"}, {away.URL, "*"}, {"http://localhost:" + port, "Localhost"},
		{"http://[::ffff:127.0.0.1]:" + port, "127.0.0.1"}, {inner.URL, "::ffff:7f00:1"},
	} {
		require.NoError(t, fetch(ok[0], ok[1]), ok)
	}
}

// TestMetadata: what tells a machine's credentials is reached by nobody who did not list that very address. The dialler
// refuses before it sends anything.
func TestMetadata(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "[fe80::1]", "100.100.100.200", "168.63.129.16", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[fd20:ce::254]"} {
		for _, private := range [][]string{nil, {"*"}, {"metadata.google.internal", "169.254.0.0"}} {
			c := must(New(Options{PrivateHosts: private, Retries: -1}))(t)
			require.ErrorIs(t, errOf(c.Source("http").Fetch(t.Context(), "//"+host+"/latest/meta-data/")), errAddress, "%s %v", host, private)
		}
	}
	ask := refuseMetadata([]string{"*", "169.254.169.254"})
	require.NoError(t, ask(t.Context(), "tcp", "169.254.169.254:80", nil))
	require.NoError(t, ask(t.Context(), "tcp", "10.0.0.1:80", nil))
	require.NoError(t, ask(t.Context(), "tcp", "[::ffff:0:10.0.0.1]:80", nil))
	for _, a := range []string{"169.254.170.2", "[::ffff:169.254.170.2]", "[::ffff:0:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[::169.254.169.254]", "[2002:a9fe:a9fe::1]", "[fe80::5efe:169.254.169.254]"} {
		require.ErrorIs(t, ask(t.Context(), "tcp", a+":80", nil), errAddress, a)
	}
	require.ErrorIs(t, ask(t.Context(), "tcp", "what?", nil), errAddress)
}

func TestSpecialAddresses(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1", "255.255.255.255",
		"198.18.0.1", "192.88.99.1", "168.63.129.16", "192.0.0.192", "::1", "::", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "::127.0.0.1",
		"2001::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1", "100:0:0:1::1",
		"2606:4700::5efe:7f00:1", "2606:4700::200:5efe:10.0.0.1", "4000::1", "fd00:ec2::254",
	} {
		require.True(t, isSpecial(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{"1.1.1.1", "172.32.0.1", "100.128.0.1", "192.88.98.1", "2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::101:101", "2002:101:101::", "3ffe::1"} {
		require.False(t, isSpecial(netip.MustParseAddr(a)), a)
		require.False(t, isMetadata(netip.MustParseAddr(a)), a)
	}
	require.ErrorIs(t, refuseSpecial(t.Context(), "tcp", "10.0.0.1:80", nil), errAddress)
	require.NoError(t, refuseSpecial(t.Context(), "tcp", "1.1.1.1:80", nil))
	require.ErrorIs(t, refuseSpecial(t.Context(), "tcp", "what?", nil), errAddress)
	for _, h := range []string{"127.0.0.1:80", "http://localhost", "localhost:80", "10.0.0.0/8", "", "[::1]:80"} {
		require.ErrorContains(t, errOf(New(Options{PrivateHosts: []string{h}})), "without a port", h)
	}
	for _, h := range []string{"[::1]", "::1", "fe80::1%eth0", "a.example", "*"} {
		require.NoError(t, errOf(New(Options{PrivateHosts: []string{h}})), h)
	}
}

func TestURL(t *testing.T) {
	c := must(New(Options{}))(t)
	for _, k := range [][2]string{{"ftp", "//host/x"}, {"http", "host/x"}, {"http", "//"}, {"http", "///path"}, {"http", "//[::1"}, {"https", "//user:secret@host/x"}, {"http", "//host\x00/"}} {
		_, err := c.Source(k[0]).Fetch(t.Context(), k[1])
		require.ErrorIs(t, err, errURL, k)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, o := range []Options{{MaxBytes: -1}, {Timeout: -1}, {PerHost: -1}} {
		require.Error(t, errOf(New(o)))
	}
}

func TestHeadersGoToTheirHostOnly(t *testing.T) {
	var seen sync.Map
	record := func(next string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r.Host, r.Header.Get("X-Key"))
			if next != "" {
				http.Redirect(w, r, next, http.StatusFound)
				return
			}
			plain("x")(w, r)
		}
	}
	other := newSite(t, Options{}, record(""))
	first := newSite(t, Options{}, record(other.URL))
	host := strings.TrimPrefix(first.URL, "http://")
	c := must(New(Options{PrivateHosts: []string{"*"}, Header: func(h string) http.Header {
		if h == host {
			return http.Header{"x-key": {"secret"}}
		}
		return nil
	}}))(t)
	defer c.CloseIdle()
	must(c.Source("http").Fetch(t.Context(), first.key("/")))(t)
	v, _ := seen.Load(host)
	require.Equal(t, "secret", v)
	v, _ = seen.Load(strings.TrimPrefix(other.URL, "http://"))
	require.Equal(t, "", v)
}

func TestPerHost(t *testing.T) {
	var now, most atomic.Int64
	arrived, release := make(chan struct{}, 16), make(chan struct{})
	s := newSite(t, Options{PerHost: 2}, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		arrived <- struct{}{}
		<-release
		now.Add(-1)
		plain("x")(w, r)
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := s.fetch(t)
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-arrived
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errOf(s.c.Source("http").Fetch(ctx, s.key("/"))), context.Canceled, "who waits for a place can be called off")
	close(release)
	wg.Wait()
	require.EqualValues(t, 2, most.Load())
	require.Empty(t, s.c.hosts.slots)
}

func TestErrorsSayWhatWasExpected(t *testing.T) {
	s := newSite(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "image/png") })
	_, err := s.fetch(t)
	require.Contains(t, err.Error(), "expected text, JSON, XML, YAML or markdown")
	require.Contains(t, err.Error(), s.URL)
	require.False(t, errors.Is(err, errStatus))
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
