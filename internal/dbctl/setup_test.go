package dbctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
)

// stubs puts commands into PATH that write down how they are called. A file named fail makes them fail.
func stubs(t *testing.T, home string, names ...string) (calls func() []string) {
	t.Helper()
	bin := filepath.Join(home, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o700))
	log := filepath.Join(home, "calls")
	for _, n := range names {
		if runtime.GOOS == "windows" {
			write(t, bin, n+".bat", fmt.Sprintf("@\"%s\" %s %s %%*\r\n", os.Args[0], stubEnv, n))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(bin, n), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' %s %s \"$@\"\n", os.Args[0], stubEnv, n), 0o700))
	}
	t.Setenv("PATH", bin)
	t.Setenv(stubEnv, log)
	return func() []string {
		b, _ := os.ReadFile(log)
		_ = os.Remove(log)
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
}

// One command registers the server, captures conversations and installs the skill; --undo leaves what was there before.
func TestSetup(t *testing.T) {
	for client, want := range map[string]struct {
		add, remove  string
		hooks, skill string
		prompt, tool string
		server       string
	}{
		"claude-code": {"claude|mcp|add|--scope|user|ctxpage|--|SELF|mcp|serve|FILE", "claude|mcp|remove|--scope|user|ctxpage", ".claude/settings.json", ".claude/skills", "UserPromptSubmit", "PostToolUse", ""},
		"codex":       {"codex|mcp|add|ctxpage|--|SELF|mcp|serve|FILE", "codex|mcp|remove|ctxpage", ".codex/hooks.json", ".agents/skills", "UserPromptSubmit", "PostToolUse", ""},
		"gemini":      {"gemini|mcp|add|--scope|user|ctxpage|SELF|--|mcp|serve|FILE", "gemini|mcp|remove|--scope|user|ctxpage", ".gemini/settings.json", ".gemini/skills", "BeforeAgent", "AfterTool", ""},
		"cursor":      {"", "", ".cursor/hooks.json", ".cursor/skills", "beforeSubmitPrompt", "postToolUse", ".cursor/mcp.json"},
	} {
		t.Run(client, func(t *testing.T) {
			home := clientHome(t)
			calls := stubs(t, home, "claude", "codex", "gemini")
			self := must(os.Executable())(t)
			db := filepath.Join(home, "my agent's.ctx")
			fill := strings.NewReplacer("SELF", self, "FILE", db)
			hooks, skill := filepath.Join(home, want.hooks), filepath.Join(home, want.skill, "ctxpage", "SKILL.md")
			before := "{\n  \"zeta\": 1.0e2,\n  \"hooks\": {\n    \"" + want.prompt + "\": [\n      {\n        \"command\": \"mine <&>\"\n      }\n    ]\n  },\n  \"alpha\": [\n    1\n  ]\n}\n"
			require.NoError(t, os.MkdirAll(filepath.Dir(hooks), 0o700))
			require.NoError(t, os.WriteFile(hooks, []byte(before), 0o640))
			setup := []string{"setup", client, db, "--scope", "acme/dev"}

			dry := ok(t, "", append(setup, "--dry-run")...)
			require.Contains(t, dry, "nothing was changed")
			require.Contains(t, dry, "+")
			require.Equal(t, before, readText(t, hooks))
			require.NoFileExists(t, skill)
			require.NoFileExists(t, db)
			require.Equal(t, []string{""}, calls(), "a dry run calls nothing")

			for range 2 { // a second time replaces what is there
				ok(t, "", setup...)
				args := "|--scope=acme/dev|--actor=" + client + "|--evaluator=supported|--write"
				if want.add != "" {
					require.Equal(t, []string{want.remove, fill.Replace(want.add) + args}, calls())
				} else {
					var v map[string]map[string]serverEntry
					require.NoError(t, json.Unmarshal([]byte(readText(t, filepath.Join(home, want.server))), &v))
					require.Equal(t, strings.Split(fill.Replace("mcp|serve|FILE")+args, "|"), v["mcpServers"]["ctxpage"].Args)
				}
			}
			ok(t, "", "ls", db) // the server needs it before a hook has written to it
			require.Equal(t, skillText, readText(t, skill))
			text := readText(t, hooks)
			require.Contains(t, text, `"mine <&>"`)
			require.Contains(t, text, `"zeta": 1.0e2`)
			require.Equal(t, 3, strings.Count(text, hookMark), "three events")
			require.Equal(t, client == "cursor", strings.Contains(text, `"version": 1`))
			var v struct{ Hooks map[string][]json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(text), &v))
			require.Len(t, v.Hooks[want.prompt], 2)
			require.Len(t, v.Hooks[want.tool], 1)
			requireHookRuns(t, v.Hooks[want.tool][0], db)

			ok(t, "", "setup", client, "--undo")
			if want.add != "" {
				require.Equal(t, []string{want.remove}, calls())
			} else {
				require.NoFileExists(t, filepath.Join(home, want.server), "setup made it")
			}
			require.Equal(t, before, strings.Replace(readText(t, hooks), "  \"version\": 1,\n", "", 1), "as before")
			require.NoFileExists(t, skill)
			require.Contains(t, ok(t, "", "setup", client, "--undo", "--dry-run"), "unchanged")
		})
	}
}

