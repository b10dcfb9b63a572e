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
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
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

// Texts in Windows-1252 and UTF-16 are decoded, and a mark is no part of the text. Bytes in an encoding that cannot be told are no
// text.
func TestOf(t *testing.T) {
	encoded := func(e encoding.Encoding, s string) []byte {
		b := must(e.NewEncoder().Bytes([]byte(s)))(t)
		return b
	}
	const german, french, quoted = "Die Größe des Öltanks: 5 m², „sehr groß“.", "L’été, ça dépend — où êtes-vous né ?", "It’s a café"
	for _, text := range []string{"plain", "żółw 🎉", german} {
		for _, e := range []encoding.Encoding{unicode.UTF8BOM, unicode.UTF8, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), unicode.UTF16(unicode.BigEndian, unicode.UseBOM)} {
			got, ok := freshness.PlainText("a.txt", encoded(e, text))
			require.True(t, ok, "%s in %v", text, e)
			require.Equal(t, text, got)
			require.True(t, freshness.BeginsAsText(encoded(e, text), true))
		}
	}
	for _, text := range []string{german, french, quoted, "Caf\u00e9"} {
		got, ok := freshness.PlainText("a.txt", encoded(charmap.Windows1252, text))
		require.True(t, ok, text)
		require.Equal(t, text, got)
	}
	for name, b := range map[string][]byte{
		"KOI8-R": encoded(charmap.KOI8R, "Привет, мир"), "Windows-1251": encoded(charmap.Windows1251, "// Привет, мир\nint main"), "GBK": encoded(simplifiedchinese.GBK, "你好，世界 hello"),
		"Shift JIS": encoded(japanese.ShiftJIS, "こんにちは、世界"), "ISO-8859-2": encoded(charmap.ISO8859_2, "Zażółć gęślą jaźń, proszę bardzo"), "NUL": []byte("a\x00b"), "PNG": []byte("\x89PNG\r\n\x1a\n"),
		"half of UTF-16": []byte("\xff\xfea"), "control": []byte("caf\xe9 and\x01more"),
	} {
		_, ok := freshness.PlainText("a.txt", b)
		require.False(t, ok, name)
	}
	require.True(t, freshness.BeginsAsText([]byte("caf\xc3"), false), "a character that is cut")
	require.False(t, freshness.BeginsAsText([]byte("\x89PNG\r\n\x1a\n"), true))
	require.False(t, freshness.BeginsAsText(nil, true))
}

// A notebook is its cells: text, code, and what the code printed, without images.
func TestNotebook(t *testing.T) {
	got, ok := freshness.PlainText("x/a.ipynb", []byte(`{"cells":[{"cell_type":"markdown","source":["# Arrays\n","How they broadcast."]},
{"cell_type":"code","source":"a + 1","outputs":[{"output_type":"stream","text":["one\n","two\n"]},{"data":{"image/png":"iVBORw0KGgo=","text/plain":["<Figure>"]}},{"ename":"ValueError","evalue":"no","traceback":["\u001b[31m"]}]},
{"cell_type":"code","source":[],"outputs":[]}],"metadata":{"language_info":{"name":"python"}},"nbformat":4}`))
	require.True(t, ok)
	require.Equal(t, "# Arrays\nHow they broadcast.\n\n```python\na + 1\n```\n\n```\none\ntwo\n```\n\n```\n<Figure>\n```\n\n```\nValueError: no\n```\n", got)
	for _, other := range []string{`{"a":1}`, `not JSON`} {
		got, ok = freshness.PlainText("a.ipynb", []byte(other))
		require.True(t, ok)
		require.Equal(t, other, got, "control: no notebook")
	}
}

