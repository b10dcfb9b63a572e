package dbctl

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
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
