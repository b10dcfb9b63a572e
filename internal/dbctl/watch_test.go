package dbctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// watching is a dbctl watch in a process of its own.
type watching struct {
	cmd   *exec.Cmd
	lines *bufio.Reader
}

func startWatch(t *testing.T, args ...string) *watching {
	t.Helper()
	w := &watching{cmd: exec.Command(os.Args[0], append([]string{"watch", "--json"}, args...)...)}
	w.cmd.Env = append(os.Environ(), childEnv+"=1")
	w.cmd.Stderr = os.Stderr
	out := must(w.cmd.StdoutPipe())(t)
	require.NoError(t, w.cmd.Start())
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	w.lines = bufio.NewReader(out)
	require.Equal(t, "headroom", w.next(t).Kind)
	return w
}

// next waits for the next line.
func (w *watching) next(t *testing.T) (e struct{ Kind string }) {
	t.Helper()
	line := must(w.lines.ReadString('\n'))(t)
	require.NoError(t, json.Unmarshal([]byte(line), &e))
	return e
}

// until reads events up to one of a kind.
func (w *watching) until(t *testing.T, kind string) (n int) {
	t.Helper()
	for n = 1; w.next(t).Kind != kind; n++ {
	}
	return n
}

// words is an answer that no other repeats, long enough for a summary.
func words(n int) string {
	var b strings.Builder
	for i := range 120 {
		fmt.Fprintf(&b, "point %d of %d: w%d\n", i, n, n*31+i*17)
	}
	return b.String()
}

// TestWatchBesideServe: an agent appends at the socket of dbctl serve. serve makes room ahead of need, and dbctl watch, in a
// process of its own, shows it.
func TestWatchBesideServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	s := startServe(t, file, "--stdin")
	require.Contains(t, s.post(t, "session/limit", `{"session":"chat","total":60000,"keep_last":2,"reserve_percent":30}`, asHost), `"usable":42000`)
	limits := session.Config{Total: 60_000, Reserve: 300_000}.Thresholds()
	w := startWatch(t, file, "acme", "chat")
	window := func() (v windowView) {
		require.NoError(t, json.Unmarshal([]byte(s.post(t, "session/window", `{"session":"chat"}`)), &v))
		return v
	}
	id := "" // of the turn that matters
	for rounds, n := 0, 0; rounds < 4; rounds++ {
		for before := window(); ; n++ {
			turn := must(json.Marshal(map[string]any{"session": "chat", "turns": []any{map[string]any{"id": fmt.Sprint("t", n), "role": "assistant", "text": words(n), "priority": map[bool]string{true: "critical", false: "low"}[n == 0], "relevance": 0.4}}}))(t)
			require.Contains(t, s.post(t, "session/append", string(turn), asHost), "refs")
			if id == "" {
				id = fmt.Sprint("t", n)
			}
			after := window()
			if before.Tokens+after.Stored-before.Stored > limits.Trigger {
				n++
				break
			}
		}
		w.until(t, "headroom_ok")
	}
	kinds := map[string]int{}
	for _, p := range asJSON(t, "", "session", "passes", file, "acme", "chat")["passes"].([]any) {
		kinds[p.(map[string]any)["kind"].(string)]++
	}
	require.Equal(t, map[string]int{session.PassWatcher: 4}, kinds, "passes ahead of need, and none that a commit had to make")
	for _, turn := range window().Turns {
		if turn.ID == id {
			require.Equal(t, "raw", turn.Level, "critical")
		}
	}
	require.Contains(t, s.post(t, "session/append", `{"session":"chat","turns":[{"role":"user","text":"x","priority":"top"}]}`, asHost), "low, medium, high or critical")
	require.Contains(t, s.post(t, "session/limit", `{"session":"chat","total":60000,"reserve_percent":100}`, asHost), "below 100")

	// What the watcher was told to do with a summarizer of its own.
	interrupt(t, w.cmd)
	model := chatModel(t)
	w = startWatch(t, file, "acme", "chat", "--summarizer", model.URL+"/v1#small")
	for n, passes := 1000, 0; model.calls.Load() == 0; n++ {
		require.Less(t, passes, 20, "of so many passes none had a turn summarised")
		turn := must(json.Marshal(map[string]any{"session": "chat", "turns": []any{map[string]any{"role": "assistant", "text": words(n)}}}))(t)
		before := window()
		require.Contains(t, s.post(t, "session/append", string(turn), asHost), "refs")
		if after := window(); before.Tokens+after.Stored-before.Stored > limits.Trigger {
			w.until(t, "headroom_ok")
			passes++
		}
	}
}

