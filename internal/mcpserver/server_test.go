package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// memory is a database with a policy in acme, one in acme/support and one in a scope beside it.
func memory(t *testing.T) *ctxpage.DB {
	t.Helper()
	return memoryWith(t, ctxpage.Options{})
}

func memoryWith(t *testing.T, opts ctxpage.Options) *ctxpage.DB {
	t.Helper()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), opts))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for scope, text := range map[string]string{"acme": "Opening hours are nine to five.", "acme/support": "Refunds up to $400 need no approval.", "acme/sales": "The secret rebate is 30 percent."} {
		must(db.Scope(scope).Put(t.Context(), ctxpage.Artefact{ID: "policy-" + filepath.Base(scope), Text: text}))(t)
	}
	return db
}

// connect is a client of the SDK at a server of ours.
func connect(t *testing.T, c Config, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	s := must(New(c))(t)
	there, here := mcp.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.WithoutCancel(t.Context()), there) }()
	session := must(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(), here, nil))(t)
	t.Cleanup(func() {
		session.Close()
		<-ended
	})
	return session
}

// textOfCall calls a tool and returns the one text of its result.
func textOfCall(t *testing.T, s *mcp.ClientSession, name string, args any) (text string, failed bool) {
	t.Helper()
	res := must(s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args}))(t)
	require.Nil(t, res.StructuredContent, "%s: nothing is sent twice", name)
	require.Len(t, res.Content, 1)
	return res.Content[0].(*mcp.TextContent).Text, res.IsError
}

// call calls a tool and reads the last line of its answer into out; failed is the text of an error of the tool.
func call(t *testing.T, s *mcp.ClientSession, name string, args, out any) (failed string) {
	t.Helper()
	text, isError := textOfCall(t, s, name, args)
	if isError {
		return text
	}
	require.NoError(t, json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), out), text)
	return ""
}

func TestToolsAndSchemas(t *testing.T) {
	t.Parallel()
	db := memory(t)
	for _, write := range []bool{false, true} {
		list := must(connect(t, Config{DB: db, Scope: "acme/support", Write: write}, nil).ListTools(t.Context(), nil))(t)
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			require.NotNil(t, tool.Annotations.DestructiveHint, tool.Name)
			require.NotNil(t, tool.Annotations.OpenWorldHint, tool.Name)
			b := must(json.Marshal(tool.InputSchema))(t)
			require.NotContains(t, string(b), `"null"`, "%s: a slice is an array", tool.Name)
			for _, word := range []string{"path", "scope", "actor", "by", "confidence", "verdict"} {
				in := must(json.Marshal(tool.InputSchema))(t)
				require.NotContains(t, string(in), `"`+word+`":{`, "%s must not take it", tool.Name)
			}
		}
		want := []string{"assemble", "get", "history", "list", "search", "why"}
		if write {
			want = []string{"assemble", "delete", "get", "history", "list", "put", "search", "why"}
		}
		require.Equal(t, want, names)
	}
}

// A page that people have verified stays where nothing matches the question, and does not claim to match it. Every page is a
// little near in meaning.
func TestNothingMatches(t *testing.T) {
	t.Parallel()
	db := memoryWith(t, ctxpage.Options{Embedder: static.Small()})
	must(db.Admin().PutVerified(t.Context(), "acme", "ann", ctxpage.Artefact{ID: "rule", Text: "Gift cards are not refunded."}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	for query, why := range map[string]string{"zebra xylophone": "recent or trusted", "gift cards": "matches the question"} {
		var a assembleOut
		require.Empty(t, call(t, s, "assemble", assembleIn{Query: query}, &a))
		require.Equal(t, query == "zebra xylophone", a.Match == manifest.MatchNone)
		require.Equal(t, "acme:rule#1@1", a.Blocks[0].Ref)
		require.Contains(t, a.Blocks[0].Why, why, query)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	s := connect(t, Config{DB: memory(t), Scope: "acme/support"}, nil)
	var a assembleOut
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "what may I refund?"}, &a))
	require.NotEmpty(t, a.Blocks[0].Why)
	text, _ := textOfCall(t, s, "assemble", assembleIn{Query: "what may I refund?"})
	require.Contains(t, text, "Refunds up to $400")
	require.NotContains(t, text, "secret rebate")
	require.Regexp(t, `\n\{"trace":"[0-9A-Z]{26}",[^\n]*\}$`, text, "the trace is in the text, as its last line")
	var f searchOut
	require.Empty(t, call(t, s, "search", searchIn{Query: "opening hours"}, &f))
	require.Equal(t, "Opening hours are nine to five.", f.Hits[0].Text)
	var g getOut
	require.Empty(t, call(t, s, "get", getIn{Ref: f.Hits[0].Ref}, &g))
	require.Equal(t, "Opening hours are nine to five.", g.Text)
	require.Empty(t, call(t, s, "get", getIn{Ref: "policy-acme"}, &g))
	require.Empty(t, call(t, s, "get", getIn{Ref: a.Trace + "#1"}, &g))
	require.Equal(t, a.Blocks[0].Ref, strings.Replace(g.Ref, "@", "#1@", 1), "page 1 of the context")
	require.Contains(t, call(t, s, "get", getIn{Ref: a.Trace + "#99"}, &g), "not found")
	var w whyOut
	require.Empty(t, call(t, s, "why", whyIn{Trace: a.Trace, Ref: a.Blocks[0].Ref}, &w))
	require.Equal(t, "in", w.Verdict)
	require.True(t, w.Replayable)
	require.Contains(t, call(t, s, "assemble", assembleIn{Query: "x", Budget: maxBudget + 1}, &a), "expected 1 to")
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "refund", Preset: "START", Overflow: "ladder", Floor: "tool", Charge: "contents"}, &a))
	require.NotEmpty(t, a.Blocks)
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "refund", Floor: "human-verified"}, &a))
	require.Empty(t, a.Blocks)
	for _, wrong := range []assembleIn{{Preset: "start"}, {Overflow: "full"}, {Floor: "high"}, {Charge: "all"}} {
		require.Contains(t, call(t, s, "assemble", wrong, &a), "expected")
	}
	require.ErrorContains(t, errOf(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "put", Arguments: putIn{}})), "unknown tool", "not without Write")
}

// The versions of a page are listed in parts, also when it is deleted, and those of another scope are not.
func TestHistory(t *testing.T) {
	t.Parallel()
	db := memory(t)
	for _, text := range []string{"Refunds up to $300 need no approval.", "Refunds up to $500 need no approval."} {
		must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: "policy-support", Text: text}))(t)
	}
	require.NoError(t, db.Scope("acme/support").Delete(t.Context(), "policy-support"))
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	for _, ref := range []string{"policy-support", "acme/support:policy-support", "acme/support:policy-support#1@2"} {
		var states []string
		for in := (historyIn{Ref: ref, Limit: 3}); ; {
			var out historyOut
			require.Empty(t, call(t, s, "history", in, &out))
			for _, v := range out.Versions {
				states = append(states, v.State)
			}
			if in.Cursor = out.Next; in.Cursor == "" {
				break
			}
		}
		require.Equal(t, []string{"deleted", "", "", ""}, states, ref)
	}
	var out historyOut
	require.Empty(t, call(t, s, "history", historyIn{Ref: "policy-support"}, &out))
	var g getOut
	require.Empty(t, call(t, s, "get", getIn{Ref: out.Versions[2].Ref}, &g))
	require.Equal(t, "Refunds up to $300 need no approval.", g.Text)
	require.Empty(t, call(t, s, "history", historyIn{Ref: "policy-acme"}, &out), "an ancestor's page is seen")
	for _, ref := range []string{"none", "acme/sales:policy-sales", "policy-sales"} {
		require.Contains(t, call(t, s, "history", historyIn{Ref: ref}, &out), "not found", ref)
	}
	require.Contains(t, call(t, s, "history", historyIn{Ref: "policy-support", Limit: maxList + 1}, &out), "expected 1 to")
}

// A page whose words stand in parts, or in the calls of tools, is given whole, too.
func TestReadsOfParts(t *testing.T) {
	t.Parallel()
	db := memory(t)
	host := db.Scope("acme/support")
	must(host.Put(t.Context(), ctxpage.Artefact{ID: "photo", Kind: store.KindMessage, Role: "user", Parts: []store.Part{{Type: "text", Text: "a zebra"}, {Type: "image", URL: "http://x/y.png"}}}))(t)
	call1 := store.ToolCall{ID: "call-1", Type: "function", Name: "find", Arguments: `{"q":"zebra"}`}
	refs := must(host.Session("chat").Append(t.Context(), ctxpage.Turn{Role: "assistant", ToolCalls: []store.ToolCall{call1}}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	for ref, want := range map[string]string{"photo": "a zebra", refs[0].ID: `find({"q":"zebra"}) as call-1`} {
		var g getOut
		require.Empty(t, call(t, s, "get", getIn{Ref: ref}, &g))
		require.Equal(t, want, g.Text)
		res := must(s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: pageURI + ref}))(t)
		require.Equal(t, want, res.Contents[0].Text)
	}
}

// A page is read by its id or reference, whether a client encodes what is reserved in a URI or not.
func TestURIsOfPages(t *testing.T) {
	t.Parallel()
	db := memory(t)
	v := must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: "dir/zebra", Text: "a zebra"}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	ref := v.String()
	for _, uri := range []string{"dir/zebra", "dir%2Fzebra", ref, url.PathEscape(ref), url.QueryEscape(ref)} {
		res, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: pageURI + uri})
		require.NoError(t, err, uri)
		require.Equal(t, "a zebra", res.Contents[0].Text)
	}
	require.ErrorContains(t, errOf(s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: pageURI + "dir/none"})), "not found")
}

// A list pages through the scope and its ancestors, each item once.
// A URI that is no page has its answer, whatever characters it has, and the session goes on.
func TestURIsOfNothing(t *testing.T) {
	t.Parallel()
	s := connect(t, Config{DB: memory(t), Scope: "acme/support"}, nil)
	for _, uri := range []string{pageURI + "\x00", pageURI + "x/../\a", manifestURI + "\U000e0041", "http://\x01/", "\x7f", ""} {
		_, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		var wire *jsonrpc.Error
		require.ErrorAs(t, err, &wire, "%q", uri)
		require.Equal(t, "Resource not found", wire.Message, "%q", uri)
		var data struct{ URI string }
		require.NoError(t, json.Unmarshal(wire.Data, &data))
		require.Equal(t, uri, data.URI)
	}
	require.NoError(t, s.Ping(t.Context(), nil))
}

func TestListPages(t *testing.T) {
	t.Parallel()
	db := memory(t)
	for i := range 7 {
		must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprintf("note-%d", i), Text: "a note"}))(t)
	}
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	for _, limit := range []int{1, 3, 8, 50} {
		var ids []string
		for in := (listIn{Limit: limit}); ; {
			var out listOut
			require.Empty(t, call(t, s, "list", in, &out))
			for _, item := range out.Items {
				ids = append(ids, item.ID)
			}
			if in.Cursor = out.Next; in.Cursor == "" {
				break
			}
		}
		require.Equal(t, []string{"note-0", "note-1", "note-2", "note-3", "note-4", "note-5", "note-6", "policy-support", "policy-acme"}, ids, "limit %d", limit)
	}
	var out listOut
	require.Contains(t, call(t, s, "list", listIn{Cursor: "9.x"}, &out), "cursor")
}

// What a model writes is held unless somebody else vouches for it; nothing that it can say changes that.
func TestPutIsHeld(t *testing.T) {
	t.Parallel()
	db := memory(t)
	s := connect(t, Config{DB: db, Scope: "acme/support", Actor: "model", Write: true}, nil)
	var a assembleOut
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "refunds"}, &a))
	var out writeOut
	require.Empty(t, call(t, s, "put", putIn{Trace: a.Trace, Writes: []writeIn{{ID: "answer", Text: "Refund it.", DerivedFrom: []string{"policy-support"}}}}, &out))
	require.Equal(t, "held", out.Status)
	require.Contains(t, out.Next, "dbctl review show FILE "+out.Batch)
	var g getOut
	require.Contains(t, call(t, s, "get", getIn{Ref: "answer"}, &g), "not found")
	held := must(db.Review().Show(t.Context(), out.Batch))(t)
	require.Equal(t, "model", held.Actor)

	refused := call(t, s, "put", map[string]any{"writes": []map[string]any{{"id": "x", "text": "y"}}, "by": "ann", "confidence": 1}, &out)
	require.Contains(t, refused, `got the field "by", expected one of batch, trace, writes`, "a verdict is no argument")
}

type always float64

func (always) Name() string { return "rule" }
func (c always) Evaluate(context.Context, ctxpage.Draft) (float64, string, error) {
	return float64(c), "", nil
}

// Arguments that a tool does not know are named, and so is what it expects. The control: arguments that it knows.
func TestArgumentsAreExact(t *testing.T) {
	t.Parallel()
	s := connect(t, Config{DB: memory(t), Scope: "acme/support", Write: true}, nil)
	for _, c := range []struct{ tool, args, want string }{
		{"search", `{"query":"refunds","limit":9223372036854775808}`, `arguments of search: limit: got a number 9223372036854775808, expected a number (int)`},
		{"search", `{"query":"refunds","limit":1.5}`, `arguments of search: limit: got a number 1.5, expected a number (int)`},
		{"assemble", `{"query":"refunds","budget":"all"}`, `arguments of assemble: budget: got a string, expected a number (int)`},
		{"search", `{"Query":"refunds"}`, `arguments of search: the object: got the field "Query", expected "query"`},
		{"put", `{"writes":[{"id":"a","text":"1","Kind":"fact"}]}`, `arguments of put: writes[0]: got the field "Kind", expected "kind"`},
		{"search", `{"query":"refunds","filter":{"tag":"x"}}`, `arguments of search: filter: got the field "tag", expected one of `},
		{"get", `{"ref":"policy-acme","ref":"policy-support"}`, `arguments of get: the object: got the field "ref" twice, expected it once`},
	} {
		require.Contains(t, call(t, s, c.tool, json.RawMessage(c.args), nil), c.want)
	}
	var out searchOut
	require.Empty(t, call(t, s, "search", json.RawMessage(`{"query":"refunds","filter":{"id_prefix":"policy"}}`), &out))
	require.NotEmpty(t, out.Hits)
}

func TestPutWithEvaluator(t *testing.T) {
	t.Parallel()
	db := memory(t)
	s := connect(t, Config{DB: db, Scope: "acme/support", Write: true, Evaluator: always(.9)}, nil)
	in := putIn{Batch: ulid.Make().String(), Writes: []writeIn{{ID: "answer", Text: "Refund it."}}}
	var first, again writeOut
	require.Empty(t, call(t, s, "put", in, &first))
	require.Equal(t, "committed", first.Status)
	require.Empty(t, call(t, s, "put", in, &again))
	require.Equal(t, first.Refs, again.Refs, "a repeated batch writes nothing twice")
	history := must(loop.Collect(db.Scope("acme/support").Versions(t.Context(), "answer", ctxpage.AtMost(10, "", nil))))(t)
	require.Len(t, history, 1)
}

// With the rule that ships, what the context says word for word is stored, and the rest is held with the reason.
func TestPutSupported(t *testing.T) {
	t.Parallel()
	db := memory(t)
	must(db.Scope("acme/support").Session("chat").Append(t.Context(), ctxpage.Turn{Role: "user", Text: "I prefer refunds by card."}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support", Actor: "model", Write: true, Evaluator: ctxpage.Supported()}, nil)
	var a assembleOut
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "how are refunds paid?"}, &a))
	put := func(trace, id, text string) (out writeOut) {
		require.Empty(t, call(t, s, "put", putIn{Trace: trace, Writes: []writeIn{{ID: id, Text: text}}}, &out))
		return out
	}
	stored := put(a.Trace, "user-preference", "The user prefers refunds by card.")
	require.Equal(t, []any{"committed", []string{"acme/support:user-preference@1"}}, []any{stored.Status, stored.Refs})
	echo := put(a.Trace, "refunds", "Refunds up to $400 need no approval.")
	require.Equal(t, "committed", echo.Status)
	require.Contains(t, echo.Note, "has it already")
	require.Contains(t, echo.Refs[0], "policy-support")
	for trace, text := range map[string]string{a.Trace: "Refunds up to $500 need no approval.", "": "The user prefers refunds by card."} {
		held := put(trace, "refunds", text)
		require.Equal(t, "held", held.Status)
		require.Contains(t, held.Note, "sentence 1 is on no page that counts")
	}
}

// A person at the client decides, and only about the very call that they were shown. To accept is enough: nothing is to be ticked.
func TestPutConfirmed(t *testing.T) {
	t.Parallel()
	for action, status := range map[string]string{"accept": "committed", "decline": "declined", "cancel": "declined"} {
		var asked string
		s := connect(t, Config{DB: memory(t), Scope: "acme/support", Write: true, Confirm: "ann"}, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked = req.Params.Message
				schema := must(json.Marshal(req.Params.RequestedSchema))(t)
				require.JSONEq(t, `{"type":"object","properties":{}}`, string(schema))
				return &mcp.ElicitResult{Action: action}, nil
			},
		})
		var out writeOut
		require.Empty(t, call(t, s, "put", putIn{Writes: []writeIn{{ID: "answer", Text: "Refund it.\u202e", Kind: "chunk", ExpiresAt: "2099-01-01T00:00:00Z", DerivedFrom: []string{"policy-acme"}}}}, &out))
		require.Equal(t, status, out.Status)
		require.Contains(t, asked, `Refund it.\u{202E}`, "what is shown hides nothing")
		require.Contains(t, asked, "answer, kind chunk, until 2099-01-01T00:00:00Z, from policy-acme:")
	}
	// A client that cannot ask: held.
	s := connect(t, Config{DB: memory(t), Scope: "acme/support", Write: true, Confirm: "ann"}, nil)
	var out writeOut
	require.Empty(t, call(t, s, "put", putIn{Writes: []writeIn{{ID: "answer", Text: "Refund it."}}}, &out))
	require.Equal(t, "held", out.Status)
}

// An answer that was given to one call does not confirm another.
func TestConfirmationIsBound(t *testing.T) {
	t.Parallel()
	key := must(signingKey())(t)
	s := &server{Config: Config{Confirm: "ann"}, mac: key}
	req := func(args, state string) *mcp.CallToolRequest {
		return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "put", Arguments: json.RawMessage(args), RequestState: state,
			InputResponses: mcp.InputResponseMap{confirmKey: &mcp.ElicitResult{Action: "accept"}}}}
	}
	state := s.ask(req(`{"a":1,"b":2}`, ""))
	require.ErrorContains(t, errOf(s.answer(req(`{"a":1,"b":3}`, state))), "another call")
	said := must(s.answer(req(`{"b":2,"a":1}`, state)))(t)
	require.Equal(t, "accept", said)
	require.ErrorContains(t, errOf(s.answer(req(`{"a":1,"b":2}`, state))), "given before", "a state is good for one answer")
	require.ErrorContains(t, errOf(s.answer(req(`{"a":1,"b":2}`, ""))), "another call")
	number, _, _ := strings.Cut(state, ".")
	require.ErrorContains(t, errOf(s.answer(req(`{"a":1,"b":2}`, number+"."))), "another call")
	lapsed := s.ask(req(`{"a":1}`, ""))
	for range maxAsked {
		s.ask(req(`{"a":2}`, ""))
	}
	require.ErrorContains(t, errOf(s.answer(req(`{"a":1}`, lapsed))), "another call")
}

// A trace of another scope is not found, by any way.
func TestTracesDoNotCrossScopes(t *testing.T) {
	t.Parallel()
	db := memory(t)
	foreign := must(db.Scope("acme/sales").Assemble(t.Context(), ctxpage.Query{Text: "secret rebate", Budget: 1000}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support", Write: true}, nil)
	var w whyOut
	var out writeOut
	unknown := strings.Repeat("0", 26)
	for _, trace := range []string{foreign.Trace, unknown} {
		want := fmt.Sprintf("%q names no context of this memory", trace)
		require.Contains(t, call(t, s, "why", whyIn{Trace: trace}, &w), want)
		require.Contains(t, call(t, s, "why", whyIn{Trace: trace, Ref: "acme/sales:policy-sales"}, &w), want)
		require.Contains(t, call(t, s, "put", putIn{Trace: trace, Writes: []writeIn{{ID: "x", Text: "y"}}}, &out), want)
		require.ErrorContains(t, errOf(s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: manifestURI + trace})), "not found")
	}
	for _, ref := range []string{"acme/sales:policy-sales", "acme%2Fsales:policy-sales", "policy-sales"} {
		var g getOut
		require.Contains(t, call(t, s, "get", getIn{Ref: ref}, &g), "not found")
		require.ErrorContains(t, errOf(s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: pageURI + ref})), "not found")
	}
}

// A hundred times: requests in a pipe that ends at once all get their answers. The transport without our wrapper is the
// control: it must lose some.
func TestPipedRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	db := memory(t)
	slow := func(wrap func(mcp.Transport) mcp.Transport) (answered int) {
		s := must(New(Config{DB: db, Scope: "acme/support"}))(t)
		mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			time.Sleep(20 * time.Millisecond)
			return nil, nil, nil
		})
		in := strings.NewReader(strings.Join([]string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list","arguments":{}}}`, "",
		}, "\n"))
		var out strings.Builder
		_ = s.Run(t.Context(), wrap(&mcp.IOTransport{Reader: io.NopCloser(in), Writer: writeCloser{&out}}))
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var res struct {
				ID     int             `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			if json.Unmarshal([]byte(line), &res) == nil && res.ID > 0 && len(res.Result) > 0 {
				answered++
			}
		}
		return answered
	}
	for i := range dbtest.Size(25, 100) {
		require.Equal(t, 3, slow(func(t mcp.Transport) mcp.Transport { return draining{t} }), "run %d", i)
	}
	lost := 0
	for range 10 {
		lost += 3 - slow(func(t mcp.Transport) mcp.Transport { return t })
	}
	require.NotZero(t, lost, "the SDK alone answers all: the wrapper can go")
}

// A line that is no message is answered as JSON-RPC says, and the session goes on. A text that the decoder would change is
// not stored.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	db := memory(t)
	s := must(New(Config{DB: db, Scope: "acme/support", Write: true}))(t)
	put := `{"jsonrpc":"2.0","id":"%s","method":"tools/call","params":{"name":"put","arguments":{"writes":[{"id":"x","text":"%s"}]}}}`
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`DEBUG: a line that a wrapper printed`, "", " \r", `{"jsonrpc":"2.0","id":2,`, `3`, `{"jsonrpc":"1.0","id":4,"method":"ping"}`, `[]`, `[1]`,
		`[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, `[{"jsonrpc":"2.0","id":6,"method":"ping"},{"jsonrpc":"2.0","id":6,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":"twice","method":"ping","method":"tools/list"}`, fmt.Sprintf(put, "bytes", "a\xff"), fmt.Sprintf(put, "half", `a\ud800`),
		`{"jsonrpc":"2.0","id":"long","method":"` + strings.Repeat("m", maxBody) + `"}`,
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"list","arguments":{}}}`, // and no end of the line
	}, "\n")
	var out strings.Builder
	require.NoError(t, ServeStdio(t.Context(), s, io.NopCloser(strings.NewReader(in)), writeCloser{&out}))
	codes, answered := map[any]int{}, []any{}
	for line := range strings.Lines(out.String()) {
		var res struct {
			ID     any
			Result json.RawMessage
			Error  refusal
		}
		require.NoError(t, json.Unmarshal([]byte(line), &res), line)
		if res.Error.Code != 0 {
			codes[fmt.Sprint(res.ID, " ", res.Error.Code)]++
		} else {
			answered = append(answered, res.ID)
		}
	}
	require.Equal(t, []any{1.0, 9.0}, answered)
	require.Equal(t, map[any]int{"<nil> -32700": 2, "<nil> -32600": 5, "4 -32600": 1, "twice -32700": 1, "bytes -32700": 1, "half -32700": 1, "long -32600": 1}, codes)
	held := must(loop.Collect(db.Review().Batches(t.Context(), "", true)))(t)
	require.Empty(t, held)
}

// A message that is too long is answered under its id, wherever the id stands in it.
func TestOversizeMessageHasItsID(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("x", maxBody) + `","id":"inner \" ]}","a":[{"id":1}]}`
	for want, message := range map[string]string{
		`"a\"b"`: `{"id":"a\"b","params":` + long + `}`,
		`7`:      `{"jsonrpc":"2.0","method":"tools/call","params":` + long + `, "id" : 7 }`,
		`"last"`: `{"method":"tools/call","params":` + long + `,"id":"last"}`,
		`null`:   `{"method":"notifications/x","params":` + long + `}`,
	} {
		var out strings.Builder
		rest := must(io.ReadAll(&messages{in: bufio.NewReader(strings.NewReader(message + "\n")), out: &out}))(t)
		require.Empty(t, rest)
		require.Contains(t, out.String(), `"id":`+want+`,`)
		require.Contains(t, out.String(), "the message has more than 16777216 bytes")
	}
}

// A long page comes in parts that make up the whole, each within its limit and of whole characters.
func TestGetInParts(t *testing.T) {
	t.Parallel()
	db := memory(t)
	long := strings.Repeat("Zürich, 東京. ", 20_000)
	must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: "long", Kind: store.KindTool, Text: long}))(t)
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	for _, limit := range []int{0, 1000, maxBytes} {
		var whole strings.Builder
		for in := (getIn{Ref: "long", Limit: limit}); ; {
			var out getOut
			require.Empty(t, call(t, s, "get", in, &out))
			require.Equal(t, len(long), out.Size)
			require.LessOrEqual(t, len(out.Text), max(limit, defaultBytes))
			whole.WriteString(out.Text)
			if in.Offset = out.Next; out.Next == 0 {
				break
			}
		}
		require.Equal(t, long, whole.String(), "limit %d", limit)
	}
	var out getOut
	require.Empty(t, call(t, s, "get", getIn{Ref: "long", Offset: 1, Limit: 1}, &out))
	require.Equal(t, []any{"ü", 1, 3}, []any{out.Text, out.Offset, out.Next}, "a character is never cut")
	require.Contains(t, call(t, s, "get", getIn{Ref: "long", Offset: len(long) + 1}, &out), "offset")
	require.Contains(t, call(t, s, "get", getIn{Ref: "long", Limit: maxBytes + 1}, &out), "limit")
	require.Contains(t, call(t, s, "get", getIn{Ref: "other/scope:policy"}, &out), `"other/scope:policy" in acme/support and its ancestors`)

	must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: "turn", Kind: store.KindMessage, Role: "user", Text: strings.Repeat("A giraffe came by. ", 1000)}))(t)
	var f searchOut
	require.Empty(t, call(t, s, "search", searchIn{Query: "giraffe"}, &f))
	require.True(t, f.Hits[0].More)
	require.LessOrEqual(t, len(f.Hits[0].Text), maxHitBytes)
	res := must(s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: pageURI + "long"}))(t)
	require.Less(t, len(res.Contents[0].Text), maxBytes+100)
	require.Contains(t, res.Contents[0].Text, "the tool get has them from offset")
}

// The caller's own drafts that wait are named, without their texts, and are in no context. Those of others are not named.
func TestWaitingDraftsAreNamed(t *testing.T) {
	t.Parallel()
	db := memory(t)
	s := connect(t, Config{DB: db, Scope: "acme/support", Actor: "model", Write: true}, nil)
	other := connect(t, Config{DB: db, Scope: "acme/support", Actor: "other", Write: true}, nil)
	var mine, theirs writeOut
	in := writeIn{ID: "rebate", Text: "Zebras get a rebate.", Tags: []string{"zebra"}, Subject: "ann", Meta: map[string]string{"year": "2026"}}
	require.Empty(t, call(t, s, "put", putIn{Writes: []writeIn{in}}, &mine))
	require.Empty(t, call(t, other, "put", putIn{Writes: []writeIn{{ID: "theirs", Text: "Zebras pay more."}}}, &theirs))
	held := must(db.Review().Show(t.Context(), mine.Batch))(t)
	require.Equal(t, []any{in.Tags, in.Subject, in.Meta}, []any{held.Writes[0].Tags, held.Writes[0].Subject, held.Writes[0].Meta})

	want := []waitingOut{{Batch: mine.Batch, IDs: []string{"rebate"}, Reason: mine.Reason, Since: held.At}}
	for _, question := range []string{"rebate of zebras", "opening hours"} {
		var f searchOut
		require.Empty(t, call(t, s, "search", searchIn{Query: question}, &f))
		require.Equal(t, want, f.Waiting, question)
		for _, h := range f.Hits {
			require.NotContains(t, h.Text, "Zebras")
		}
	}
	for prefix, waiting := range map[string][]waitingOut{"": want, "reb": want, "x": nil} {
		text, _ := textOfCall(t, s, "list", listIn{Prefix: prefix})
		require.NotContains(t, text, "Zebras")
		var l listOut
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		require.Equal(t, waiting, l.Waiting, prefix)
	}
	text, _ := textOfCall(t, s, "assemble", assembleIn{Query: "rebate of zebras"})
	require.NotContains(t, text, "Zebras")
	must(db.Review().Reject(t.Context(), mine.Batch, "kim", "no"))(t)
	var l listOut
	require.Empty(t, call(t, s, "list", listIn{}, &l))
	require.Empty(t, l.Waiting)
}

// What the database makes for itself, such as the page of directives, is not listed.
func TestListLeavesOutInternalPages(t *testing.T) {
	t.Parallel()
	db := memory(t)
	must(db.Scope("acme/support").Directives().Step(t.Context(), "use docker"))(t)
	rows := must(loop.Collect(db.Scope("acme/support").Artefacts(t.Context(), "ctxpage:")))(t)
	require.NotEmpty(t, rows, "the control")
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	var out listOut
	require.Empty(t, call(t, s, "list", listIn{}, &out))
	require.Len(t, out.Items, 2)
	require.Contains(t, call(t, s, "list", listIn{Limit: maxList + 1}, &out), "limit")
}

// Messages pass as they are.
func TestMessagesPass(t *testing.T) {
	t.Parallel()
	in := `{"jsonrpc":"2.0","id":"ü\\u00fc","method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":2,"result":{}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"` + strings.Repeat("m", 100_000) + "\"}\n"
	var refused strings.Builder
	got := must(io.ReadAll(&messages{in: bufio.NewReader(strings.NewReader(in)), out: &refused}))(t)
	require.Equal(t, in, string(got))
	require.Empty(t, refused.String())
}

type writeCloser struct{ io.Writer }

func (writeCloser) Close() error { return nil }

func TestHTTPDoor(t *testing.T) {
	t.Parallel()
	s := must(New(Config{DB: memory(t), Scope: "acme/support"}))(t)
	web := httptest.NewServer(Handler(s, "token"))
	t.Cleanup(web.Close)
	send := func(change func(*http.Request)) int {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+HTTPPath, strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)))(t)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer token")
		change(req)
		res := must(http.DefaultClient.Do(req))(t)
		res.Body.Close()
		return res.StatusCode
	}
	require.Equal(t, http.StatusOK, send(func(*http.Request) {}))
	require.Equal(t, http.StatusOK, send(func(r *http.Request) { r.Header.Set("Authorization", "bearer token") }))
	require.Equal(t, http.StatusUnauthorized, send(func(r *http.Request) { r.Header.Set("Authorization", "Basic token") }))
	require.Equal(t, http.StatusUnauthorized, send(func(r *http.Request) { r.Header.Del("Authorization") }))
	require.Equal(t, http.StatusForbidden, send(func(r *http.Request) { r.Host = "evil.example" }), "a name that was rebound to this machine")
	require.Equal(t, http.StatusForbidden, send(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	require.Equal(t, http.StatusForbidden, send(func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }))
	for _, addr := range []string{"0.0.0.0:0", "192.168.1.1:80", ":80", "8700", "example.com:80"} {
		require.Error(t, errOf(Listen(t.Context(), addr)), addr)
	}
}

// traces hands on the trace contexts of assemblies.
type traces chan string

func (c traces) Observe(_ context.Context, e ops.Event) {
	if e.Kind == "assemble" {
		c <- e.Traceparent
	}
}

// TestTraceparent: the trace context in the _meta of a call reaches the observer of the database, and hostile text does not.
func TestTraceparent(t *testing.T) {
	seen := make(traces, 1)
	s := connect(t, Config{DB: memoryWith(t, ctxpage.Options{Observer: seen}), Scope: "acme/support"}, nil)
	for _, c := range []struct {
		given any
		want  string
	}{
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{nil, ""}, {7, ""}, {"00-\u202e<script>", ""}, {strings.Repeat("0", 1<<20), ""},
	} {
		meta := mcp.Meta{}
		if c.given != nil {
			meta["traceparent"] = c.given
		}
		res := must(s.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta, Name: "assemble", Arguments: map[string]any{"query": "refunds"}}))(t)
		require.False(t, res.IsError, "%v", res.Content)
		require.Equal(t, c.want, <-seen)
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
