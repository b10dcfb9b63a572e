package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token/bpe"
)

var update = flag.Bool("update", false, "write testdata/schema.json anew; read the difference before committing it")

func TestMain(m *testing.M) {
	dbtest.CollectLess()
	dbtest.NoLeaks(m, func() error { return goleak.Find() })
}

// door is a served database, called at its socket.
type door struct {
	t    *testing.T
	db   *ctxpage.DB
	srv  *serve.Server
	path string
	http *http.Client
}

func opened(t *testing.T, opts serve.Options) *door {
	t.Helper()
	return openedWith(t, ctxpage.Options{}, opts)
}

func openedWith(t *testing.T, of ctxpage.Options, opts serve.Options) *door {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(ctxpage.Open(path, of))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	srv := must(serve.New(db, opts))(t)
	l := must(serve.Listen(path))(t)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return remote.Connect(ctx, l.Addr().String())
	}}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		require.NoError(t, srv.Close())
		require.NoError(t, <-done)
		require.NoFileExists(t, l.Addr().String())
	})
	return &door{t, db, srv, path, client}
}

// as are the headers of a caller: scope, actor, role.
func as(words ...string) http.Header {
	h := http.Header{}
	for i, name := range []string{"Ctxpage-Scope", "Ctxpage-Actor", "Ctxpage-Role"} {
		if i < len(words) {
			h.Set(name, words[i])
		}
	}
	return h
}

var (
	agent    = as("acme/support", "bot")
	host     = as("acme/support", "bot", "host")
	operator = as("acme/support", "ann", "operator")
)

