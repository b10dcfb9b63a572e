package dbctl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
	quoted := shellQuoted(db)
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
