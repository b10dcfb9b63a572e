package ui_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/ui"
)

// hostile is text that would do harm where it acts: markup, characters that steer, turn round and hide, and forged marks of a context.
const hostile = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>\u202Egnp.exe\u2066\u200B\U000E0041\u0085\uFEFF-->]]>"

// fixture is a database with a little of everything.
type fixture struct {
	t                   *testing.T
	db                  *ctxpage.DB
	dir                 string
	first, second, held string // traces, and a batch
}

func newFixture(t *testing.T, name func(plain string) string) *fixture {
	ctx := t.Context()
	f := &fixture{t: t, dir: t.TempDir()}
	at := dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	clock := func() time.Time { return at.Add(time.Second) }
	f.db = must(ctxpage.Open(filepath.Join(f.dir, "a.ctx"), ctxpage.Options{Clock: clock, FileRoots: []string{f.dir}, NoWatch: true}))(t)
	t.Cleanup(func() { require.NoError(t, f.db.Close()) })
	s := f.db.Scope("acme/"+name("support"), ctxpage.WithActor(name("bot")))
	put := func(a ctxpage.Artefact) {
		must(s.Put(ctx, a))(t)
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "doc.md"), []byte("Refunds by card take 14 days."), 0o600))
	put(ctxpage.Artefact{ID: name("policy"), Text: "Refunds take 14 days.\n" + name("line"), Subject: name("lee"), Tags: []string{name("tag")}, Meta: map[string]string{name("k"): name("v")}})
	put(ctxpage.Artefact{ID: "doc", Source: "file:" + filepath.Join(f.dir, "doc.md")})
	put(ctxpage.Artefact{ID: "rules", Kind: store.KindSystem, Text: "Be brief. " + name("rule")})
	put(ctxpage.Artefact{ID: "pinned", Text: "The refund desk is open. " + name("pin"), Pinned: true})
	put(ctxpage.Artefact{ID: "long", Text: strings.Repeat("refunds and "+name("x")+" ", 900)})
	chat := s.Session(name("chat"))
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 3000}))
	for i := range 12 {
		must(chat.Append(ctx, ctxpage.Turn{Role: "user", Name: name("lee"), Text: fmt.Sprint("How long does refund number ", i, " take? ", name("q"), strings.Repeat(" more words of it", 40))}))(t)
	}
	q := ctxpage.Query{Text: "how long do refunds take " + name("q"), Budget: 760, Session: name("chat")}
	a := must(s.Assemble(ctx, q))(t)
	f.first = a.Trace
	put(ctxpage.Artefact{ID: name("policy"), Text: "Refunds take 30 days.\n" + name("line"), DerivedFrom: []ctxpage.Ref{{Scope: s.Name(), ID: "pinned"}}})
	q.Budget = 960
	b := must(s.Assemble(ctx, q))(t)
	f.second = b.Trace
	must(chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: "Thirty days. " + name("answer"), Trace: b.Trace}))(t)
	tx := must(s.Resume(ctx, b.Trace))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: name("policy"), Text: "Refunds take no time.\n" + name("line")}))
	require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.2, By: name("judge"), Note: name("note")}), store.ErrHeld)
	for h, err := range f.db.Review().Batches(ctx, "", false) {
		require.NoError(t, err)
		f.held = h.ID
	}
	return f
}

func plainName(s string) string { return s }

// handler makes a handler without a login.
func (f *fixture) handler(o ui.Options) *ui.Handler {
	o.DB, o.Rand = f.db, rand.NewChaCha8([32]byte{1})
	o.Now = func() time.Time { return time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC) }
	h := must(ui.New(o))(f.t)
	f.t.Cleanup(h.Close)
	return h
}

// views are addresses of every view.
func (f *fixture) views(name func(string) string) []string {
	scope, q := url.QueryEscape("acme/"+name("support")), url.QueryEscape
	page := q(ctxpage.Ref{Scope: "acme/" + name("support"), ID: name("policy")}.String())
	return []string{
		"/", "/?type=assemble&scope=" + scope, "/browse", "/browse?sizes=1", "/browse?scope=" + scope, "/browse?scope=" + scope + "&order=newest&kind=fact&state=pinned",
		"/browse?scope=" + scope + "&q=refunds", "/browse?scope=" + scope + "&tag=" + q(name("tag")) + "&subject=" + q(name("lee")), "/sources?scope=" + scope,
		"/page?ref=" + page, "/page?with=1&ref=" + page, "/page?contexts=1&ref=" + page, "/page?derived=1&ref=" + page, "/page?ref=" + page + "%401",
		"/context?trace=" + f.second, "/context?tab=text&trace=" + f.second, "/context?tab=messages&provider=anthropic&trace=" + f.second,
		"/context?tab=json&trace=" + f.second, "/context?block=1&trace=" + f.second, "/why?trace=" + f.second, "/why?trace=" + f.second + "&ref=" + page,
		"/why?trace=" + f.second + "&ref=nothing", "/diff?a=" + f.first + "&b=" + f.second, "/sessions", "/sessions?scope=" + scope,
		"/session?scope=" + scope + "&id=" + q(name("chat")), "/session?turn=2&scope=" + scope + "&id=" + q(name("chat")), "/review", "/review?all=1",
		"/batch?id=" + f.held, "/try", "/try?two=1&scope=" + scope + "&q=refunds+" + q(name("q")), "/health", "/health?head=now", "/health?scope=" + scope,
	}
}

func get(t *testing.T, h http.Handler, target string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1"+target, nil))
	return w.Code, w.Body.String()
}

// Every view answers, is whole, and is small.
func TestViews(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{Write: true})
	for _, path := range f.views(plainName) {
		status, body := get(t, h, path)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
		require.True(t, strings.HasSuffix(strings.TrimSpace(body), "</html>"), path)
		require.LessOrEqual(t, len(body), 150_000, path)
		require.NotContains(t, body, "<no value>", path)
		require.NotContains(t, body, "%!", path)
		require.NotRegexp(t, ` style=| on[a-z]+=|ZgotmplZ`, body, path)
	}
	_, body := get(t, h, "/context?trace="+f.second)
	for _, want := range []string{"how long do refunds take", "system: ", "pinned: ", "reserve", "Left out", "over budget", "what changed since", "/diff?a=" + f.first} {
		if want != "reserve" {
			require.Contains(t, body, want)
		}
	}
	_, body = get(t, h, "/diff?a="+f.first+"&b="+f.second)
	require.Contains(t, body, "budget")
	require.Contains(t, body, "Refunds take 30 days.")
	_, body = get(t, h, "/page?with=1&ref=acme/support:policy")
	require.Regexp(t, `(?s)class="minus".*14 days.*class="plus".*30 days`, body)
	require.Contains(t, body, "derived from")
	_, body = get(t, h, "/page?ref=acme/support:pinned")
	require.NotContains(t, body, "origin of", "nobody asked")
	_, body = get(t, h, "/page?derived=1&ref=acme/support:pinned")
	require.Contains(t, body, `origin of <a href="/page?ref=acme%2Fsupport%3Apolicy%402">`)
	_, body = get(t, h, "/page?derived=1&ref=acme/support:rules")
	require.Contains(t, body, "No other artefact of the scope was made from it.")
	_, body = get(t, h, "/why?trace="+f.second+"&ref=nothing")
	require.Contains(t, body, "is not in the context")
	_, body = get(t, h, "/session?turn=2&scope=acme/support&id=chat")
	require.Contains(t, body, "At turn 2 the window held about")
	require.Contains(t, body, "/context?trace="+f.second, "from a turn to its context")
	_, body = get(t, h, "/batch?id="+f.held)
	require.Contains(t, body, "Replaces acme/support:policy@2.")
	require.Contains(t, body, "Drops from it: its lineage.")
	require.Regexp(t, `(?s)class="minus".*30 days.*class="plus".*no time`, body)
	for path, want := range map[string]int{
		"/page?ref=acme:none": 404, "/page?ref=rubbish": 400, "/context?trace=none": 404, "/nothing": 404, "/context": 400, "/batch?id=rubbish": 400, "/try?scope=acme&q=x&preset-a=none": 400,
	} {
		status, body := get(t, h, path)
		require.Equal(t, want, status, "%s: %s", path, body)
		require.Contains(t, body, `role="alert"`)
	}
}

