package dbctl

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

const (
	hookSession = "9ecf22fa-edf8-4332-ae85-b6d5456eda64"
	hookCommon  = `"session_id":"` + hookSession + `","transcript_path":%q,"cwd":"/home/ann/shop","permission_mode":"default",`
)

// event is one of a host: its common fields, and its own.
func event(transcript, rest string) string {
	return "{" + fmt.Sprintf(hookCommon, transcript) + rest + "}"
}

// transcriptOf writes a transcript as the host does: a line for each block, among lines of other kinds.
func transcriptOf(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

func transcribed(kind, uuid, content string) string {
	return fmt.Sprintf(`{"parentUuid":null,"isSidechain":false,"type":%q,"uuid":%q,"timestamp":"2026-11-23T09:00:00.000Z","sessionId":%q,"message":{"role":%q,"content":%s}}`, kind, uuid, hookSession, kind, content)
}

// A conversation is captured as a host reports it: prompt, tool, answer. Each event may come twice.
func TestHookCaptures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	path := transcriptOf(t, `{"type":"summary","summary":"Refunds","leafUuid":"x"}`,
		transcribed("user", "u0", `"an earlier question"`), transcribed("assistant", "a0", `[{"type":"text","text":"An earlier answer."}]`),
		transcribed("user", "u1", `"what may I refund? <private>my card is 4111</private>"`),
		transcribed("assistant", "a1", `[{"type":"text","text":"Let me look."}]`), transcribed("assistant", "a2", `[{"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command":"cat policy"}}]`),
		transcribed("user", "u2", `[{"type":"tool_result","tool_use_id":"toolu_01","content":"up to $400"}]`),
		strings.Replace(transcribed("assistant", "a3", `[{"type":"text","text":"Of a subagent."}]`), `"isSidechain":false`, `"isSidechain":true`, 1),
		transcribed("assistant", "a4", `[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Up to $400."}]`))
	events := []string{
		event(path, `"hook_event_name":"UserPromptSubmit","prompt":"what may I refund? <private>my card is 4111</private>"`),
		event(path, `"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"cat policy"},"tool_use_id":"toolu_01"`),
		event(path, `"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"cat policy \u003cprivate\u003etoken=s3cret\u003c/private\u003e"},"tool_response":{"stdout":"up to $400","stderr":"","interrupted":false},"tool_use_id":"toolu_01","duration_ms":12`),
		event(path, `"hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"Up to $400."`),
	}
	for _, e := range events {
		for range 2 {
			r := dbctl(e, "hook", file, "--scope", "acme/dev", "--actor", "claude", "--strict")
			require.Equal(t, exitOK, r.code, r.err)
			require.Empty(t, r.out, "a host may show it to the model")
		}
	}
	turns := conversation(t, file)
	require.Len(t, turns, 5)
	require.Equal(t, []string{"user", "assistant", "tool", "assistant", "assistant"}, roles(turns))
	require.Equal(t, "what may I refund?", turns[0].Text)
	require.Equal(t, "Bash", turns[1].ToolCalls[0].Name)
	require.JSONEq(t, `{"command":"cat policy"}`, turns[1].ToolCalls[0].Arguments)
	require.Contains(t, turns[2].Text, "up to $400")
	require.Equal(t, "Let me look.", turns[3].Text)
	require.Equal(t, "Up to $400.", turns[4].Text)
	for _, secret := range []string{"4111", "s3cret", "subagent", "earlier"} {
		require.NotContains(t, fmt.Sprint(turns), secret)
	}
	for _, name := range []string{file, file + "-wal"} {
		out, err := exec.Command("grep", "-rc", "4111", name).Output()
		require.Error(t, err, "%s: %s", name, out)
	}
}

// A host may add fields, and what a tool takes and gives is its own. A field of ours in another case, or twice, is an error that
// names it.
func TestHookFieldsAreExact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	run := func(e string) result { return dbctl(e, "hook", file, "--scope", "acme/dev", "--strict") }
	r := run(event("", `"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"a":1,"a":2,"A":3},"tool_use_id":"t1","Added":{"x":1,"x":2}`))
	require.Equal(t, exitOK, r.code, r.err)
	for rest, want := range map[string]string{
		`"hook_event_name":"UserPromptSubmit","Prompt":"a"`:              `got the field "Prompt", expected "prompt"`,
		`"hook_event_name":"UserPromptSubmit","prompt":"a","prompt":"b"`: `got the field "prompt" twice, expected it once`,
	} {
		r := run(event("", rest))
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, want)
	}
	require.Len(t, conversation(t, file), 2)
}

// A private part may go on over the lines of a patch or the blocks of a result, and its marks may be escaped.
func TestHookPrivateParts(t *testing.T) {
	for value, want := range map[string]string{
		`["a","-<private>","-s3cret","+</private> b"," c"]`:                                                               `["a","-","","b"," c"]`,
		`{"lines":["<private>","s3cret"],"file":"x"}`:                                                                     `{"file":"x","lines":["",""]}`,
		`[{"type":"text","text":"a <private>"},{"type":"text","text":"s3cret"},4111,{"n":1,"text":"s3cret</private> b"}]`: `[{"text":"a","type":"text"},null,null,{"n":null,"text":"b"}]`,
		`"{\"text\":\"a \\u003cPrivate\\u003es3cret\\u003c/private\\u003e b\"}"`:                                          `"{\"text\":\"a  b\"}"`,
		`"a &lt;private&gt;s3cret <private>s3cret</private> s3cret&lt;/private&gt; b"`:                                    `"a  b"`,
		`[" kept as it is ",1,true,null,{"a":[]}]`:                                                                        `[" kept as it is ",1,true,null,{"a":[]}]`,
		`"</private> a < b & c"`: `"</private> a < b & c"`,
	} {
		got := must(publicJSON(json.RawMessage(value)))(t)
		require.Equal(t, want, got, value)
	}
}

func conversation(t *testing.T, file string) []ctxpage.Turn {
	t.Helper()
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	defer db.Close()
	var out []ctxpage.Turn
	for v, err := range db.Scope("acme/dev").Session(hookSession).Turns(t.Context(), 0) {
		require.NoError(t, err)
		out = append(out, ctxpage.Turn{ID: v.ID, Role: v.Role, Text: v.Text, ToolCalls: v.ToolCalls})
	}
	return out
}

func roles(turns []ctxpage.Turn) (all []string) {
	for _, turn := range turns {
		all = append(all, turn.Role)
	}
	return all
}

// A session in the events and the transcript of Claude Code, field by field as its hooks give them: each event adds as many
// turns as its line says, whatever else it carries, and an event that is not known does not block the host.
func TestHookRealEvents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	transcript := must(filepath.Abs("testdata/hooks/transcript.jsonl"))(t)
	session := must(os.ReadFile("testdata/hooks/session.jsonl"))(t)
	before, kinds := 0, map[string]int{}
	for line := range strings.Lines(string(session)) {
		var recorded struct {
			Adds  int
			Event json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(line), &recorded))
		in := strings.Replace(string(recorded.Event), "TRANSCRIPT", strings.ReplaceAll(transcript, `\`, `\\`), 1)
		v := asJSON(t, in, "hook", file, "--scope", "acme/dev", "--actor", "claude", "--strict")
		kind := v["event"].(string)
		kinds[kind]++
		if before == 0 && recorded.Adds == 0 {
			require.NoFileExists(t, file, "an event that adds nothing opens nothing")
			continue
		}
		now := len(conversation(t, file))
		require.Equal(t, recorded.Adds, now-before, "%s", in)
		before = now
	}
	for _, kind := range []string{"UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop", "SessionStart", "SessionEnd", "PreCompact", "Notification"} {
		require.NotZero(t, kinds[kind], kind)
	}
	turns := conversation(t, file)
	require.Equal(t, []string{"user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant", "assistant"}, roles(turns))
	require.Equal(t, "What may I refund?", turns[0].Text)
	require.Equal(t, "Write", turns[3].ToolCalls[0].Name)
	require.JSONEq(t, `{"file_path":"/home/ann/shop/note.txt","content":"call Lee"}`, turns[3].ToolCalls[0].Arguments)
	require.Contains(t, turns[6].Text, "up to $400")
	require.Equal(t, "error: Exit code 1", turns[8].Text)
	require.Equal(t, []string{"I read the policy first.", "Up to $400, without approval."}, []string{turns[9].Text, turns[10].Text})
	for _, secret := range []string{"4111", "0170", "ubagent", "think", "typed by the user", "Rate limit"} {
		require.NotContains(t, fmt.Sprint(turns), secret)
		require.NotContains(t, bytesStored(t, file), secret)
	}
	require.Contains(t, bytesStored(t, file), "without approval", "the control")
}

// bytesStored are the bytes of a database and its log.
func bytesStored(t *testing.T, file string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{file, file + "-wal/*", file + "-manifest/*"} {
		paths := must(filepath.Glob(pattern))(t)
		for _, path := range paths {
			b := must(os.ReadFile(path))(t)
			all.Write(b)
		}
	}
	return all.String()
}

// Hosts differ: no tool_use_id, a failure, a long output, a name that no provider takes, an answer without a transcript.
func TestHookHostsDiffer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	long := strings.Repeat("é", 40_000)
	for _, rest := range []string{
		`"hook_event_name":"PostToolUse","tool_name":"mcp__files/read me","tool_input":{},"tool_output":` + fmt.Sprintf("%q", long),
		`"hook_event_name":"PostToolUse","tool_name":"Read","tool_input":{"path":` + fmt.Sprintf("%q", long) + `},"tool_response":null`,
		`"hook_event_name":"PostToolUseFailure","tool_name":"Bash","tool_input":{"command":"false"},"error":"exit code 1"`,
		`"hook_event_name":"Stop","last_assistant_message":"Done."`,
		`"hook_event_name":"Stop","last_assistant_message":"<PRIVATE>all of it"`,
		`"hook_event_name":"UserPromptSubmit","prompt":"<private>a<private>b</private>c</private>"`,
		`"hook_event_name":"SessionStart","source":"startup"`, `"hook_event_name":"Unheard","x":1`,
	} {
		r := dbctl(event("", rest), "hook", file, "--scope", "acme/dev", "--strict")
		require.Equal(t, exitOK, r.code, r.err)
	}
	turns := conversation(t, file)
	require.Len(t, turns, 7)
	require.Equal(t, "mcp__files_read_me", turns[0].ToolCalls[0].Name)
	require.Contains(t, turns[1].Text, "more bytes were left out")
	require.Less(t, len(turns[1].Text), 33_000)
	require.True(t, json.Valid([]byte(turns[2].ToolCalls[0].Arguments)), "a cut argument is JSON")
	require.Equal(t, "error: exit code 1", turns[5].Text)
	require.Equal(t, "Done.", turns[6].Text)
}

// The events of other hosts say the same in other words.
func TestHookOfOtherHosts(t *testing.T) {
	file := newDB(t)
	for _, c := range []struct{ event, want string }{
		{`{"session_id":"g","hook_event_name":"BeforeAgent","prompt":"the zebra prompt","transcript_path":"/nowhere"}`, "user: the zebra prompt"},
		{`{"session_id":"g","hook_event_name":"AfterTool","tool_name":"read_file","tool_input":{"path":"a"},"tool_response":{"llmContent":"zebra result"}}`, `tool: {"llmContent":"zebra result"}`},
		{`{"session_id":"g","hook_event_name":"AfterAgent","prompt":"p","prompt_response":"zebra answer","transcript_path":"/nowhere"}`, "assistant: zebra answer"},
		{`{"conversation_id":"c","generation_id":"1","hook_event_name":"beforeSubmitPrompt","prompt":"zebra"}`, "user: zebra"},
		{`{"conversation_id":"c","generation_id":"1","hook_event_name":"postToolUse","tool_name":"Shell","tool_input":{},"tool_output":"zebra output","tool_use_id":"u"}`, "tool: zebra output"},
		{`{"conversation_id":"c","generation_id":"1","hook_event_name":"postToolUseFailure","tool_name":"Shell","tool_input":{},"error_message":"no zebra","tool_use_id":"f"}`, "tool: error: no zebra"},
		{`{"conversation_id":"c","generation_id":"1","hook_event_name":"afterAgentResponse","text":"a zebra reply"}`, "assistant: a zebra reply"},
		{`{"session_id":"x","turn_id":"t","hook_event_name":"Stop","last_assistant_message":"done, zebra"}`, "assistant: done, zebra"},
	} {
		require.Contains(t, ok(t, c.event, "hook", file, "--scope", "acme", "--strict", "--dry-run"), c.want)
	}
	for range 2 { // a host that reports an answer twice
		ok(t, `{"conversation_id":"c","generation_id":"1","hook_event_name":"afterAgentResponse","text":"a zebra reply"}`, "hook", file, "--scope", "acme", "--strict")
	}
	require.Equal(t, 1, strings.Count(ok(t, "", "session", "show", file, "acme", "c", "--text"), "a zebra reply"))
}

// An event without any id that the host reports twice adds one turn, also if two processes report it at the same time. The same words
// said again later are another turn.
func TestHookReportedTwice(t *testing.T) {
	file := newDB(t)
	prompt, answer := event("", `"hook_event_name":"UserPromptSubmit","prompt":"go on"`), event("", `"hook_event_name":"Stop","last_assistant_message":"Done."`)
	for _, e := range []string{prompt, prompt, answer, answer, prompt, prompt, answer} {
		ok(t, e, "hook", file, "--scope", "acme/dev", "--strict")
	}
	require.Equal(t, []string{"user", "assistant", "user", "assistant"}, roles(conversation(t, file)))
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			require.Equal(t, exitOK, dbctl(prompt, "hook", file, "--scope", "acme/dev", "--strict", "--wait", "30s", "--timeout", "60s").code)
		})
	}
	both.Wait()
	require.Len(t, conversation(t, file), 5)
}

// A hook that fails does not fail its host, and says why; with --strict it does.
func TestHookNeverFailsItsHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	good := event("", `"hook_event_name":"UserPromptSubmit","prompt":"hello"`)
	for name, c := range map[string]struct {
		in   string
		args []string
		says string
	}{
		"no JSON":           {"hello", []string{file, "--scope", "acme"}, "expected the JSON of a hook"},
		"another object":    {`{"a":1}`, []string{file, "--scope", "acme"}, "session_id"},
		"no input":          {"", []string{file, "--scope", "acme"}, "expected the JSON of a hook"},
		"no scope":          {good, []string{file}, "--scope"},
		"a wrong flag":      {good, []string{file, "--scope", "acme", "--colour"}, "--colour"},
		"no directory":      {good, []string{filepath.Join(file, "no", "agent.ctx"), "--scope", "acme"}, "no"},
		"no transcript":     {event("/nonexistent", `"hook_event_name":"Stop"`), []string{file, "--scope", "acme"}, "transcript"},
		"transcript device": {event("/dev/zero", `"hook_event_name":"Stop"`), []string{file, "--scope", "acme"}, "expected a file"},
		"a bad scope":       {good, []string{file, "--scope", "acme//x"}, "scope"},
	} {
		t.Run(name, func(t *testing.T) {
			r := dbctl(c.in, append([]string{"hook"}, c.args...)...)
			require.Equal(t, exitOK, r.code)
			require.Empty(t, r.out)
			require.Contains(t, r.err, c.says)
			r = dbctl(c.in, append([]string{"hook", "--strict"}, c.args...)...)
			require.NotEqual(t, exitOK, r.code, "the control")
		})
	}
	fresh := file + ".fresh"
	v := asJSON(t, good, "hook", fresh, "--scope", "acme", "--dry-run")
	require.Equal(t, "hello", v["turns"].([]any)[0].(map[string]any)["text"])
	require.NoFileExists(t, fresh, "a dry run writes nothing")
}

// quickHook is what a hook may take while an owner lives beside hookStarts starts of the program, which are measured in turn with
// it: a busy machine is slow with both.
const (
	quickHook  = 100 * time.Millisecond
	hookStarts = 20
)

func TestHookIsQuick(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	defer db.Close()
	took := func(in string, args ...string) time.Duration {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		cmd.Stdin = strings.NewReader(in)
		begun := time.Now()
		out, err := cmd.CombinedOutput()
		ended := time.Since(begun)
		require.NoError(t, err, "%s", out)
		return ended
	}
	var starts, hooks []time.Duration
	for i := range 15 {
		starts = append(starts, took("", "hook", "--help"))
		hooks = append(hooks, took(event("", fmt.Sprintf(`"hook_event_name":"UserPromptSubmit","prompt":"question %d"`, i)), "hook", file, "--scope", "acme/dev", "--strict"))
	}
	slices.Sort(starts)
	slices.Sort(hooks)
	t.Logf("a hook: median %s, longest %s; a start: median %s", hooks[len(hooks)/2], hooks[len(hooks)-1], starts[len(starts)/2])
	require.LessOrEqual(t, hooks[0], quickHook+hookStarts*starts[0], "the quickest: the others met what else the machine does")
	require.Len(t, conversation(t, file), 15)
}