// Files that setup made are gone after undo, a link and what others wrote are not.
func TestSetupUndoLeavesNoFiles(t *testing.T) {
	home := clientHome(t)
	stubs(t, home)
	cursor := filepath.Join(home, ".cursor")
	require.NoError(t, os.MkdirAll(cursor, 0o700))
	linked := filepath.Join(home, "linked.json")
	require.NoError(t, os.WriteFile(linked, []byte("{}\n"), 0o600))
	for _, link := range []bool{false, true} {
		if link {
			require.NoError(t, os.MkdirAll(cursor, 0o700))
			if !symlink(linked, filepath.Join(cursor, "mcp.json")) {
				break
			}
		}
		ok(t, "", "setup", "cursor", filepath.Join(home, "agent.ctx"), "--scope", "acme")
		require.FileExists(t, filepath.Join(cursor, "hooks.json"))
		require.Contains(t, readText(t, filepath.Join(cursor, "mcp.json")), "ctxpage")
		ok(t, "", "setup", "cursor", "--undo")
		require.NoFileExists(t, filepath.Join(cursor, "hooks.json"))
		if link {
			require.Equal(t, "{}\n", readText(t, filepath.Join(cursor, "mcp.json")))
		} else {
			require.NoFileExists(t, filepath.Join(cursor, "mcp.json"))
		}
	}
}

// requireHookRuns runs the command of a hook as a host does, with a shell.
func requireHookRuns(t *testing.T, entry json.RawMessage, db string) {
	t.Helper()
	var e struct {
		Command string
		Hooks   []struct{ Command string }
	}
	require.NoError(t, json.Unmarshal(entry, &e))
	if e.Command == "" {
		e.Command = e.Hooks[0].Command
	}
	quoted := command(db)
	require.Contains(t, e.Command, " hook "+quoted+" --scope=acme/dev ", "a shell takes it as one word")
}

func TestSetupRefuses(t *testing.T) {
	home := clientHome(t)
	calls := stubs(t, home, "claude")
	file := filepath.Join(home, "agent.ctx")
	setup := []string{"setup", "claude-code", file, "--scope", "acme"}
	settings := filepath.Join(home, ".claude", "settings.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(settings), 0o700))
	for text, why := range map[string]string{
		"{\n // mine\n}": "without comments", "[]": "expected a JSON object", `{"a":1,"a":2}`: "occurs twice", `{"hooks": []}`: "expected a JSON object", `{"hooks": {"Stop": {}}}`: "expected a list",
	} {
		require.NoError(t, os.WriteFile(settings, []byte(text), 0o600))
		r := dbctl("", setup...)
		require.Equal(t, exitFailed, r.code, text)
		require.Contains(t, r.err, why)
		require.Contains(t, r.err, "nothing was changed")
		require.Equal(t, text, readText(t, settings))
		require.Equal(t, []string{""}, calls(), "the server is not registered either")
	}
	require.NoError(t, os.Remove(settings))
	require.NoError(t, os.WriteFile(filepath.Join(home, "fail"), nil, 0o600))
	r := dbctl("", setup...)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "claude mcp")
	require.NoFileExists(t, settings)
	require.Equal(t, exitFailed, dbctl("", "setup", "codex", file, "--scope", "acme").code, "its command is not there")
	require.Equal(t, exitFailed, dbctl("", "setup", "claude-code", home+"/nowhere/agent.ctx", "--scope", "acme").code)
	require.Equal(t, []string{"claude|mcp|remove|--scope|user|ctxpage"}, calls()[:1], "of the refusal before")
	for _, args := range [][]string{{"setup", "claude-code"}, {"setup", "claude-code", "F", "--scope", "a//b"}, {"setup", "claude-code", "F"}, {"setup", "other", "F", "--scope", "a"}, {"setup", "codex", "F", "--scope", "a", "--read-only", "--evaluator", "supported"}} {
		require.Equal(t, exitUsage, dbctl("", args...).code, args)
	}
	// A skill that somebody changed stays.
	require.NoError(t, os.Remove(filepath.Join(home, "fail")))
	ok(t, "", append(setup, "--no-hooks", "--read-only")...)
	require.NoFileExists(t, settings)
	registered := calls()
	require.NotContains(t, registered[len(registered)-1], "--write")
	skill := filepath.Join(home, ".claude", "skills", "ctxpage", "SKILL.md")
	require.NoError(t, os.WriteFile(skill, []byte("mine"), 0o600))
	ok(t, "", "setup", "claude-code", "--undo")
	require.Equal(t, "mine", readText(t, skill))
}

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
	require.Empty(t, r.out)
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

