package foreign_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/loop"
)

// TestFollower: what comes into a file is imported without reading again what was read, and is in the end what an import of the whole
// file makes. A file that is cut or replaced is read from its beginning.
func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.jsonl")
	user := func(n int) string {
		return fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":"s","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"question %d"}}`+"\n", n, n)
	}
	block := func(n int, text string) string {
		return fmt.Sprintf(`{"type":"assistant","uuid":"a%s","sessionId":"s","timestamp":"2026-01-02T03:04:06Z","message":{"id":"m%d","role":"assistant","content":[{"type":"text","text":"%s"}]}}`+"\n", text, n, text)
	}
	s, content := scopeOf(t), ""
	f := &foreign.Follower{Scope: s}
	next := func(more string) (*foreign.Report, error) {
		t.Helper()
		content += more
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		file := must(os.Open(path))(t)
		defer file.Close()
		return f.Next(t.Context(), file)
	}
	counts := func(more string, want ...int) {
		t.Helper()
		rep := must(next(more))(t)
		require.Equal(t, want, []int{rep.Items, rep.New, rep.Changed})
		require.Equal(t, foreign.ClaudeCode, rep.Format)
	}
	counts(user(1)+user(2)+block(1, "one"), 3, 3, 0)
	counts(block(1, "two"), 1, 0, 1) // a block of the message that waited
	cut := user(3)
	counts(cut[:30], 1, 0, 0)
	counts(cut[30:], 2, 1, 0)
	counts(user(4)+block(2, "three"), 3, 2, 0)
	require.ErrorContains(t, errOf(next(`{"type":"user","uuid":7]`+"\n")), "line 8")
	content = strings.TrimSuffix(content, `{"type":"user","uuid":7]`+"\n")
	counts(block(2, "four"), 1, 0, 1)

	whole := scopeOf(t)
	must(foreign.Import(t.Context(), whole, strings.NewReader(content), foreign.Options{}))(t)
	want := must(loop.Collect(whole.Session("claude-code/s").Turns(t.Context(), 0)))(t)
	got := must(loop.Collect(s.Session("claude-code/s").Turns(t.Context(), 0)))(t)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, []any{want[i].Ref.ID, want[i].Text, want[i].Seq}, []any{got[i].Ref.ID, got[i].Text, got[i].Seq})
	}

	content = ""
	counts(user(1)+user(9), 2, 1, 0) // cut, and written anew
	content = ""
	counts(strings.Repeat(user(1), 20)+user(10), 2, 1, 0) // longer than before, and another file
}
