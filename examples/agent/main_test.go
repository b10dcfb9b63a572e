package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "read" { // the program runs itself as its second process
		main()
		return
	}
	dbtest.CollectLess()
	os.Exit(dbtest.InMemory(m.Run))
}

// Each promise of the first hour, in the order of the story. The second process checks its own and fails otherwise.
func TestFirstHour(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	require.NoError(t, run(t.Context(), &out, dir, 2000, 128_000))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 8, "%s", &out)
	for i, want := range []string{
		`^imported   8 files, 0 failed$`,
		`^chatted    2000 turns, \d{6} tokens; in the window \d{5} tokens of at most 108800: \d{4} turns whole, [1-9]\d* shortened, `,
		`refunds.md#1@1: page in: version 1, clean$`,
		`refunds.md#1@2: page in: its source had changed, so it was fetched anew before use$`,
		`^held       "It takes nine days until a voucher is store credit.": confidence below the gate$`,
		`^approved   by kim: acme/support/dana:voucher-rule@1$`,
		`the same bytes: true$`,
		`^2nd process: 2004 turns; acme/support/dana:voucher-rule@1 is "It takes nine days until a voucher is store credit.", validated; .* verifies$`,
	} {
		require.Regexp(t, want, lines[i])
	}

	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	defer db.Close()
	w, err := db.Scope("acme/support/dana").Session("chat-1").Inspect(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
	var reviewed []ctxpage.Held
	for b, err := range db.Review().Batches(t.Context(), "", true) {
		require.NoError(t, err)
		reviewed = append(reviewed, b)
	}
	require.Len(t, reviewed, 1)
	require.Equal(t, "approved", reviewed[0].Decided)
	require.Equal(t, "kim", reviewed[0].DecidedBy)
	require.InDelta(t, .55, reviewed[0].Confidence, 1e-9)
	problems, err := db.Admin().Check(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// What the second process must find, it looks for: with anything else asked of it, it fails.
func TestReadFindsWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, folder))
	var out bytes.Buffer
	kept, err := work(t.Context(), &out, filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "docs"), 60, 8000)
	require.NoError(t, err)
	look := func(change func(*outcome)) error {
		k := kept
		change(&k)
		task, err := json.Marshal(k)
		require.NoError(t, err)
		return read(t.Context(), &out, string(task))
	}
	require.NoError(t, look(func(*outcome) {}))
	require.ErrorContains(t, look(func(k *outcome) { k.Turns++ }), "the chat is not whole")
	require.ErrorContains(t, look(func(k *outcome) { k.Context = digest("other") }), "the replayed context differs")
	other, err := manifest.ParseHead(kept.Head)
	require.NoError(t, err)
	other.Root[0] ^= 1
	require.ErrorContains(t, look(func(k *outcome) { k.Head = other.String() }), "the log does not agree with the head")
	require.ErrorIs(t, look(func(k *outcome) { k.Answer.ID = "another" }), store.ErrNotFound)
	require.ErrorIs(t, look(func(k *outcome) { k.Path += ".none" }), store.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docs", "refunds.md"), []byte("No refunds.\n"), 0o600))
	require.ErrorIs(t, look(func(*outcome) {}), store.ErrDirty, "what was derived from the file is not served after another edit")
}

// Nothing but ids differs between two runs, and no id is printed.
func TestSameStory(t *testing.T) {
	var first, second bytes.Buffer
	require.NoError(t, play(t.Context(), &first, 200, 16_000))
	require.NoError(t, play(t.Context(), &second, 200, 16_000))
	require.Equal(t, first.String(), second.String())
}

// README and guide show this program: each of their blocks of Go stands in its code, line for line. A line "// …" stands
// for what is left out; indentation is that of the block.
func TestReadme(t *testing.T) {
	for _, name := range []string{"../../README.md", "../../docs/guide.md"} {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		showsTheProgram(t, string(page))
	}
}

func showsTheProgram(t *testing.T, page string) {
	t.Helper()
	code, err := os.ReadFile("main.go")
	require.NoError(t, err)
	blocks := strings.Split(page, "```go\n")[1:]
	found := true
	require.GreaterOrEqual(t, len(blocks), 3)
	lines := 0
	for _, block := range blocks {
		block, _, closed := strings.Cut(block, "```")
		require.True(t, closed)
		rest := string(code)
		for part := range strings.SplitSeq(block, "// …\n") {
			part = strings.TrimRight(strings.TrimLeft(part, "\n"), "\t\n") + "\n"
			rest = "\n" + rest
			lines += strings.Count(part, "\n")
			_, rest, found = strings.Cut(rest, indented(rest, part))
			require.True(t, found, "README shows what main.go does not have, or not in this order:\n%s", part)
		}
	}
	require.Greater(t, lines, 40)
}

// indented is a part as deep as the code has it.
func indented(code, part string) string {
	for _, tabs := range []string{"", "\t", "\t\t"} {
		var b strings.Builder
		for line := range strings.Lines(part) {
			if line != "\n" {
				b.WriteString(tabs)
			}
			b.WriteString(line)
		}
		if deep := "\n" + b.String(); strings.Contains(code, deep) {
			return deep
		}
	}
	return "\x00"
}
