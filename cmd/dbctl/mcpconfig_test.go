package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientHome is a home directory with nothing in it.
func clientHome(t *testing.T) string {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"} {
		t.Setenv(name, "")
	}
	return home
}

func readText(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// The user's file of each client is found, made, and emptied again.
func TestMCPConfigOfEachClient(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the paths are those of Linux")
	}
	home := clientHome(t)
	for client, want := range map[string]struct{ path, container, typ string }{
		"claude-desktop": {".config/Claude/claude_desktop_config.json", "mcpServers", ""},
		"claude-code":    {".claude.json", "mcpServers", "stdio"},
		"cursor":         {".cursor/mcp.json", "mcpServers", ""},
		"vscode":         {".config/Code/User/mcp.json", "servers", "stdio"},
		"gemini":         {".gemini/settings.json", "mcpServers", ""},
	} {
		out := ok(t, "", "mcp", "config", client, "agent.ctx", "--scope=-odd", "--actor", "model", "--write")
		require.NoFileExists(t, filepath.Join(home, want.path), "printing writes nothing")
		ok(t, "", "mcp", "config", client, "agent.ctx", "--scope=-odd", "--actor", "model", "--write", "--install")
		text := readText(t, filepath.Join(home, want.path))
		require.Equal(t, out, text, client)
		var v map[string]map[string]serverEntry
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		e := v[want.container]["ctxpage"]
		require.Equal(t, want.typ, e.Type, client)
		require.True(t, filepath.IsAbs(e.Command))
		require.True(t, filepath.IsAbs(e.Args[2]))
		require.Equal(t, []string{"--scope=-odd", "--actor=model", "--write"}, e.Args[3:])
		require.Contains(t, ok(t, "", "mcp", "config", client, "--uninstall"), "removed from")
		require.NotContains(t, readText(t, filepath.Join(home, want.path)), "agent.ctx")
	}
	ok(t, "", "mcp", "config", "codex", "agent.ctx", "--scope", "acme", "--install")
	require.Contains(t, readText(t, filepath.Join(home, ".codex/config.toml")), "[mcp_servers.ctxpage]\ncommand = ")
}

const cursorFile = `{
    "mcpServers": {
        "zeta": {"command": "npx", "args": ["-y", "zeta"], "env": {"KEY": "<&>"}},
        "alpha": {
            "url": "https://example.com/mcp"
        }
    },
    "aNumber": 1.0e2,
    "unknown": [1,2,   3]
}
`

// Only the entry changes; the rest of the file stays byte for byte, and a removal restores it.
func TestMCPConfigKeepsTheRest(t *testing.T) {
	home := clientHome(t)
	path := filepath.Join(home, ".cursor", "mcp.json")
	for name, text := range map[string]string{
		"indented": cursorFile,
		"one line": `{"mcpServers": {"zeta": {"command": "npx"}}, "b": 1, "a": 2}`,
		"tabs":     "{\n\t\"mcpServers\": {\n\t\t\"zeta\": {\n\t\t\t\"command\": \"npx\"\n\t\t}\n\t}\n}",
		"windows":  strings.ReplaceAll(cursorFile, "\n", "\r\n"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o640))
		install := []string{"mcp", "config", "cursor", "agent.ctx", "--scope", "acme"}
		dry := ok(t, "", append(install, "--install", "--dry-run")...)
		require.Contains(t, dry, "@@ -")
		require.Equal(t, text, readText(t, path), "a dry run writes nothing")
		v := asJSON(t, "", append(install, "--install")...)
		require.Equal(t, text, readText(t, v["backup"].(string)), name)
		got := readText(t, path)
		require.True(t, json.Valid([]byte(got)), got)
		require.Contains(t, got, "--scope=acme")
		require.Equal(t, strings.Contains(text, "\r\n"), strings.Count(got, "\r\n") == strings.Count(got, "\n") && strings.Contains(got, "\n"), name)
		if strings.Contains(text, "1.0e2") {
			require.Contains(t, got, `"zeta": {"command": "npx", "args": ["-y", "zeta"], "env": {"KEY": "<&>"}}`)
			require.Contains(t, got, "[1,2,   3]")
		}
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o640), fi.Mode().Perm())
		require.Contains(t, ok(t, "", append(install, "--install")...), "unchanged", "a second time changes nothing")
		ok(t, "", "mcp", "config", "cursor", "agent.ctx", "--scope", "other", "--install")
		require.NotContains(t, readText(t, path), "--scope=acme", "there is one entry")
		ok(t, "", "mcp", "config", "cursor", "--uninstall")
		require.Equal(t, text, readText(t, path), "%s: as before", name)
	}
}

// What the user added to the entry outlives another installation.
func TestMCPConfigKeepsTheUsersKeys(t *testing.T) {
	home := clientHome(t)
	path := filepath.Join(home, "servers.json")
	require.NoError(t, os.WriteFile(path, []byte(`{
  "mcpServers": {
    "ctxpage": {
      "command": "old",
      "env": {"CTXPAGE": "1"},
      "url": "http://127.0.0.1:1/mcp",
      "alwaysAllow": ["get"]
    }
  }
}`), 0o600))
	ok(t, "", "mcp", "config", "cursor", "agent.ctx", "--scope", "acme", "--config", path, "--install")
	got := readText(t, path)
	require.Contains(t, got, `"alwaysAllow"`)
	require.Contains(t, got, `"CTXPAGE": "1"`)
	require.NotContains(t, got, `"url"`)
	require.NotContains(t, got, `"old"`)

	path = filepath.Join(home, "config.toml")
	require.NoError(t, os.WriteFile(path, []byte("[mcp_servers.ctxpage]\ncommand = \"old\"\nargs = [\n  \"a\", # b]\n]\nstartup_timeout_sec = 20\n[mcp_servers.ctxpage.env]\nurl = \"mine\"\n"), 0o600))
	ok(t, "", "mcp", "config", "codex", "agent.ctx", "--scope", "acme", "--config", path, "--install")
	got = readText(t, path)
	require.Contains(t, got, "startup_timeout_sec = 20\n[mcp_servers.ctxpage.env]\nurl = \"mine\"\n")
	require.NotContains(t, got, `"old"`)
	require.Equal(t, 1, strings.Count(got, "args = "))
}

const codexFile = `model = "gpt-5" # [mcp_servers.ctxpage] in a comment
notes = """
[mcp_servers.ctxpage]
not a table
"""
list = [
  ["a"],
  ["b"],
]

[mcp_servers.other]
command = "npx"

# about profiles
[profiles.fast]
model = "small"
`

func TestMCPConfigOfCodex(t *testing.T) {
	home := clientHome(t)
	path := filepath.Join(home, ".codex", "config.toml")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(codexFile), 0o600))
	install := []string{"mcp", "config", "codex", "agent.ctx", "--scope", "a\"\x7f\\ü", "--install"}
	ok(t, "", install...)
	got := readText(t, path)
	require.True(t, strings.HasPrefix(got, codexFile))
	require.Contains(t, got, "\n[mcp_servers.ctxpage]\ncommand = ")
	require.Contains(t, got, `"--scope=a\"\u007f\\ü"`)
	require.Contains(t, ok(t, "", install...), "unchanged")
	ok(t, "", "mcp", "config", "codex", "--uninstall")
	require.Equal(t, codexFile, readText(t, path))
}

// Keys may be quoted and escaped, and a text of several lines may end in a quote of its own.
func TestMCPConfigOfOddTOML(t *testing.T) {
	path := filepath.Join(clientHome(t), "file")
	install := []string{"mcp", "config", "codex", "agent.ctx", "--scope", "a", "--config", path, "--install"}
	require.NoError(t, os.WriteFile(path, []byte("[mcp_servers.\"ctx\\u0070age\"]\ncommand = \"old\"\nenabled = true\n"), 0o600))
	ok(t, "", install...)
	got := readText(t, path)
	require.Equal(t, 1, strings.Count(got, "[mcp_servers"), got)
	require.NotContains(t, got, "old")
	require.Contains(t, got, "enabled = true")

	odd := "a = \"\"\"x\"\"\"\"\r\nb = '''y'''''\r\n"
	require.NoError(t, os.WriteFile(path, []byte(odd), 0o600))
	ok(t, "", install...)
	got = readText(t, path)
	require.Equal(t, strings.Count(got, "\n"), strings.Count(got, "\r\n"), "%q", got)
	ok(t, "", "mcp", "config", "codex", "--config", path, "--uninstall")
	require.Equal(t, odd, readText(t, path))
}

// What cannot be edited is not touched, and the block to paste is printed.
func TestMCPConfigRefuses(t *testing.T) {
	home := clientHome(t)
	for _, c := range []struct{ client, text, want string }{
		{"vscode", "{\n  // mine\n  \"servers\": {}\n}", "without comments"},
		{"cursor", `{"mcpServers": {},}`, "plain JSON"},
		{"cursor", `[]`, "expected an object"},
		{"cursor", `{"mcpServers": []}`, "expected an object"},
		{"cursor", `{"mcpServers": {}, "mcpServers": {}}`, "occurs twice"},
		{"codex", "mcp_servers = {other = {command = \"x\"}}\n", "expected a table"},
		{"codex", "mcp_servers.ctxpage.command = \"x\"\n", "expected a table"},
		{"codex", "[mcp_servers]\nctxpage = {command = \"x\"}\n", "expected a table"},
		{"codex", "[[mcp_servers.ctxpage]]\ncommand = \"x\"\n", "expected one table"},
		{"codex", "x = \"\"\"\nno end\n", "no end"},
		{"codex", "[mcp_servers.ctxpage.env]\nA = \"1\"\n", "expected one table"},
		{"codex", "[mcp_servers.ctxpage.env]\nA = \"1\"\n[mcp_servers.ctxpage]\ncommand = \"x\"\n", "expected one table"},
	} {
		path := filepath.Join(home, "file")
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		r := dbctl("", "mcp", "config", c.client, "agent.ctx", "--scope", "acme", "--config", path, "--install")
		require.Equal(t, exitFailed, r.code, c.text)
		require.Contains(t, r.err, c.want)
		require.Contains(t, r.err, "--scope=acme", "the block to paste")
		require.Equal(t, c.text, readText(t, path))
	}
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no backup of what was not changed")
	for _, c := range []struct{ args, want string }{
		{"mcp config cursor", "expected the database"},
		{"mcp config cursor F", "expected --scope"},
		{"mcp config cursor F --scope a --confirm ann", "give --write, too"},
		{"mcp config cursor F --scope a --dry-run", "give --install or --uninstall"},
		{"mcp config cursor F --scope a --name a.b", "letters, digits"},
		{"mcp config claude-desktop F --scope a --http 127.0.0.1:1", "leave --http out"},
		{"mcp config other F --scope a", "must be one of"},
		{"mcp F", "expected --scope"},
	} {
		r := dbctl("", strings.Fields(c.args)...)
		require.Equal(t, exitUsage, r.code, c.args)
		require.Contains(t, r.err, c.want)
	}
}

// A linked file is edited where it is, and a file that a client changed meanwhile is left alone.
func TestMCPConfigOfALinkAndARace(t *testing.T) {
	home := clientHome(t)
	real, link := filepath.Join(home, "real.json"), filepath.Join(home, ".claude.json")
	require.NoError(t, os.WriteFile(real, []byte("{}"), 0o600))
	require.NoError(t, os.Symlink(real, link))
	ok(t, "", "mcp", "config", "claude-code", "agent.ctx", "--scope", "acme", "--http", "127.0.0.1:8700", "--install")
	fi, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, fi.Mode()&os.ModeSymlink)
	require.Contains(t, readText(t, real), `"url": "http://127.0.0.1:8700/mcp"`)

	f, err := readConfig(link)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(real, []byte(`{"client": "wrote"}`), 0o600))
	_, err = f.replace([]byte("{}"), time.Now())
	require.ErrorContains(t, err, "changed while it was edited")
	require.Equal(t, `{"client": "wrote"}`, readText(t, real))
}
