package dbctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/stretchr/testify/require"
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

const claudeLines = `{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"where is the quokka manual?"}}
{"type":"assistant","uuid":"u2","sessionId":"s1","timestamp":"2026-01-02T03:04:06Z","message":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"In the zebra drawer."}]}}
`

// written is the path of a file that write made.
func written(t testing.TB, dir, name, text string) string {
	write(t, dir, name, text)
	return filepath.Join(dir, name)
}

// A transcript becomes a session that is named, listed and asked about; the search says how to see it, and promote raises it.
func TestImportTranscript(t *testing.T) {
	file := newDB(t)
	path := written(t, t.TempDir(), "talk.jsonl", claudeLines)
	require.Equal(t, exitUsage, dbctl(claudeLines, "session", "append", file, "acme/dev", "s", "--jsonl").code)
	require.Contains(t, ok(t, "", "import", file, "acme/dev", path), "1 session: claude-code/s1\n")
	require.Equal(t, "claude-code/s1\n", ok(t, "", "session", "ls", file, "acme/dev"))
	require.Contains(t, ok(t, "", "session", "show", file, "acme/dev", "claude-code/s1"), "2 turns")
	require.Contains(t, ok(t, "", "assemble", file, "acme/dev", "where is it?", "--session", "claude-code/s1"), "In the zebra drawer.")
	r := dbctl("", "search", file, "acme/dev", "zebra")
	require.Contains(t, r.err, "2 below the provenance floor")
	require.Contains(t, r.err, "--floor scratch shows them, dbctl promote raises them")
	r = dbctl("", "search", file, "acme/dev", "zebra", "--floor", "scratch")
	require.Contains(t, r.err, "a question with --session shows them in their conversation")
	memory := written(t, t.TempDir(), "mem0.json", `[{"id":"a","memory":"Ann saw a zebra","user_id":"ann"}]`)
	ok(t, "", "import", file, "acme/dev", memory)
	require.Contains(t, ok(t, "", "search", file, "acme/dev", "zebra", "--floor", "scratch"), "Ann saw a zebra")

	require.Equal(t, exitUsage, dbctl("", "promote", file, "acme/dev", "--by", "ann").code, "no selection")
	args := []string{"promote", file, "acme/dev", "--meta", "import.source=claude-code", "--by", "ann", "--why", "read"}
	require.Len(t, asJSON(t, "", append(args, "--dry-run")...)["refs"], 2)
	require.Contains(t, ok(t, "", "search", file, "acme/dev", "zebra"), "nothing to show")
	require.Len(t, asJSON(t, "", args...)["refs"], 2)
	require.Contains(t, ok(t, "", "search", file, "acme/dev", "zebra"), "In the zebra drawer.")

	ok(t, "", "session", "append", file, "acme/dev", "mine", "list the files")
	mine := written(t, t.TempDir(), "mine.jsonl", `{"role":"user","content":"list the files"}`)
	r = dbctl("", "import", file, "acme/dev", mine, "--session", "mine")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "1 left out: their session has turns from elsewhere")
	ok(t, "", "import", file, "acme/dev", mine)
	require.Contains(t, ok(t, "", "session", "ls", file, "acme/dev"), "openai/mine\n")
}

// A message without words does not refuse the others: other blocks get a word, and a blank message is named and left out.
func TestAppendWithoutWords(t *testing.T) {
	file := newDB(t)
	r := dbctl(`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"}]}
{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}
{"role":"user","content":[{"type":"text","text":"\n\n"}]}
{"role":"user","content":"hi"}`, "session", "append", file, "acme/dev", "s", "--jsonl")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "turn 3, line 3, left out: it has no words")
	out := ok(t, "", "session", "export", file, "acme/dev", "s", "--format", "anthropic")
	require.Equal(t, 3, strings.Count(out, "\n"))
	require.Contains(t, out, `"data":"AAAA"`, "the block is kept")
	require.Equal(t, exitUsage, dbctl(`{"role":"user","content":"hi"}`+"\n"+`{"role":"user","content":7}`, "session", "append", file, "acme/dev", "s", "--jsonl").code, "control")
}

