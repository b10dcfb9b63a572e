package dbctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/freshness"
)

// aFolder is a small repository with what an import has to leave out.

// oddFiles reports whether aFolder has a link, for which Windows asks for a privilege, and a name that Windows refuses.
const oddFiles = runtime.GOOS != "windows"

func aFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"README.md":          "# The shop\n\n## How refunds are made\n\nRefunds up to $400 need no approval, above that a person decides.\n",
		"docs/policy.md":     "Return within 30 days.\n",
		"docs/draft.tmp":     "ignored by the pattern of a parent\n",
		"docs/keep.tmp":      "taken back by a pattern below\n",
		"docs/.gitignore":    "!keep.tmp\r\n",
		"build/out.txt":      "ignored with its directory\n",
		"src/build/deep.txt": "ignored at any depth\n",
		"src/main.txt":       "The program.\n",
		".gitignore":         "*.tmp\nbuild/\n# a comment\n/only-here.txt\n",
		"only-here.txt":      "ignored at the root\n",
		"src/only-here.txt":  "taken below it\n",
		".git/config":        "never entered\n",
		"bin.dat":            "a\x00b",
		"koi8.txt":           "\xf0\xd2\xc9\xd7\xc5\xd4",
		"empty.txt":          "",
		"large.txt":          strings.Repeat("large ", 1000),
	} {
		write(t, dir, name, text)
	}
	if oddFiles {
		write(t, dir, "new\nline.txt", "a name that is no id")
		require.NoError(t, os.Symlink("README.md", filepath.Join(dir, "link.md")))
	}
	return dir
}

func imported(t *testing.T, file string) []string {
	t.Helper()
	var ids []string
	for _, it := range asJSON(t, "", "ls", file, "acme/docs")["items"].([]any) {
		ids = append(ids, it.(map[string]any)["id"].(string))
	}
	return ids
}

