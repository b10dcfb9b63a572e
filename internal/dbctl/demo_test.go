package dbctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/folder"
)

func facts(t *testing.T, dir string, more ...string) demoView {
	t.Helper()
	if !slices.Contains(more, "--into") {
		more = append(more, "--into", t.TempDir())
	}
	r := dbctl("", append([]string{"demo", dir, "--json"}, more...)...)
	require.Equal(t, exitOK, r.code, r.err)
	var v demoView
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	return v
}

// checkFacts holds what the demo says against the files it left.
func checkFacts(t *testing.T, v demoView) {
	t.Helper()
	require.Positive(t, v.First.Pages)
	require.LessOrEqual(t, v.First.Tokens, demoBudget)
	require.LessOrEqual(t, v.Second.Tokens, demoBudget)
	require.NotEmpty(t, v.Second.Refetched)
	require.Empty(t, v.First.Refetched)
	require.NotEqual(t, v.First.Digest, v.Second.Digest)
	require.True(t, v.WhyIn.In)
	require.False(t, v.WhyOut.In)
	require.NotEmpty(t, v.WhyOut.Steps)
	require.True(t, v.Replay.Same)
	require.True(t, v.Verify.OK)
	require.False(t, v.Held.Visible)
	require.True(t, v.Committed.Visible)

	require.Len(t, ok(t, "", "replay", v.File, v.First.Trace), v.Replay.Bytes)
	ok(t, "", "manifest", "verify", v.File, "--head", v.Verify.Head)
	ok(t, "", "check", v.File)
	require.Contains(t, ok(t, "", "review", "show", v.File, v.Held.Batch), "rejected")
	require.Contains(t, ok(t, "", "manifest", "show", v.File, v.Second.Trace), "dirty, refetched")
	require.NotEmpty(t, ok(t, "", "get", v.File, demoScope, demoAnswer))
	edited, err := os.ReadFile(v.Edited)
	require.NoError(t, err)
	require.Contains(t, string(edited), "after the page was loaded")
}

func TestDemoOnAFolder(t *testing.T) {
	dir := aFolder(t)
	v := facts(t, dir, "--into", filepath.Join(t.TempDir(), "x"))
	checkFacts(t, v)
	require.Equal(t, `What does it say about "How refunds are made"?`, v.Question)
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.NotContains(t, string(readme), "after the page was loaded", "the folder itself is left alone")

	again := facts(t, dir, "--into", filepath.Join(t.TempDir(), "y"), "--question", "within how many days can I return it?")
	checkFacts(t, again)
	require.NotEqual(t, v.First.Trace, again.First.Trace)
	require.Equal(t, exitFailed, dbctl("", "demo", dir, "--into", dir).code, "a folder that is not empty")
}

func TestDemoOnThisRepository(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	v := facts(t, "../..")
	checkFacts(t, v)
	require.Positive(t, v.First.Left, "not all of it fits")
}

func TestDemoForAPerson(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir := aFolder(t)
	v := facts(t, dir)
	r := dbctl("", "demo", dir)
	require.Equal(t, exitOK, r.code, r.err)
	lines := strings.Count(r.out, "\n")
	require.Greater(t, lines, 30)
	require.Less(t, lines, 50)
	require.Contains(t, r.out, v.Question, "the same folder gives the same question")
	require.NotContains(t, r.out, v.First.Trace)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	for _, f := range left {
		require.NotContains(t, f.Name(), "ctxpage-demo-", "nothing stays behind")
	}
	require.Contains(t, r.out, "--into DIR keeps them")
	require.Contains(t, ok(t, "", "demo", dir, "--into", filepath.Join(tmp, "mine")), "dbctl manifest ls "+filepath.Join(tmp, "mine", "demo.ctx"))
	require.FileExists(t, filepath.Join(tmp, "mine", "demo.ctx"))
}

func TestDemoOnSmallFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, files := range map[string]map[string]string{
		"one file":        {"a.txt": "The quick brown fox."},
		"no word":         {"a": "1 2 3\n"},
		"another script":  {"b.txt": "東京は日本の首都です。"},
		"one long line":   {"c.txt": strings.Repeat("refund policy and so on ", 2000)},
		"two of the same": {"a.txt": "the same text", "b.txt": "the same text"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range files {
				write(t, dir, f, text)
			}
			checkFacts(t, facts(t, dir))
		})
	}
	for name, files := range map[string]map[string]string{
		"nothing":     {},
		"only binary": {"x": "a\x00b"},
		"only blank":  {"x": " \n\n"},
		"only empty":  {"x": ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range files {
				write(t, dir, f, text)
			}
			r := dbctl("", "demo", dir)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, "has no text files")
			require.Contains(t, r.err, "dbctl demo DIR")
		})
	}
}

func TestQuestion(t *testing.T) {
	dir := t.TempDir()
	files := func(texts map[string]string) (out []folder.Found) {
		for name, text := range texts {
			write(t, dir, name, text)
		}
		for name := range texts {
			out = append(out, folder.Found{Path: filepath.Join(dir, name), Rel: name})
		}
		return out
	}
	md := "# Title\n\n## Short one\nx\n\n## The `longer` section:\n" + strings.Repeat("words ", 20) + "\n```\n## not a heading of many words here\n" + strings.Repeat("code ", 90) + "\n```\n"
	require.Equal(t, `What does it say about "The longer section"?`, question(files(map[string]string{"a.md": md})))
	require.Equal(t, "What is said about zebra?", question(files(map[string]string{"b.go": "a zebra"})))
	require.Equal(t, "What is in c?", question(files(map[string]string{"c": "1 2 3"})))
}
