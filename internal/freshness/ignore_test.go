package freshness_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/freshness"
)

// write makes files of some bytes below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(dir, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// taken returns the files of a directory that a walk takes.
func taken(t *testing.T, dir string) (files []string) {
	t.Helper()
	w := &freshness.Walker{Dir: dir, MaxSize: 1 << 10}
	require.NoError(t, w.Walk(t.Context()))
	for _, f := range w.Files {
		files = append(files, f.Rel)
	}
	slices.Sort(files)
	return files
}

// likeGit requires that a walk takes the files that git would add.
func likeGit(t *testing.T, root, dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		require.NoError(t, exec.Command("git", "init", "-q", root).Run())
	}
	cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "-C", dir, "ls-files", "--others", "--exclude-standard", "-z")
	out := must(cmd.Output())(t)
	want := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	slices.Sort(want)
	require.Equal(t, want, taken(t, dir))
}

// Each case is an ignore file, and files of which those behind a minus are ignored.
func TestIgnore(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ ignore, files string }{
		{"*.log\n!keep.log", "-a.log x/keep.log -x/b.log a.txt"},
		{"/top\ndoc/*.txt", "-top x/top -doc/a.txt doc/x/a.txt x/doc/a.txt"},
		{"build/", "-build/a x/build -x/y/build/a"},
		{"build\n!build/keep", "-build/keep -build/a"},
		{"/*\n!/.gitignore\n!/src\n/src/*\n!/src/keep", "-a -x/a src/keep/a -src/a"},
		{"**/deep\na/**/z\nlog/**", "-deep -x/y/deep -a/z -a/b/c/z b/z -log/a -log/b/c"},
		{"a**b\nx/**y", "-ab -a1b a/b -x/1y x/1/y"},
		{"?.md\n[a-c].txt\n[!x]z\n[[:digit:]]n", "-a.md ab.md -b.txt d.txt -yz xz -7n an"},
		{"\\!a\n\\#b\n#c\nend\\ \nplain ", "-!a -#b c -end\u2420 -plain"},
		{"a\\*b\nc[\n[]]x\n[a-]y", "-a*b axb c[ -]x --y -ay"},
		{"\r\n*.a\r\n\r\n   \n!\n/\n//", "-x.a x.b -y/z.a"},
		{"é?", "-é1 é2é x"},
		{"a/\n*/b/", "-a/x b/x -c/b/x c/d/b/x"},
		{strings.Repeat("*a", 40) + "b", "x/" + strings.Repeat("a", 100)},
	} {
		files := map[string]string{".gitignore": c.ignore}
		want := []string{".gitignore"}
		for name := range strings.SplitSeq(c.files, " ") {
			bare, is := strings.CutPrefix(name, "-")
			if bare = strings.ReplaceAll(bare, "\u2420", " "); !is {
				want = append(want, bare)
			}
			files[bare] = "text"
		}
		slices.Sort(want)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write(t, root, files)
			require.Equal(t, want, taken(t, root), "%q", c.ignore)
			likeGit(t, root, root)
		})
	}
}

// Ignore files of directories below, of directories above the one that is walked, and of a repository count; the nearest decides.
func TestIgnoreNested(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]string{
		".gitignore": "*.tmp\n/in/secret\nout/\n/in/sub/anchored\n", "in/.gitignore": "!keep.tmp\n/here\n", "in/sub/.gitignore": "*\n!.gitignore\n!*.md\n",
		"in/a.tmp": "x", "in/keep.tmp": "x", "in/secret": "x", "in/here": "x", "in/deep/here": "x", "in/sub/anchored": "x", "in/sub/b.md": "x", "in/sub/c": "x",
		"in/not this": "x", "out/.gitignore": "!*", "out/dir/a": "x", ".git/info/exclude": "not this\n", ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/x": "",
	})
	require.Equal(t, []string{".gitignore", "deep/here", "keep.tmp", "sub/.gitignore", "sub/b.md"}, taken(t, filepath.Join(root, "in")))
	for _, dir := range []string{"", "in", "in/sub", "in/deep"} {
		likeGit(t, root, filepath.Join(root, dir))
	}
	require.Empty(t, taken(t, filepath.Join(root, "out/dir")), "a directory in an ignored one")
}

// Random ignore files decide as git does.
func TestIgnoreLikeGit(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(dbtest.MemoryPath(t))
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "a", "b", "/", "/", "*", "**", "?", "[ab]", "[!a]", "[^b]", "[a-b", "]", "\\", "\\*", " ", "!", "-", "[[:alpha:]]", "#"}
	for i := range 400 {
		var ignore strings.Builder
		for range 1 + random.IntN(3) {
			if random.IntN(4) == 0 {
				ignore.WriteString("!")
			}
			for range 1 + random.IntN(6) {
				ignore.WriteString(parts[random.IntN(len(parts))])
			}
			ignore.WriteString("\n")
		}
		text := ignore.String()
		write(t, filepath.Join(root, fmt.Sprint(i)), map[string]string{
			".gitignore": text, "a/a": "x", "a/ab": "x", "a/b/b": "x", "b": "x", "ab": "x", "aa/ab": "x", "ba/a/b/a": "x", "!a": "x", "#b": "x", "a-b": "x", "a*": "x", "bb/a b": "x",
		})
	}
	likeGit(t, root, root)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }
