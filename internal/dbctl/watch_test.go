package dbctl

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
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