// --follow imports what is written: through a cut last line, a file replaced by another, and one that is missing for a while. It ends
// without an error.
func TestImportFollow(t *testing.T) {
	file, dir := newDB(t), t.TempDir()
	lines := strings.SplitAfter(claudeLines, "\n")
	path := written(t, dir, "talk.jsonl", lines[0]+lines[1][:40])
	ctx, end := context.WithCancel(t.Context())
	out := newPipe()
	a := &app{globals: globals{JSON: true}, ctx: ctx, out: out, err: os.Stderr, now: time.Now}
	done := make(chan error, 1)
	go func() {
		done <- (&importCmd{File: file, Scope: "acme/dev", Path: []string{path}, Trust: "scratch", MaxSize: 1 << 20, Follow: true}).Run(a)
	}()
	next := func(want int) {
		t.Helper()
		var rep struct{ New, Items int }
		require.NoError(t, json.Unmarshal([]byte(out.line(t)), &rep))
		require.Equal(t, []int{1, want}, []int{rep.New, rep.Items})
	}
	next(1)
	write(t, dir, "talk.jsonl", claudeLines)
	next(2)
	require.NoError(t, os.Rename(path, path+".old"))
	third := `{"type":"user","uuid":"u3","sessionId":"s1","timestamp":"2026-01-02T03:04:07Z","message":{"role":"user","content":"thanks"}}` + "\n"
	write(t, dir, "new", claudeLines+third)
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), path))
	next(2) // the turn that waited for further blocks, and the new one
	end()
	require.NoError(t, <-done)
	require.Equal(t, "claude-code/s1\n", ok(t, "", "session", "ls", file, "acme/dev"))
}

// Texts in other encodings and notebooks are imported as text, also by the refetch after a change; a name that the database keeps for
// itself is skipped.
func TestImportEncodings(t *testing.T) {
	file, dir := newDB(t), t.TempDir()
	latin, wide := "caf\xe9 au lait", "\xff\xfet\x00e\x00a\x00"
	for name, text := range map[string]string{
		"latin.txt": latin, "wide.txt": wide, "mark.md": "\ufeff# Title", "ctxpage:x.md": "reserved",
		"a.ipynb": `{"cells":[{"cell_type":"code","source":["print(6*7)"],"outputs":[{"text":["42\n"]},{"data":{"image/png":"` + strings.Repeat("iVBOR", 300_000) + `"}}]}],"metadata":{}}`,
	} {
		write(t, dir, name, text)
	}
	v := asJSON(t, "", "import", file, "acme/docs", dir)
	require.Equal(t, 4.0, v["written"])
	require.Contains(t, v["skipped_files"], map[string]any{"path": "ctxpage:x.md", "reason": "name is not usable as an id"})
	for id, want := range map[string]string{"latin.txt": "café au lait", "wide.txt": "tea", "mark.md": "# Title", "a.ipynb": "```\nprint(6*7)\n```\n\n```\n42\n```\n"} {
		require.Equal(t, want, asJSON(t, "", "get", file, "acme/docs", id)["text"])
	}
	require.Equal(t, 4.0, asJSON(t, "", "import", file, "acme/docs", dir)["unchanged"])
	write(t, dir, "latin.txt", "th\xe9 vert")
	require.Equal(t, "thé vert", asJSON(t, "", "get", file, "acme/docs", "latin.txt")["text"])
	write(t, dir, "new.txt", "\xfe\xff\x00n\x00e\x00w")
	ok(t, "", "refresh", file, "acme/docs")
	require.Equal(t, "new", asJSON(t, "", "get", file, "acme/docs", "new.txt")["text"])
}

// A named pipe that nobody writes to does not keep a command waiting.
func TestNamedPipe(t *testing.T) {
	dbtest.NeedsPosix(t, "named pipes in a folder")
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, dbtest.Mkfifo(pipe))
	require.NotZero(t, dbctl("", "erase", "verify", pipe).code)
	require.NotZero(t, dbctl("", "import", newDB(t), "acme/docs", pipe, "--from", "openai").code)
}
