package dbctl

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

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
