package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChat(t *testing.T) {
	var out strings.Builder
	require.NoError(t, chat(t.Context(), &out, filepath.Join(t.TempDir(), "agent.ctx"), 1000, 32_000))
	require.Contains(t, out.String(), "1000 turns, ")
	require.Contains(t, out.String(), "within its limit: true\nfirst words: Question 0: what is the refund")
	require.NotContains(t, out.String(), " 0 out of the window")
}

// The README shows this program: each statement of its snippet on a session stands here, error handling apart.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	code, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, snippet, found := strings.Cut(string(readme), "chat := s.Session(\"chat-1\")\n")
	require.True(t, found)
	snippet, _, _ = strings.Cut(snippet, "```")
	lines := 0
	for line := range strings.SplitSeq(snippet, "\n") {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "   //")
		line = strings.TrimSuffix(line, " return err }") // the program has it on a line of its own
		if line == "" || strings.HasPrefix(line, "if err != nil") {
			continue
		}
		lines++
		require.True(t, strings.Contains(string(code), line), "%s", line)
	}
	require.Greater(t, lines, 5)
}
