package serve_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/serve"
)

// schemas are the schemas of the answers by call, from the same JSON that clients are generated from.
var schemas = sync.OnceValue(func() map[string]*jsonschema.Resolved {
	v, err := serve.Schema()
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var all struct {
		Calls []struct {
			Path string
			Out  *jsonschema.Schema
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		panic(err)
	}
	out := map[string]*jsonschema.Resolved{}
	for _, c := range all.Calls {
		r, err := c.Out.Resolve(nil)
		if err != nil {
			panic(err)
		}
		out[strings.TrimPrefix(c.Path, "/v1/")] = r
	}
	return out
})

// describes fails unless the schema of a call describes its answer.
func describes(t *testing.T, name string, answer any) {
	t.Helper()
	require.NoError(t, schemas()[name].Validate(answer), "%s: %v", name, answer)
}

// lines makes a call that streams, and returns its lines.
func (d *door) lines(who http.Header, name string, in any) (lines []string) {
	d.t.Helper()
	b := must(json.Marshal(in))(d.t)
	req := must(http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://x/v1/"+name, strings.NewReader(string(b))))(d.t)
	req.Header = who
	res := must(d.http.Do(req))(d.t)
	defer res.Body.Close()
	require.Equal(d.t, http.StatusOK, res.StatusCode)
	s := bufio.NewScanner(res.Body)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	require.NoError(d.t, s.Err())
	return lines
}

// The operator's half at the socket does what the verbs of dbctl do.
func TestOperator(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	for scope, ids := range map[string][]string{"acme": {"rules"}, "acme/support": {"policy", "note"}, "acme/support/eu": {"vat"}, "acme-b": {"x"}, "other": {"y"}} {
		for _, id := range ids {
			d.ok(as(scope, "bot", "host"), "put", m{"writes": []m{{"id": id, "text": "Of " + id + ": <refunds> & returns.", "subject": "ann"}}})
		}
	}
	names := func(in m) (out []any) {
		for _, s := range d.ok(operator, "scopes", in)["scopes"].([]any) {
			out = append(out, s.(m)["name"], s.(m)["artefacts"])
		}
		return out
	}
	require.Equal(t, []any{"acme", 1., "acme-b", 1., "acme/support", 2., "acme/support/eu", 1., "other", 1.}, names(m{}))
	require.Equal(t, []any{"acme", 4., "acme-b", 1., "other", 1.}, names(m{"depth": 1}))
	require.Equal(t, []any{"acme", 1., "acme-b", 1., "acme/support", 3.}, names(m{"depth": 2, "prefix": "acme"}))
	page := d.ok(operator, "scopes", m{"depth": 1, "limit": 2})
	require.Equal(t, []any{"other", 1.}, names(m{"depth": 1, "cursor": page["next"]}))
	page = d.ok(operator, "scopes", m{"limit": 4})
	require.Equal(t, []any{"other", 1.}, names(m{"cursor": page["next"]}))
	require.Equal(t, float64(6), d.ok(operator, "stats", m{"space": true})["artefacts"])
	require.Equal(t, float64(2), d.ok(operator, "health", m{})["artefacts"])
	d.fails(host, "stats", m{}, "role")
	d.fails(operator, "embed", m{}, "invalid") // there is no model

	// Retention and quotas are of the caller's scope.
	d.ok(operator, "retention/set", m{"policy": m{"kinds": m{"fact": "30d"}, "versions": "8w", "keep_versions": 2}})
	d.ok(operator, "retention/set", m{"whole": true, "policy": m{"prune": "365d"}})
	d.fails(operator, "retention/set", m{"policy": m{"sessions": "soon"}}, "body")
	kept := d.ok(as("acme/support/eu", "ann", "operator"), "retention/show", m{})
	require.Len(t, kept["policies"], 2)
	require.Equal(t, m{"age": "30d", "from": "acme/support"}, kept["effective"].(m)["kinds"].(m)["fact"])
	require.Empty(t, d.ok(operator, "retention/run", m{"dry_run": true})["items"])
	d.ok(operator, "quota/set", m{"quota": m{"pages": 3}})
	d.fails(as("acme/support/eu", "bot", "host"), "put", write("more", "too much"), "quota")
	require.Equal(t, float64(3), d.ok(operator, "quota/show", m{})["quotas"].([]any)[0].(m)["used"].(m)["pages"])
	d.ok(operator, "quota/set", m{"quota": m{}})
	require.Empty(t, d.ok(operator, "quota/show", m{"every_scope": true})["quotas"])

	// A backup can be opened. An export of one scope comes back in another database, byte for byte.
	copied := filepath.Join(t.TempDir(), "copy.ctx")
	require.Contains(t, d.ok(operator, "backup", m{"path": copied})["head"], "ctxpage")
	d.fails(operator, "backup", m{"path": "copy.ctx"}, "invalid")
	db := must(ctxpage.Open(copied, ctxpage.Options{}))(t)
	require.NoError(t, db.Close())
	lines := d.lines(operator, "export", m{"no_secret": true})
	e := opened(t, serve.Options{Grant: serve.Operator})
	text := strings.Join(lines, "\n") + "\n"
	got := e.ok(operator, "import", m{"lines": text})
	require.Equal(t, float64(3), got["versions"].(m)["new"])
	require.Equal(t, "Of policy: <refunds> & returns.", e.ok(agent, "get", m{"id": "policy"})["text"])
	require.Equal(t, float64(3), e.ok(operator, "import", m{"lines": text})["versions"].(m)["same"])
	e.fails(operator, "import", m{"lines": strings.Join(lines[:2], "\n")}, "invalid")
	whole := strings.Join(d.lines(operator, "export", m{"whole": true}), "\n") + "\n"
	require.Equal(t, float64(3), e.ok(operator, "import", m{"lines": whole, "dry_run": true})["versions"].(m)["new"])

	// An erase has a receipt that proves it.
	d.fails(operator, "erase", m{"reason": "asked"}, "invalid")
	require.Len(t, d.ok(operator, "erase", m{"subject": "ann", "reason": "asked", "dry_run": true})["report"].(m)["erased"], 3)
	done := d.ok(operator, "erase", m{"ids": []string{"note"}, "reason": "asked"})
	proved(t, done["receipt"])
	d.fails(agent, "get", m{"id": "note"}, "not_found")
	list := d.ok(operator, "erase/list", m{})["erases"].([]any)
	require.Len(t, list, 1)
	proved(t, d.ok(operator, "erase/receipt", m{"trace": list[0].(m)["trace"]})["receipt"])
	d.fails(operator, "erase/receipt", m{"trace": "01"}, "not_found")
	require.Equal(t, float64(1), e.ok(operator, "import", m{"lines": whole, "receipts": []any{done["receipt"]}})["erased"], "it is left out")
	require.Len(t, d.ok(operator, "erase", m{"subject": "ann", "every_scope": true, "reason": "asked"})["report"].(m)["erased"], 5)
}

// proved checks a receipt as a third party does.
func proved(t *testing.T, receipt any) {
	t.Helper()
	b := must(json.Marshal(receipt))(t)
	var r ops.Receipt
	require.NoError(t, json.Unmarshal(b, &r))
	require.NoError(t, r.Verify(nil))
	r.Done.By = "someone else"
	require.ErrorIs(t, r.Verify(nil), ops.ErrReceipt, "control")
}

// A restricted server carries out no job on more than it serves.
func TestOperatorWithin(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator, Within: "acme"})
	d.ok(host, "put", write("policy", "Refunds up to $400."))
	d.ok(as("acme", "ann", "operator"), "scopes", m{})
	for name, in := range map[string]m{
		"stats": {}, "export": {"whole": true}, "import": {"lines": "x"}, "backup": {"path": "/x"}, "embed": {"every_scope": true}, "erase/list": {}, "review/approve_all": {"every_scope": true},
		"erase": {"subject": "ann", "every_scope": true, "reason": "x"}, "retention/set": {"whole": true, "policy": m{}}, "retention/run": {"every_scope": true}, "quota/show": {"every_scope": true},
	} {
		d.fails(operator, name, in, "scope")
	}
	require.Len(t, d.lines(operator, "export", m{}), 3, "control")
}

// Held batches are approved in bulk, each by itself.
func TestApproveAll(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	d.ok(host, "put", write("policy", "Refunds up to $400."))
	for id, text := range map[string]string{"a": "one", "b": "two", "policy": "Refunds up to $900."} {
		d.fails(agent, "put", write(id, text), "held")
	}
	d.fails(as("acme/other", "bot"), "put", write("c", "three"), "held")
	all := d.ok(operator, "review/approve_all", m{"dry_run": true})
	require.Equal(t, []any{2., 1.}, []any{all["approved"], all["left"]})
	all = d.ok(as("acme/support", "bot", "operator"), "review/approve_all", m{})
	require.Equal(t, []any{0., 3.}, []any{all["approved"], all["left"]}, "nobody approves their own")
	all = d.ok(operator, "review/approve_all", m{"actor": "bot", "kind": "fact", "reason": "no verdict", "note": "read"})
	require.Equal(t, []any{2., 1.}, []any{all["approved"], all["left"]})
	require.Equal(t, "one", d.ok(agent, "get", m{"id": "a"})["text"])
	require.Equal(t, "Refunds up to $400.", d.ok(agent, "get", m{"id": "policy"})["text"])
	all = d.ok(operator, "review/approve_all", m{"replacing": true, "every_scope": true})
	require.Equal(t, []any{2., 0.}, []any{all["approved"], all["left"]})
	require.Equal(t, "Refunds up to $900.", d.ok(agent, "get", m{"id": "policy"})["text"])
	d.fails(operator, "review/approve_all", m{"older_s": -1}, "invalid")
}