// send makes a call and returns the status and the decoded answer.
func (d *door) send(who http.Header, name string, in any) (int, map[string]any) {
	d.t.Helper()
	var body io.Reader
	switch in := in.(type) {
	case string:
		body = strings.NewReader(in)
	default:
		b := must(json.Marshal(in))(d.t)
		body = bytes.NewReader(b)
	}
	req := must(http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://x/v1/"+name, body))(d.t)
	for k := range who {
		req.Header.Set(k, who.Get(k))
	}
	res := must(d.http.Do(req))(d.t)
	defer res.Body.Close()
	b := must(io.ReadAll(res.Body))(d.t)
	out := map[string]any{}
	require.NoError(d.t, json.Unmarshal(b, &out), "%s: %s", name, b)
	if res.StatusCode == http.StatusOK {
		describes(d.t, name, out)
	}
	return res.StatusCode, out
}

// ok makes a call that must succeed.
func (d *door) ok(who http.Header, name string, in any) map[string]any {
	d.t.Helper()
	status, out := d.send(who, name, in)
	require.Equal(d.t, http.StatusOK, status, "%s: %v", name, out)
	return out
}

// fails makes a call that must fail, and returns the error.
func (d *door) fails(who http.Header, name string, in any, code string) map[string]any {
	d.t.Helper()
	status, out := d.send(who, name, in)
	require.GreaterOrEqual(d.t, status, 400, "%s: %v", name, out)
	e, ok := out["error"].(map[string]any)
	require.True(d.t, ok, "%v", out)
	require.Equal(d.t, code, e["code"], "%v", e)
	require.NotEmpty(d.t, e["message"])
	return e
}

type m = map[string]any

func write(id, text string) m { return m{"writes": []m{{"id": id, "text": text}}} }

// A host writes, an agent answers from a context, an operator decides, and each step can be explained.
func TestWalk(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	require.Equal(t, "committed", d.ok(host, "put", write("policy", "Refunds up to $400 need no approval."))["status"])
	a := d.ok(agent, "assemble", m{"query": "what may I refund?", "budget": 1000, "messages": "openai"})
	require.Contains(t, a["text"], "Refunds up to $400")
	require.NotEmpty(t, a["messages"].(m)["messages"])
	trace := a["trace"].(string)
	held := d.fails(agent, "commit", m{"trace": trace, "writes": []m{{"id": "answer", "text": "Up to $400."}}}, "held")
	require.NotEmpty(t, held["batch"])
	require.NotEmpty(t, held["reason"])
	d.fails(agent, "get", m{"id": "answer"}, "not_found")

	list := d.ok(operator, "review/list", m{})["batches"].([]any)
	require.Len(t, list, 1)
	require.Equal(t, "bot", list[0].(m)["actor"])
	d.fails(as("acme/support", "bot", "operator"), "review/approve", m{"batch": held["batch"]}, "self_certified")
	d.ok(operator, "review/approve", m{"batch": held["batch"], "note": "right"})
	require.Equal(t, "Up to $400.", d.ok(agent, "get", m{"id": "answer"})["text"])
	d.fails(operator, "review/reject", m{"batch": held["batch"]}, "reviewed")

	require.Equal(t, true, d.ok(agent, "why", m{"trace": trace, "id": "policy"})["in"])
	require.Equal(t, true, d.ok(agent, "replay", m{"trace": trace})["same"])
	require.NotEmpty(t, d.ok(agent, "manifest", m{"trace": trace})["leaves"])
	other := d.ok(agent, "assemble", m{"query": "what may I refund?", "budget": 1000})["trace"]
	require.Equal(t, []any{"acme/support:answer#1@1"}, d.ok(agent, "diff", m{"a": trace, "b": other})["only_b"])
	d.fails(as("acme/other", "bot"), "diff", m{"a": trace, "b": other}, "not_found")
	require.Len(t, d.ok(agent, "search", m{"query": "refunds"})["hits"], 1)
	require.Len(t, d.ok(agent, "list", m{"newest": true})["items"], 2)
	listed := d.ok(agent, "list", m{"prefix": "pol", "full": true})["items"].([]any)
	require.Equal(t, []any{map[string]any(d.ok(agent, "get", m{"id": "policy"}))}, listed, "each page is as get returns it")
	require.NotContains(t, d.ok(agent, "list", m{"prefix": "pol"})["items"].([]any)[0], "text")
	d.ok(host, "put", write("policy", "Refunds up to $500 need no approval."))
	require.Len(t, d.ok(agent, "versions", m{"id": "policy"})["items"], 2)
	d.fails(host, "commit", m{"trace": trace, "writes": []m{{"id": "late", "text": "x"}}, "on_stale": "fail", "verdict": m{"confidence": 1, "by": "c"}}, "stale_context")
	d.ok(host, "delete", m{"ids": []string{"answer"}})
	d.fails(agent, "get", m{"id": "answer"}, "not_found")
	require.Equal(t, float64(0), d.ok(host, "refresh", m{"dry_run": true})["sources"])
}

// Every setting of the pipeline is reached at the socket.
func TestAssembleSettings(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	for i := range 8 {
		d.ok(host, "put", m{"writes": []m{{"id": fmt.Sprint("policy-", i), "text": strings.Repeat(fmt.Sprintf("Refunds of kind %d need the approval of clerk %d. ", i, i*7), 4)}}})
	}
	d.ok(host, "put", m{"writes": []m{{"id": "note", "text": "Refunds may change.", "kind": "scratch"}}})
	ask := func(more m) m {
		in := m{"query": "refunds", "budget": 4000}
		maps.Copy(in, more)
		return d.ok(agent, "assemble", in)
	}
	leaf := func(a m) m { return d.ok(operator, "manifest", m{"trace": a["trace"]})["leaves"].([]any)[0].(m) }
	plain := ask(nil)
	require.Equal(t, float64(1), plain["tier"])
	require.Len(t, plain["blocks"], 8)
	require.Len(t, ask(m{"floor": "scratch"})["blocks"], 9)
	require.Empty(t, ask(m{"floor": "chunk"})["blocks"])
	require.Equal(t, "START", leaf(ask(m{"preset": "START"}))["preset"])
	require.Equal(t, float64(4), ask(m{"overflow": "ladder", "budget": 250})["tier"])
	require.Equal(t, float64(3), ask(m{"budget": 250})["tier"], "negative control")
	require.Less(t, ask(m{"charge": "contents"})["tokens"], plain["tokens"])
	exact := ask(m{"counter": "o200k_base"})
	require.Equal(t, []any{"o200k_base", float64(bpe.O200k().Count(exact["text"].(string)))}, []any{exact["counter"], exact["tokens"]})
	require.Equal(t, "o200k_base*135%", ask(m{"counter": "claude"})["counter"])
	for _, wrong := range []m{{"floor": "high"}, {"preset": "start"}, {"overflow": "full"}, {"charge": "all"}, {"counter": "bytes"}} {
		in := m{"query": "refunds", "budget": 400}
		maps.Copy(in, wrong)
		message := d.fails(agent, "assemble", in, "invalid")["message"].(string)
		require.Equal(t, 1, strings.Count(message, "expected"), message)
		require.Equal(t, 1, strings.Count(message, "got"), message)
	}
	d.fails(agent, "search", m{"query": "refunds", "floor": "high"}, "invalid")
}

// A caller whose role is too low keeps its connection: one that still sends would find it cut, and never read why.
func TestRoleKeepsConnection(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/retention/show", strings.NewReader("{}")))(t)
	r.Header = agent
	res := must(d.http.Do(r))(t)
	defer res.Body.Close()
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	require.False(t, res.Close)
}

// A transaction between calls: its writes are seen by it alone; it belongs to who began it; it ends with commit, with
// rollback, or unused.
func TestTransactions(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	d.ok(host, "put", write("policy", "Refunds up to $400 need no approval."))
	trace := d.ok(host, "begin", m{})["trace"].(string)
	d.ok(host, "put", m{"trace": trace, "writes": []m{{"id": "draft", "text": "a draft"}}})
	require.Equal(t, "a draft", d.ok(host, "get", m{"trace": trace, "id": "draft"})["text"])
	d.fails(host, "get", m{"id": "draft"}, "not_found")
	d.fails(agent, "put", m{"trace": trace, "writes": []m{{"id": "draft", "text": "another's"}}}, "not_found")
	require.NotEmpty(t, d.ok(host, "assemble", m{"txn": trace, "query": "refunds", "budget": 900})["blocks"])
	require.Zero(t, idle(d.srv), "a transaction is open")
	out := d.ok(host, "commit", m{"trace": trace, "verdict": m{"confidence": 0.9, "by": "checker"}})
	require.Equal(t, []any{"acme/support:draft@1"}, out["refs"])
	d.fails(host, "commit", m{"trace": trace}, "invalid")

	trace = d.ok(host, "begin", m{})["trace"].(string)
	d.ok(host, "put", m{"trace": trace, "writes": []m{{"id": "dropped", "text": "x"}}})
	d.ok(host, "rollback", m{"trace": trace})
	d.fails(host, "put", m{"trace": trace, "writes": []m{{"id": "dropped", "text": "x"}}}, "not_found")

	short := opened(t, serve.Options{Grant: serve.Operator, Lease: 50 * time.Millisecond})
	trace = short.ok(host, "begin", m{})["trace"].(string)
	require.Eventually(t, func() bool { return idle(short.srv) > 0 }, time.Minute, 20*time.Millisecond, "the lease ends it")
	short.fails(host, "put", m{"trace": trace, "writes": []m{{"id": "late", "text": "x"}}}, "not_found")

	// A batch that is sent again is applied once.
	in := write("once", "once")
	in["batch"] = ulid.Make().String()
	first := d.ok(host, "put", in)
	require.Equal(t, first["refs"], d.ok(host, "put", in)["refs"])
	require.Len(t, d.ok(host, "versions", m{"id": "once"})["items"], 1)
}

// A key is bound to what its hello said, and no call can widen it.
func TestCallersAreBound(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	d.ok(as("acme/sales", "sam", "host"), "put", write("rebate", "a secret rebate"))
	hello := d.ok(nil, "hello", m{"scope": "acme/support", "actor": "bot"})
	key := http.Header{"Ctxpage-Key": {hello["key"].(string)}}
	require.Equal(t, "agent", hello["role"])
	d.ok(key, "list", m{})
	for name, value := range map[string]string{"Ctxpage-Scope": "acme/sales", "Ctxpage-Actor": "sam", "Ctxpage-Role": "host"} {
		wider := key.Clone()
		wider.Set(name, value)
		d.fails(wider, "list", m{}, "scope")
	}
	d.fails(key, "list", `{"scope":"acme/sales"}`, "body")
	d.fails(key, "get", m{"ref": "acme/sales:rebate"}, "not_found")
	trace := d.ok(as("acme/sales", "sam"), "assemble", m{"query": "rebate", "budget": 500})["trace"]
	for _, call := range []string{"replay", "manifest"} {
		d.fails(key, call, m{"trace": trace}, "not_found")
	}
	d.fails(key, "why", m{"trace": trace, "id": "rebate"}, "not_found")
	d.ok(operator, "manifest", m{"trace": trace})
	d.fails(key, "commit", m{"writes": []m{{"id": "x", "text": "y"}}, "verdict": m{"confidence": 1, "by": "ann"}}, "role")
	for _, call := range []string{"session/append", "session/pass", "directives/step", "refresh", "review/list", "review/approve"} {
		d.fails(key, call, m{}, "role")
	}
	d.fails(key, "put", m{"writes": []m{{"id": "x", "text": "y", "kind": "system"}}}, "gated")
	d.fails(key, "bye", m{"key": "another"}, "body")
	d.fails(operator, "stop", []int{1}, "body")
	d.ok(key, "list", m{})
	d.ok(key, "bye", m{})
	d.fails(key, "list", m{}, "key")
	d.fails(nil, "list", m{}, "scope")
	d.fails(as("acme//x"), "list", m{}, "invalid")
	d.fails(as("acme", "bot", "king"), "list", m{}, "invalid")
	d.fails(as("acme"), "nonsense", m{}, "call")
}

func TestGrantAndWithin(t *testing.T) {
	d := opened(t, serve.Options{Within: "acme"})
	d.fails(host, "put", write("x", "y"), "role")
	d.ok(agent, "list", m{})
	d.ok(as("acme"), "list", m{})
	for _, scope := range []string{"acmex", "other", "acmex/support"} {
		d.fails(as(scope), "list", m{}, "scope")
	}
	d.fails(nil, "stop", m{}, "role")
}

// Over TCP a token decides, and a page of a browser reaches nothing.
func TestTokens(t *testing.T) {
	d := opened(t, serve.Options{})
	srv := must(serve.New(d.db, serve.Options{Tokens: map[string]serve.Role{"agent-token-0123456": serve.Agent, "operator-token-0123": serve.Operator}}))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { require.NoError(t, srv.Close()); require.NoError(t, <-done) }()
	send := func(change func(*http.Request)) (int, string) {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/v1/list", strings.NewReader("{}")))(t)
		req.Header = as("acme", "bot")
		req.Header.Set("Authorization", "Bearer agent-token-0123456")
		req.Close = true
		change(req)
		res := must(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		b := must(io.ReadAll(res.Body))(t)
		return res.StatusCode, string(b)
	}
	status, _ := send(func(*http.Request) {})
	require.Equal(t, http.StatusOK, status)
	for code, change := range map[string]func(*http.Request){
		"unauthorized": func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") },
		"host":         func(r *http.Request) { r.Host = "evil.example" },
		"role":         func(r *http.Request) { r.Header.Set("Ctxpage-Role", "host") },
	} {
		_, body := send(change)
		require.Contains(t, body, `"code":"`+code+`"`)
	}
	status, _ = send(func(r *http.Request) { r.Header.Del("Authorization") })
	require.Equal(t, http.StatusUnauthorized, status)
	for _, change := range []func(*http.Request){ // names of HTTP have any case
		func(r *http.Request) { r.Header.Set("Authorization", "bearer agent-token-0123456") },
		func(r *http.Request) { r.Host = "LOCALHOST:1" },
	} {
		status, body := send(change)
		require.Equal(t, http.StatusOK, status, body)
	}
	status, _ = send(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	require.Equal(t, http.StatusForbidden, status)
	status, _ = send(func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer operator-token-0123")
		r.Header.Set("Ctxpage-Role", "operator")
	})
	require.Equal(t, http.StatusOK, status)
	// Programs without a token that owe the rest of a request keep nobody out.
	for range 600 {
		c := must(net.Dial("tcp", l.Addr().String()))(t)
		defer c.Close()
		_, err := io.WriteString(c, "POST /v1/list HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
		if err != nil { // it was told that the server is full, and is closed
			break
		}
	}
	require.Eventually(t, func() bool { // while they are cut off, a connection may be refused
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/v1/list", strings.NewReader("{}"))
		if err != nil {
			return false
		}
		req.Header = as("acme", "bot")
		req.Header.Set("Authorization", "Bearer agent-token-0123456")
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)

	_, err := serve.New(d.db, serve.Options{Tokens: map[string]serve.Role{"short": serve.Agent}})
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestConversation(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	for i := range 12 {
		d.ok(host, "session/append", m{"session": "chat", "turns": []m{
			{"role": "user", "text": fmt.Sprint("question ", i, " about refunds")}, {"role": "assistant", "text": fmt.Sprint("answer ", i)}}})
	}
	require.Len(t, d.ok(agent, "session/window", m{"session": "chat"})["turns"], 24)
	page := d.ok(agent, "session/history", m{"session": "chat", "limit": 20})
	require.Len(t, page["turns"], 20)
	require.Len(t, d.ok(agent, "session/history", m{"session": "chat", "from": page["next"]})["turns"], 4)
	id := page["turns"].([]any)[0].(m)["id"]
	dry := d.ok(host, "session/pass", m{"session": "chat", "keywords": []string{"refunds"}, "dry_run": true})
	require.Equal(t, float64(0), dry["pass"])
	p := d.ok(host, "session/pass", m{"session": "chat", "keywords": []string{"refunds"}, "keep_last": 2})
	require.Equal(t, float64(1), p["pass"])
	require.Len(t, p["verdicts"], 24)
	require.Equal(t, "question 0 about refunds", d.ok(agent, "session/recall", m{"session": "chat", "id": id})["text"])
	d.ok(host, "session/pin", m{"session": "chat", "id": id, "pinned": true})
	d.ok(host, "session/undo", m{"session": "chat"})
	require.Equal(t, float64(8000), d.ok(host, "session/limit", m{"session": "chat", "total": 8000})["total"])
	require.Equal(t, []any{"chat"}, d.ok(agent, "session/list", m{})["sessions"])
	require.Equal(t, true, d.ok(host, "session/append", m{"session": "chat", "dry_run": true, "turns": []m{{"role": "user", "text": "x"}}})["dry_run"])
	d.fails(host, "session/append", m{"session": "chat", "turns": []m{}}, "invalid")

	require.Equal(t, "clarify", d.ok(host, "directives/step", m{"input": "set premise"})["kind"])
	require.Equal(t, "update", d.ok(host, "directives/step", m{"input": "use zerolog"})["kind"])
	require.Contains(t, d.ok(agent, "directives/show", m{})["text"], "zerolog")
	require.Equal(t, "passthrough", d.ok(host, "directives/step", m{"input": "Use Soap"})["kind"])
	require.Equal(t, true, d.ok(host, "directives/step", m{"input": "Use Soap", "any_case": true, "dry_run": true})["changed"])
	require.Equal(t, "compound", d.ok(host, "directives/step", m{"input": "set premise x and use y", "refuse_compound": true})["code"])
	found := d.ok(host, "directives/suggest", m{"message": "soap would be nicer", "draft": "use soap"})
	require.Equal(t, "use soap", found["directive"])
	require.Equal(t, false, found["grounded"])
	require.Equal(t, true, found["would"].(m)["dry_run"])
	require.NotContains(t, d.ok(agent, "directives/show", m{})["text"], "soap", "a suggestion changes nothing")
	require.Empty(t, d.ok(host, "directives/suggest", m{"message": "hello", "draft": "<NO_DIRECTIVE>"})["directive"])
}

// A stream tells what happens while it happens, of its own scope alone, and can be taken up where it was cut.
func TestChanges(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	d.ok(host, "put", write("before", "x"))
	lines := func(in string) (*bufio.Scanner, func()) {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/changes", strings.NewReader(in)))(t)
		req.Header = host.Clone()
		res := must(d.http.Do(req))(t)
		require.Equal(t, http.StatusOK, res.StatusCode)
		return bufio.NewScanner(res.Body), func() { res.Body.Close() }
	}
	next := func(s *bufio.Scanner) m {
		require.True(t, s.Scan(), "%v", s.Err())
		out := m{}
		require.NoError(t, json.Unmarshal(s.Bytes(), &out))
		return out
	}
	s, end := lines(`{"types":["commit"]}`)
	require.NotContains(t, next(s), "leaf")
	d.ok(as("acme/sales", "sam", "host"), "put", write("foreign", "x"))
	d.ok(host, "put", write("first", "x"))
	got := next(s)
	require.Equal(t, "acme/support:first#1@1", got["leaf"].(m)["writes"].([]any)[0].(m)["ref"])
	end()
	d.ok(host, "put", write("second", "x"))
	s, end = lines(fmt.Sprintf(`{"from":%v,"limit":1}`, got["next"]))
	next(s)
	require.Equal(t, "acme/support:second#1@1", next(s)["leaf"].(m)["writes"].([]any)[0].(m)["ref"])
	require.False(t, s.Scan(), "the limit ends it")
	end()
	d.fails(host, "changes", m{"from": 1 << 40}, "invalid")
	d.fails(host, "changes", m{"types": []string{"comit"}}, "invalid")
	d.fails(host, "changes", m{"idle_s": 9_999_999_999}, "invalid")
}

// Requests that are wrong, huge, slow or cut do no harm.
func TestHostileRequests(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator, MaxCalls: 2})
	for _, body := range []string{"", "[]", "{", `{"id":"x"} {}`, `{"id":3}`, `{"unknown":1}`, "null garbage", strings.Repeat("[", 100_000)} {
		status, _ := d.send(agent, "get", body)
		require.GreaterOrEqual(t, status, 400, "%.40s", body)
	}
	for _, body := range []string{"null", `{}}`, `{}]`, `{} x`} {
		d.fails(agent, "list", body, "body")
	}
	status, _ := d.send(agent, "list", " {} \r\n")
	require.Equal(t, http.StatusOK, status)
	d.fails(agent, "status", m{}, "method")
	pages := host.Clone()
	pages.Set("Origin", "http://evil.example")
	d.fails(pages, "put", write("x", "of a page in a browser"), "origin")
	d.fails(host, "put", `{"writes":[{"id":"x","text":"`+strings.Repeat("a", (16<<20))+`"}]}`, "too_large")
	h := agent.Clone()
	h.Set("Ctxpage-Timeout", "never")
	d.fails(h, "list", m{}, "body")

	raw := func() net.Conn {
		sock := must(serve.SocketPath(d.path))(t)
		c := must(remote.Connect(context.Background(), sock))(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
	head := "POST /v1/list HTTP/1.1\r\nHost: x\r\nCtxpage-Scope: acme\r\nContent-Length: 100\r\n\r\n{"
	// Callers that never finish their requests take all places. One that comes while list has the last is refused, so that
	// another comes each time.
	require.Eventually(t, func() bool {
		must(io.WriteString(raw(), head))(t)
		_, out := d.send(agent, "list", m{})
		e, _ := out["error"].(m)
		return e != nil && e["code"] == "full"
	}, time.Minute, 10*time.Millisecond)
}

// A text that is no Unicode is refused: what the decoder makes of it is not what was sent.
func TestTextsAreUnicode(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	put := func(text string) string { return `{"writes":[{"id":"x","text":"` + text + `"}]}` }
	for _, text := range []string{"a\xff", "\xed\xa0\x80", `\ud800`, `\ud800x`, `\udc00\ud800`, `\ud800\u0041`, `\\\udc00`} {
		d.fails(host, "put", put(text), "body")
	}
	d.fails(host, "put", "{\"writes\":[{\"id\":\"\xff\",\"text\":\"x\"}]}", "body")
	for text, want := range map[string]string{`\ud83d\ude00`: "😀", `\\ud800`: `\ud800`, `\u00e9\n\ufffd`: "é\n\ufffd"} {
		d.ok(host, "put", put(text))
		require.Equal(t, want, d.ok(host, "get", m{"id": "x"})["text"])
	}
}

// A field in another case, one that comes twice, or one that a call does not know is an error, which names the field and what
// was expected: the decoder of Go would take the first, and of the second the last.
func TestFieldsAreExact(t *testing.T) {
	t.Parallel()
	d := opened(t, serve.Options{Grant: serve.Host})
	for body, want := range map[string]string{
		`{"Writes":[]}`: `the object: got the field "Writes", expected "writes"`,
		`{"writes":[{"id":"a","text":"1"},{"id":"b","TEXT":"2"}]}`:    `writes[1]: got the field "TEXT", expected "text"`,
		`{"writes":[{"id":"a","text":"1","text":"2"}]}`:               `writes[0]: got the field "text" twice, expected it once`,
		`{"writes":[{"id":"a","text":"1","meta":{"x":"1","x":"2"}}]}`: `writes[0].meta: got the field "x" twice, expected it once`,
		`{"writes":[{"id":"a","txt":"1"}]}`:                           `writes[0]: got the field "txt", expected one of `,
	} {
		require.Contains(t, d.fails(host, "put", body, "body")["message"], want)
	}
	require.Contains(t, d.fails(http.Header{}, "hello", `{"Scope":"acme"}`, "body")["message"], `got the field "Scope", expected "scope"`)
	require.Contains(t, d.fails(host, "search", `{"query":"x","filter":{"Subject":"u"}}`, "body")["message"], `filter: got the field "Subject", expected "subject"`)
	require.Empty(t, d.ok(host, "list", m{})["items"], "nothing was written")
	d.ok(host, "put", `{"writes":[{"id":"a","text":"1","meta":{"X":"1","x":"2"}}]}`)
}

// A commit that is refused for what it says leaves the transaction open; one whose writes are refused ends it.
func TestCommitAgain(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	trace := d.ok(host, "begin", m{})["trace"].(string)
	d.ok(host, "put", m{"trace": trace, "writes": []m{{"id": "draft", "text": "a draft"}}})
	e := d.fails(host, "commit", m{"trace": trace, "verdict": m{"confidence": 90, "by": "checker"}}, "invalid")
	require.Contains(t, e["message"], "still open")
	out := d.ok(host, "commit", m{"trace": trace, "verdict": m{"confidence": 0.9, "by": "checker"}})
	require.Equal(t, []any{"acme/support:draft@1"}, out["refs"])
	leaves := d.ok(host, "manifest", m{"trace": trace})["leaves"].([]any)
	require.Equal(t, "applied", leaves[len(leaves)-1].(m)["status"], "a caller that lost the answer learns it here")

	trace = d.ok(host, "begin", m{})["trace"].(string)
	d.fails(host, "commit", m{"trace": trace, "writes": []m{{"id": "", "text": "x"}}}, "invalid")
	e = d.fails(host, "commit", m{"trace": trace}, "invalid")
	require.Contains(t, e["message"], "no open transaction")
	require.Positive(t, idle(d.srv), "no transaction is left")

	key := http.Header{"Ctxpage-Key": {d.ok(http.Header{}, "hello", m{"scope": "acme/support", "actor": "bot", "role": "host"})["key"].(string)}}
	trace = d.ok(key, "begin", m{})["trace"].(string)
	d.ok(key, "bye", "")
	require.Positive(t, idle(d.srv), "bye ended it")
	d.fails(key, "commit", m{"trace": trace}, "key")
}

// stream opens a stream of changes, and returns its connection or the code of the refusal.
func (d *door) stream(who http.Header) (net.Conn, string) {
	d.t.Helper()
	sock := must(serve.SocketPath(d.path))(d.t)
	c := must(remote.Connect(context.Background(), sock))(d.t)
	d.t.Cleanup(func() { _ = c.Close() })
	_, err := fmt.Fprintf(c, "POST /v1/changes HTTP/1.1\r\nHost: x\r\nCtxpage-Scope: %s\r\nCtxpage-Role: %s\r\nContent-Length: 2\r\n\r\n{}", who.Get("Ctxpage-Scope"), or(who.Get("Ctxpage-Role"), "agent"))
	require.NoError(d.t, err)
	head := must(http.ReadResponse(bufio.NewReader(c), nil))(d.t)
	if head.StatusCode == http.StatusOK {
		return c, ""
	}
	var e struct{ Error struct{ Code string } }
	require.NoError(d.t, json.NewDecoder(head.Body).Decode(&e))
	return nil, e.Error.Code
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Streams take no place of calls, one scope leaves room for others and agents leave room for hosts and operators. A caller
// that leaves in the middle of a stream frees its place.
func TestRolesLeaveRoom(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator, MaxCalls: 8})
	var open []net.Conn
	for _, scope := range []string{"acme/support", "beta"} { // 192 are what agents may take, half of it those of one scope
		for {
			c, refused := d.stream(as(scope, "bot"))
			if refused != "" {
				require.Equal(t, "full", refused)
				break
			}
			open = append(open, c)
		}
	}
	require.Len(t, open, 192)
	calls, streams, quiet := d.srv.Load()
	require.Equal(t, []any{0, 192, time.Duration(0)}, []any{calls, streams, quiet})
	d.ok(agent, "list", m{})
	for _, who := range []http.Header{as("acme/support", "h", "host"), as("acme/support", "ann", "operator")} {
		_, refused := d.stream(who)
		require.Empty(t, refused, who)
	}
	for _, c := range open[:3] { // two for those of the host and the operator
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { _, refused := d.stream(as("acme/support", "bot")); return refused == "" }, time.Minute, 10*time.Millisecond)

	begun := map[string]int{}
	for _, scope := range []string{"acme/support", "beta", "gamma"} {
		for {
			status, _ := d.send(as(scope, "bot"), "begin", m{})
			if status != http.StatusOK {
				break
			}
			begun[scope]++
		}
	}
	require.Equal(t, map[string]int{"acme/support": 96, "beta": 96}, begun)
	d.ok(as("acme/support", "h", "host"), "begin", m{})
	d.ok(operator, "begin", m{})
	e := d.fails(agent, "begin", m{}, "full")
	require.Contains(t, e["message"], "role agent")
}

// Whoever is no operator of all scopes learns nothing of the whole database.
func TestStatusOfAgents(t *testing.T) {
	for grant, whole := range map[serve.Role]bool{serve.Agent: false, serve.Operator: true} {
		d := opened(t, serve.Options{Grant: grant})
		must(d.db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "a", Text: "one"}))(t)
		res := must(d.http.Get("http://x/v1/status"))(t)
		defer res.Body.Close()
		out := map[string]any{}
		require.NoError(t, json.NewDecoder(res.Body).Decode(&out))
		for _, name := range []string{"path", "lsn", "leaves", "pages", "calls"} {
			require.Equal(t, whole, out[name] != nil, "%s of %s", name, grant)
		}
		require.NotEmpty(t, out["version"])
	}
}

// Close ends streams, rolls back what is open, and refuses what comes later.
func TestCloseEndsStreams(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	d.ok(host, "begin", m{})
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/changes", strings.NewReader("{}")))(t)
	req.Header = host.Clone()
	res := must(d.http.Do(req))(t)
	defer res.Body.Close()
	stalls, begun := dbtest.WatchStalls(t), time.Now()
	require.NoError(t, d.srv.Close())
	require.Less(t, stalls.Since(begun), 4*time.Second, "nothing waited for its deadline")
	_, err := io.ReadAll(res.Body)
	require.NoError(t, err, "the stream ended whole")
	require.Error(t, func() error { _, err := d.http.Get("http://x/v1/status"); return err }())
}

// One process at a time serves JSON; the second one is told who does.
func TestOneServer(t *testing.T) {
	d := opened(t, serve.Options{})
	_, err := serve.Listen(d.path)
	var locked *store.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
}

// What is wrong with a filter is said in the words of JSON, not in those of a decoder.
func TestFilterErrors(t *testing.T) {
	d := opened(t, serve.Options{})
	for says, filter := range map[string]any{
		`got "yesterdayish", expected a time such as 2026-03-01T09:00:00Z`:        m{"since": "yesterdayish"},
		`filter.tags_any: got a string, expected a list`:                          m{"tags_any": "open"},
		`ctxpage: filter.meta."year": got a list, expected a string, a number`:    m{"meta": m{"year": []int{1}}},
		`ctxpage: filter.meta."year": got null, expected a string, a number`:      m{"meta": m{"year": nil}},
		`ctxpage: filter.meta."year": got an object, expected a string, a number`: m{"meta": m{"year": m{"$gt": m{}}}},
		`ctxpage: filter.meta."year": got "$in", expected one of $eq, $ne, $gt`:   m{"meta": m{"year": m{"$in": 1}}},
		`got the field "tag", expected one of `:                                   m{"tag": "open"},
	} {
		for _, call := range []string{"list", "search", "assemble"} {
			in := m{"filter": filter}
			if call != "list" {
				in["query"] = "refunds"
			}
			status, out := d.send(agent, call, in)
			require.Equal(t, 400, status, says)
			message := out["error"].(map[string]any)["message"].(string)
			require.Contains(t, message, says)
			require.NotContains(t, message, "interface")
			require.NotContains(t, message, "Go ")
		}
	}
}

// The schemas are a contract: a field may be added; one that goes or changes breaks programs.
func TestSchemaIsPinned(t *testing.T) {
	v := must(serve.Schema())(t)
	got := lineByLine(t, v)
	const file = "testdata/schema.json"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want := must(os.ReadFile(file))(t)
	require.Equal(t, string(want), string(got), "the schemas changed; go test -run TestSchemaIsPinned -update ./serve writes the file")
}

// lineByLine is the JSON of the schemas, a line for each call, so that a difference is one line.
func lineByLine(t *testing.T, v any) []byte {
	t.Helper()
	b := must(json.Marshal(v))(t)
	var parts map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b, &parts))
	var calls []json.RawMessage
	require.NoError(t, json.Unmarshal(parts["calls"], &calls))
	out := fmt.Appendf(nil, "{\"version\":%s,\n\"headers\":%s,\n\"codes\":%s,\n\"error\":%s,\n\"calls\":[\n", parts["version"], parts["headers"], parts["codes"], parts["error"])
	for i, c := range calls {
		if i > 0 {
			out = append(out, ",\n"...)
		}
		out = append(out, c...)
	}
	out = append(out, "\n]}\n"...)
	require.JSONEq(t, string(b), string(out))
	return out
}

