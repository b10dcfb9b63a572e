package anthropicmemory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func open(t testing.TB) *ctxpage.DB {
	t.Helper()
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		problems, err := db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	})
	return db
}

// testCase is one of testdata/cases.json. Its answers are those of the class in Anthropic's Python SDK: cases.py records them, and runs the same
// cases on the Python adapter.
type testCase struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

type step struct {
	Input json.RawMessage `json:"input"`
	Text  *string         `json:"text,omitempty"`
	Error string          `json:"error,omitempty"`
}

// answer runs an input and returns what the model gets.
func answer(tool *Tool, input json.RawMessage) step {
	s := step{Input: input}
	blocks, err := tool.Execute(ctx, input)
	if err != nil {
		s.Error = err.Error()
	} else {
		s.Text = &blocks[0].OfText.Text
	}
	return s
}

func (s step) String() string {
	if s.Text == nil {
		return "error: " + s.Error
	}
	return *s.Text
}

func TestCases(t *testing.T) {
	body, err := os.ReadFile("testdata/cases.json")
	require.NoError(t, err)
	var cases []testCase
	require.NoError(t, json.Unmarshal(body, &cases))
	require.Len(t, cases, 32)
	db := open(t)
	for n, c := range cases {
		tool := New(db.Scope(fmt.Sprintf("case-%d", n)))
		for i, s := range c.Steps {
			require.Equal(t, s.String(), answer(tool, s.Input).String(), "%s, step %d: %s", c.Name, i+1, s.Input)
		}
	}
}

var record = flag.String("record", "", "write the commands and answers of TestRandom to this file, for cases.py to run on upstream's class")

// randomDigest is the digest of what upstream's class answers to the commands of TestRandom: cases.py compares them one by one.
const randomDigest = "c7c7d9cbbd1c82fa"

// TestRandom compares 3,000 random commands with upstream's class.
func TestRandom(t *testing.T) {
	db := open(t)
	cases := randomCases(t, db, "random", answer)
	if *record != "" {
		body, err := json.Marshal(cases)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*record, body, 0o600))
	}
	require.Equal(t, randomDigest, digest(cases))

	// A tool that inserts one line too late is seen.
	broken := randomCases(t, db, "broken", func(tool *Tool, input json.RawMessage) step {
		var c Command
		require.NoError(t, json.Unmarshal(input, &c))
		if c.Command != "insert" {
			return answer(tool, input)
		}
		c.InsertLine++
		text, err := tool.Run(ctx, c)
		if err != nil {
			return step{Input: input, Error: err.Error()}
		}
		return step{Input: input, Text: &text}
	})
	require.NotEqual(t, randomDigest, digest(broken))
}