// tagged is the markup around texts; what it leaves is what people see.
var tagged = regexp.MustCompile(`(?s)<[^>]*>`)

// Hostile text in every field does no harm in any view.
func TestHostileText(t *testing.T) {
	named := func(s string) string { // what names may hold: no control characters, and few characters in a scope
		return s + strings.NewReplacer("\u0085", "", "/", "", "\uFEFF", "").Replace(hostile)
	}
	f := newFixture(t, named)
	h := f.handler(ui.Options{Write: true, Name: hostile})
	for _, path := range f.views(named) {
		status, body := get(t, h, path)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		require.LessOrEqual(t, w.Body.Len(), 150_000, "%s: as it is sent to a browser", path)
		require.NotContains(t, body, "<script>alert", path)
		require.NotContains(t, body, "<img", path)
		require.NotRegexp(t, `on(error|load)=[^&"]*"?[^<]*>`, tagged.FindString(body), path)
		for _, r := range tagged.ReplaceAllString(body, "") {
			require.False(t, r != '\n' && r != '\t' && (view.Steers(r) || view.Hidden(r) && !view.Shapes(r)), "%s: %U is shown raw", path, r)
		}
	}
	_, body := get(t, h, "/browse")
	require.Contains(t, body, `<b class="c">U+202E</b>`)
	require.Contains(t, body, `<b class="c">U+E0041</b>`)
}

// A line of a megabyte, and a text of characters that take most room, come in parts.
func TestLongTexts(t *testing.T) {
	f := newFixture(t, plainName)
	h, ctx := f.handler(ui.Options{}), t.Context()
	texts := map[string]string{"line": strings.Repeat("long", 1<<18), "bidi": strings.Repeat("\u202E", 1<<17), "markup": strings.Repeat("<&>", 1<<17)}
	for id, text := range texts {
		must(f.db.Scope("big").Put(ctx, ctxpage.Artefact{ID: id, Text: text}))(t)
		status, body := get(t, h, "/page?ref=big:"+id)
		require.Equal(t, http.StatusOK, status)
		require.LessOrEqual(t, len(body), 150_000, id)
		require.Contains(t, body, "Next part")
	}
	// The parts together are the text.
	var all strings.Builder
	next := regexp.MustCompile(`href="(/page\?[^"]*at=[0-9]+[^"]*)">Next part`)
	shown := regexp.MustCompile(`(?s)<pre class="text"[^>]*>(.*?)</pre>`)
	for path := "/page?ref=big:markup"; ; {
		_, body := get(t, h, path)
		all.WriteString(shown.FindStringSubmatch(body)[1])
		more := next.FindStringSubmatch(body)
		if more == nil {
			break
		}
		path = strings.ReplaceAll(more[1], "&amp;", "&")
	}
	require.Equal(t, texts["markup"], strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(all.String()))
	tags := make([]string, store.MaxTags)
	for i := range tags {
		tags[i] = fmt.Sprint(strings.Repeat("t", 500), i)
	}
	for i := range 60 {
		must(f.db.Scope("tags").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("a", i), Text: "x", Tags: tags}))(t)
	}
	status, body := get(t, h, "/browse?scope=tags")
	require.Equal(t, http.StatusOK, status)
	require.LessOrEqual(t, len(body), 150_000)
	require.Contains(t, body, "More artefacts")
}