func TestVersionIsThatOfTheBuild(t *testing.T) {
	for _, c := range []struct {
		info debug.BuildInfo
		want buildView
	}{
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"}}},
			buildView{Version: "v1.2.3", Commit: "0123abcd", Modified: true}},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20270131120000-0123456789ab"}}, buildView{Version: "v0.0.0-20270131120000-0123456789ab", Commit: "0123456789ab"}},
		{debug.BuildInfo{}, buildView{Version: "(devel)"}},
	} {
		got := buildOf(&c.info, true)
		got.Go, got.Platform = "", ""
		require.Equal(t, c.want, got)
	}
	for _, args := range [][]string{{"--version"}, {"version"}} {
		require.Contains(t, ok(t, "", args...), "dbctl ")
	}
	require.NotEmpty(t, asJSON(t, "", "--version")["go"])
	file := newDB(t)
	require.Contains(t, ok(t, "", "get", file, "acme/support", "note", "--version", "1"), "Lee", "get has a flag of that name")
}

func TestHelpOfAVerb(t *testing.T) {
	for _, verb := range []string{"put", "session pass", "directive", "budget", "manifest", "session page", "help"} {
		words := strings.Fields(verb)
		require.Equal(t, ok(t, "", append(words, "--help")...), ok(t, "", append([]string{"help"}, words...)...), verb)
	}
	require.Equal(t, ok(t, "", "--help"), ok(t, "", "help"))
	r := dbctl("", "help", "session", "nosuch")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, `there is no verb "session nosuch"; dbctl help session lists them`)
}

func TestCompletion(t *testing.T) {
	words := func(w ...string) []string {
		return strings.Fields(ok(t, "", append([]string{"completion", "--words", "--"}, w...)...))
	}
	require.Equal(t, []string{"search", "serve", "session", "setup"}, words("se"))
	require.Equal(t, []string{"page", "pass", "passes", "pin"}, words("session", "p"))
	require.Equal(t, []string{"--overflow"}, words("assemble", "F", "acme", "question", "--ov"))
	require.Equal(t, []string{"fill", "ladder"}, words("assemble", "--overflow", ""))
	require.Empty(t, words("get", ""), "a file")
	require.Empty(t, words("put", "F", "acme", "x", "--root", ""), "a directory")
	require.Contains(t, words("put", "F", "acme", "x", "--root", "d", "--"), "--ttl")
	require.Equal(t, []string{"search", "serve", "session", "setup"}, words("help", "se"))
	require.Equal(t, []string{"bash", "fish", "zsh"}, words("completion", ""))
	require.Equal(t, exitUsage, dbctl("", "completion", "ksh").code)
	for shell := range shells {
		script := ok(t, "", "completion", shell)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Log("not here: ", shell)
			continue
		}
		cmd := exec.Command(path, "-n") // it parses, and is not run
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"7d": 7 * day, "2w": 14 * day, "1w2d12h": 9*day + 12*time.Hour, "1.5d": 36 * time.Hour, "-7d": -7 * day, "90m": 90 * time.Minute, "0": 0, "0d": 0, "30d": 720 * time.Hour,
	} {
		got, err := parseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "7", "d", "2027-01-31", "7dd", "1d-2h", "7 d", "1e9d", "200000000d", "1d+2h", "7D"} {
		_, err := parseDuration(s)
		require.Error(t, err, s)
	}
	file := newDB(t)
	ok(t, "", "put", file, "acme", "x", "y", "--ttl", "7d")
	for _, args := range [][]string{
		{"get", file, "acme", "x", "--check", "1d"}, {"gc", file, "--keep-for", "7d"}, {"manifest", "ls", file, "--since", "7d"}, {"ls", file, "--wait", "0.0001d"},
	} {
		ok(t, "", args...)
	}
	r := dbctl("", "gc", file, "--keep-for", "soon")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected a duration like 90m, 12h, 7d or 2w")
}

func TestForeignFileIsNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	write(t, filepath.Dir(file), "notes.txt", "Refunds up to $400 need no approval.\n")
	for _, args := range [][]string{
		{"ls", file}, {"get", file, "acme", "x"}, {"put", file, "acme", "x", "y"}, {"stat", file}, {"check", file}, {"manifest", "ls", file}, {"manifest", "verify", file},
		{"salvage", file, file + ".new"}, {"search", file, "acme", "x"}, {"gc", file}, {"session", "ls", file, "acme"},
	} {
		r := dbctl("", args...)
		require.Equal(t, exitFailed, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.err, "not a ctxpage database", args)
		require.NotContains(t, r.err, "damaged", args)
	}
	require.Contains(t, dbctl("", "ls", file, "--json").err, `"kind":"not a database"`)
	entries := must(os.ReadDir(filepath.Dir(file)))(t)
	require.Len(t, entries, 1, "nothing is left beside it")
}

// An interrupted dbctl says so by its exit code, whatever it was doing.
func TestInterrupted(t *testing.T) {
	dbtest.NeedsPosix(t, "signals to one process")
	file := newDB(t)
	exe := must(os.Executable())(t)
	for _, c := range []struct {
		sig  syscall.Signal
		want int
		args []string
	}{
		{syscall.SIGINT, exitOK, []string{"manifest", "tail", "-f", file}},
		{syscall.SIGTERM, exitOK, []string{"manifest", "tail", "-f", file}},
		{syscall.SIGTERM, exitOK, []string{"serve", file}},
		{syscall.SIGINT, exitOK, []string{"serve", file}},
		{syscall.SIGTERM, exitOK, []string{"watch", file, "acme/support", "chat", "--total", "1000"}},
		{syscall.SIGTERM, exitTerminated, []string{"put", file, "acme", "x", "--json"}},
		{syscall.SIGINT, exitInterrupted, []string{"put", file, "acme", "x"}}, // waits for its input
		{syscall.SIGINT, exitOK, []string{"watch", file, "acme/support", "chat", "--total", "1000"}},
		{syscall.SIGINT, exitInterrupted, []string{"directive", file, "acme"}},
		{syscall.SIGINT, exitInterrupted, []string{"budget", "compile"}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, exe, c.args...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out := must(cmd.StdoutPipe())(t)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		says := bufio.NewReader(out)
		if speaks := c.want == exitOK; speaks {
			_, err = says.ReadString('\n')
			go says.WriteTo(io.Discard)
		} else { // more than a pipe holds: it is written once the program reads, so it is at work
			go says.WriteTo(io.Discard)
			_, err = in.Write(bytes.Repeat([]byte("\n"), 1<<17))
		}
		require.NoError(t, err, c.args)
		require.NoError(t, cmd.Process.Signal(c.sig))
		_ = cmd.Wait()
		require.Equal(t, c.want, cmd.ProcessState.ExitCode(), fmt.Sprint(c.args))
		if slices.Contains(c.args, "--json") {
			require.Contains(t, errs.String(), fmt.Sprintf(`"exit":%d}`, c.want))
		}
		in.Close()
		cancel()
	}
	ok(t, "", "check", file)
	require.Equal(t, "no space", kindOf(fmt.Errorf("export: %w", syscall.ENOSPC), exitFailed))
}

// The table of the exit codes, the help and the program say the same.
func TestExitCodesAreListed(t *testing.T) {
	codes := []int{exitOK, exitFailed, exitUsage, exitDamaged, exitHeld, exitBusy, exitInterrupted, exitTerminated}
	docs := must(filepath.Glob("../../docs/*.md"))(t)
	var tables string
	for _, path := range append(docs, "../../README.md") {
		b := must(os.ReadFile(path))(t)
		tables += string(b)
	}
	_, help, _ := strings.Cut(ok(t, "", "--help"), "Exit codes:")
	help, _, found := strings.Cut(strings.Join(strings.Fields(help), " "), ".")
	require.True(t, found)
	for _, c := range codes {
		require.Contains(t, tables, fmt.Sprintf("\n| %d |", c))
		require.Regexp(t, fmt.Sprintf(`(^|[ ,])%d\b`, c), help)
	}
}

func TestShellQuoted(t *testing.T) {
	for _, c := range []struct{ word, posix, windows string }{
		{"--scope=acme/dev", "--scope=acme/dev", "--scope=acme/dev"},
		{"", "''", `""`},
		{"a b", "'a b'", `"a b"`},
		{"it's", `'it'\''s'`, `"it's"`},
		{`C:\Users\ann\agent.ctx`, `'C:\Users\ann\agent.ctx'`, `"C:\Users\ann\agent.ctx"`},
		{`C:\my files\`, `'C:\my files\'`, `"C:\my files\\"`},
		{"ann@acme,50%", "ann@acme,50%", "'ann@acme,50%'"},
		{"a&b|c>d^e;f", "'a&b|c>d^e;f'", `"a&b|c>d^e;f"`},
		{"%PATH%", "%PATH%", "'%PATH%'"},
		{"$HOME", "'$HOME'", "'$HOME'"},
		{"it’s $5", "'it’s $5'", "'it’’s $5'"},
		{"`x`", "'`x`'", "'`x`'"},
		{`say "hi"`, `'say "hi"'`, `'say "hi"'`},
	} {
		require.Equal(t, c.posix, shellQuoted("linux", c.word))
		require.Equal(t, c.windows, shellQuoted("windows", c.word))
	}
}