func digest(cases []testCase) string {
	h := sha256.New()
	for _, c := range cases {
		for _, s := range c.Steps {
			fmt.Fprintf(h, "%s\n%s\n", s.Input, s)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// randomCases runs 30 memories of 100 commands each.
func randomCases(t *testing.T, db *ctxpage.DB, prefix string, run func(*Tool, json.RawMessage) step) []testCase {
	t.Helper()
	cases := make([]testCase, 30)
	for seed := range cases {
		cases[seed].Name = fmt.Sprintf("%s %d", prefix, seed)
		tool, r := New(db.Scope(fmt.Sprintf("%s-%d", prefix, seed))), rand.New(rand.NewPCG(uint64(seed), 1))
		for len(cases[seed].Steps) < 100 {
			input, err := json.Marshal(randomCommand(t, tool, r))
			require.NoError(t, err)
			cases[seed].Steps = append(cases[seed].Steps, run(tool, input))
		}
	}
	return cases
}

// randomCommand makes a command. It makes no file below a file and moves no directory into itself: upstream's class fails there with an error of the
// system. A rename of what does not exist stays at the top: upstream's class makes the new parents before it fails.
func randomCommand(t *testing.T, tool *Tool, r *rand.Rand) map[string]any {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	dirs := []string{"", "/d1", "/d2", "/d1/e", "/.h", "/d2/é"}
	file := func() string { return "/memories" + pick(dirs...) + "/" + pick("a.md", "b.md", "c", ".x") }
	place := func() string {
		if r.IntN(4) == 0 {
			return "/memories" + pick(dirs...)
		}
		return file()
	}
	line := func() string { return pick("one", "two", "one two", "", "é", "x\r", " ", "two one two") }
	text := func() string {
		var b strings.Builder
		for range r.IntN(5) {
			b.WriteString(line() + "\n")
		}
		return b.String() + line()
	}
	switch n := r.IntN(20); {
	case n < 4:
		return map[string]any{"command": "create", "path": file(), "file_text": text()}
	case n < 8:
		c := map[string]any{"command": "view", "path": place()}
		if r.IntN(2) == 0 {
			c["view_range"] = []int{r.IntN(8) - 2, r.IntN(8) - 2}
		}
		return c
	case n < 12:
		return map[string]any{"command": "str_replace", "path": place(), "old_str": pick("one", "two", "o", "one\n", "\r", "é", "absent"), "new_str": text()}
	case n < 16:
		return map[string]any{"command": "insert", "path": place(), "insert_line": r.IntN(7) - 1, "insert_text": text()}
	case n < 18:
		return map[string]any{"command": "delete", "path": place()}
	}
	from, to := place(), place()
	if id, err := idOf(from); err == nil && id != root {
		there, err := tool.isDir(ctx, id)
		require.NoError(t, err)
		v, err := tool.read(ctx, tool.scope, id)
		require.NoError(t, err)
		if v != nil {
			to = file() // no file has the name of a directory
		} else if !there {
			to = "/memories/" + pick("a.md", "z")
		}
	}
	if strings.HasPrefix(to+"/", from+"/") {
		to = "/memories/moved"
	}
	return map[string]any{"command": "rename", "old_path": from, "new_path": to}
}

// What upstream's class fails at with an error of the system, or accepts although it should not.
func TestStricterThanUpstream(t *testing.T) {
	tool := New(open(t).Scope("s"))
	for _, c := range []struct{ input, want string }{
		{`{"command":"create","path":"/memories/a","file_text":"x"}`, "File created successfully at: /memories/a"},
		{`{"command":"create","path":"/memories/a/b/c","file_text":"x"}`, "error: The path /memories/a/b/c is below the file /memories/a"},
		{`{"command":"create","path":"/memories/d/a","file_text":"x"}`, "File created successfully at: /memories/d/a"},
		{`{"command":"rename","old_path":"/memories/d","new_path":"/memories/d/e"}`, "error: Cannot rename /memories/d to /memories/d/e, which is inside it"},
		{`{"command":"rename","old_path":"/memories/d","new_path":"/memories/a/e"}`, "error: The path /memories/a/e is below the file /memories/a"},
		{`{"command":"view","path":"/memoriesX"}`, "error: Path must start with /memories, got: /memoriesX"},
		{`{"command":"create","path":"/memories/x"}`, "error: the command create needs `file_text`, of the type that the memory tool defines"},
		{`{"command":"insert","path":"/memories/x","insert_line":"2","insert_text":[]}`, "error: the command insert needs `insert_text`, of the type that the memory tool defines"},
		{`{"command":"format"}`, `error: unknown command "format"; expected one of view, create, str_replace, insert, delete, rename`},
		{`{}`, `error: unknown command ""; expected one of view, create, str_replace, insert, delete, rename`},
	} {
		require.Equal(t, c.want, answer(tool, json.RawMessage(c.input)).String(), c.input)
	}
	require.Contains(t, answer(tool, json.RawMessage(`[`)).Error, "not a JSON object")
	for _, p := range []string{"/memories/\u0000", "/memories/" + strings.Repeat("x", 600), "/memories/a\nb"} {
		input, err := json.Marshal(map[string]any{"command": "create", "path": p, "file_text": "x"})
		require.NoError(t, err)
		require.NotEmpty(t, answer(tool, input).Error, "%q", p)
	}
	input, err := json.Marshal(map[string]any{"command": "create", "path": "/memories/long", "file_text": strings.Repeat("\n", maxLines)})
	require.NoError(t, err)
	require.Empty(t, answer(tool, input).Error)
	require.Equal(t, "error: File /memories/long exceeds maximum line limit of 999,999 lines.", answer(tool, json.RawMessage(`{"command":"view","path":"/memories/long"}`)).String())
}

func run(t *testing.T, tool *Tool, c Command) string {
	t.Helper()
	text, err := tool.Run(ctx, c)
	require.NoError(t, err)
	return text
}

// Agents that edit one file at the same time lose nothing.
func TestConcurrentEdits(t *testing.T) {
	s := open(t).Scope("s")
	tool := New(s)
	run(t, tool, Command{Command: "create", Path: "/memories/a", FileText: "0\n1\n2\n3\n"})
	var wait sync.WaitGroup
	for n := range 4 {
		wait.Go(func() {
			for {
				if _, err := New(s).Run(ctx, Command{Command: "str_replace", Path: "/memories/a", OldStr: fmt.Sprintf("%d\n", n), NewStr: fmt.Sprintf("done %c\n", 'a'+n)}); err == nil {
					return
				} else if !strings.Contains(err.Error(), "please try again") {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	require.Contains(t, run(t, tool, Command{Command: "view", Path: "/memories/a"}), "     1\tdone a\n     2\tdone b\n     3\tdone c\n     4\tdone d\n")
}

// A context does not show the files, and a scope below has its own.
func TestFilesAreScratch(t *testing.T) {
	db := open(t)
	s := db.Scope("acme")
	tool := New(s)
	run(t, tool, Command{Command: "create", Path: "/memories/refunds.md", FileText: "refunds need a receipt"})
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "refunds receipt", Budget: 1000})
	require.NoError(t, err)
	require.Empty(t, a.Blocks)
	found, err := s.Search(ctx, "refunds receipt", 10)
	require.NoError(t, err)
	require.Empty(t, found.Hits)
	a, err = s.Assemble(ctx, ctxpage.Query{Text: "refunds receipt", Budget: 1000, Floor: store.Scratch})
	require.NoError(t, err)
	require.Len(t, a.Blocks, 1, "asked for, it is there")

	below := New(db.Scope("acme/support"))
	_, err = below.Run(ctx, Command{Command: "view", Path: "/memories/refunds.md"})
	require.EqualError(t, err, "The path /memories/refunds.md does not exist. Please provide a valid path.")
	run(t, below, Command{Command: "create", Path: "/memories/refunds.md", FileText: "own"})
	require.Contains(t, run(t, tool, Command{Command: "view", Path: "/memories/refunds.md"}), "need a receipt")
	require.NoError(t, tool.Clear(ctx))
	require.NotContains(t, run(t, tool, Command{Command: "view", Path: "/memories"}), "refunds")
	require.Contains(t, run(t, below, Command{Command: "view", Path: "/memories"}), "refunds")
}

// Over a gated scope a change is held, and applied when a person approves it.
func TestGate(t *testing.T) {
	db := open(t)
	tool := New(db.Scope("s", ctxpage.Gated()))
	create := Command{Command: "create", Path: "/memories/a", FileText: "x"}
	_, err := tool.Run(ctx, create)
	require.ErrorIs(t, err, store.ErrHeld)
	_, err = tool.Run(ctx, Command{Command: "view", Path: "/memories/a"})
	require.Error(t, err)
	for held, err := range db.Review().Batches(ctx, "s", false) {
		require.NoError(t, err)
		require.Len(t, held.Writes, 1)
		_, err = db.Review().Approve(ctx, held.ID, ctxpage.Approval{By: "ann"})
		require.NoError(t, err)
	}
	require.Contains(t, run(t, tool, Command{Command: "view", Path: "/memories/a"}), "     1\tx")
}

func TestSizes(t *testing.T) {
	for n, want := range map[int]string{0: "0B", 1: "1B", 1023: "1023B", 1024: "1K", 1536: "1.5K", 1 << 20: "1M", 5 << 30: "5G", 3000 << 30: "3000G"} {
		require.Equal(t, want, sizeText(n))
	}
}

func TestDeclare(t *testing.T) {
	tools := []anthropic.BetaToolUnionParam{{OfTool: &anthropic.BetaToolParam{Name: "other"}}, {OfTool: &anthropic.BetaToolParam{Name: "memory"}}}
	Declare(tools)
	Declare(tools)
	body, err := json.Marshal(tools[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"memory_20250818","name":"memory"}`, string(body))
	require.Equal(t, "other", tools[0].OfTool.Name)
}