// fakeModel answers as a chat endpoint does.
type fakeModel struct {
	*httptest.Server
	calls atomic.Int64
	asked atomic.Pointer[map[string]any] // the newest request; the owner asks for several at once
}

func chatModel(t *testing.T) *fakeModel {
	m := &fakeModel{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.calls.Add(1)
		var asked map[string]any
		if r.URL.Path != "/v1/chat/completions" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		m.asked.Store(&asked)
		fmt.Fprint(w, `{"choices":[{"message":{"content":" In short. "}}]}`)
	}))
	t.Cleanup(m.Close)
	return m
}

func TestSummarizers(t *testing.T) {
	model := chatModel(t)
	a := &app{}
	t.Setenv(summarizerKey, "secret")
	require.NoError(t, (&summarizerFlags{Summarizer: model.URL + "/v1#small%20one"}).summarizeWith(a))
	require.Equal(t, "small one", a.summarizer.Name())
	out := must(a.summarizer.Summarize(t.Context(), "a long text", 50))(t)
	require.Equal(t, "In short.", out)
	require.Equal(t, "small one", (*model.asked.Load())["model"])
	require.EqualValues(t, 50, (*model.asked.Load())["max_tokens"])
	require.NoError(t, (&summarizerFlags{Summarizer: model.URL + "/v2#m"}).summarizeWith(a))
	_, err := a.summarizer.Summarize(t.Context(), "a long text", 50)
	require.ErrorContains(t, err, "400")
	require.NotContains(t, err.Error(), "secret")

	t.Setenv(stubEnv, "summarizer")
	require.NoError(t, (&summarizerFlags{SummarizerCmd: os.Args[0]}).summarizeWith(a))
	out = must(a.summarizer.Summarize(t.Context(), "a long text", 50))(t)
	require.Equal(t, "50 of a long text", out)

	for _, bad := range []summarizerFlags{{Summarizer: "http://x/v1"}, {Summarizer: "x#m"}, {Summarizer: "ftp://x#m"}, {Summarizer: "http://x#m", SummarizerCmd: "y"}} {
		require.Error(t, bad.summarizeWith(a))
	}
}

// TestHookMakesThePassThatIsDue: hooks are processes of one event each. Without an owner that stays, each makes the room that
// the next one needs.
func TestHookMakesThePassThatIsDue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	for n := range 60 {
		event := must(json.Marshal(map[string]any{"session_id": "chat", "hook_event_name": "Stop", "last_assistant_message": words(n)}))(t)
		ok(t, string(event), "hook", file, "--scope", "acme", "--strict", "--window", "60000", "--reserve", "30", "--priority", "low", "--relevance", "0.3")
	}
	db := must(ctxpage.Open(file, ctxpage.Options{ReadOnly: true}))(t)
	defer db.Close()
	w := must(db.Scope("acme").Session("chat").Inspect(t.Context()))(t)
	require.Equal(t, 42_000, w.Limits.Usable)
	passes := must(db.Scope("acme").Session("chat").Passes(t.Context()))(t)
	require.NotEmpty(t, passes)
	for _, p := range passes {
		require.Equal(t, session.PassWatcher, p.Kind)
	}
	require.Equal(t, exitUsage, dbctl("{}", "hook", file, "--scope", "acme", "--strict", "--reserve", "30").code)
	require.Equal(t, exitUsage, dbctl("{}", "hook", file, "--scope", "acme", "--strict", "--window", "100", "--reserve", "130").code)
}

// TestPriorityOfTurns: what the watcher does first with turns can be said from the command line.
func TestPriorityOfTurns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "session", "append", file, "acme", "chat", "--role", "assistant", "--id", "a", "--priority", "critical", "--relevance", "0.9", words(1))
	ok(t, `{"id":"b","role":"assistant","text":"what","priority":"low","relevance":0.1}`, "session", "append", file, "acme", "chat", "--jsonl")
	require.Equal(t, exitUsage, dbctl("", "session", "append", file, "acme", "chat", "--priority", "top", "x").code)
	require.Equal(t, exitUsage, dbctl("", "session", "append", file, "acme", "chat", "--relevance", "2", "x").code)
	require.Equal(t, exitUsage, dbctl(`{"role":"user","text":"x","priority":"top"}`, "session", "append", file, "acme", "chat", "--jsonl").code)
	db := must(ctxpage.Open(file, ctxpage.Options{ReadOnly: true}))(t)
	defer db.Close()
	for id, want := range map[string]store.Priority{"a": store.PriorityCritical, "b": store.PriorityLow} {
		v := must(db.Scope("acme").Get(t.Context(), id))(t)
		require.Equal(t, want, v.Priority)
		require.NotNil(t, v.Relevance)
	}
}

