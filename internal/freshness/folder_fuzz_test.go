package freshness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/freshness"
)

// FuzzWalk walks a folder with any ignore file, in the repository and below it, and a file of any name and content. What is
// found lies in the folder, was not reached by a link, and is found again; every other entry is told with a reason.
func FuzzWalk(f *testing.F) {
	for _, ignore := range []string{"", "*.log\n!keep.log\n", "/sub/\n", "**/a\r\n# note\n\\#x\n", "[", "!", "a**b\\", "sub/**", "\xff\n/", strings.Repeat("*/", 40)} {
		f.Add(ignore, "*.md\n", "note.md", []byte("text of a note"))
	}
	f.Add("", "", "..", []byte("\x00"))
	f.Add("x", "y", "line\nbreak", []byte("\xff\xfe"))
	f.Fuzz(func(t *testing.T, ignore, below, name string, content []byte) {
		root := t.TempDir()
		secret := filepath.Join(root, "secret.txt")
		dir := filepath.Join(root, "repo", "in")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
		require.NoError(t, os.Mkdir(filepath.Join(root, "repo", ".git"), 0o700))
		for path, text := range map[string]string{
			secret: "not to be found", filepath.Join(root, "repo", ".gitignore"): ignore, filepath.Join(dir, "sub", ".gitignore"): below,
			filepath.Join(dir, "plain"): "plain text",
		} {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		require.NoError(t, os.Symlink(secret, filepath.Join(dir, "sub", "link")))
		if name != "" && !strings.ContainsAny(name, "/\x00") && name != "." && name != ".." && name != ".gitignore" && name != "link" {
			_ = os.WriteFile(filepath.Join(dir, "sub", name), content, 0o600) // a name that the file system takes
		}
		walk := func() *freshness.Walker {
			w := &freshness.Walker{Dir: dir, MaxSize: 1 << 10, Usable: utf8.ValidString}
			require.NoError(t, w.Walk(t.Context()))
			return w
		}
		w := walk()
		require.Equal(t, w.Files, walk().Files)
		told := map[string]bool{}
		for _, x := range w.Files {
			st := must(os.Lstat(x.Path))(t)
			require.True(t, st.Mode().IsRegular() && st.Size() == x.Size && x.Size > 0 && x.Size <= w.MaxSize)
			require.Equal(t, filepath.Join(dir, filepath.FromSlash(x.Rel)), x.Path)
			require.True(t, utf8.ValidString(x.Rel))
			if text, _, skip := freshness.ReadText(x.Path); skip == "" {
				require.True(t, utf8.ValidString(text) && len(text) > 0)
				require.NotContains(t, string(text), "not to be found")
			}
			told[x.Rel] = true
		}
		for _, x := range w.Skipped {
			require.NotEmpty(t, x.Reason)
			told[x.Path] = true
		}
		entries := must(os.ReadDir(filepath.Join(dir, "sub")))(t)
		for _, e := range entries {
			require.True(t, told["sub/"+e.Name()] || told["sub"] || e.Name() == ".git", "nothing is said of %q", e.Name())
		}
		require.True(t, told["plain"])
	})
}