// A page of HTML is what it says: entities are decoded, markup within a word does not cut it, scripts and styles are left out.
func TestWebPage(t *testing.T) {
	page := "<!DOCTYPE html><html><head><title>Caf&eacute; &amp; bar</title><style>p { color: red }</style><script>if (a < b) { alert('no') }</script></head>" +
		"<body><h1>Our <i>menu</i></h1><!-- not this --><p>A <b>quo</b>kka\n  costs 5&nbsp;&euro;.</p><ul><li>one<li>two</ul>" +
		"<table><tr><th>name</th><td>price</td></tr></table><pre>a = 1\n  b &lt; 2</pre>the end<br>1 < 2 &unknown; &#x1F389;"
	const want = "Café & bar\n\n# Our menu\n\nA quokka costs 5 €.\n\none\ntwo\n\nname price\n\na = 1\n  b < 2\n\nthe end\n1 < 2 &unknown; 🎉\n"
	for _, name := range []string{"a.html", "b.HTM", "c.xhtml"} {
		got, ok := freshness.PlainText(name, []byte(page))
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	got, _ := freshness.PlainText("a.md", []byte(page))
	require.Equal(t, page, got, "control: another file")
	got, ok := freshness.PlainText("empty.html", []byte("<br>"))
	require.True(t, ok)
	require.Equal(t, "\n", got)
}

// Each result is what the tokenizer of golang.org/x/net/html gave. The one difference is that here a script ends at its first end tag, also after a comment
// within it that begins another script.
func TestWebPageMarkup(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"a < b, 3 <4 and <5", "a < b, 3 <4 and <5\n"},
		{"x</", "x</\n"},
		{"x<", "x<\n"},
		{"a<!-->b", "ab\n"},
		{"a<!--->b", "ab\n"},
		{"a<!-- > -- --!>b", "ab\n"},
		{"a<!-- --!-->b", "ab\n"},
		{"a<!-- never", "a\n"},
		{"<!DOCTYPE html>a<?xml version='1.0'?>b<![CDATA[c]]>d", "abd\n"},
		{"a</>b</3 x>c", "abc\n"},
		{"<a title='x > y' href=\"<p>\">link</a>", "link\n"},
		{"<a href=x/>b<br/>c", "b\nc\n"},
		{"<a = '>'>b", "'>b\n"},
		{"<a b='never", "\n"},
		{"<p", "\n"},
		{"<P CLASS=x>a</P\n>b", "a\n\nb\n"},
		{"<h2/>a<h3 id=x>b</h3>c", "a\n\n### b\nc\n"},
		{"<script>if (a</b>0) '</scripts>'</SCRIPT >b", "b\n"},
		{"<style>p{}</style", "\n"},
		{"<title>a <b>&amp;</b></title><textarea>&lt;p></textarea>", "a <b>&</b>\n<p>\n"},
		{"<xmp>&lt;<p></xmp>&lt;<noframes>a<p></noframes>", "&lt;<p><a<p>\n"},
		{"<plaintext>a</plaintext>&amp;", "a</plaintext>&amp;\n"},
		{"<noscript><p>a</noscript>b", "b\n"},
		{"<template>a<template>b</template>c</template>d</template>e", "de\n"},
		{"<pre>a\r\n  b\rc<br>d</pre>  e   f", "a\n  b\nc\nd\n\ne f\n"},
		{"a&nbspb&notit;&#0;&#x80;&;", "a b¬it;�€&;\n"},
		{"<td>a<td>b</td> c<b>d</b> e", "a b cd e\n"},
		{"<p/>a<table/>b", "a\n\nb\n"},
		{"<script><!--<script></script>a", "a\n"},
		{"<script src='a.js'/>a<title/>b", "a\nb\n"}, // as XHTML has it
	} {
		got, ok := freshness.PlainText("a.html", []byte(c.page))
		require.True(t, ok)
		require.Equal(t, c.want, got, "%q", c.page)
	}
}

// A file with the line ends of Windows says what it says with those of other systems; a lone return stays.
func TestLineEndsOfWindows(t *testing.T) {
	for _, b := range []string{"# Title\r\n\r\none\r\ntwo\rthree\r\n", "\xff\xfe#\x00 \x00T\x00i\x00t\x00l\x00e\x00\r\x00\n\x00\r\x00\n\x00o\x00n\x00e\x00\r\x00\n\x00t\x00w\x00o\x00\r\x00t\x00h\x00r\x00e\x00e\x00\r\x00\n\x00"} {
		got, ok := freshness.PlainText("a.md", []byte(b))
		require.True(t, ok)
		require.Equal(t, "# Title\n\none\ntwo\rthree\n", got)
	}
}