// liveWriter starts an agent in a process of its own and ends it with the test.
func liveWriter(t *testing.T, file string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+file)
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())(t)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		require.NoError(t, cmd.Wait(), "the agent was not disturbed")
	})
	said := must(bufio.NewReader(out).ReadString('\n'))(t)
	require.Equal(t, "ready\n", said)
	return cmd.Process
}

func TestManifestBesideALiveAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	liveWriter(t, file)
	var head string
	for range 4 {
		v := asJSON(t, "", "manifest", "ls", file, "--limit", "5")
		require.Len(t, v["leaves"], 5)
		h := asJSON(t, "", "manifest", "head", file)
		require.Equal(t, "what is readable now", h["covers"])
		if head != "" {
			ok(t, "", "manifest", "verify", file, "--head", head)
			ok(t, "", "manifest", "prove", file, "--from", head)
			ok(t, "", "manifest", "prove", file, "0", "--head", head)
		}
		head = h["head"].(string)
		trace := v["leaves"].([]any)[0].(map[string]any)["trace"].(string)
		show := asJSON(t, "", "manifest", "show", file, trace)
		require.NotEmpty(t, show["leaves"])
	}
	require.Contains(t, ok(t, "", "manifest", "show", file, asJSON(t, "", "manifest", "ls", file, "--type", "search")["leaves"].([]any)[0].(map[string]any)["trace"].(string)), "acme/live:note-")
}

// at is a value in decoded JSON: a key of a map, or a number of a list, for each part of the path.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			require.Contains(t, v, p)
			v = v.(map[string]any)[p]
		case int:
			require.Greater(t, len(v.([]any)), p, "%v", v)
			v = v.([]any)[p]
		}
	}
	return v
}

// Every verb that reads says beside an agent that goes on writing what it would say alone, also when it opens the file read-only,
// and sees what the agent wrote a moment ago.
func TestReadersBesideALiveAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	agent := liveWriter(t, file)
	ok(t, "", "put", file, "acme/live", "by-hand", "the zebra is white")
	ok(t, "", "put", file, "acme/live", "by-hand", "the zebra is striped")
	size := func() float64 { return asJSON(t, "", "manifest", "head", file)["size"].(float64) }
	begun := size()
	read := func(args ...string) map[string]any {
		t.Helper()
		r := dbctl("", append(args, "--wait", "0s", "--json")...)
		require.Equal(t, exitOK, r.code, "%v: %s", args, r.err)
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.out), &v), r.out)
		return v
	}
	for _, readOnly := range [][]string{nil, {"--read-only"}} {
		with := func(args ...string) map[string]any { t.Helper(); return read(append(args, readOnly...)...) }
		require.Equal(t, "the zebra is striped", with("get", file, "acme/live", "by-hand")["text"])
		require.Equal(t, "the zebra is white", with("get", file, "acme/live", "by-hand@1")["text"])
		require.Equal(t, "the zebra is striped", at(t, with("search", file, "acme/live", "zebra"), "hits", 0, "text"))
		require.Contains(t, at(t, with("assemble", file, "acme/live", "which zebra is striped?"), "text"), "the zebra is striped")
	}
	require.Equal(t, "acme/live:by-hand#1@2", at(t, read("search", file, "acme/live", "zebra"), "hits", 0, "ref"))
	first := read("assemble", file, "acme/live", "which zebra is striped?", "--budget", "2000")
	trace := first["trace"].(string)
	second := read("assemble", file, "acme/live", "what is note 7?")["trace"].(string)
	require.Equal(t, true, read("why", file, trace, "acme/live:by-hand")["in"])
	replayed := read("replay", file, trace)
	require.Equal(t, true, replayed["same"])
	require.Equal(t, first["text"], replayed["text"], "byte for byte, whatever was written since")
	require.Equal(t, false, read("diff", file, trace, second)["same"])
	require.Equal(t, true, read("diff", file, trace, trace)["same"], "the control")
	require.Equal(t, trace, at(t, read("manifest", "show", file, trace), "leaves", 0, "trace"))
	require.Equal(t, true, read("manifest", "verify", file)["ok"])
	require.Len(t, at(t, read("manifest", "ls", file, "--limit", "3"), "leaves"), 3)

	pages := read("stat", file)["pages"].(float64)
	require.Greater(t, pages, 30.0)
	require.Equal(t, "acme/live", at(t, read("ls", file), "scopes", 0, "name"))
	require.GreaterOrEqual(t, len(at(t, read("ls", file, "acme/live", "--limit", "60")).(map[string]any)["items"].([]any)), 31)
	require.EqualValues(t, 1, at(t, read("history", file, "acme/live", "by-hand"), "items", 1, "version"))
	require.Contains(t, read("session", "ls", file, "acme/live")["sessions"], "chat")
	turn := at(t, read("session", "show", file, "acme/live", "chat", "--text"), "turns", 0)
	require.Equal(t, "how long is paper 0?", at(t, turn, "text"))
	require.Equal(t, "how long is paper 0?", read("session", "recall", file, "acme/live", "chat", at(t, turn, "id").(string))["text"])
	require.Equal(t, true, read("check", file, "--online")["ok"])
	require.Contains(t, read("review", "ls", file), "held")
	out := filepath.Join(t.TempDir(), "saved.ctx")
	require.NotZero(t, read("backup", file, out)["bytes"])
	require.Equal(t, "the zebra is striped", read("get", out, "acme/live", "by-hand")["text"])
	require.Greater(t, size(), begun, "the agent wrote all the time")
	require.True(t, system.Alive(agent.Pid), "and lives")
}

