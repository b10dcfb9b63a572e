package dbctl

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

// aChat makes a database with an exchange whose answer names its context.
func aChat(t *testing.T) (file, trace, turn string) {
	ctx := context.Background()
	file = t.TempDir() + "/agent.ctx"
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	s := db.Scope("acme/support", ctxpage.WithActor("bot"))
	must(s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."}))(t)
	chat := s.Session("chat")
	must(chat.Append(ctx, ctxpage.Turn{Role: "user", Text: "How long does a refund take?"}))(t)
	a := must(s.Assemble(ctx, ctxpage.Query{Text: "How long does a refund take?", Budget: 500, Session: "chat"}))(t)
	refs := must(chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: "Fourteen days.", Trace: a.Trace}))(t)
	require.NoError(t, db.Close())
	return file, a.Trace, refs[0].ID
}

// From a wrong answer to its context: every view of a turn names the trace, and why takes the turn.
func TestFromAnAnswerToItsContext(t *testing.T) {
	file, trace, turn := aChat(t)
	require.Contains(t, ok(t, "", "session", "show", file, "acme/support", "chat"), trace)
	require.Equal(t, trace, asJSON(t, "", "get", file, "acme/support", turn)["trace"])
	require.Equal(t, trace, asJSON(t, "", "session", "recall", file, "acme/support", "chat", turn)["trace"])
	require.Contains(t, ok(t, "", "session", "explain", file, "acme/support", "chat", turn), trace)
	require.Contains(t, ok(t, "", "session", "export", file, "acme/support", "chat", "--format", "md"), "written from the context of trace "+trace)
	require.Contains(t, ok(t, "", "export", file, "--format", "md", "--scope", "acme"), "written from the context of trace "+trace)
	require.Contains(t, ok(t, "", "history", file, "acme/support", turn), trace)

	whole := ok(t, "", "why", file, "--turn", turn)
	require.Contains(t, whole, "the context of trace "+trace)
	require.Contains(t, whole, "How long does a refund take?")
	require.Contains(t, whole, "in: acme/support:policy#1@1, full")
	require.Equal(t, whole, ok(t, "", "why", file, trace), "of a trace alone")
	require.Equal(t, whole, ok(t, "", "why", file, trace[:20]+"…"), "as a table shortens it")
	require.Equal(t, whole, ok(t, "", "why", file, "--turn", "acme/support:"+turn))
	require.Contains(t, ok(t, "", "why", file, "--turn", turn, "policy"), "policy is in the context of trace "+trace)

	r := dbctl("", "why", file, "--turn", "block-chat-1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "written from no recorded context")
	require.Equal(t, exitUsage, dbctl("", "why", file).code)
	require.Contains(t, dbctl("", "why", file, "--turn", "nobody").err, "no scope has the turn")
	ok(t, "Fourteen", "put", file, "globex", turn)
	r = dbctl("", "why", file, "--turn", turn)
	require.Equal(t, exitUsage, r.code, "it does not guess")
	require.Contains(t, r.err, "globex:"+turn)
}

// The audit is listed by what people remember: question, session, actor, time.
func TestManifestLsByQuestionAndSession(t *testing.T) {
	file, trace, _ := aChat(t)
	for flags, want := range map[string]int{
		"": 1, "--session chat": 1, "--session other": 0, "--actor bot": 1, "--actor nobody": 0, "--since 1h": 1, "--until 1h": 0, "--since 1h --until 0s": 1, "--scope acme/support": 1,
	} {
		leaves := asJSON(t, "", append([]string{"manifest", "ls", file, "--type", "assemble"}, strings.Fields(flags)...)...)["leaves"].([]any)
		require.Len(t, leaves, want, flags)
		if want > 0 {
			leaf := leaves[0].(map[string]any)
			require.Equal(t, []any{trace, "How long does a refund take?", "chat"}, []any{leaf["trace"], leaf["question"], leaf["session"]})
		}
	}
	table := ok(t, "", "manifest", "ls", file, "--type", "assemble")
	require.Contains(t, table, "How long does a refund take?")
	require.NotContains(t, table, "LSN")
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--wide"), "LSN")
	require.Equal(t, "TRACE\n"+trace+"\n", ok(t, "", "manifest", "ls", file, "--type", "assemble", "--columns", "trace"))
	r := dbctl("", "manifest", "ls", file, "--columns", "TRAIL")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected some of LEAF,TIME")
}

// Beside a living process the questions that lie in its file are asked of it.
func TestQuestionsBesideALivingProcess(t *testing.T) {
	file, trace, _ := aChat(t) // closed: the question is in the file, no longer in the log
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	defer func() { require.NoError(t, db.Close()) }()
	leaf := asJSON(t, "", "manifest", "show", file, trace)["leaves"].([]any)[0].(map[string]any)
	require.Equal(t, "How long does a refund take?", leaf["question"], leaf["question_state"])
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--type", "assemble"), "How long does a refund take?")
}

// A table fits the terminal: its widest cells are shortened, those that tell rows apart last.
func TestTablesFitTheTerminal(t *testing.T) {
	names := []string{"LEAF", "TRACE", "QUESTION"}
	rows := [][]string{{"1", "01KB5J3Q4N8Z7W5T9X2Y6V0RSA", strings.Repeat("wörd ", 30)}, {"22", "01KB5J3Q4N8Z7W5T9X2Y6V0RSB", "short"}}
	shorten(names, rows, 60)
	for _, row := range rows {
		n := 2 * (len(row) - 1)
		for i, cell := range row {
			n += max(utf8.RuneCountInString(cell), len(names[i]))
		}
		require.LessOrEqual(t, n, 60, row)
	}
	require.Equal(t, "01KB5J3Q4N8Z7W5T9X2Y6V0RSA", rows[0][1], "the wider column gives way")
	require.True(t, strings.HasSuffix(rows[0][2], "…"), rows[0][2])
	shorten(names, rows, 10)
	require.Equal(t, "01KB5J3Q4N8Z…", rows[0][1], "enough of it stays to name it")
}

// Where short cells are not enough, columns that tell least are left out: empty ones first, then those that are the same in
// all rows, then counts. The first column and words stay.
func TestNarrowTerminalsHaveFewerColumns(t *testing.T) {
	names := []string{"LEAF", "TIME", "TRACE", "SCOPE", "SESSION", "SERVED", "TOKENS", "SOURCE", "QUESTION"}
	trace := "01KB5J3Q4N8Z7W5T9X2Y6V0RSA"
	table := [][]string{
		{"1", "2027-01-01 08:00:00Z", trace, "acme/u", "chat", "11", "738", "-", "what is the limit of refunds?"},
		{"2", "2027-01-01 08:00:01Z", trace[1:], "acme/u", "other", "7", "20", "-", "who"},
	}
	for width, gone := range map[int][]string{
		200: nil, 90: nil, 89: {"SOURCE"}, 80: {"SCOPE", "SOURCE"}, 66: {"SCOPE", "TOKENS", "SOURCE"}, 60: {"SCOPE", "SERVED", "TOKENS", "SOURCE"}, 20: {"SCOPE", "SERVED", "TOKENS", "SOURCE"},
	} {
		left, rows, out := narrowed(names, table, width)
		require.Equal(t, gone, out, width)
		require.Len(t, left, len(names)-len(gone))
		require.Len(t, rows, 2)
		require.Len(t, rows[0], len(left))
		shorten(left, rows, width)
		if n := 2 * (len(left) - 1); width >= 60 {
			for i := range left {
				n += max(len(left[i]), utf8.RuneCountInString(rows[0][i]), utf8.RuneCountInString(rows[1][i]))
			}
			require.LessOrEqual(t, n, width)
		}
		require.Equal(t, trace, table[0][2], "the cells of the caller stay")
	}
}

// Subjects stay in their tenant: erase and export take both flags, and turns have a subject.
func TestSubjectInAScope(t *testing.T) {
	file := t.TempDir() + "/agent.ctx"
	ok(t, "", "init", file)
	for _, scope := range []string{"acme/x", "globex/x"} {
		ok(t, "", "session", "append", file, scope, "chat", "I live in "+scope, "--subject", "user07")
		ok(t, `{"role":"user","text":"and work there","subject":"user08"}`, "session", "append", file, scope, "chat", "--jsonl", "--subject", "user07")
	}
	md := ok(t, "", "export", file, "--subject", "user07", "--scope", "acme", "--format", "md")
	require.Contains(t, md, "I live in acme/x")
	require.NotContains(t, md, "globex")
	require.NotContains(t, md, "and work there")
	v := asJSON(t, "", "erase", file, "--subject", "user07", "--scope", "acme", "--by", "desk", "--reason", "asked", "--dry-run")
	require.Len(t, v["erased"], 1)
	require.Contains(t, ok(t, "", "ls", file, "acme/x", "--subject", "user07"), "block-chat-1")
	hook := asJSON(t, `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hello"}`, "hook", file, "--scope", "acme", "--subject", "user07", "--dry-run")
	require.Equal(t, "user07", hook["turns"].([]any)[0].(map[string]any)["subject"])
}

// What grows forever is named where a database begins and where it is looked at, with a command that can be typed.
func TestPresetIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my agent.ctx")
	made := ok(t, "", "init", file)
	command := "dbctl retention preset '" + file + "' year"
	require.Contains(t, made, command)
	ok(t, "", "put", file, "acme", "a", "text")
	require.Contains(t, ok(t, "", "health", file, "acme"), command)
	require.Contains(t, ok(t, "", "retention", "preset", file, "year", "--dry-run"), "prune 365d")
	require.Contains(t, ok(t, "", "health", file, "acme"), command, "a dry run stores nothing")
	require.Contains(t, ok(t, "", "retention", "preset", file, "year"), "(whole database): decided 365d, prune 365d")
	require.NotContains(t, ok(t, "", "health", file, "acme"), "preset")
	require.Equal(t, exitUsage, dbctl("", "retention", "preset", file, "decade").code)
}

