package ui

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
)

// door decides which requests are answered. Its lock is held for no call of others.
type door struct {
	hosts  []string
	prefix string
	login  bool
	cookie string // name: cookies do not know ports, and several inspectors may run on one machine
	secret string // value of the cookie
	cross  *http.CrossOriginProtection

	mu    sync.Mutex
	token string // "": it was used
}

func newDoor(o Options) (*door, error) {
	d := &door{hosts: o.Hosts, prefix: o.Prefix, login: o.Token != "", token: o.Token, cross: http.NewCrossOriginProtection()}
	if !d.login {
		return d, nil
	}
	var b [40]byte
	if _, err := io.ReadFull(o.Rand, b[:]); err != nil {
		return nil, err
	}
	d.secret = base64.RawURLEncoding.EncodeToString(b[:32])
	d.cookie = "ctxpage-ui-" + base64.RawURLEncoding.EncodeToString(b[32:])
	return d, nil
}

// policy is the content security policy of doors to people: nothing from elsewhere, no script or style in a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuses returns the status of a request that is not answered, and why; 0: it is.
func (d *door) refuses(r *http.Request) (status int, why string) {
	if !d.known(r.Host) {
		return http.StatusMisdirectedRequest, "This name of the server is not known here. Use the address that the program printed."
	}
	if err := d.cross.Check(r); err != nil {
		return http.StatusForbidden, "Another site made this request."
	}
	// A page elsewhere must not make the browser read here, which would leave manifests. Following a link is allowed.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return http.StatusForbidden, "Another site made this request."
	}
	path := strings.TrimPrefix(r.URL.Path, d.prefix)
	if !d.login || path == "/enter" || strings.HasPrefix(path, "/static/") || d.has(r) {
		return 0, ""
	}
	return http.StatusUnauthorized, "Open the link that the program printed when it started. It works once; start the program again for another one."
}

func (d *door) known(host string) bool {
	if len(d.hosts) > 0 {
		return slices.Contains(d.hosts, host)
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// has reports whether a request has the cookie.
func (d *door) has(r *http.Request) bool {
	for _, c := range r.CookiesNamed(d.cookie) {
		if same(c.Value, d.secret) {
			return true
		}
	}
	return false
}

// same compares secrets in a time that does not depend on them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return hmac.Equal(x[:], y[:])
}

// takes uses the token up.
func (d *door) takes(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token == "" || !same(token, d.token) {
		return false
	}
	d.token = ""
	return true
}

// enter exchanges the token for the cookie. It answers with a page that goes on by itself: after a redirect a browser that came
// from another site would not send a strict cookie.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request) {
	d := h.door
	if !d.login || d.has(r) {
		http.Redirect(w, r, h.link("/"), http.StatusSeeOther)
		return
	}
	if !d.takes(r.URL.Query().Get("token")) {
		h.fail(w, r, http.StatusUnauthorized, "This link was used before, or is not whole. Start the program again for another one.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.secret, Path: h.o.Prefix + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	h.write(w, r, http.StatusOK, &content{Name: "enter", Title: "Welcome"})
}

// Live updates are server-sent events: one for each leaf that passes the filter, named by its index, so that a browser that lost the
// connection goes on behind the last one that it got (Last-Event-ID). The data is the row of the list, as the server makes it.

const (
	eventWait  = 15 * time.Second // between signs of life on a quiet stream
	mostMissed = 500              // rows that a browser gets which was away; of more it is told to load the page again
)

func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	f, err := filterOf(r)
	if err != nil {
		h.fail(w, r, statusOf(err), problem(err))
		return
	}
	from, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var n uint64
		n, err = strconv.ParseUint(last, 10, 64)
		from = n + 1
	}
	if err != nil {
		h.fail(w, r, http.StatusBadRequest, "The stream begins behind a leaf: expected its number in after or in Last-Event-ID.")
		return
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{})
	h.closed.Add(1)
	defer h.closed.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ended, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	fmt.Fprint(w, "retry: 2000\n\n")
	_ = out.Flush()
	for ctx.Err() == nil {
		size, err := h.o.DB.Manifests().Wait(ctx, from, eventWait)
		if err != nil {
			return
		}
		if size <= from {
			fmt.Fprint(w, ": quiet\n\n")
		} else if from, err = h.send(ctx, w, f, from, size); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
	}
}

// send writes the leaves of [from, size) that pass a filter, and returns where to go on.
func (h *Handler) send(ctx context.Context, w http.ResponseWriter, f manifest.Filter, from, size uint64) (uint64, error) {
	if size-from > mostMissed {
		fmt.Fprintf(w, "id: %d\nevent: missed\ndata: %d\n\n", size-1, size-from)
		return size, nil
	}
	leaves, err := h.o.DB.Manifests().Records(ctx, from, size, false, int(size-from))
	if err != nil {
		return from, err
	}
	for _, l := range leaves {
		from = l.Index + 1
		if !f.Match(l) {
			continue
		}
		row := leafRow{Record: l}
		if row.Asked, err = h.asked(ctx, l); err != nil {
			return from, err
		}
		var b strings.Builder
		if err := h.pages["live"].ExecuteTemplate(&b, "leaf", row); err != nil {
			return from, err
		}
		fmt.Fprintf(w, "id: %d\nevent: leaf\ndata: %s\n\n", l.Index, strings.Join(strings.Fields(b.String()), " "))
	}
	return from, nil
}
