package main

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// aChat makes a database with an exchange whose answer names its context.
func aChat(t *testing.T) (file, trace, turn string) {
	ctx := context.Background()
	file = t.TempDir() + "/agent.ctx"
	db, err := ctxpage.Open(file, ctxpage.Options{})
	require.NoError(t, err)
	s := db.Scope("acme/support", ctxpage.WithActor("bot"))
	_, err = s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
	require.NoError(t, err)
	chat := s.Session("chat")
	_, err = chat.Append(ctx, ctxpage.Turn{Role: "user", Text: "How long does a refund take?"})
	require.NoError(t, err)
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "How long does a refund take?", Budget: 500, Session: "chat"})
	require.NoError(t, err)
	refs, err := chat.Append(ctx, ctxpage.Turn{Role: "assistant", Text: "Fourteen days.", Trace: a.Trace})
	require.NoError(t, err)
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
	db, err := ctxpage.Open(file, ctxpage.Options{})
	require.NoError(t, err)
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
