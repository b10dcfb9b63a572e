package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// raw is a client that writes bytes of its own.
func raw(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	c := must(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	must(io.WriteString(c, text))(t)
	return c
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`
)

// post sends a request of an older client and returns the status, its session and the answer.
func post(t *testing.T, addr, session, body string) (int, string, string) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+HTTPPath, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	req.Close = true
	res := must(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	b := must(io.ReadAll(res.Body))(t)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id"), string(b)
}

// Clients that are slow, huge, endless, or leave in the middle do not keep others from being served, and leave nothing behind.
func TestHostileClients(t *testing.T) {
	s := must(New(Config{DB: memory(t), Scope: "acme/support"}))(t)
	before := goleak.IgnoreCurrent()
	l := must(Listen(t.Context(), "127.0.0.1:0"))(t)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeHTTP(ctx, l, Handler(s, "")) }()
	addr := l.Addr().String()

	head := "POST /mcp HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	for range 20 { // slow: the rest never comes
		raw(t, addr, head+"Content-Length: 1000\r\n\r\n{")
		raw(t, addr, head[:40])
	}
	for range 20 { // they leave in the middle of a request, of a chunk, of an answer
		raw(t, addr, head+"Content-Length: 1000\r\n\r\n{").Close()
		raw(t, addr, head+"Transfer-Encoding: chunked\r\n\r\nffff\r\n{").Close()
		raw(t, addr, head+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(initialize), initialize)).Close()
	}
	status, _, _ := post(t, addr, "", strings.Repeat(" ", maxBody+1)+initialize)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	endless := raw(t, addr, head+"Transfer-Encoding: chunked\r\n\r\n")
	stopped := make(chan struct{})
	go func() { // it writes until the server has enough of it
		defer close(stopped)
		part := fmt.Sprintf("%x\r\n%s\r\n", 1<<16, strings.Repeat("x", 1<<16))
		for {
			if _, err := io.WriteString(endless, part); err != nil {
				return
			}
		}
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		require.Fail(t, "an endless request is read for ever")
	}
	for _, body := range []string{"", "{", "[]", "null", "\n [" + initialize + "]", strings.Repeat("[", 100_000), `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<20) + `"}`} {
		status, _, _ := post(t, addr, "", body)
		require.GreaterOrEqual(t, status, 400, "%.40s", body)
	}

	_, session, answer := post(t, addr, "", initialize) // the control: beside them, others are served
	require.Contains(t, answer, "ctxpage")
	require.NotEmpty(t, session)
	end()
	require.NoError(t, <-done)
	for live := range s.Sessions() {
		_ = live.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, dbtest.Leaks(func() error { return goleak.Find(before) }))
}

// An older client that never says goodbye keeps a session; there are so many, and the next one is told.
func TestSessionsAreBounded(t *testing.T) {
	s := must(New(Config{DB: memory(t), Scope: "acme/support"}))(t)
	before := goleak.IgnoreCurrent()
	l := must(Listen(t.Context(), "127.0.0.1:0"))(t)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeHTTP(ctx, l, Handler(s, "")) }()
	addr := l.Addr().String()
	var last string
	for range maxLegacy {
		status, session, answer := post(t, addr, "", initialize)
		require.Equal(t, http.StatusOK, status, answer)
		last = session
	}
	status, _, answer := post(t, addr, "", initialize)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "64 sessions are open")
	status, _, answer = post(t, addr, last, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`)
	require.Equal(t, http.StatusOK, status, "a session that is there goes on")
	require.Contains(t, answer, "assemble")

	req := must(http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+addr+HTTPPath, nil))(t)
	req.Header.Set("Mcp-Session-Id", last)
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	res := must(http.DefaultClient.Do(req))(t)
	res.Body.Close()
	status, _, answer = post(t, addr, "", initialize)
	require.Equal(t, http.StatusOK, status, "a goodbye makes room: %s", answer)
	http.DefaultClient.CloseIdleConnections()
	end()
	require.NoError(t, <-done)
	for live := range s.Sessions() {
		_ = live.Close()
	}
	require.NoError(t, dbtest.Leaks(func() error { return goleak.Find(before) }))
}

// A filter restricts search, list and assemble, and says what is wrong with it.
func TestToolsFilter(t *testing.T) {
	t.Parallel()
	db := memory(t)
	for i := range 6 {
		must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{
			ID: fmt.Sprint("ticket-", i), Text: fmt.Sprint("a zebra was returned, case ", i), Tags: []string{[]string{"open", "closed"}[i%2]}, Meta: map[string]string{"rank": fmt.Sprint(i * 5)},
		}))(t)
	}
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	f := &view.Filter{TagsAny: []string{"open"}, Meta: map[string]any{"rank": map[string]any{"$gte": 10}}}
	var found searchOut
	require.Empty(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found))
	require.Len(t, found.Hits, 2)
	var list listOut
	require.Empty(t, call(t, s, "list", listIn{Filter: f, Newest: true}, &list))
	require.Len(t, list.Items, 2)
	require.Equal(t, "ticket-4", list.Items[0].ID)
	var a assembleOut
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "zebra", Filter: f}, &a))
	require.Len(t, a.Blocks, 2)
	require.Positive(t, a.LeftOut["excluded by the filter"])
	f = &view.Filter{WrittenSince: time.Now().Add(time.Hour).Format(time.RFC3339)}
	require.Empty(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found))
	require.Empty(t, found.Hits)
	for says, f := range map[string]*view.Filter{
		"expected a time such as": {Since: "yesterday"},
		"one of $eq, $ne":         {Meta: map[string]any{"k": map[string]any{"$in": "x"}}},
		"filter.tags_any":         {TagsAny: []string{""}},
		"one of system":           {Kinds: []string{"nonsense"}},
	} {
		require.Contains(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found), says)
		require.Contains(t, call(t, s, "list", listIn{Filter: f}, &list), says)
		require.Contains(t, call(t, s, "assemble", assembleIn{Query: "zebra", Filter: f}, &a), says)
	}
}

// A client of an older revision gets a session: without one it could not be asked in the middle of a call.
func TestOlderClientsGetASession(t *testing.T) {
	t.Parallel()
	s := must(New(Config{DB: memory(t), Scope: "acme"}))(t)
	srv := httptest.NewServer(Handler(s, ""))
	defer srv.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+HTTPPath, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res := must(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Mcp-Session-Id"))
}
