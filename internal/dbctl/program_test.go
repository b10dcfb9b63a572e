package dbctl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// The size of the first day. A whole one is -firstday.scopes 60 -firstday.turns 300.
var (
	dayScopes = flag.Int("firstday.scopes", 3, "scopes of TestFirstDay")
	dayTurns  = flag.Int("firstday.turns", 24, "turns of each conversation of TestFirstDay")
)

const dayTranscript = `{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"where is the harbour manual?"}}
{"type":"assistant","uuid":"u2","sessionId":"s1","timestamp":"2026-01-02T03:04:06Z","message":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"The harbour manual is in the cellar."}]}}
`

const dayChatGPT = `[{"title":"Tea","create_time":1700000000.5,"conversation_id":"c-1","current_node":"n2","mapping":{"root":{"id":"root","message":null,"parent":null,"children":["n1"]},
"n1":{"id":"n1","parent":"root","children":["n2"],"message":{"id":"m1","author":{"role":"user"},"create_time":1700000001.25,"content":{"content_type":"text","parts":["which samovar suits green tea?"]},"weight":1.0}},
"n2":{"id":"n2","parent":"n1","children":[],"message":{"id":"m2","author":{"role":"assistant"},"create_time":1700000002.25,"content":{"content_type":"text","parts":["A small samovar."]},"weight":1.0}}}}]`

// day is the service of a first day: one process that owns the database, with dbctl beside it.
type day struct {
	t    *testing.T
	file string
	db   *ctxpage.DB
}

// TestFirstDay is what a new user does on the first day: a service whose conversations all use tools, with dbctl beside it.
// A folder, a transcript and an export of another system are imported and found, a draft is held and approved, and an
// answer is explained by its turn. Every context is one that a provider accepts.
func TestFirstDay(t *testing.T) {
	d := &day{t: t, file: filepath.Join(t.TempDir(), "service.ctx")}
	var err error
	d.db, err = ctxpage.Open(d.file, ctxpage.Options{RecordedRoots: true})
	require.NoError(t, err)
	docs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(docs, "refunds.md"), []byte("# Refunds\n\nVouchers turn into store credit within nine days.\n"), 0o600))
	rep, err := d.db.AddFolder(context.Background(), "acme", docs)
	require.NoError(t, err)
	require.Equal(t, []string{"refunds.md"}, rep.New)

	for n := range *dayScopes {
		d.converse(fmt.Sprintf("acme/user%02d", n), n%2 == 0)
	}
	d.imports("acme/user00")
	d.reviews("acme/user00")
	d.explains("acme/user01")

	problems, err := d.db.Admin().Check(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NoError(t, d.db.Close())
}

// converse is one conversation. Every exchange calls a tool, which often says the same, under ids that repeat.
func (d *day) converse(scope string, window bool) {
	ctx := context.Background()
	host := d.db.Scope(scope)
	chat := host.Session("chat")
	if window {
		require.NoError(d.t, chat.SetWindow(ctx, session.Config{Total: 6000}))
	}
	_, err := host.Put(ctx, ctxpage.Artefact{ID: "account", Text: "The account of " + scope + " is in good standing.", Subject: "user"})
	require.NoError(d.t, err)
	for i := 0; i < *dayTurns; i += 4 {
		question := fmt.Sprintf("Exchange %d of %s: what does the disk check say?", i, scope)
		last := i+4 >= *dayTurns
		if last {
			question = "Last question: how long until vouchers turn into store credit?"
		}
		_, err := chat.Append(ctx, ctxpage.Turn{Role: "user", Text: question, Subject: "user"})
		require.NoError(d.t, err)
		call := fmt.Sprint("call_", i/4%2)
		_, err = chat.Append(ctx, ctxpage.Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: call, Name: "check", Arguments: `{}`}}},
			ctxpage.Turn{Role: "tool", ToolCallID: call, Text: "disk check: /var is at 81 % of its budget, and nothing else was found"})
		require.NoError(d.t, err)
		a, err := host.Assemble(ctx, ctxpage.Query{Text: question, Budget: 4000, Session: "chat"})
		require.NoError(d.t, err)
		require.LessOrEqual(d.t, a.Tokens, 4000)
		for name, accepts := range map[string]func() error{
			"openai":    func() error { _, err := render.OpenAI(a.Messages()); return err },
			"anthropic": func() error { _, err := render.Anthropic(a.Messages()); return err },
			"gemini":    func() error { _, err := render.Gemini(a.Messages()); return err },
		} {
			require.NoError(d.t, accepts(), "%s, %s, turn %d", name, scope, i)
		}
		if last {
			require.Contains(d.t, a.Text(), "store credit within nine days", scope)
		}
		_, err = chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: fmt.Sprintf("Answer %d: within nine days.", i), Trace: a.Trace, Subject: "user"})
		require.NoError(d.t, err)
	}
}

// imports brings a transcript and an export of another system in, by dbctl beside the service, and finds them.
func (d *day) imports(scope string) {
	dir := d.t.TempDir()
	for name, text := range map[string]string{"s1.jsonl": dayTranscript, "conversations.json": dayChatGPT} {
		path := filepath.Join(dir, name)
		require.NoError(d.t, os.WriteFile(path, []byte(text), 0o600))
		ok(d.t, "", "import", d.file, scope, path, "--trust", "validated", "--by", "kim", "--why", "my own chats")
	}
	sessions := ok(d.t, "", "session", "ls", d.file, scope)
	for _, of := range []string{"chat", "s1", "c-1"} {
		require.Contains(d.t, sessions, of)
	}
	for words, found := range map[string]string{"harbour manual": "where is the harbour manual?", "samovar": "which samovar suits green tea?", "voucher credit": "Vouchers turn into store credit"} {
		require.Contains(d.t, ok(d.t, "", "search", d.file, scope, words), found)
	}
}

// reviews holds a draft of an agent, shows it, approves it and finds it.
func (d *day) reviews(scope string) {
	ctx := context.Background()
	agent := d.db.Scope(scope, ctxpage.Gated(), ctxpage.WithActor("bot"))
	a, err := agent.Assemble(ctx, ctxpage.Query{Text: "How long do vouchers take?", Budget: 2000})
	require.NoError(d.t, err)
	tx, err := agent.Resume(ctx, a.Trace)
	require.NoError(d.t, err)
	require.NoError(d.t, tx.Put(ctx, ctxpage.Artefact{ID: "voucher-rule", Text: "Zeppelin rule: vouchers take nine days.", DerivedFrom: []ctxpage.Ref{{ID: "refunds.md"}}}))
	var held *store.HeldError
	require.True(d.t, errors.As(tx.Commit(ctx, ctxpage.Verdict{Confidence: .4, By: "checker"}), &held))
	require.Contains(d.t, ok(d.t, "", "search", d.file, scope, "zeppelin"), "nothing")
	require.Contains(d.t, ok(d.t, "", "review", "show", d.file, held.Batch), "Zeppelin rule")
	ok(d.t, "", "review", "approve", d.file, held.Batch, "--by", "kim")
	require.Contains(d.t, ok(d.t, "", "search", d.file, scope, "zeppelin"), "vouchers take nine days")
	require.Equal(d.t, a.Trace, asJSON(d.t, "", "get", d.file, scope, "voucher-rule")["trace"])
}

// explains goes from an answer to its context.
func (d *day) explains(scope string) {
	w, err := d.db.Scope(scope).Session("chat").Inspect(context.Background())
	require.NoError(d.t, err)
	last := w.Turns[len(w.Turns)-1]
	require.NotEmpty(d.t, last.Trace)
	ref := ctxpage.Ref{Scope: scope, ID: last.ID}.String()
	whole := ok(d.t, "", "why", d.file, "--turn", ref)
	require.Contains(d.t, whole, last.Trace)
	require.Contains(d.t, whole, "how long until vouchers turn into store credit?")
	require.Contains(d.t, ok(d.t, "", "why", d.file, "--turn", ref, "refunds.md"), "refunds.md is in the context")
	require.Contains(d.t, ok(d.t, "", "replay", d.file, last.Trace), "store credit within nine days")
	require.Contains(d.t, ok(d.t, "", "manifest", "ls", d.file, "--session", "chat", "--scope", scope, "--type", "assemble"), "what does the disk check say")
}
