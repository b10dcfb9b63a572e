package dbctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clientHome is a home directory with nothing in it.
func clientHome(t *testing.T) string {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home) // of Windows
	t.Setenv("APPDATA", filepath.Join(home, "AppData"))
	for _, name := range []string{"XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"} {
		t.Setenv(name, "")
	}
	return home
}

func readText(t *testing.T, path string) string {
	b := must(os.ReadFile(path))(t)
	return string(b)
}

// inJSON is a path as it is in JSON.
func inJSON(path string) string { return strings.ReplaceAll(path, `\`, `\\`) }

// The block of each client has the command with absolute paths, and names who judges writes.
func TestMCPConfigOfEachClient(t *testing.T) {
	home := clientHome(t)
	settings := must(filepath.Rel(home, must(os.UserConfigDir())(t)))(t)
	for client, want := range map[string]struct{ path, container, typ string }{
		"claude-desktop": {settings + "/Claude/claude_desktop_config.json", "mcpServers", ""},
		"claude-code":    {".claude.json", "mcpServers", "stdio"},
		"cursor":         {".cursor/mcp.json", "mcpServers", ""},
		"vscode":         {settings + "/Code/User/mcp.json", "servers", "stdio"},
		"gemini":         {".gemini/settings.json", "mcpServers", ""},
	} {
		args := []string{"mcp", "config", client, "agent.ctx", "--scope=-odd", "--actor", "model", "--write"}
		var v map[string]map[string]serverEntry
		require.NoError(t, json.Unmarshal([]byte(ok(t, "", args...)), &v))
		e := v[want.container]["ctxpage"]
		require.Equal(t, want.typ, e.Type, client)
		require.True(t, filepath.IsAbs(e.Command))
		require.True(t, filepath.IsAbs(e.Args[2]))
		require.Equal(t, []string{"--scope=-odd", "--actor=model", "--evaluator=supported", "--write"}, e.Args[3:])
		require.Equal(t, filepath.Join(home, want.path), asJSON(t, "", args...)["config"])
		require.NotContains(t, ok(t, "", append(args[:7:7], "--write", "--confirm", "kim")...), "supported")
		require.NotContains(t, ok(t, "", args[:5]...), "supported", "reads are not judged")
	}
	require.Contains(t, ok(t, "", "mcp", "config", "cursor", "agent.ctx", "--scope", "a", "--write", "--evaluator", "judge"), inJSON(filepath.FromSlash("/internal/dbctl/judge")))
	require.Contains(t, ok(t, "", "mcp", "config", "claude-code", "--http", "127.0.0.1:8700"), `"url": "http://127.0.0.1:8700/mcp"`)
	toml := ok(t, "", "mcp", "config", "codex", "agent.ctx", "--scope", "a\"\\ü", "--actor", "m\x7f")
	require.Regexp(t, `^\[mcp_servers.ctxpage\]\ncommand = "(/|[A-Z]:).*"\nargs = \["mcp", "serve", "(/|[A-Z]:).*", "--scope=a\\"\\\\ü", "--actor=m\\u007f"\]\n$`, toml)
	entries := must(os.ReadDir(home))(t)
	require.Empty(t, entries, "printing writes nothing")
}

// --install uses the client's own command where it has one, and merges plain JSON elsewhere.
func TestMCPConfigInstalls(t *testing.T) {
	home := clientHome(t)
	calls := stubs(t, home, "claude", "codex", "gemini", "code")
	self := must(os.Executable())(t)
	file := filepath.Join(home, "agent.ctx")
	serve := "|mcp|serve|" + file + "|--scope=a"
	for client, want := range map[string][]string{
		"claude-code": {"claude|mcp|remove|--scope|user|ctxpage", "claude|mcp|add|--scope|user|ctxpage|--|" + self + serve},
		"codex":       {"codex|mcp|remove|ctxpage", "codex|mcp|add|ctxpage|--|" + self + serve},
		"vscode":      {`code|--add-mcp|{"name":"ctxpage","type":"stdio","command":"` + inJSON(self) + `","args":["mcp","serve","` + inJSON(file) + `","--scope=a"]}`},
	} {
		require.Contains(t, ok(t, "", "mcp", "config", client, file, "--scope", "a", "--install"), "restart "+client)
		require.Equal(t, want, calls())
	}
	for client, want := range map[string]string{
		"claude-code": "claude|mcp|add|--scope|user|--transport|http|ctxpage|http://127.0.0.1:8700/mcp", "codex": "codex|mcp|add|ctxpage|--url|http://127.0.0.1:8700/mcp",
		"gemini": "gemini|mcp|add|--scope|user|--transport|http|ctxpage|http://127.0.0.1:8700/mcp", "vscode": `code|--add-mcp|{"name":"ctxpage","type":"http","url":"http://127.0.0.1:8700/mcp"}`,
	} {
		ok(t, "", "mcp", "config", client, "--http", "127.0.0.1:8700", "--install")
		all := calls()
		require.Equal(t, want, all[len(all)-1])
	}
	path := filepath.Join(must(os.UserConfigDir())(t), "Claude/claude_desktop_config.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("{\"theme\": 1.0e2, \"mcpServers\": {\"mine\": {}}}"), 0o600))
	out := ok(t, "", "mcp", "config", "claude-desktop", file, "--scope", "a", "--install")
	require.Contains(t, out, "backup: ")
	text := readText(t, path)
	require.Contains(t, text, `"theme": 1.0e2`)
	require.Contains(t, text, `"mine": {}`)
	require.Contains(t, text, `"ctxpage": {`)
	require.NoError(t, os.RemoveAll(filepath.Join(home, "bin")))
	r := dbctl("", "mcp", "config", "vscode", file, "--scope", "a", "--install")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "code --add-mcp")
}

func TestMCPConfigRefuses(t *testing.T) {
	clientHome(t)
	for _, c := range []struct{ args, want string }{
		{"mcp config cursor", "expected the database"},
		{"mcp config cursor F", "expected --scope"},
		{"mcp config cursor F --scope a --confirm ann", "give --write, too"},
		{"mcp config cursor F --scope a --write --confirm ann --evaluator supported", "expected one of them"},
		{"mcp config cursor F --scope a --name a.b", "letters, digits"},
		{"mcp config claude-desktop F --scope a --http 127.0.0.1:1", "leave --http out"},
		{"mcp config other F --scope a", "must be one of"},
		{"mcp F", "expected --scope"},
		{"mcp config cursor F --scope a//b", "joined by single slashes"},
		{"mcp F --scope /a", "joined by single slashes"},
	} {
		r := dbctl("", strings.Fields(c.args)...)
		require.Equal(t, exitUsage, r.code, c.args)
		require.Contains(t, r.err, c.want)
	}
}
