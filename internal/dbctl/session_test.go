package dbctl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
)

// talk makes a database with a conversation.
func talk(t testing.TB) string {
	t.Helper()
	file := newDB(t)
	var lines strings.Builder
	for i := range 12 {
		subject := []string{"refund limit", "weather in Oslo"}[i%2]
		fmt.Fprintf(&lines, `{"role":"user","name":"Ann","text":"Question %d about the %s"}`+"\n", i, subject)
		fmt.Fprintf(&lines, `{"role":"assistant","text":"Answer %d on the %s %s","tool_calls":[{"id":"c%d","name":"look"}]}`+"\n", i, subject, strings.Repeat("of many words ", 20), i)
		fmt.Fprintf(&lines, `{"role":"tool","tool_call_id":"c%d","text":"Seen %d: %s"}`+"\n", i, i, strings.Repeat(fmt.Sprint("line ", i, "\\n"), 60))
	}
	require.Equal(t, 36, strings.Count(ok(t, lines.String(), "session", "append", file, "acme/support", "chat", "--jsonl"), "\n"))
	return file
}

// A mistyped name is said to be one: an error for a session, a note for a scope that may be meant to be empty.
func TestMistyped(t *testing.T) {
	file := talk(t)
	for _, verb := range []string{"session show", "session pass", "session explain", "session undo", "session passes", "session contract", "handoff"} {
		args := append(strings.Fields(verb), file, "acme/support", "chta")
		switch verb {
		case "session pass", "session explain":
			args = append(args, "refund")
		case "session contract":
			args = append(args, filepath.Join(t.TempDir(), "c.limn"))
		}
		got := dbctl("", args...)
		require.Equal(t, exitFailed, got.code, verb)
		require.Contains(t, got.err, `no session "chta"`, verb)
		require.Contains(t, got.err, "chat", verb)
	}
	for _, verb := range []string{"search", "assemble"} {
		note := "nothing is stored in scope acm/support or above it"
		require.Contains(t, dbctl("", verb, file, "acm/support", "refund").err, note)
		require.NotContains(t, dbctl("", verb, file, "acme/elsewhere", "refund").err, "nothing is stored")
		require.NotContains(t, dbctl("", verb, file, "acm/support", "refund", "--json").err, note)
	}
}

func TestSessionVerbs(t *testing.T) {
	file := talk(t)
	at := []string{file, "acme/support", "chat"}
	verb := func(name string, more ...string) []string {
		return append(append(strings.Fields(name), at...), more...)
	}
	require.Equal(t, "chat\n", ok(t, "", "session", "ls", file, "acme/support"))
	dry := ok(t, "", verb("session pass", "refund limit", "--dry-run")...)
	require.Contains(t, dry, "dry run, nothing written")
	require.Equal(t, "none", strings.TrimSpace(strings.Split(ok(t, "", "session", "ls", file, "acme"), "\n")[0]))
	before := ok(t, "", verb("session show")...)

	require.Contains(t, ok(t, "", verb("session pass", "refund limit")...), "pass 1: retain")
	require.Contains(t, ok(t, "", verb("session pass", "refund limit")...), "in force already")
	require.Equal(t, exitUsage, dbctl("", verb("session pass")...).code)
	after := ok(t, "", verb("session show", "--text")...)
	require.NotEqual(t, before, after)
	var w windowView
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", verb("session show", "--json")...)), &w))
	gone := ""
	for _, turn := range w.Turns {
		if turn.Level == "cold" {
			gone = turn.Ref
		}
	}
	require.NotEmpty(t, gone)
	require.Contains(t, ok(t, "", verb("session explain", gone)...), "evict: R 0.")
	require.NotEmpty(t, ok(t, "", verb("session recall", gone)...))
	ok(t, "", verb("session pin", gone)...)
	require.Contains(t, ok(t, "", verb("session explain", gone)...), "pinned")
	ok(t, "", verb("session pin", gone, "--off")...)

	contract := filepath.Join(t.TempDir(), "chat.limn")
	ok(t, "", verb("session contract", contract)...)
	raw := must(os.ReadFile(contract))(t)
	must(handoff.ReadLedger(raw))(t)
	require.Contains(t, ok(t, "", verb("session contract", contract)...), ": 0 bytes")
	ok(t, "", verb("session contract", filepath.Join(t.TempDir(), "compat"), "--dialect", "compat")...)

	ok(t, `{"goal":"help Ann","done":["looked"]}`, verb("session notes")...)
	require.Equal(t, exitUsage, dbctl(`{"gaol":"x"}`, verb("session notes")...).code)
	require.Contains(t, ok(t, "", verb("session notes", "--show")...), "help Ann")
	require.Contains(t, ok(t, "", verb("handoff", "--to", "night")...), "help Ann")
	require.Contains(t, ok(t, "", verb("handoff", "--format", "limn")...), "handoff-state")
	packet := ok(t, "", verb("handoff", "--format", "json")...)
	parsed := must(session.ReadPacket([]byte(packet)))(t)
	for i := range session.MaxReferences + 1 {
		parsed.Context = append(parsed.Context, session.ContextItem{Context: fmt.Sprintf("paged acme:x-%d@1 (1 tokens, digest 0123456789ab): x", i), WhyItMatters: "x"})
	}
	large := must(parsed.JSON())(t)
	for _, more := range [][]string{{}, {"--dry-run"}} {
		r := dbctl(string(large), append([]string{"session", "receive", file, "acme/night", "large"}, more...)...)
		require.Equal(t, exitUsage, r.code, r.err)
		require.Contains(t, r.err, "expected at most 512")
	}
	require.Contains(t, ok(t, packet, "session", "receive", file, "acme/night", "chat"), "received")
	same, err := session.ReadPacket([]byte(packet)) // a packet that is made later has a later date
	require.NoError(t, err)
	require.Contains(t, dbctl(string(same.Markdown()), "session", "receive", file, "acme/night", "chat").err, "received before", "the document is the same packet")
	require.Contains(t, ok(t, ok(t, "", verb("handoff")...), "session", "receive", file, "acme/night", "document"), "received")

	require.Contains(t, ok(t, packet, "session", "receive", file, "acme/day", "chat", "--dry-run"), "dry run")
	require.Contains(t, ok(t, "", verb("session contract", contract, "--dialect", "compat", "--dry-run")...), "last-pager-pass")
	require.Contains(t, ok(t, "", verb("session append", "hello", "--dry-run")...), "1 turn would come in, 0 compacted")
	require.Contains(t, ok(t, "", verb("session undo", "--dry-run")...), "would undo pass 1")
	require.Contains(t, ok(t, "", verb("session undo")...), "pass 1 undone")
	require.Equal(t, before, ok(t, "", verb("session show")...))
	require.Equal(t, exitFailed, dbctl("", verb("session undo")...).code)
	require.Contains(t, ok(t, "", verb("session passes")...), "pager")
	require.Equal(t, exitFailed, dbctl("", verb("session recall", "nobody")...).code)

	h := filepath.Join(t.TempDir(), "h.json")
	require.NoError(t, os.WriteFile(h, []byte(`{"intent_ir":["a"],"blocks":[{"id":"block-1","turn":1,"text":"a b"}]}`), 0o600))
	require.Contains(t, ok(t, "", "session", "page", "--history", h, "--contract", filepath.Join(t.TempDir(), "c.limn"), "--alpha", "0.5"), "alpha=0.5")
}

func TestWatchVerb(t *testing.T) {
	file := talk(t)
	at := []string{"watch", file, "acme/support", "chat"}
	require.Equal(t, exitUsage, dbctl("", append(at, "--dry-run")...).code, "no window was set")
	require.Equal(t, exitUsage, dbctl("", append(at, "--dry-run", "--total", "4000")...).code)
	require.Equal(t, exitUsage, dbctl("", append(at, "--once", "--total", "-5")...).code)
	stored := 0
	var w windowView
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "session", "show", file, "acme/support", "chat", "--json")), &w))
	stored = w.Stored
	total := fmt.Sprint(stored * 100 / 83)
	out := ok(t, "", append(at, "--total", total, "--once", "--json")...)
	require.Contains(t, out, `"kind":"applied"`)
	plan := asJSON(t, "", append(at, "--dry-run")...)
	require.Equal(t, "idle", plan["phase"])
	require.Contains(t, ok(t, "", append(at, "--dry-run")...), "dry run: ")
	require.Contains(t, ok(t, "", "session", "passes", file, "acme/support", "chat"), "watcher")
	require.Contains(t, ok(t, "", "session", "undo", file, "acme/support", "chat"), "undone")
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "session", "show", file, "acme/support", "chat", "--json")), &w))
	require.Equal(t, stored, w.Tokens)
	require.Equal(t, exitFailed, dbctl("a large answer", "session", "append", file, "acme/support", "chat", strings.Repeat("much too large ", 20_000)).code)
	require.Contains(t, dbctl("", "session", "append", file, "acme/support", "chat", strings.Repeat("much too large ", 20_000), "--json").err, `"kind":"headroom"`)
}

// Several that append to one contract at once write it one after the other: each reads what the one before it wrote, so
// nothing is declared twice, which would empty the lists and make the file unreadable from then on.
func TestContractWritersTakeTurns(t *testing.T) {
	file := talk(t)
	ok(t, "", "session", "pass", file, "acme/support", "chat", "refund limit")
	for range 5 {
		contract := filepath.Join(t.TempDir(), "c.limn")
		codes := make(chan int)
		for range 8 {
			go func() { codes <- dbctl("", "session", "contract", file, "acme/support", "chat", contract).code }()
		}
		for range 8 {
			require.Equal(t, exitOK, <-codes)
		}
		raw := must(os.ReadFile(contract))(t)
		ledger := must(handoff.ReadLedger(raw))(t)
		require.Contains(t, string(raw), "-- pass 1 key ")
		require.Equal(t, 36, len(ledger.List("retained-blocks"))+len(ledger.List("paged-blocks"))+len(ledger.List("evicted-blocks")))
	}
}