// PROTOCOL.md names every call, header and code, and its lines for curl do what it says.
func TestProtocolPage(t *testing.T) {
	page := must(os.ReadFile("../PROTOCOL.md"))(t)
	v := must(serve.Schema())(t)
	b := must(json.Marshal(v))(t)
	var schema struct {
		Calls   []struct{ Path string }
		Headers map[string]string
		Codes   []string
	}
	require.NoError(t, json.Unmarshal(b, &schema))
	for _, c := range schema.Calls {
		require.Regexp(t, "`(GET )?"+c.Path+"`", string(page))
	}
	for h := range schema.Headers {
		require.Contains(t, string(page), "`"+h+"`")
	}
	for _, code := range schema.Codes {
		require.Contains(t, string(page), "`"+code+"`", "code")
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, script)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	d := opened(t, serve.Options{Grant: serve.Operator, Stop: func() {}})
	called := regexp.MustCompile(`(?:http://x/v1/|\bas \w+ )([\w/]+)`).FindAllSubmatch(script[1], -1)
	for _, c := range schema.Calls {
		require.True(t, slices.ContainsFunc(called, func(m [][]byte) bool { return "/v1/"+string(m[1]) == c.Path }), "no line for %s", c.Path)
	}
	var told strings.Builder
	expected := []string{}
	for line := range strings.Lines(string(script[1])) {
		line, want, _ := strings.Cut(line, "# ")
		fmt.Fprintf(&told, "%s\necho; echo ----\n", strings.TrimSpace(line))
		expected = append(expected, strings.TrimSpace(want))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", told.String())
	cmd.Dir = filepath.Dir(d.path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	answers := strings.Split(string(out), "\n----\n")
	require.GreaterOrEqual(t, len(answers), len(expected))
	checked := 0
	for i, want := range expected {
		require.Contains(t, answers[i], want)
		if want != "" {
			checked++
		}
	}
	require.Greater(t, checked, 30)
}

// Every error of the library has a code of its own, so that no program has to read messages.
func TestEveryErrorHasACode(t *testing.T) {
	src := must(os.ReadFile("../store/errors.go"))(t)
	more := must(os.ReadFile("../store/quota.go"))(t)
	src = append(src, more...)
	table := must(os.ReadFile("errors.go"))(t)
	names := regexp.MustCompile(`(?m)^(?:\t|var )(Err\w+)(?: error)? +=`).FindAllStringSubmatch(string(src), -1)
	require.Greater(t, len(names), 20)
	for _, n := range names {
		require.Contains(t, string(table), "{store."+n[1]+", ", n[1])
	}
	require.NotContains(t, string(table), "{store.ErrNoSuchError, ", "the control")
	require.True(t, errors.Is(store.ErrErased, store.ErrGone), "erased stands before gone in the table")
	require.Less(t, strings.Index(string(table), "store.ErrErased"), strings.Index(string(table), "store.ErrGone,"))
}

// traces hands on the trace contexts of assemblies.
type traces chan string

func (c traces) Observe(_ context.Context, e ops.Event) {
	if e.Kind == "assemble" {
		c <- e.Traceparent
	}
}

// TestTraceparent: the trace context of a caller reaches the observer of the database, and hostile text does not.
func TestTraceparent(t *testing.T) {
	seen := make(traces, 1)
	d := openedWith(t, ctxpage.Options{Observer: seen}, serve.Options{Grant: serve.Operator})
	for given, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"": "", "00-<script>": "", strings.Repeat("0", 4000): "",
	} {
		who := host.Clone()
		who.Set("traceparent", given)
		d.ok(who, "assemble", map[string]any{"query": "refunds", "budget": 1000})
		require.Equal(t, want, <-seen)
	}
}

// idle is for how long nothing was done.
func idle(s *serve.Server) time.Duration {
	_, _, idle := s.Load()
	return idle
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }
