package dbctl

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A host starts dbctl mcp on a database that is not there yet, writes with an evaluator, and ends it by closing the pipe.
func TestMCPServesAHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	t.Setenv(stubEnv, "evaluator")
	host := func(args ...string) *mcp.ClientSession {
		cmd := exec.Command(os.Args[0], append([]string{"mcp", file, "--scope", "acme"}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		return must(mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil))(t)
	}
	s := host("--write", "--actor", "model", "--evaluator", os.Args[0])
	put := func(id string) string {
		res := must(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "put", Arguments: map[string]any{"writes": []any{map[string]any{"id": id, "text": "Refund it."}}}}))(t)
		b := must(json.Marshal(res))(t)
		return string(b)
	}
	require.Contains(t, put("answer"), `\"status\":\"committed\"`)
	require.Contains(t, put("other"), `evaluator `, "a program that says nothing judges nothing: %s")
	require.NoError(t, s.Close())

	s = host()
	got := must(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "get", Arguments: map[string]any{"ref": "answer"}}))(t)
	require.False(t, got.IsError)
	require.NoError(t, s.Close())

	db, err := ctxpage.Open(file, ctxpage.Options{MustExist: true, LockTimeout: time.Minute})
	require.NoError(t, err, "the server let go of the file")
	require.NoError(t, db.Close())
}

func TestMCPRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	token := strings.Repeat("t", 16)
	for _, c := range []struct{ args, token, want string }{
		{"mcp " + file + " --scope acme", "", "no database at this path"},
		{"mcp " + file + " --scope acme --confirm ann", "", "give --write, too"},
		{"mcp " + file + " --scope acme --write --http 0.0.0.0:0", token, "expected a loopback address"},
		{"mcp " + file + " --scope acme --http 127.0.0.1:0", "", "bearer token of at least 16 bytes"},
		{"mcp " + file + " --scope acme --http 127.0.0.1:0", token[1:], "bearer token of at least 16 bytes"},
		{"mcp " + file + " --scope acme --http 127.0.0.1:0", strings.Repeat(" ", 20), "bearer token of at least 16 bytes"},
		{"mcp " + file + " --scope acme --summarizer-cmd " + filepath.Join(t.TempDir(), "none"), "", "expected a program"},
	} {
		t.Setenv(mcpTokenVariable, c.token)
		var out, errs bytes.Buffer
		code := Tool{}.Run(strings.Fields(c.args), strings.NewReader(""), &out, &errs)
		require.NotZero(t, code, c.args)
		require.Contains(t, errs.String(), c.want)
	}
}

// A server ends with its parent.
func TestMCPEndsWithItsParent(t *testing.T) {
	ended := make(chan struct{})
	calls := 0
	go untilOrphan(t.Context(), func() { close(ended) }, func() int {
		calls++
		return min(1, calls/3) // the third look finds another parent
	}, time.Millisecond)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the server outlives its parent")
	}
}

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

// The skill has the form of agentskills.io, and every verb, flag and tool that it names exists.
func TestSkill(t *testing.T) {
	const file = "skills/ctxpage/SKILL.md"
	text := must(os.ReadFile(file))(t)
	head, body, ok := strings.Cut(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
	require.True(t, ok && strings.HasPrefix(string(text), "---\n"), "front matter")
	fields := map[string]string{}
	for line := range strings.Lines(head) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, ok, line)
		fields[name] = value
	}
	require.Equal(t, filepath.Base(filepath.Dir(file)), fields["name"])
	require.Regexp(t, `^[a-z0-9]+(-[a-z0-9]+)*$`, fields["name"])
	require.NotEmpty(t, fields["description"])
	require.LessOrEqual(t, len(fields["description"]), 1024)
	require.LessOrEqual(t, len(fields["compatibility"]), 500)
	for name := range fields {
		require.Contains(t, []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}, name)
	}
	require.Less(t, strings.Count(body, "\n"), 500)

	lines := regexp.MustCompile("`dbctl ([^`]+)`").FindAllStringSubmatch(body, -1)
	require.Greater(t, len(lines), 10)
	for _, l := range lines {
		requireVerb(t, strings.Fields(l[1]))
	}
	require.NotEqual(t, exitOK, dbctl("", "help", "nonsense").code, "the control")
	host := skillServer(t)
	tools := toolNames(t, host)
	for _, tool := range tools {
		require.Contains(t, body, "`"+tool+"`", "the skill says nothing of the tool")
	}
	for _, l := range regexp.MustCompile("(?:tool|Call|call) `([a-z]+)`").FindAllStringSubmatch(body, -1) {
		require.Contains(t, tools, l[1], "no such tool")
	}
	requireExamples(t, host, tools, body)
}

// requireExamples wants an example of each tool, with arguments that the tool takes.
func requireExamples(t *testing.T, host *mcp.ClientSession, tools []string, body string) {
	t.Helper()
	refused := func(tool, args string) string {
		res, err := host.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		require.NoError(t, err, "%s %s", tool, args)
		if text := res.Content[0].(*mcp.TextContent).Text; strings.Contains(text, "arguments") {
			return text
		}
		return ""
	}
	shown := map[string]bool{}
	for _, l := range regexp.MustCompile(`(?m)^([a-z]+) (\{.*\})$`).FindAllStringSubmatch(body, -1) {
		require.Contains(t, tools, l[1])
		require.Empty(t, refused(l[1], l[2]))
		shown[l[1]] = true
	}
	for _, tool := range tools {
		require.True(t, shown[tool], "the skill has no example of %s", tool)
	}
	require.Contains(t, refused("put", `{"id": "x", "text": "y"}`), `got the field "id"`, "the control")
}

// requireVerb wants the words before the first placeholder to be a verb, and the flags to be its flags.
func requireVerb(t *testing.T, words []string) {
	t.Helper()
	var verb []string
	for _, w := range words {
		if w != strings.ToLower(w) || strings.HasPrefix(w, "-") {
			break
		}
		verb = append(verb, w)
	}
	require.NotEmpty(t, verb)
	r := dbctl("", append([]string{"help"}, verb...)...)
	require.Equal(t, exitOK, r.code, "%v: %s", verb, r.err)
	for _, w := range words {
		if strings.HasPrefix(w, "--") {
			require.Contains(t, r.out, w, "%v", verb)
		}
	}
}

func skillServer(t *testing.T) *mcp.ClientSession {
	t.Helper()
	cmd := exec.Command(os.Args[0], "mcp", filepath.Join(t.TempDir(), "agent.ctx"), "--scope", "acme/support", "--write")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	s := must(mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func toolNames(t *testing.T, s *mcp.ClientSession) (names []string) {
	t.Helper()
	for tool, err := range s.Tools(context.Background(), nil) {
		require.NoError(t, err)
		names = append(names, tool.Name)
	}
	require.Len(t, names, 8)
	return names
}