// Health counts what people wrote: not the shorter forms of turns, which nobody can delete. It works beside an owner.
func TestHealthBesideAnOwner(t *testing.T) {
	ctx := context.Background()
	file := t.TempDir() + "/agent.ctx"
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	s := db.Scope("acme")
	chat := s.Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 2000}))
	for i := range 40 {
		must(chat.Append(ctx, ctxpage.Turn{Role: "user", Text: strings.Repeat(fmt.Sprint("words of turn ", i%2, " "), 30)}))(t)
	}
	for i := range 600 { // more than one part of a listing
		must(s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("note-", i), Text: fmt.Sprint("a note of its own kind, number ", i, " of many that differ in ", i*i)}))(t)
	}
	internal := 0
	for v, err := range s.Artefacts(ctx, "ctxpage:") {
		require.NoError(t, err)
		require.NotEmpty(t, v.ID)
		internal++
	}
	require.Positive(t, internal, "control: there are pages of the database's own")
	out := ok(t, "", "health", file, "acme")
	require.Contains(t, out, "acme: 640 artefacts")
	require.NotContains(t, out, "ctxpage:")
	require.NoError(t, db.Close())
	require.Equal(t, out, ok(t, "", "health", file, "acme"), "the same without an owner")
}

// An empty answer names the key that nothing has, and not one that is right.
func TestMisspeltMetadataKey(t *testing.T) {
	file := t.TempDir() + "/agent.ctx"
	ok(t, "", "init", file)
	ok(t, "refunds of a year", "put", file, "acme", "a", "--meta", "year=2022")
	for _, args := range [][]string{{"search", file, "acme/x", "refunds"}, {"ls", file, "acme"}, {"assemble", file, "acme", "refunds"}} {
		r := dbctl("", append(args, "--meta", "yr>=2022")...)
		require.Contains(t, r.err, `no artefact in sight of `+args[2]+` has the metadata key "yr"`)
		require.NotContains(t, dbctl("", append(args, "--meta", "year>=2030")...).err, "metadata key")
	}
}
