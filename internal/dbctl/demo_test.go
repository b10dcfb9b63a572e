package dbctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// step is the result of the nth command of a verb.
func (v demoView) step(t *testing.T, verb string, n int) map[string]any {
	t.Helper()
	for _, s := range v.Steps {
		if strings.HasPrefix(s.Command, "dbctl "+verb+" ") {
			if n--; n < 0 {
				return s.Result
			}
		}
	}
	t.Fatalf("no such step: %s", verb)
	return nil
}

// checkFacts compares what the demo prints with the files it left.
func checkFacts(t *testing.T, v demoView) {
	t.Helper()
	first, second := v.step(t, "assemble", 0), v.step(t, "assemble", 1)
	require.NotEqual(t, first["digest"], second["digest"])
	require.Equal(t, true, v.step(t, "why", 0)["in"])
	require.Equal(t, false, v.step(t, "why", 1)["in"])
	require.Equal(t, true, v.step(t, "replay", 0)["same"])
	require.Equal(t, true, v.step(t, "manifest verify", 0)["ok"])
	require.EqualValues(t, v.step(t, "replay", 0)["bytes"], len(ok(t, "", "replay", v.File, first["trace"].(string))))
	ok(t, "", "check", v.File)
	require.Contains(t, ok(t, "", "review", "show", v.File, v.step(t, "commit", 0)["batch"].(string)), "rejected")
	require.Contains(t, ok(t, "", "manifest", "show", v.File, second["trace"].(string)), "dirty, refetched")
	require.NotEmpty(t, ok(t, "", "get", v.File, "demo/files", "answer"))
	edited := must(os.ReadFile(v.Edited))(t)
	require.Contains(t, string(edited), "after the page was loaded")
}

func TestDemoOnAFolder(t *testing.T) {
	dir := aFolder(t)
	v := facts(t, dir, "--into", filepath.Join(t.TempDir(), "x"))
	checkFacts(t, v)
	require.True(t, v.Noticed)
	require.Equal(t, `What does it say about "How refunds are made"?`, v.Question)
	readme := must(os.ReadFile(filepath.Join(dir, "README.md")))(t)
	require.NotContains(t, string(readme), "after the page was loaded", "the folder itself is left alone")

	again := facts(t, dir, "--into", filepath.Join(t.TempDir(), "y"), "--question", "within how many days can I return it?")
	checkFacts(t, again)
	require.NotEqual(t, v.step(t, "assemble", 0)["trace"], again.step(t, "assemble", 0)["trace"])
	require.Equal(t, exitFailed, dbctl("", "demo", dir, "--into", dir).code, "a folder that is not empty")
}

func TestDemoForAPerson(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp) // of Windows
	dir := aFolder(t)
	v := facts(t, dir)
	r := dbctl("", "demo", dir)
	require.Equal(t, exitOK, r.code, r.err)
	lines := strings.Count(r.out, "\n")
	require.Greater(t, lines, 30)
	require.Less(t, lines, 80)
	require.Contains(t, r.out, v.Question, "the same folder gives the same question")
	require.NotContains(t, r.out, v.step(t, "assemble", 0)["trace"])
	left := must(os.ReadDir(tmp))(t)
	for _, f := range left {
		require.NotContains(t, f.Name(), "ctxpage-demo-", "nothing stays behind")
	}
	require.Contains(t, r.out, "--into DIR keeps them")
	require.Regexp(t, `(?s)\| (\S+) opens each page: .*\| \S+ from .*\| \S+ end\n`, r.out, "it shows the first context")
	require.Contains(t, ok(t, "", "demo", dir, "--into", filepath.Join(tmp, "mine")), "dbctl manifest verify "+shellWords([]string{filepath.Join(tmp, "mine", "demo.ctx")}))
	require.FileExists(t, filepath.Join(tmp, "mine", "demo.ctx"))
}

func TestDemoOnSmallFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR")) // of Windows
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
