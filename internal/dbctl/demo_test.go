package dbctl

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
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
	require.Contains(t, ok(t, "", "demo", dir, "--into", filepath.Join(tmp, "mine")), "dbctl manifest verify "+command(filepath.Join(tmp, "mine", "demo.ctx")))
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
	dir := t.TempDir()
	for _, f := range []string{"a", "b"} {
		write(t, dir, f, strings.Repeat(f+" ", 300_000))
	}
	require.Contains(t, ok(t, "", "demo", dir), "\n  1200000 bytes\n")
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

// The tests in this file read a database that an application wrote, which named its file roots in Options.FileRoots and
// recorded nothing.

// memo is a source of the application that dbctl does not have.
type memo struct{}

func (memo) Probe(_ context.Context, _ string, have store.Validator) (store.Validator, error) {
	return store.Validator{Stamp: "1"}, nil
}

func (memo) Fetch(_ context.Context, key string) (store.Fetched, error) {
	return store.Fetched{Text: "Memo " + key + ": refunds of oceans take a week.", Validator: store.Validator{Stamp: "1"}}, nil
}

// applied is the application: it imports three files of two directories, keeps a conversation, asks, and ends. It returns its
// database, its directory and the trace of its question.
func applied(t testing.TB) (file, docs, trace string) {
	t.Helper()
	ctx := t.Context()
	docs = filepath.Join(t.TempDir(), "docs")
	write(t, docs, "a/refunds.md", "Refunds up to $400 need no approval.")
	write(t, docs, "b/limits.md", "The refund limit is raised on Monday.")
	write(t, docs, "b/tariffs.md", "Tariffs rise in May.")
	file = filepath.Join(t.TempDir(), "app.ctx")
	db := must(ctxpage.Open(file, ctxpage.Options{FileRoots: []string{docs}, Sources: map[string]store.Source{"memo": memo{}}}))(t)
	s := db.Scope("acme/support")
	for _, name := range []string{"a/refunds.md", "b/limits.md", "b/tariffs.md"} {
		must(s.Put(ctx, ctxpage.Artefact{ID: filepath.Base(name), Source: "file:" + filepath.Join(docs, name)}))(t)
	}
	must(s.Put(ctx, ctxpage.Artefact{ID: "memo", Source: "memo:12"}))(t)
	chat := s.Session("chat-1")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	for _, text := range []string{"What may I refund?", "The weather is fine.", "Tariffs rise in May.", "And what of parcels?"} {
		must(chat.Append(ctx, ctxpage.Turn{Role: "user", Text: text}))(t)
	}
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}, Params: session.CompatParams()}))(t)
	a := must(s.Assemble(ctx, ctxpage.Query{Text: "refund limit", Budget: 4000, Session: "chat-1"}))(t)
	require.NoError(t, db.Close())
	return file, docs, a.Trace
}

type countsJSON struct {
	Hits   []hitView   `json:"hits"`
	Left   []leftView  `json:"left"`
	Counts []countView `json:"left_counts"`
}

func counted(t testing.TB, r result) (c countsJSON, by map[string]int) {
	t.Helper()
	require.Zero(t, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &c))
	by = map[string]int{}
	for _, n := range c.Counts {
		by[n.Reason] = n.Count
	}
	return c, by
}

// documents counts the hits that are no turns.
func (c *countsJSON) documents() (n int) {
	for _, h := range c.Hits {
		if !strings.Contains(h.Ref, "chat-1") {
			n++
		}
	}
	return n
}

const (
	noRoot   = "unchecked: no file root allows its source"
	noScheme = "unchecked: the scheme of its source is not registered"
)

func TestApplicationDatabaseDoesNotLookEmpty(t *testing.T) {
	file, docs, _ := applied(t)

	r := dbctl("", "search", file, "acme/support", "refund")
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.out, "nothing found")
	require.Contains(t, r.err, "3 left out: 2 "+noRoot+", 1 "+noScheme)
	require.Contains(t, r.err, "--root "+docs+" lets this call read the files; --check never shows what is stored")
	require.Contains(t, r.err, "file:"+filepath.ToSlash(docs)+"/")

	c, by := counted(t, dbctl("", "search", file, "acme/support", "refund", "--json"))
	require.Equal(t, map[string]int{noRoot: 2, noScheme: 1}, by)
	require.Len(t, c.Left, 3)
	for _, l := range c.Left {
		require.Contains(t, l.Detail, "source", "%+v", l)
	}
	require.Contains(t, c.Counts[0].Advice, "--root "+docs)

	r = dbctl("", "assemble", file, "acme/support", "refund limit")
	require.Zero(t, r.code)
	require.Contains(t, r.err, noRoot)
	require.Contains(t, r.err, "--root "+docs)
	_, by = counted(t, dbctl("", "assemble", file, "acme/support", "refund limit", "--json"))
	require.Equal(t, 3, by[noRoot], "%v", by)
	require.Equal(t, 1, by[noScheme])

	r = dbctl("", "get", file, "acme/support", "refunds.md")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "--root DIR allows one")

	t.Run("with its roots", func(t *testing.T) {
		c, by := counted(t, dbctl("", "search", file, "acme/support", "refund", "--json", "--root", docs))
		require.Equal(t, 2, c.documents())
		require.Equal(t, map[string]int{noScheme: 1}, by)
		require.Contains(t, dbctl("", "search", file, "acme/support", "refund", "--root", docs+"/a", "--root", docs+"/b").out, "limits.md")
		require.Contains(t, dbctl("", "assemble", file, "acme/support", "refund limit", "--root", docs).out, "Refunds up to $400")
		require.Contains(t, dbctl("", "get", file, "acme/support", "refunds.md", "--root", docs).out, "Refunds up to $400")
		require.Contains(t, dbctl("", "handoff", file, "acme/support", "chat-1", "--root", docs, "--format", "json").out, "verified_sources")
		require.Equal(t, exitUsage, dbctl("", "search", file, "acme/support", "refund", "--root", docs+"/none").code)
		require.NotContains(t, dbctl("", "stat", file).out, docs, "what a reader allowed is not recorded")
	})
	t.Run("as stored", func(t *testing.T) {
		c, by := counted(t, dbctl("", "search", file, "acme/support", "refund", "--json", "--check", "never"))
		require.Equal(t, 3, c.documents())
		require.Empty(t, by)
	})
	t.Run("read-only", func(t *testing.T) {
		_, by := counted(t, dbctl("", "search", file, "acme/support", "refund", "--json", "--read-only"))
		require.Equal(t, 2, by[noRoot])
		write(t, docs, "a/refunds.md", "Refunds up to $500 need no approval, they say.")
		_, by = counted(t, dbctl("", "search", file, "acme/support", "refund", "--json", "--read-only", "--root", docs))
		require.Equal(t, 1, by["dirty: a read-only database does not refetch"], "%v", by)
	})
	t.Run("nothing matches", func(t *testing.T) {
		r := dbctl("", "search", file, "acme/support", "zebra", "--root", docs)
		require.Equal(t, "nothing found\n", r.out)
		require.Empty(t, r.err)
	})
}

// A trace is named by its beginning; why tells of a turn what the session did with it.
func TestTracePrefixAndTurns(t *testing.T) {
	file, _, trace := applied(t)
	short := trace[:22]
	for _, args := range [][]string{
		{"why", file, short, "block-chat-1-2"}, {"replay", file, strings.ToLower(short)}, {"diff", file, short, trace}, {"manifest", "show", file, short},
		{"manifest", "ls", file, "--trace", short}, {"rollback", file, "acme/support", "--trace", short, "--dry-run"},
	} {
		r := dbctl("", args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
	}
	r := dbctl("", "manifest", "show", file, "0")
	require.Zero(t, r.code)
	r = dbctl("", "replay", file, trace[:2])
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected more of it")
	require.Contains(t, r.err, trace[:2])
	r = dbctl("", "why", file, trace, "block-chat-1-2")
	require.Contains(t, r.out, "session: a turn of chat-1, left out: evicted by pass 1")
	require.Contains(t, r.out, "pass 1: evict: ")
	require.NotContains(t, r.out, "score 0.000")

	for _, turn := range [][]string{
		{`an answer`, "--role", "assistant", "--trace", strings.ToLower(short)}, {`{"role":"assistant","text":"another","trace":"` + short + `"}`, "--jsonl"},
	} {
		before := len(asJSON(t, "", "manifest", "ls", file, "--trace", trace, "--type", "commit")["leaves"].([]any))
		ok(t, turn[0], append([]string{"session", "append", file, "acme/support", "chat-1"}, turn[1:]...)...)
		require.Len(t, asJSON(t, "", "manifest", "ls", file, "--trace", trace, "--type", "commit")["leaves"], before+1, "it stands under the whole trace")
	}
	r = dbctl("an answer", "session", "append", file, "acme/support", "chat-1", "--role", "assistant", "--trace", trace[:2])
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "expected more of it")
}