// What needs the files for itself names who has them.
func TestTheHolderIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	p := liveWriter(t, file)
	for _, args := range [][]string{{"check", file}, {"restore", file, file, "--force"}, {"salvage", file, file + ".new"}} {
		r := dbctl("", append(args, "--wait", "0s")...)
		require.Equal(t, exitBusy, r.code, args)
		require.Contains(t, r.err, "pid", args)
		require.Contains(t, r.err, filepath.Base(os.Args[0]), args)
	}
	for _, args := range [][]string{{"salvage", file, file + ".new"}, {"check", file}} { // check hears it from a child
		r := dbctl("", append(args, "--wait", "0s", "--json")...)
		var e errorJSON
		require.NoError(t, json.Unmarshal([]byte(r.err), &e))
		require.Equal(t, "locked", e.Error.Kind)
		require.Equal(t, exitBusy, e.Error.Exit)
		require.Equal(t, p.Pid, e.Error.PID)
		require.False(t, e.Error.Since.IsZero())
		require.Empty(t, r.out)
	}
}

// A reader is named as one, and the writer before it is not blamed.
func TestReadersAreNamed(t *testing.T) {
	file := newDB(t)
	db := must(ctxpage.Open(file, ctxpage.Options{ReadOnly: true}))(t)
	defer db.Close()
	ok(t, "", "ls", file)
	r := dbctl("", "put", file, "acme", "x", "y", "--wait", "0s")
	require.Equal(t, exitBusy, r.code)
	require.Contains(t, r.err, fmt.Sprintf("is being read by pid %d (", os.Getpid()))
	var e errorJSON
	require.NoError(t, json.Unmarshal([]byte(dbctl("", "put", file, "acme", "x", "y", "--wait", "0s", "--json").err), &e))
	require.True(t, e.Error.Reading)
	require.Equal(t, exitBusy, e.Error.Exit)
}

func TestCheckReportsHowTheWalkDied(t *testing.T) {
	file := newDB(t)
	for how, c := range map[string]struct {
		code int
		says string
	}{
		"":      {exitOK, "no damage found"},
		"fault": {exitDamaged, "nil pointer dereference"},
		"bus":   {exitDamaged, "SIGBUS"},
		"kill":  {exitFailed, "ended from outside"},
	} {
		t.Run(how, func(t *testing.T) {
			if how == "bus" {
				dbtest.NeedsPosix(t, "signals that end a process")
			}
			t.Setenv(dieEnv, how)
			r := dbctl("", "check", file)
			require.Equal(t, c.code, r.code, r.out+r.err)
			require.Contains(t, r.out+r.err, c.says)
		})
	}
}

