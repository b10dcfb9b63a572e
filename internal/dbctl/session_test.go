package dbctl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
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
	same := must(session.ReadPacket([]byte(packet)))(t) // a packet that is made later has a later date
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

// A handoff into a contract that is there says what is new, and takes back what does not hold any more, whichever verb
// wrote it.
func TestHandoffGrowsAContract(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.ctx")
	contract := filepath.Join(t.TempDir(), "s.limn")
	ok(t, "", "init", file)
	ok(t, "hello\n", "session", "append", file, "acme", "chat", "--role", "user")
	ok(t, "use zerolog\n", "directive", file, "acme")
	ok(t, `{"done":["looked"],"open":["write"],"questions":[{"question":"who pays?","why_it_matters":""}]}`, "session", "notes", file, "acme", "chat")
	require.NoError(t, os.WriteFile(contract, []byte("remember a list called work-completed\nadd \"greeted\" to work-completed\n"), 0o600))
	grow := func(more ...string) string {
		return ok(t, "", append([]string{"handoff", file, "acme", "chat", contract, "--format", "limn"}, more...)...)
	}
	read := func() *handoff.Ledger {
		raw := must(os.ReadFile(contract))(t)
		l, err := handoff.ReadLedger(raw)
		require.NoError(t, err, "%s", raw)
		dbtest.Interpreted(t, raw, l)
		return l
	}
	ok(t, "", "session", "contract", file, "acme", "chat", contract)
	require.Contains(t, grow("--dry-run"), "handoff-packet-created")
	require.NotContains(t, read().List("tracked-decisions"), "handoff-packet-created")
	require.Contains(t, grow(), " bytes appended")
	l := read()
	require.Equal(t, []string{"greeted", "looked"}, l.List("work-completed"))
	require.Equal(t, []string{"write"}, l.List("work-remaining"))
	require.Contains(t, strings.Join(l.List("tracked-decisions"), " "), "zerolog")

	ok(t, "remove policy zerolog\n", "directive", file, "acme")
	ok(t, `{"done":["wrote"]}`, "session", "notes", file, "acme", "chat")
	grow("--to", "night")
	l = read()
	require.Equal(t, []string{"greeted", "wrote"}, l.List("work-completed"))
	require.Empty(t, l.List("work-remaining"))
	require.Empty(t, l.List("open-questions"))
	require.Equal(t, []string{"handoff-packet-created", "handoff-packet-created"}, l.List("tracked-decisions"))

	ok(t, `{"done":["wrote","sent"]}`, "session", "notes", file, "acme", "chat")
	ok(t, "", "session", "contract", file, "acme", "chat", contract)
	require.Equal(t, []string{"greeted", "wrote", "sent"}, read().List("work-completed"))
	require.Equal(t, exitUsage, dbctl("", "handoff", file, "acme", "chat", contract).code)
	require.Equal(t, exitUsage, dbctl("", "handoff", file, "acme", "chat", "--dry-run").code)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.ctx")
	for _, c := range []struct {
		args string
		code int
		says string // on either stream
		not  string // not on standard output
	}{
		{"init F", exitOK, "made", ""},
		{"put F acme a/1 refund-one --tag open --subject Ada --meta rank=2", exitOK, "wrote", ""},
		{"put F acme a/2 refund-one --tag closed --meta rank=10", exitOK, "wrote", ""},
		{"ls F acme --tag open", exitOK, "a/1", "a/2"},
		{"ls F acme --any-tag open --any-tag closed --newest", exitOK, "a/1", "never"},
		{"ls F acme --meta rank>9", exitOK, "a/2", "a/1"},
		{"ls F acme --meta rank!=10", exitOK, "a/1", "a/2"},
		{"ls F acme --meta !rank", exitOK, "none", "a/1"},
		{"ls F acme --since 1d --only-kind fact", exitOK, "a/1", "none"},
		{"ls F acme --written-until 2001-01-01", exitOK, "none", "a/1"},
		{"ls F acme --newest --limit 1", exitOK, "a/2", "a/1"},
		{"search F acme refund --subject Ada", exitOK, "acme:a%2F1", "acme:a%2F2"},
		{"search F acme refund --id-prefix a/2", exitOK, "acme:a%2F2", "acme:a%2F1"},
		{"search F acme refund --subject Bob", exitOK, "nothing found", "a%2F1"},
		{"assemble F acme refund --meta rank<=2", exitOK, "excluded by the filter", "a%2F2"},
		{"ls F acme --meta =x", exitUsage, "expected a key, or a key, an operator", ""},
		{"ls F acme --meta rank=>9", exitUsage, "expected one of the operators", ""},
		{"ls F acme --meta rank==9", exitUsage, "expected one of the operators", ""},
		{"ls F acme --meta from=<ann>", exitOK, "none", "a/1"},
		{"ls F acme --since yesterday", exitUsage, "a duration ago like 7d", ""},
		{"ls F acme --since 2026-02-01 --until 2026-01-01", exitUsage, "filter.until", ""},
		{"ls F acme --only-kind nonsense", exitUsage, "one of", ""},
		{"ls F --newest", exitUsage, "needs a scope", ""},
		{"ls F acme --newest --cursor bHM6YS8x", exitUsage, "a cursor that this listing printed", ""},
	} {
		r := dbctl("", strings.Fields(strings.ReplaceAll(c.args, "F", file))...)
		require.Equal(t, c.code, r.code, "dbctl %s\n%s%s", c.args, r.out, r.err)
		require.Contains(t, r.out+r.err, c.says, "dbctl %s", c.args)
		if c.not != "" {
			require.NotContains(t, r.out, c.not, "dbctl %s", c.args)
		}
	}
}

// The audit shows what a read was restricted to, not only how much was excluded.
func TestManifestShowsTheFilter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "refunds", "--tag", "open")
	trace := asJSON(t, "", "assemble", file, "acme", "refunds", "--tag", "closed")["trace"].(string)
	require.Regexp(t, `(?m)^filter +\{"tags_all":\["closed"\]\}$`, ok(t, "", "manifest", "show", file, trace))
	trace = asJSON(t, "", "assemble", file, "acme", "refunds")["trace"].(string)
	require.NotContains(t, ok(t, "", "manifest", "show", file, trace), "filter", "control: nothing was restricted")
}