func TestImport(t *testing.T) {
	dir := aFolder(t)
	file := filepath.Join(dir, "agent.ctx") // in the directory it imports
	ok(t, "", "init", file)
	args := []string{"import", file, "acme/docs", dir, "--max-size", "4000"}

	dry := asJSON(t, "", append(args, "--dry-run")...)
	require.Empty(t, imported(t, file))
	first := asJSON(t, "", args...)
	require.Equal(t, dry["written"], first["written"])
	require.Equal(t, dry["skipped"], first["skipped"])
	skipped := map[string]any{freshness.Ignored: 4.0, freshness.Binary: 2.0, freshness.Empty: 1.0, freshness.Large: 1.0, freshness.Database: 4.0}
	if oddFiles {
		skipped[freshness.Kind], skipped[freshness.Name] = 1.0, 1.0
	}
	require.Equal(t, skipped, first["skipped"])
	want := []string{".gitignore", "README.md", "docs/.gitignore", "docs/keep.tmp", "docs/policy.md", "src/main.txt", "src/only-here.txt"}
	require.Equal(t, want, imported(t, file))

	v := asJSON(t, "", "get", file, "acme/docs", "docs/policy.md")
	require.Equal(t, "chunk", v["kind"])
	require.Equal(t, "chunk", v["provenance"])
	require.Equal(t, "docs/policy.md", v["group"])
	require.Equal(t, "file:"+filepath.ToSlash(filepath.Join(dir, "docs/policy.md")), v["source"])

	// The second run writes nothing.
	lsn := asJSON(t, "", "stat", file)["lsn"]
	second := asJSON(t, "", args...)
	require.Equal(t, 0.0, second["written"])
	require.Equal(t, 7.0, second["unchanged"])
	require.Equal(t, lsn, asJSON(t, "", "stat", file)["lsn"])

	// The third writes what changed and reports what is gone.
	write(t, dir, "docs/policy.md", "Return within 14 days.\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "src/main.txt")))
	third := asJSON(t, "", args...)
	require.Equal(t, 1.0, third["written"])
	require.Equal(t, []any{"src/main.txt"}, third["removed"])
	require.Contains(t, imported(t, file), "src/main.txt", "only --delete deletes")
	asJSON(t, "", append(args, "--delete", "--dry-run")...)
	require.Contains(t, imported(t, file), "src/main.txt")
	require.Equal(t, 1.0, asJSON(t, "", append(args, "--delete")...)["deleted"])
	require.NotContains(t, imported(t, file), "src/main.txt")

	// A read notices an edit by itself, and without the recorded directory it does not read there.
	write(t, dir, "docs/policy.md", "Return within 7 days.\n")
	require.Equal(t, exitFailed, dbctl("", "get", file, "acme/docs", "docs/policy.md", "--no-roots").code)
	require.Equal(t, exitFailed, dbctl("", "get", file, "acme/docs", "docs/policy.md", "--read-only").code)
	require.Equal(t, "Return within 7 days.\n", ok(t, "", "get", file, "acme/docs", "docs/policy.md"))
	ok(t, "", "check", file)
}

// A file that is not in the database although it is in the directory can be found by its name and the reason.
func TestImportNamesWhatItSkips(t *testing.T) {
	dir, file := aFolder(t), newDB(t)
	const many = importNames + 3
	for i := range many {
		write(t, dir, fmt.Sprintf("images/%02d.png", i), "\x00")
	}
	args := []string{"import", file, "acme/docs", dir, "--max-size", "4000", "--dry-run"}

	v := asJSON(t, "", args...)
	reasons := map[string]string{}
	counts := map[string]any{}
	for _, f := range v["skipped_files"].([]any) {
		path, reason := f.(map[string]any)["path"].(string), f.(map[string]any)["reason"].(string)
		reasons[path] = reason
		n, _ := counts[reason].(float64)
		counts[reason] = n + 1
	}
	require.Equal(t, v["skipped"], counts, "each file that is counted is named")
	for path, reason := range map[string]string{
		"bin.dat": freshness.Binary, "koi8.txt": freshness.Binary, "empty.txt": freshness.Empty, "large.txt": freshness.Large,
		"docs/draft.tmp": freshness.Ignored, "build": freshness.Ignored, "src/build": freshness.Ignored, "only-here.txt": freshness.Ignored, "images/22.png": freshness.Binary,
	} {
		require.Equal(t, reason, reasons[path], path)
	}
	require.NotContains(t, reasons, "README.md")

	plain := ok(t, "", args...)
	if oddFiles {
		require.Equal(t, []string{freshness.Name, freshness.Kind}, []string{reasons["new\nline.txt"], reasons["link.md"]})
		require.Contains(t, plain, "  new line.txt\n", "a name must not steer the terminal")
	}
	require.Contains(t, plain, "skipped 1: "+freshness.Large+"\n  large.txt\n")
	require.Contains(t, plain, fmt.Sprintf("skipped %d: %s\n  bin.dat\n", many+2, freshness.Binary))
	require.Contains(t, plain, "  images/18.png\n  and 5 more; --verbose names them all\n")
	require.NotContains(t, plain, "koi8.txt")
	all := ok(t, "", append(args, "-v")...)
	require.Contains(t, all, "  images/22.png\n  koi8.txt\n")
	require.NotContains(t, all, "more;")
}

func TestImportRefuses(t *testing.T) {
	file := newDB(t)
	dir := t.TempDir()
	write(t, dir, "a.txt", `{"x":1}`)
	for says, args := range map[string][]string{
		"does not exist":  {"import", file, "acme", filepath.Join(dir, "nowhere")},
		"like none of":    {"import", file, "acme", filepath.Join(dir, "a.txt")},
		"--max-size":      {"import", file, "acme", dir, "--max-size", "0"},
		"--prefix":        {"import", file, "acme", dir, "--prefix", "\n"},
		"single slashes":  {"import", file, "acme//x", dir},
		"dbctl init FILE": {"import", filepath.Join(dir, "no.ctx"), "acme", dir},
		"<scope>":         {"import", file},
	} {
		r := dbctl("", args...)
		require.NotEqual(t, exitOK, r.code, args)
		require.Contains(t, r.err, says)
	}
}

// What could not be read is not gone.
func TestImportKeepsWhatItCannotRead(t *testing.T) {
	im := &importer{prefix: "p/", walker: &freshness.Walker{Dir: "/d", Unread: []string{"secret"}}, have: map[string]stored{
		"p/secret/a": {source: "file:/d/secret/a"}, "p/secrets": {source: "file:/d/secrets"}, "p/other": {source: "file:/elsewhere/other"}, "p/own": {},
	}}
	require.NoError(t, im.gone(context.Background()))
	require.Equal(t, []string{"p/secrets"}, im.out.Removed)
}

// Cancelled in the middle, the database holds whole transactions, and a second run finishes.
func TestImportCancelled(t *testing.T) {
	dir := t.TempDir()
	const files = importFiles + 50
	for i := range files {
		write(t, dir, fmt.Sprintf("f%04d.txt", i), fmt.Sprint("text number ", i))
	}
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	db := must(ctxpage.Open(file, ctxpage.Options{FileRoots: []string{dir}}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	w := &freshness.Walker{Dir: dir, MaxSize: 1000}
	require.NoError(t, w.Walk(ctx))
	im := &importer{scope: db.Scope("acme/docs"), walker: w, progress: func(_ string, done, _ uint64) {
		if done == importFiles+10 {
			cancel()
		}
	}}
	err := im.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, importFiles, im.out.Written)
	require.NoError(t, db.Close())
	require.Equal(t, exitInterrupted, (&app{out: io.Discard, err: io.Discard}).report(err))
	ok(t, "", "check", file)

	v := asJSON(t, "", "import", file, "acme/docs", dir)
	require.Equal(t, float64(files-importFiles), v["written"])
	require.Equal(t, float64(importFiles), v["unchanged"])
}

func TestProgressIsOnStandardErrorOnly(t *testing.T) {
	dir := aFolder(t)
	file := newDB(t)
	quiet := dbctl("", "import", file, "acme/a", dir)
	require.Equal(t, exitOK, quiet.code)
	require.Empty(t, quiet.err, "no terminal, no bar")
	shown := dbctl("", "import", file, "acme/b", dir, "--progress")
	require.Contains(t, shown.err, "import")
	require.NotContains(t, shown.out, "%")
	require.Empty(t, dbctl("", "import", file, "acme/c", dir, "--progress", "--json").err)
}

// Patterns from the root of the repository down to the directory count when a part of it is imported.
func TestWalkHonoursTheRepositoryAbove(t *testing.T) {
	root := aFolder(t)
	write(t, root, ".git/info/exclude", "policy.md\n")
	w := &freshness.Walker{Dir: filepath.Join(root, "docs"), MaxSize: 4000}
	require.NoError(t, w.Walk(context.Background()))
	var got []string
	for _, f := range w.Files {
		got = append(got, f.Rel)
	}
	slices.Sort(got)
	require.Equal(t, []string{".gitignore", "keep.tmp"}, got)

	w = &freshness.Walker{Dir: root, MaxSize: 4000, MaxFiles: 2}
	require.NoError(t, w.Walk(context.Background()))
	require.Len(t, w.Files, 2)
	require.Positive(t, w.Counts()[freshness.Limit])
}

// TestImportOddFiles: a name in another Unicode form is one artefact, which a second import leaves alone, and a refresh takes no
// file that an import does not.
func TestImportOddFiles(t *testing.T) {
	dir, file := t.TempDir(), newDB(t)
	for name, text := range map[string]string{
		"plan.md": "The plan.", "a\u0308.md": "decomposed", "\u00e4.md": "composed", "o\u0308.md": "alone", "mark.txt": "\ufeff", "cells.ipynb": `{"nbformat":4,"cells":[]}`,
		"half.txt": "\xff\xfea", "surrogate.txt": "\xff\xfe\x00\xd8a\x00",
	} {
		write(t, dir, name, text)
	}
	first := asJSON(t, "", "import", file, "acme", dir)
	require.Equal(t, 3.0, first["written"])
	require.Equal(t, map[string]any{freshness.Twin: 1.0, freshness.Empty: 2.0, freshness.Binary: 2.0}, first["skipped"])
	second := asJSON(t, "", "import", file, "acme", dir)
	require.Equal(t, []any{0.0, 3.0}, []any{second["written"], second["unchanged"]})
	refreshed := asJSON(t, "", "refresh", file, "acme")
	require.Empty(t, refreshed["failed"])
	require.Empty(t, refreshed["new"])
	require.NoError(t, os.Remove(filepath.Join(dir, "o\u0308.md")))
	require.Equal(t, []any{"\u00f6.md"}, asJSON(t, "", "import", file, "acme", dir)["removed"])
}
