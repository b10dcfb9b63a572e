package dbctl

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

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