func TestCheckFindsDamage(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, file string){
		"content": func(t *testing.T, file string) {
			flip(t, file, "The customer is called Lee.")
		},
		"most of the file": func(t *testing.T, file string) {
			require.NoError(t, os.Truncate(file, 6*4096))
		},
		"no log": func(t *testing.T, file string) {
			require.NoError(t, os.RemoveAll(file+"-wal"))
		},
		"audit": func(t *testing.T, file string) {
			leaves := must(filepath.Glob(file + "-manifest/leaves-*"))(t)
			flip(t, leaves[0], "acme/support")
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := newDB(t)
			ok(t, strings.Repeat("a long text that fills some pages of the file. ", 2000), "put", file, "acme", "long")
			ok(t, "", "check", file) // the control: sound before
			harm(t, file)
			r := dbctl("", "check", file, "--json")
			require.Equal(t, exitDamaged, r.code, r.out+r.err)
			require.Contains(t, r.out, `"ok": false`)
		})
	}
}

// TestCheckFindsCutLog: a killed process's log that was cut is damage to every verb, and salvage goes on. The control is the
// same database before the cut.
func TestCheckFindsCutLog(t *testing.T) {
	file, killed := newDB(t), filepath.Join(t.TempDir(), "killed.ctx")
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	for _, id := range []string{"first", "second"} {
		must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: id, Text: "the text of " + id}))(t)
	}
	require.NoError(t, dbtest.Copy(file, killed))
	require.NoError(t, db.Close())
	log := must(filepath.Glob(killed + "-wal/*.wal"))(t)
	require.Len(t, log, 1)
	whole := must(os.ReadFile(log[0]))(t)
	require.NoError(t, os.Truncate(log[0], int64(bytes.LastIndex(whole, []byte("the text of second")))))
	for _, verb := range [][]string{{"check", killed}, {"ls", killed}} {
		r := dbctl("", verb...)
		require.Equal(t, exitDamaged, r.code, r.out+r.err)
		require.Contains(t, r.out+r.err, "it was cut")
	}
	to := filepath.Join(t.TempDir(), "to.ctx")
	r := dbctl("", "salvage", killed, to)
	require.Equal(t, exitDamaged, r.code, "it copied what it could, and something is lost")
	require.Contains(t, r.out, "it was cut")
	require.Contains(t, ok(t, "", "get", to, "acme", "first"), "the text of first")
	require.NoError(t, os.WriteFile(log[0], whole, 0o600))
	require.Contains(t, ok(t, "", "get", killed, "acme", "second"), "the text of second")
}

// flip changes a byte in the middle of a text wherever it stands in a file.
func flip(t *testing.T, path, text string) {
	t.Helper()
	b := must(os.ReadFile(path))(t)
	s := string(b)
	require.Contains(t, s, text)
	wrong := text[:len(text)/2] + "~" + text[len(text)/2+1:]
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(s, text, wrong)), 0o600))
}

// TestAwayBesideALiveAgent: space, ages and bounds are kept by the agent that has the file, and it goes on writing.
func TestAwayBesideALiveAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	liveWriter(t, file)
	ok(t, "", "put", file, "acme/away", "a", "kettle one")
	ok(t, "", "put", file, "acme/away", "a", "kettle two")
	ok(t, "", "gc", file, "--dry-run")
	ok(t, "", "gc", file)
	require.Contains(t, ok(t, "", "compact", file, "--dry-run"), "compacted it would have")
	require.Contains(t, ok(t, "", "compact", file), "the file has")
	ok(t, "", "retention", "set", file, "acme/away", "--kind", "fact=1ms", "--versions", "1ms")
	require.Len(t, asJSON(t, "", "retention", "run", file)["items"], 1)
	require.NotEqual(t, exitOK, dbctl("", "get", file, "acme/away", "a").code)
	ok(t, "", "retention", "set", file, "acme/away", "--clear")
	ok(t, "", "quota", "set", file, "acme/away", "--pages", "1")
	r := dbctl("", "put", file, "acme/away", "c", "pan", "--json")
	if r.code == exitOK { // gc took what the run deleted already
		r = dbctl("", "put", file, "acme/away", "d", "pan again", "--json")
	}
	require.Contains(t, r.err, `"kind":"over quota"`, "the error keeps its type between processes")
	backup := filepath.Join(t.TempDir(), "old.ctx")
	ok(t, "", "backup", file, backup)
	require.Contains(t, ok(t, "", "erase", file, "--scope", "acme/away", "--by", "desk", "--reason", "4711"), "not erased: backup old.ctx")
	require.Contains(t, ok(t, "", "check", file, "--online"), "no damage found")
}