// Turns come and go once, however often a call is repeated under its batch.
func TestTurnsByBatch(t *testing.T) {
	d := opened(t, serve.Options{Grant: serve.Operator})
	add := m{"session": "chat", "turns": []m{{"role": "user", "text": "one"}, {"role": "assistant", "text": "two"}}, "batch": ulid.Make().String()}
	first := d.ok(host, "session/append", add)
	require.Equal(t, first, d.ok(host, "session/append", add))
	d.ok(host, "session/append", m{"session": "chat", "turns": []m{{"role": "user", "text": "three"}}})
	d.ok(host, "session/append", m{"session": "tools", "turns": []m{
		{"role": "user", "text": "look"}, {"role": "assistant", "tool_calls": []m{{"id": "c", "name": "files.read"}}}, {"role": "tool", "tool_call_id": "c", "text": "read"},
	}})
	ask := m{"query": "look", "budget": 1000, "session": "tools", "messages": "openai"}
	require.Contains(t, d.fails(host, "assemble", ask, "invalid")["message"], "files.read", "only Gemini accepts that name")
	ask["messages"] = "gemini"
	d.ok(host, "assemble", ask)
	turns := func(in m) (out []string) {
		in["session"] = "chat"
		for _, v := range d.ok(agent, "session/history", in)["turns"].([]any) {
			out = append(out, v.(m)["text"].(string))
		}
		return out
	}
	require.Equal(t, []string{"one", "two", "three"}, turns(m{}))
	require.Equal(t, []string{"two", "three"}, turns(m{"last": 2}))
	require.Equal(t, []string{"one", "two", "three"}, turns(m{"last": 9}))
	d.fails(agent, "session/history", m{"session": "chat", "last": 1, "from": 2}, "invalid")
	d.fails(agent, "session/truncate", m{"session": "chat", "after": 0}, "role")
	d.fails(host, "session/truncate", m{"session": "chat", "after": 1, "last": "block-chat-2"}, "conflict")
	cut := m{"session": "chat", "after": 2, "last": "block-chat-3", "batch": ulid.Make().String()}
	gone := d.ok(host, "session/truncate", cut)
	require.Len(t, gone["deleted"], 1)
	require.Equal(t, gone, d.ok(host, "session/truncate", cut))
	require.Equal(t, []string{"one", "two"}, turns(m{}))
	d.ok(host, "session/truncate", m{"session": "chat", "after": 0})
	require.Empty(t, turns(m{}))
}