// The link works once and leaves a strict cookie; nothing is answered without it, to unknown names, or to other sites.
func TestDoor(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{Token: "secret", Write: true})
	ask := func(method, target string, set func(r *http.Request)) *http.Response {
		r := httptest.NewRequest(method, target, nil)
		if set != nil {
			set(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	const at = "http://127.0.0.1:80"
	for _, path := range f.views(plainName) {
		require.Equal(t, http.StatusUnauthorized, ask("GET", at+path, nil).StatusCode, path)
	}
	require.Equal(t, http.StatusUnauthorized, ask("GET", at+"/events?after=0", nil).StatusCode)
	require.Equal(t, http.StatusUnauthorized, ask("POST", at+"/decide", nil).StatusCode)
	require.Equal(t, http.StatusUnauthorized, ask("GET", at+"/enter?token=wrong", nil).StatusCode)
	in := ask("GET", at+"/enter?token=secret", nil)
	require.Equal(t, http.StatusOK, in.StatusCode)
	require.Len(t, in.Cookies(), 1)
	c := in.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.NotContains(t, c.Value, "secret")
	require.Equal(t, http.StatusUnauthorized, ask("GET", at+"/enter?token=secret", nil).StatusCode, "twice")
	with := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
	res := ask("GET", at+"/", with)
	require.Equal(t, http.StatusOK, res.StatusCode)
	csp := res.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
		require.Contains(t, csp, part)
	}
	require.NotContains(t, csp, "unsafe")
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(t, http.StatusSeeOther, ask("GET", at+"/enter?token=secret", with).StatusCode, "the link again, in the same browser")

	for host, want := range map[string]int{"localhost:9": 200, "[::1]:9": 200, "127.0.0.1": 200, "evil.example": 421, "127.0.0.1.evil.example:80": 421, "": 421} {
		require.Equal(t, want, ask("GET", at+"/", func(r *http.Request) { with(r); r.Host = host }).StatusCode, host)
	}
	cross := func(mode string) func(r *http.Request) {
		return func(r *http.Request) {
			with(r)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", mode)
		}
	}
	require.Equal(t, http.StatusForbidden, ask("POST", at+"/decide", cross("navigate")).StatusCode)
	require.Equal(t, http.StatusForbidden, ask("GET", at+"/context?trace="+f.second, cross("no-cors")).StatusCode)
	require.Equal(t, http.StatusOK, ask("GET", at+"/", cross("navigate")).StatusCode, "a link may lead here")
	require.Equal(t, http.StatusForbidden, ask("POST", at+"/decide", func(r *http.Request) { with(r); r.Header.Set("Origin", "http://evil.example") }).StatusCode)

	only := f.handler(ui.Options{Hosts: []string{"inspect.example"}, Prefix: "/ctx"})
	w := httptest.NewRecorder()
	only.ServeHTTP(w, httptest.NewRequest("GET", "http://inspect.example/ctx/browse", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `href="/ctx/browse?scope=acme`)
	require.NotContains(t, w.Body.String(), `href="/browse`)
	status, _ := get(t, only, "/ctx/")
	require.Equal(t, http.StatusMisdirectedRequest, status, "only the names given")
}

// Without Write nothing changes but the audit, and every view that shows text leaves its manifest there.
func TestLookingChangesNothing(t *testing.T) {
	f := newFixture(t, plainName)
	h, ctx := f.handler(ui.Options{}), t.Context()
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "doc.md"), []byte("Refunds by card take 99 days now."), 0o600))
	before := must(f.db.Stats(ctx))(t)
	for _, path := range f.views(plainName) {
		status, body := get(t, h, path)
		require.Equal(t, http.StatusOK, status, path)
		require.NotContains(t, body, "99 days", "the source is not fetched")
	}
	_, body := get(t, h, "/sources?scope=acme/support")
	require.Contains(t, body, "Changed since they were loaded")
	after := must(f.db.Stats(ctx))(t)
	require.Equal(t, before.LSN, after.LSN, "no commit")
	require.Equal(t, before.Held, after.Held)
	for path, want := range map[string]manifest.Type{
		"/context?trace=" + f.second: manifest.TypeRecall, "/page?ref=acme/support:policy": manifest.TypeRecall, "/batch?id=" + f.held: manifest.TypeRecall,
		"/browse?scope=acme/support&q=refunds": manifest.TypeSearch, "/try?scope=acme/support&q=refunds": manifest.TypeAssemble, "/diff?a=" + f.first + "&b=" + f.second: manifest.TypeRecall,
	} {
		size := must(f.db.Manifests().Size(ctx))(t)
		get(t, h, path)
		leaf, err := f.db.Manifests().Leaf(ctx, size)
		require.NoError(t, err, path)
		require.Equal(t, want, leaf.Type, path)
		require.Equal(t, "ui", leaf.Actor, path)
		if leaf.Type == manifest.TypeAssemble {
			require.Equal(t, "dry", leaf.Action)
		}
	}
	for _, path := range []string{"/", "/browse", "/browse?scope=acme/support", "/sessions", "/session?scope=acme/support&id=chat", "/review", "/health", "/why?trace=" + f.second + "&ref=policy"} {
		size := must(f.db.Manifests().Size(ctx))(t)
		get(t, h, path)
		now := must(f.db.Manifests().Size(ctx))(t)
		require.Equal(t, size, now, "%s shows no text of pages", path)
	}
	for _, path := range []string{"/decide", "/keep"} {
		status, body := post(t, h, path, url.Values{"id": {f.held}, "by": {"ann"}, "decision": {"approve"}, "address": {"/try?q=x"}})
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, body, "--write")
	}
	_, body = get(t, h, "/batch?id="+f.held)
	require.NotContains(t, body, "<form class=\"decide\"")
}

func post(t *testing.T, h http.Handler, path string, form url.Values) (int, string) {
	t.Helper()
	r := httptest.NewRequest("POST", "http://127.0.0.1"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// With Write a person decides by name; nobody approves under the name of the writer.
func TestDecide(t *testing.T) {
	f := newFixture(t, plainName)
	h, ctx := f.handler(ui.Options{Write: true}), t.Context()
	form := url.Values{"id": {f.held}, "by": {"bot"}, "decision": {"approve"}, "stale": {"1"}}
	status, body := post(t, h, "/decide", form)
	require.Equal(t, http.StatusConflict, status, body)
	form.Set("by", "")
	status, _ = post(t, h, "/decide", form)
	require.Equal(t, http.StatusBadRequest, status, "by name")
	form.Set("by", "ann")
	form.Set("decision", "maybe")
	status, _ = post(t, h, "/decide", form)
	require.Equal(t, http.StatusBadRequest, status)
	form.Set("decision", "approve")
	form.Set("note", "asked the desk")
	status, body = post(t, h, "/decide", form)
	require.Equal(t, http.StatusSeeOther, status, body)
	v := must(f.db.Scope("acme/support").Get(ctx, "policy"))(t)
	require.Contains(t, v.Text, "no time")
	_, body = get(t, h, "/batch?id="+f.held)
	require.Contains(t, tagged.ReplaceAllString(body, ""), "It was approved by ann. asked the desk")
	_, body = get(t, h, "/page?ref=acme/support:policy")
	require.Contains(t, tagged.ReplaceAllString(body, ""), "by ann")
}

// A question is kept as a row, runs again, and shows what changed; it can be forgotten.
func TestKeepQuestion(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{Write: true})
	_, body := get(t, h, "/try?scope=acme/support&q=refunds")
	again := regexp.MustCompile(`href="(/try\?[^"]*before-a=[^"]*)">Run it again`).FindStringSubmatch(body)
	require.NotNil(t, again, body)
	address := strings.ReplaceAll(again[1], "&amp;", "&")
	status, _ := post(t, h, "/keep", url.Values{"address": {address}})
	require.Equal(t, http.StatusSeeOther, status)
	must(f.db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: "newer", Text: "refunds refunds refunds"}))(t)
	_, body = get(t, h, "/try")
	require.Contains(t, body, "Kept questions")
	_, body = get(t, h, address)
	require.Contains(t, body, "Since the last time")
	require.Contains(t, body, "new: ")
	id := regexp.MustCompile(`name="forget" value="([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, id)
	status, _ = post(t, h, "/keep", url.Values{"address": {address}, "forget": {id[1]}})
	require.Equal(t, http.StatusSeeOther, status)
	_, body = get(t, h, "/try")
	require.NotContains(t, body, "Kept questions")
}

// Live updates go on behind the last event that the browser got, and end with the handler.
func TestEventsResume(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{})
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	size := must(f.db.Manifests().Size(ctx))(t)
	s := f.db.Scope("live", ctxpage.WithActor("<b>bot</b>"))
	put := func(id string) {
		must(s.Put(ctx, ctxpage.Artefact{ID: id, Text: "words of " + id}))(t)
	}
	follow := func(last, query string) (next func() (id, event, data string), end func()) {
		r := must(http.NewRequestWithContext(ctx, "GET", fmt.Sprint(srv.URL, "/events?after=", size, query), nil))(t)
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		res := must(http.DefaultClient.Do(r))(t)
		require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		lines := bufio.NewScanner(res.Body)
		return func() (id, event, data string) {
			for lines.Scan() {
				name, value, _ := strings.Cut(lines.Text(), ": ")
				switch name {
				case "id":
					id = value
				case "event":
					event = value
				case "data":
					return id, event, value
				}
			}
			return "", "end", ""
		}, func() { res.Body.Close() }
	}
	put("one")
	next, end := follow("", "&scope=live")
	id, event, data := next()
	require.Equal(t, "leaf", event)
	require.Contains(t, data, "live:one")
	require.NotContains(t, data, "<b>bot</b>")
	put("two") // while it is connected
	_, _, data = next()
	require.Contains(t, data, "live:two")
	end()
	put("three") // while nobody is
	next, end = follow(id, "&scope=live")
	for _, want := range []string{"two", "three"} {
		_, _, data = next()
		require.Contains(t, data, "live:"+want, "it goes on where it was")
	}
	end()
	next, end = follow("", "&scope=elsewhere")
	defer end()
	h.Close()
	_, event, _ = next()
	require.Equal(t, "end", event, "the filter passed nothing, and the stream ended")

	status, _ := get(t, h, "/events?after=x")
	require.Equal(t, http.StatusBadRequest, status)
}

// A read-only database is shown with a banner and leaves no manifest.
func TestReadOnly(t *testing.T) {
	f := newFixture(t, plainName)
	path := filepath.Join(t.TempDir(), "copy.ctx")
	must(f.db.Admin().Backup(t.Context(), path, nil))(t)
	db := must(ctxpage.Open(path, ctxpage.Options{ReadOnly: true}))(t)
	defer func() { require.NoError(t, db.Close()) }()
	h := must(ui.New(ui.Options{DB: db, ReadOnly: true, Write: true}))(t)
	defer h.Close()
	size := must(db.Manifests().Size(t.Context()))(t)
	for _, path := range []string{"/", "/context?trace=" + f.second, "/page?ref=acme/support:policy", "/batch?id=" + f.held, "/try?scope=acme/support&q=refunds"} {
		status, body := get(t, h, path)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
		require.Contains(t, body, "leaves no manifest")
	}
	now := must(db.Manifests().Size(t.Context()))(t)
	require.Equal(t, size, now)
	status, _ := post(t, h, "/decide", url.Values{"id": {f.held}})
	require.Equal(t, http.StatusForbidden, status)
}

// A head that was kept verifies; one of another audit does not.
func TestVerify(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{})
	head := must(f.db.Head(t.Context()))(t)
	_, body := get(t, h, "/health?head="+url.QueryEscape(head.String()))
	require.Contains(t, body, "The audit agrees with the head")
	head.Root[0] ^= 1
	_, body = get(t, h, "/health?head="+url.QueryEscape(head.String()))
	require.Contains(t, body, "does not agree")
	_, body = get(t, h, "/health?head=rubbish")
	require.Contains(t, body, `role="alert"`)
}

// The own JavaScript is small, and no file names another host.
func TestStaticFiles(t *testing.T) {
	f := newFixture(t, plainName)
	h := f.handler(ui.Options{})
	for _, name := range []string{"style.css", "live.js", "icon.svg"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/static/"+name, nil))
		require.Equal(t, http.StatusOK, w.Code)
		b := must(io.ReadAll(w.Body))(t)
		require.Less(t, len(b), 12_000, name)
		require.NotContains(t, string(bytes.ReplaceAll(b, []byte("http://www.w3.org/2000/svg"), nil)), "://", name)
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }
