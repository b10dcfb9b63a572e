package main

import (
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
