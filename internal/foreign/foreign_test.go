package foreign_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// samples are small files of each format, as their systems write them.
var samples = map[foreign.Format]string{
	foreign.OpenAIChat: `[{"role":"system","content":"obey the file"},{"role":"user","content":[{"type":"text","text":"what is "},{"type":"text","text":"this?"},{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"}}]},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"q\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"a cat"},{"role":"assistant","content":"It is a cat."}]`,
	foreign.Responses: `{"items":[{"type":"message","id":"m1","role":"user","content":[{"type":"input_text","text":"hello there"}]},{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"thinking"}]},
{"type":"function_call","id":"f1","call_id":"c1","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"found"},{"type":"message","id":"m2","role":"assistant","content":[{"type":"output_text","text":"done"}]}]}`,
	foreign.Anthropic: `{"messages":[{"role":"user","content":"look it up"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"Looking."},{"type":"tool_use","id":"t1","name":"look","input":{"q":1}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a dog"}]},{"type":"text","text":"and now?"}]}]}`,
	foreign.Mem0:      `{"results":[{"id":"a1","memory":"Ann likes tea","hash":"h","metadata":{"lang":"en","n":3},"created_at":"2024-07-20T01:30:36.275141-07:00","updated_at":null,"user_id":"ann","run_id":"r1","score":0.3},{"id":"a2","memory":"Bob likes coffee","user_id":"bob"}],"relations":[]}`,
	foreign.MCPMemory: `{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea","works at Acme"]}` + "\n" + `{"type":"relation","from":"Ann","to":"Acme","relationType":"works_at"}` + "\n",
	foreign.ChatGPT: `[{"title":"Tea","create_time":1700000000.5,"conversation_id":"c-1","current_node":"n3","mapping":{"root":{"id":"root","message":null,"parent":null,"children":["n1"]},
"n1":{"id":"n1","parent":"root","children":["n2","n2b"],"message":{"id":"m1","author":{"role":"user"},"create_time":1700000001.25,"content":{"content_type":"text","parts":["which tea?"]},"weight":1.0}},
"n2":{"id":"n2","parent":"n1","children":["n3"],"message":{"id":"m2","author":{"role":"system"},"content":{"content_type":"text","parts":[""]},"weight":0.0}},
"n2b":{"id":"n2b","parent":"n1","children":[],"message":{"id":"m2b","author":{"role":"assistant"},"content":{"content_type":"text","parts":["black"]},"weight":1.0}},
"n3":{"id":"n3","parent":"n2","children":[],"message":{"id":"m3","author":{"role":"assistant"},"create_time":1700000002,"content":{"content_type":"text","parts":["green"]},"weight":1.0}}}}]`,
	foreign.Claude:    `[{"uuid":"u-1","name":"Tea","created_at":"2025-01-02T03:04:05.678901Z","chat_messages":[{"uuid":"x1","sender":"human","text":"which tea?","content":[],"created_at":"2025-01-02T03:04:05Z","attachments":[{"file_name":"a.txt","extracted_content":"a list"}],"files":[]},{"uuid":"x2","sender":"assistant","text":"green","content":[{"type":"text","text":"green"}],"created_at":"2025-01-02T03:04:09Z"}]}]`,
	foreign.LangGraph: `[{"namespace":["users","ann"],"key":"tea","value":{"text":"likes tea","n":2},"created_at":"2025-01-02T03:04:05Z","updated_at":"2025-01-02T03:04:05Z"}]`,
	foreign.PAM:       `{"schema":"pam","schema_version":"1.0","owner":{"id":"ann"},"memories":[{"id":"p1","type":"preference","content":"likes tea","content_hash":"sha256:ab","temporal":{"created_at":"2025-01-02T03:04:05Z"},"provenance":{"method":"stated"}}]}`,
	foreign.ClaudeCode: `{"type":"queue-operation","operation":"enqueue","sessionId":"s1","timestamp":"2026-01-02T03:04:05Z"}
{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"where is the manual?"}}
{"type":"assistant","uuid":"u2","sessionId":"s1","timestamp":"2026-01-02T03:04:06Z","message":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Looking."}]}}
{"type":"assistant","uuid":"u3","sessionId":"s1","timestamp":"2026-01-02T03:04:07Z","message":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","uuid":"u4","sessionId":"s1","timestamp":"2026-01-02T03:04:08Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"manual.md"}]},"toolUseResult":{"stdout":"manual.md"}}
{"type":"user","uuid":"u5","sessionId":"s1","isMeta":true,"message":{"role":"user","content":"Caveat: not typed"}}
{"type":"user","uuid":"u6","sessionId":"s1","isSidechain":true,"agentId":"a1","message":{"role":"user","content":"explore it"}}
{"type":"file-history-snapshot","messageId":"m","snapshot":{"note":"some words"}}
`,
	foreign.Codex: `{"timestamp":"2026-01-02T03:04:05Z","type":"session_meta","payload":{"id":"r1","cwd":"/x","instructions":"be kind to them"}}
{"timestamp":"2026-01-02T03:04:06Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list the files"}]}}
{"timestamp":"2026-01-02T03:04:06Z","type":"event_msg","payload":{"type":"user_message","message":"list the files"}}
{"timestamp":"2026-01-02T03:04:07Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"c1"}}
{"timestamp":"2026-01-02T03:04:08Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"a.txt"}}
{"timestamp":"2026-01-02T03:04:09Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"There is a.txt."}]}}
`,
	foreign.Gemini: `{"sessionId":"g1","projectHash":"h","startTime":"2026-01-02T03:04:05Z","messages":[{"id":"1","timestamp":"2026-01-02T03:04:05Z","type":"user","content":"list the files"},
{"id":"2","timestamp":"2026-01-02T03:04:06Z","type":"gemini","content":"I look.","thoughts":[{"subject":"Plan","description":"use ls"}],"toolCalls":[{"id":"c1","name":"ls","args":{"dir":"."},"result":[{"functionResponse":{"id":"c1","name":"ls","response":{"output":"a.txt"}}}],"status":"success"}]},
{"id":"3","timestamp":"2026-01-02T03:04:07Z","type":"info","content":"Update available"}]}`,
	foreign.Copilot: `{"requesterUsername":"ann","responderUsername":"GitHub Copilot","requests":[{"requestId":"q1","message":{"text":"explain this","parts":[]},"response":[{"value":"It sorts "},{"kind":"toolInvocationSerialized","toolCallId":"c1","toolId":"read","invocationMessage":{"value":"Reading a.go"},"pastTenseMessage":{"value":"Read a.go"}},{"value":"names."}]}],"sessionId":"v1"}`,
	foreign.Cursor: `{"type":"system","subtype":"init","session_id":"k1","cwd":"/x"}
{"type":"user","message":{"role":"user","content":[{"type":"text","text":"read it"}]},"session_id":"k1"}
{"type":"tool_call","subtype":"started","call_id":"c1","tool_call":{"readToolCall":{"args":{"path":"a"}}},"session_id":"k1"}
{"type":"tool_call","subtype":"completed","call_id":"c1","tool_call":{"readToolCall":{"args":{"path":"a"},"result":{"success":{"content":"words of a"}}}},"session_id":"k1"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"done reading"}]},"session_id":"k1"}
{"type":"result","subtype":"success","result":"done reading","session_id":"k1"}
`,
	foreign.OpenCode: `{"info":{"id":"o1","title":"t"},"messages":[{"info":{"id":"m1","role":"user","sessionID":"o1","time":{"created":1767323045000}},"parts":[{"id":"p1","type":"text","text":"list them"}]},
{"info":{"id":"m2","role":"assistant","sessionID":"o1","time":{"created":1767323046000}},"parts":[{"type":"step-start"},{"type":"text","text":"I look."},{"type":"tool","callID":"c1","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a.txt"}},{"type":"text","text":"It is a.txt."}]}]}`,
	foreign.Hermes: `{"schema_version":1,"session_id":"h1","messages":[{"message_id":"h1:0","role":"user","state":"active","timestamp":"2026-01-02T03:04:05Z","text":"fix the test","tool_calls":[],"tool_results":[]},
{"message_id":"h1:1","role":"assistant","timestamp":"2026-01-02T03:04:06Z","text":"I read it.","reasoning":"read first","tool_calls":[{"action_id":"c1","tool_name":"read_file","arguments_json":"{\"path\":\"t\"}"}]},
{"message_id":"h1:2","role":"tool","timestamp":"2026-01-02T03:04:07Z","text":null,"tool_results":[{"action_id":"c1","is_error":false,"output_preview":"def test"}]},
{"message_id":"h1:3","role":"assistant","state":"rewound","timestamp":"2026-01-02T03:04:08Z","text":"a wrong way"}]}`,
	foreign.LangChain: `[{"type":"system","data":{"content":"be brief"}},{"type":"human","data":{"content":"which tea?","id":"l1"}},{"type":"ai","data":{"content":"","tool_calls":[{"name":"look","args":{"q":1},"id":"c1","type":"tool_call"}]}},
{"type":"tool","data":{"content":"green","tool_call_id":"c1"}},{"lc":1,"type":"constructor","id":["langchain","schema","messages","AIMessage"],"kwargs":{"content":"Green tea."}}]`,
	foreign.ShareGPT: `[{"id":"identity_0","conversations":[{"from":"human","value":"who are you?"},{"from":"gpt","value":"A model."}]},{"id":"identity_1","conversations":[{"from":"human","value":"and now?"}]}]`,
	foreign.Letta:    `{"agents":[{"id":"agent-0","name":"helper","messages":[{"id":"message-0","role":"user","content":[{"type":"text","text":"remember tea"}],"tool_calls":null,"created_at":"2026-01-02T03:04:05Z"},{"id":"message-1","role":"assistant","content":[{"type":"text","text":"I do."}]}]}],"blocks":[{"id":"block-0","label":"human","value":"likes tea"}],"tools":[]}`,
	foreign.JSONL:    `{"key":1,"body":{"text":"likes tea"},"who":"ann","when":1700000000}` + "\n" + `{"key":2,"body":{"text":"likes coffee"},"labels":["x","x"]}`,
}

var wants = map[foreign.Format][]string{
	foreign.OpenAIChat: {"openai:chat/1||obey the file", "openai:chat/2|user|what is |this?|", "openai:chat/3|assistant|", "openai:chat/4|tool|a cat", "openai:chat/5|assistant|It is a cat."},
	foreign.Responses:  {"responses:chat/m1|user|hello there", "responses:chat/r1|assistant|[reasoning] thinking|", "responses:chat/f1|assistant|", "responses:chat/4|tool|found", "responses:chat/m2|assistant|done"},
	foreign.Anthropic:  {"anthropic:chat/1|user|look it up", "anthropic:chat/2|assistant||Looking.", "anthropic:chat/3|tool|a dog", "anthropic:chat/4|user|and now?"},
	foreign.Mem0:       {"mem0:a1||Ann likes tea", "mem0:a2||Bob likes coffee"},
	foreign.MCPMemory:  {"mcp-memory:Ann#ccbffae57fbb0e86||Ann: likes tea", "mcp-memory:Ann#0a2c1c32dd6e9c11||Ann: works at Acme", "mcp-memory:Ann-works_at-Acme||Ann works_at Acme"},
	foreign.ChatGPT:    {"chatgpt:c-1/m1|user|which tea?", "chatgpt:c-1/m3|assistant|green"},
	foreign.Claude:     {"claude:u-1/x1|user|which tea?\n\n[a.txt]\na list", "claude:u-1/x2|assistant|green"},
	foreign.LangGraph:  {"langgraph:users/ann//tea||n: 2\ntext: likes tea|"},
	foreign.PAM:        {"pam:sha256:ab||likes tea"},
	foreign.ClaudeCode: {"claude-code:s1/u1|user|where is the manual?", "claude-code:s1/msg_1|assistant|Looking.", "claude-code:s1/result-t1|tool|manual.md", "claude-code:s1/a1/u6|user|explore it"},
	foreign.Codex:      {"codex:r1/1|user|list the files", "codex:r1/2|assistant|", "codex:r1/result-c1|tool|a.txt", "codex:r1/4|assistant|There is a.txt."},
	foreign.Gemini:     {"gemini:g1/1|user|list the files", "gemini:g1/2|assistant||I look.", "gemini:g1/result-c1|tool|a.txt"},
	foreign.Copilot:    {"copilot:v1/q1|user|explain this", "copilot:v1/q1/response|assistant|It sorts ", "copilot:v1/result-c1|tool|Read a.go", "copilot:v1/q1/response/2|assistant|names."},
	foreign.Cursor:     {"cursor:k1/1|user|read it", "cursor:k1/2|assistant|", "cursor:k1/result-c1|tool|words of a", "cursor:k1/4|assistant|done reading"},
	foreign.OpenCode:   {"opencode:o1/m1|user|list them", "opencode:o1/m2|assistant||I look.", "opencode:o1/result-c1|tool|a.txt", "opencode:o1/m2/2|assistant|It is a.txt."},
	foreign.Hermes:     {"hermes:h1/h1:0|user|fix the test", "hermes:h1/h1:1|assistant||I read it.", "hermes:h1/result-c1|tool|def test"},
	foreign.LangChain:  {"langchain:chat/1||be brief", "langchain:chat/l1|user|which tea?", "langchain:chat/3|assistant|", "langchain:chat/result-c1|tool|green", "langchain:chat/5|assistant|Green tea."},
	foreign.ShareGPT:   {"sharegpt:identity_0/1|user|who are you?", "sharegpt:identity_0/2|assistant|A model.", "sharegpt:identity_1/1|user|and now?"},
	foreign.Letta:      {"letta:helper/message-0|user|remember tea", "letta:helper/message-1|assistant|I do.", "letta:block//human||human: likes tea"},
	foreign.JSONL:      {"jsonl:1||likes tea", "jsonl:2||likes coffee"},
}

var fieldMap = map[string]string{"id": ".key", "text": ".body.text", "subject": ".who", "time": ".when", "tags": ".labels"}

func read(t testing.TB, f foreign.Format, file string) ([]store.Artefact, error) {
	t.Helper()
	var out []store.Artefact
	_, err := foreign.Read(t.Context(), strings.NewReader(file), foreign.Options{Format: f, Map: fieldMap}, func(a store.Artefact, _ int) error {
		out = append(out, a)
		return nil
	})
	return out, err
}

func shown(a *store.Artefact) string {
	said := []string{a.Text}
	if len(a.Parts) > 0 {
		said = nil
		for _, p := range a.Parts {
			said = append(said, p.Text)
		}
	}
	return a.ID + "|" + a.Role + "|" + strings.Join(said, "|")
}

func TestFormats(t *testing.T) {
	require.Len(t, samples, len(foreign.Formats))
	for f, file := range samples {
		found, why, err := foreign.Detect(t.Context(), strings.NewReader(file))
		if f == foreign.JSONL {
			require.ErrorIs(t, err, store.ErrInvalid)
		} else {
			require.NoError(t, err, f)
			require.Equal(t, f, found, why)
			require.NotEmpty(t, why)
		}
		got, err := read(t, f, file)
		require.NoError(t, err, f)
		var lines []string
		for i := range got {
			require.Equal(t, store.Scratch, got[i].Provenance, "imported text is scratch")
			require.NotEmpty(t, got[i].Meta[foreign.MetaDigest])
			require.Equal(t, string(f), got[i].Meta[foreign.MetaSource])
			lines = append(lines, shown(&got[i]))
		}
		for i, want := range wants[f] {
			if f == foreign.MCPMemory && strings.Contains(want, "#") { // the digest is of no interest
				require.True(t, strings.HasPrefix(lines[i], "mcp-memory:Ann#"), lines[i])
				require.Equal(t, want[strings.Index(want, "|"):], lines[i][strings.Index(lines[i], "|"):])
				continue
			}
			require.Equal(t, want, lines[i], f)
		}
		require.Len(t, lines, len(wants[f]))
	}
	got := must(read(t, foreign.Mem0, samples[foreign.Mem0]))(t)
	require.Equal(t, "ann", got[0].Subject)
	require.Equal(t, "2024-07-20T08:30:36.275141Z", got[0].CurrentAsOf.Format("2006-01-02T15:04:05.999999Z07:00"))
	require.JSONEq(t, `{"hash":"h","score":0.3,"created_at":"2024-07-20T01:30:36.275141-07:00"}`, got[0].Meta[foreign.MetaFields])
	require.Equal(t, "3", got[0].Meta["n"])
	all := 0
	must(foreign.Read(t.Context(), strings.NewReader(samples[foreign.ChatGPT]), foreign.Options{Format: foreign.ChatGPT, Branches: true}, func(store.Artefact, int) error { all++; return nil }))(t)
	require.Equal(t, 3, all)
}

func TestImportTwice(t *testing.T) {
	ctx := t.Context()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	for f, file := range samples {
		s := db.Scope("acme/" + string(f))
		opts := foreign.Options{Format: f, Map: fieldMap}
		dry := opts
		dry.DryRun = true
		would := must(foreign.Import(ctx, s, strings.NewReader(file), dry))(t)
		rep, err := foreign.Import(ctx, s, strings.NewReader(file), opts)
		require.NoError(t, err, f)
		require.Equal(t, len(wants[f]), rep.New)
		require.Equal(t, rep.New, would.New)
		st := must(db.Stats(ctx))(t)
		again := must(foreign.Import(ctx, s, strings.NewReader(file), opts))(t)
		require.Equal(t, rep.New, again.Same)
		require.Zero(t, again.New+again.Changed+again.Kept)
		now := must(db.Stats(ctx))(t)
		require.Equal(t, st.LSN, now.LSN, "a second run writes nothing")
	}
	s := db.Scope("acme/mem0")
	a := must(s.Assemble(ctx, ctxpage.Query{Text: "what does Ann like? tea", Budget: 4000}))(t)
	require.NotContains(t, a.Text(), "likes tea", "nothing unvalidated is in a context")
	lifted := must(s.Get(ctx, "mem0:a1"))(t)
	must(db.Admin().PutVerified(ctx, "acme/mem0", "ann", lifted.Artefact))(t)
	require.NoError(t, s.Delete(ctx, "mem0:a2"))
	changed := strings.ReplaceAll(samples[foreign.Mem0], "likes", "loves")
	rep := must(foreign.Import(ctx, s, strings.NewReader(changed), foreign.Options{}))(t)
	require.Equal(t, []int{2, 0}, []int{rep.Kept, rep.Changed})
	v := must(s.Get(ctx, "mem0:a1"))(t)
	require.Equal(t, "Ann likes tea", v.Text)
	problems := must(db.Admin().Check(ctx, nil))(t)
	require.Empty(t, problems)
}

// hostile are files that are wrong, with the line and the field that the error names.
var hostile = []struct {
	name, file string
	line       int
	field      string
}{
	{"twice", "[\n{\"id\":\"a\",\n\"memory\":\"x\",\"memory\":\"y\"}]", 3, "memory"},
	{"utf8", "[{\"id\":\"a\",\"metadata\":{\"k\":\"\xff\"},\"memory\":\"x\"}]", 1, "metadata.k"},
	{"nan", "{\"results\":[\n{\"id\":\"a\",\"memory\":\"x\",\"score\":NaN}]}", 2, "score"},
	{"kind", "{\"results\":[\n{\"id\":\"a\",\"memory\":\n5}]}", 3, "memory"},
	{"cut off", "{\"results\":[\n{\"id\":\"a\",\"memory\":\"x", 2, "memory"},
	{"comma", "[{\"id\":\"a\",\"memory\":\"x\"},]", 1, ""},
	{"deep", "[" + strings.Repeat("[", 100000), 1, ""},
	{"empty", " ", 1, ""},
	{"control", "[{\"id\":\"a\",\"memory\":\"x\ny\"}]", 1, "memory"},
	{"no id", "[{\"memory\":\"x\"}]", 1, "id"},
	{"number", "[{\"id\":\"a\",\"memory\":\"x\",\"n\":" + strings.Repeat("9", 100) + "}]", 1, "n"},
}

func TestHostile(t *testing.T) {
	for _, h := range hostile {
		_, err := read(t, foreign.Mem0, h.file)
		var at *portable.LineError
		require.ErrorAs(t, err, &at, h.name)
		require.Equal(t, []any{h.line, h.field}, []any{at.Line, at.Field}, "%s: %v", h.name, err)
		require.NotContains(t, err.Error(), "\n")
	}
	require.NoError(t, errOf(read(t, foreign.Mem0, `[{"id":"a","memory":"x"}]`)), "control")
}

// endless is a string that never ends.
type endless struct{ head string }

func (e *endless) Read(p []byte) (int, error) {
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestEndlessString(t *testing.T) {
	for i, f := range foreign.Formats {
		if (dbtest.Race || !dbtest.Full) && i > 1 { // the others are cut into items by the same scanner
			break
		}
		_, err := foreign.Read(t.Context(), &endless{head: `[{"role":"user","content":"`}, foreign.Options{Format: f, Map: fieldMap}, func(store.Artefact, int) error { return nil })
		var at *portable.LineError
		require.ErrorAs(t, err, &at, f)
		require.ErrorContains(t, err, " bytes, expected a smaller one")
		require.Equal(t, "content", at.Field)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := foreign.Read(ctx, io.MultiReader(strings.NewReader("["), &endless{head: strings.Repeat(`{"id":"a","memory":"x"},`, 100000)}), foreign.Options{Format: foreign.Mem0}, func(store.Artefact, int) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

func fuzz(f *testing.F, format foreign.Format) {
	f.Add([]byte(samples[format]))
	for _, h := range hostile {
		if len(h.file) < 1000 {
			f.Add([]byte(h.file))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var first, second []string
		for _, out := range []*[]string{&first, &second} {
			_, err := foreign.Read(t.Context(), bytes.NewReader(file), foreign.Options{Format: format, Map: fieldMap}, func(a store.Artefact, _ int) error {
				if a.Provenance != store.Scratch || a.Role == "system" || a.Role == store.RoleDeveloper || a.Kind == store.KindSystem {
					t.Fatalf("%s is trusted", a.ID)
				}
				*out = append(*out, fmt.Sprintf("%+v", a))
				return a.Check()
			})
			var at *portable.LineError
			if err != nil && !errors.As(err, &at) {
				t.Fatalf("an error without a line: %v", err)
			}
		}
		require.Equal(t, first, second)
	})
}

func FuzzOpenAIChat(f *testing.F) { fuzz(f, foreign.OpenAIChat) }
func FuzzResponses(f *testing.F)  { fuzz(f, foreign.Responses) }
func FuzzAnthropic(f *testing.F)  { fuzz(f, foreign.Anthropic) }
func FuzzMem0(f *testing.F)       { fuzz(f, foreign.Mem0) }
func FuzzMCPMemory(f *testing.F)  { fuzz(f, foreign.MCPMemory) }
func FuzzChatGPT(f *testing.F)    { fuzz(f, foreign.ChatGPT) }
func FuzzClaude(f *testing.F)     { fuzz(f, foreign.Claude) }
func FuzzLangGraph(f *testing.F)  { fuzz(f, foreign.LangGraph) }
func FuzzPAM(f *testing.F)        { fuzz(f, foreign.PAM) }
func FuzzJSONL(f *testing.F)      { fuzz(f, foreign.JSONL) }

// Nothing of a message is lost, and no file is refused, for a shape that its format knows but few files have.
func TestRareShapes(t *testing.T) {
	said := func(f foreign.Format, file string) (lines []string, all []store.Artefact) {
		t.Helper()
		all, err := read(t, f, file)
		require.NoError(t, err, file)
		for i := range all {
			lines = append(lines, shown(&all[i]))
		}
		return lines, all
	}
	lines, all := said(foreign.Anthropic, `{"messages":[{"role":"user","content":[{"type":"search_result","source":"https://x","title":"t","content":[{"type":"text","text":"found"}]},{"type":"image","source":{"type":"url","url":"https://y"}},{"type":"text","text":"see"}]}]}`)
	require.Equal(t, []string{"anthropic:chat/1|user|||see"}, lines)
	require.Contains(t, all[0].Parts[0].Detail, `"source":"https://x"`)
	require.Equal(t, store.Part{Type: "image_url", URL: "https://y"}, all[0].Parts[1])

	call := []store.ToolCall{{ID: "c1", Type: "function", Name: "run", Arguments: "ls -la"}}
	_, all = said(foreign.OpenAIChat, `[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"run","input":"ls -la"}}]}]`)
	require.Equal(t, call, all[0].ToolCalls)
	lines, all = said(foreign.Responses, `[{"type":"custom_tool_call","id":"i1","call_id":"c1","name":"run","input":"ls -la"},{"type":"custom_tool_call_output","id":"i2","call_id":"c1","output":"a b"}]`)
	require.Equal(t, call, all[0].ToolCalls)
	require.Equal(t, "responses:chat/i2|tool|a b", lines[1])
	require.Equal(t, "c1", all[1].ToolCallID)

	chat := func(current, rest string) string {
		return `[{"conversation_id":"c","current_node":` + current + `,"mapping":{"r":{"parent":null,"message":null},
"a":{"parent":"r","message":{"id":"a","author":{"role":"user"},"create_time":1,"content":{"content_type":"multimodal_text","parts":[{"content_type":"audio_transcription","text":"which tea?","direction":"in"}]}}},
"b":{"parent":"a","message":{"id":"b","author":{"role":"assistant"},"create_time":2,"content":{"content_type":"thoughts","thoughts":[{"content":"green or black"}]}}},
"c":{"parent":"b","message":{"id":"c","author":{"role":"assistant"},"create_time":4,"content":{"content_type":"text","parts":["green"]}}},
"d":{"parent":"b","message":{"id":"d","author":{"role":"assistant"},"create_time":3,"content":{"content_type":"text","parts":["black"]}}}` + rest + `}}]`
	}
	green := []string{"chatgpt:c/a|user|which tea?", "chatgpt:c/b|assistant|[thoughts]|", "chatgpt:c/c|assistant|green"}
	lines, all = said(foreign.ChatGPT, chat(`"c"`, ""))
	require.Equal(t, green, lines)
	require.Contains(t, all[1].Parts[1].Detail, "green or black")
	lines, _ = said(foreign.ChatGPT, chat("null", ""))
	require.Equal(t, green, lines, "the branch with the newest message")
	lines, _ = said(foreign.ChatGPT, chat("null", `,"e":{"parent":"r","message":null}`))
	require.Equal(t, green, lines)
	require.ErrorContains(t, errOf(read(t, foreign.ChatGPT, chat(`"gone"`, ""))), "current_node")
	_, err := read(t, foreign.ChatGPT, chat(`"e"`, `,"e":{"parent":"c","message":{"id":"e","author":{"role":"user"},"content":"text"}}`))
	require.ErrorContains(t, err, "line 1, field mapping.e.message.content")
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// TestFollower: what comes into a file is imported without reading again what was read, and is in the end what an import of the whole
// file makes. A file that is cut or replaced is read from its beginning.
func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.jsonl")
	user := func(n int) string {
		return fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":"s","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"question %d"}}`+"\n", n, n)
	}
	block := func(n int, text string) string {
		return fmt.Sprintf(`{"type":"assistant","uuid":"a%s","sessionId":"s","timestamp":"2026-01-02T03:04:06Z","message":{"id":"m%d","role":"assistant","content":[{"type":"text","text":"%s"}]}}`+"\n", text, n, text)
	}
	s, content := scopeOf(t), ""
	f := &foreign.Follower{Scope: s}
	next := func(more string) (*foreign.Report, error) {
		t.Helper()
		content += more
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		file := must(os.Open(path))(t)
		defer file.Close()
		return f.Next(t.Context(), file)
	}
	counts := func(more string, want ...int) {
		t.Helper()
		rep := must(next(more))(t)
		require.Equal(t, want, []int{rep.Items, rep.New, rep.Changed})
		require.Equal(t, foreign.ClaudeCode, rep.Format)
	}
	counts(user(1)+user(2)+block(1, "one"), 3, 3, 0)
	counts(block(1, "two"), 1, 0, 1) // a block of the message that waited
	cut := user(3)
	counts(cut[:30], 1, 0, 0)
	counts(cut[30:], 2, 1, 0)
	counts(user(4)+block(2, "three"), 3, 2, 0)
	require.ErrorContains(t, errOf(next(`{"type":"user","uuid":7]`+"\n")), "line 8")
	content = strings.TrimSuffix(content, `{"type":"user","uuid":7]`+"\n")
	counts(block(2, "four"), 1, 0, 1)

	whole := scopeOf(t)
	must(foreign.Import(t.Context(), whole, strings.NewReader(content), foreign.Options{}))(t)
	want := must(loop.Collect(whole.Session("claude-code/s").Turns(t.Context(), 0)))(t)
	got := must(loop.Collect(s.Session("claude-code/s").Turns(t.Context(), 0)))(t)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, []any{want[i].Ref.ID, want[i].Text, want[i].Seq}, []any{got[i].Ref.ID, got[i].Text, got[i].Seq})
	}

	content = ""
	counts(user(1)+user(9), 2, 1, 0) // cut, and written anew
	content = ""
	counts(strings.Repeat(user(1), 20)+user(10), 2, 1, 0) // longer than before, and another file
}

func scopeOf(t *testing.T) *ctxpage.Scope {
	t.Helper()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db.Scope("acme/x")
}

// TestRepeatedIDs: of items with one id the last counts, a dry run says what the run does, and a second run writes nothing.
func TestRepeatedIDs(t *testing.T) {
	ctx := context.Background()
	lines := ""
	for i := range 1200 { // of more than one transaction
		lines += fmt.Sprintf(`{"key":"k%d","text":"text %d"}`+"\n", i%700, i)
	}
	for name, test := range map[string]struct {
		file          string
		opts          foreign.Options
		items, repeat int
	}{
		"observations": {`{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea","works","likes tea"]}`, foreign.Options{Format: foreign.MCPMemory}, 3, 1},
		"keys":         {lines, foreign.Options{Format: foreign.JSONL, Map: map[string]string{"id": ".key", "text": ".text"}}, 1200, 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopeOf(t)
			dry := test.opts
			dry.DryRun = true
			would := must(foreign.Import(ctx, s, strings.NewReader(test.file), dry))(t)
			require.Equal(t, test.repeat, would.Repeated)
			require.Equal(t, test.items-test.repeat, would.New)
			did := must(foreign.Import(ctx, s, strings.NewReader(test.file), test.opts))(t)
			would.DryRun = false
			require.Equal(t, would, did)
			again := must(foreign.Import(ctx, s, strings.NewReader(test.file), test.opts))(t)
			require.Zero(t, again.New+again.Changed)
			require.Equal(t, test.items-test.repeat, again.Same)
			if name == "keys" {
				v := must(s.Get(ctx, "jsonl:k499"))(t)
				require.Equal(t, "text 1199", v.Text)
			}
		})
	}
}

// TestWrongFiles: nothing of a file that is wrong is written, and the error says what it is.
func TestWrongFiles(t *testing.T) {
	ctx := context.Background()
	good := ""
	for i := range 600 { // more than one transaction
		good += fmt.Sprintf(`{"key":"k%d","text":"text"}`+"\n", i)
	}
	fields := map[string]string{"id": ".key", "text": ".text"}
	for name, test := range map[string]struct {
		file   string
		format foreign.Format
		says   string
		is     error
	}{
		"late error":  {good + `{"key":"x"}`, foreign.JSONL, "line 601, field text", store.ErrInvalid},
		"gzip":        {"\x1f\x8b\x08\x00", foreign.OpenAIChat, "compressed", store.ErrInvalid},
		"later PAM":   {`{"memories":[{"id":"a","content":"b"}],"schema_version":"2.0"}`, foreign.PAM, "version 2.0 of PAM", store.ErrNewerFormat},
		"mem0 no id":  {`{"results":[{"memory":"b"}]}`, foreign.Mem0, "no id", store.ErrInvalid},
		"wrong again": {`{"type":"entity","name":"a","observations":["b"]}` + "\n" + `{"type":"entity"}`, foreign.MCPMemory, "line 2", store.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopeOf(t)
			opts := foreign.Options{Format: test.format}
			if test.format == foreign.JSONL {
				opts.Map = fields
			}
			_, err := foreign.Import(ctx, s, strings.NewReader(test.file), opts)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			list := must(loop.Collect(s.Artefacts(ctx, "", ctxpage.AtMost(10, "", nil))))(t)
			require.Empty(t, list)
		})
	}
	s := scopeOf(t)
	_, err := foreign.Import(ctx, s, io.MultiReader(strings.NewReader(good+`{"key":"x"}`)), foreign.Options{Format: foreign.JSONL, Map: fields})
	require.ErrorIs(t, err, store.ErrInvalid)
	list := must(loop.Collect(s.Artefacts(ctx, "", ctxpage.AtMost(10, "", nil))))(t)
	require.NotEmpty(t, list, "control: a reader that gives its bytes once")
	for _, file := range []string{`{"schema_version":"1.1","memories":[{"id":"a","content":"b"}]}`, `{"memories":[{"id":"a","content":"b"}]}`} {
		rep := must(foreign.Import(ctx, scopeOf(t), strings.NewReader(file), foreign.Options{Format: foreign.PAM}))(t)
		require.Equal(t, 1, rep.New)
	}
	rep := must(foreign.Import(ctx, s, strings.NewReader(`{"results":[{"id":"a","memory":""},{"id":"b","memory":"tea"}]}`), foreign.Options{Format: foreign.Mem0}))(t)
	require.Equal(t, []int{1, 1}, []int{rep.New, rep.Empty})
}

// TestStrangeExports: what is no export matches ErrInvalid, as ReadHeader says, and the error says what the file is.
func TestStrangeExports(t *testing.T) {
	for begin, says := range map[string]string{
		"\x1f\x8b\x08\x00\n": "compressed", "\x1f\x8b\x08": "compressed", "\xff\xfe{\n": "UTF-16", "\xef\xbb\xbf{}\n": "byte order mark", "hello\n": "'h'", "{hello\n": "no JSON", "": "no line",
	} {
		_, err := portable.ReadHeader(bytes.NewReader([]byte(begin)))
		require.ErrorIs(t, err, store.ErrInvalid, "%q", begin)
		require.ErrorContains(t, err, says)
	}
}

// TestShapesOfTranscripts: words in places where a format has them seldom are kept, in the conversation and by the speaker they
// belong to, or the line is refused.
func TestShapesOfTranscripts(t *testing.T) {
	for name, c := range map[string]struct {
		format foreign.Format
		file   string
		want   []string // ID|role|text, and the names and ids of calls
		err    string
	}{
		"the subagent of a stream": {foreign.ClaudeCode, `{"type":"user","message":{"content":"go"},"session_id":"s","parent_tool_use_id":null,"uuid":"1"}
			{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"sub"}]},"session_id":"s","parent_tool_use_id":"task","uuid":"2"}`,
			[]string{"claude-code:s/1|user|go", "claude-code:s/task/m|assistant|sub"}, ""},
		"a prompt that was queued": {foreign.ClaudeCode, `{"type":"attachment","attachment":{"type":"queued_command","prompt":"and the tests"},"sessionId":"s","uuid":"1"}`,
			[]string{"claude-code:s/1|user|and the tests"}, ""},
		"a message of another program": {foreign.Codex, `{"type":"session_meta","payload":{"id":"c"}}
			{"role":"user","content":"hello"}`, nil, `line 2, field type: type: got "header", with words`},
		"an unknown speaker": {foreign.ShareGPT, `[{"conversations":[{"from":"narrator","value":"Once upon a time"}]}]`, nil, "field conversations.0.from"},
		"a content without a role": {foreign.Gemini, `{"contents":[{"parts":[{"text":"hello"}]}],"systemInstruction":{"parts":[{"text":"Be brief."}]}}`,
			[]string{"gemini:file/system||Be brief.", "gemini:file/1|user|hello"}, ""},
		"a system prompt beside messages": {foreign.Anthropic, `{"system":"Be brief.","messages":[{"role":"user","content":"hello"}]}`,
			[]string{"anthropic:file/1|user|hello", "anthropic:file/system||Be brief."}, ""},
		"a call from before calls had ids": {foreign.OpenAIChat, `[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"done"}]`,
			[]string{"openai:file/1|assistant| f/call-1", "openai:file/2|tool|done call-1"}, ""},
		"parallel calls without ids": {foreign.Gemini, `[{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"g","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"g","response":{"output":"two"}}},{"functionResponse":{"name":"f","response":{"output":"one"}}}]}]`,
			[]string{"gemini:file/1|assistant| f/call-1 g/call-2", "gemini:file/2|tool|two call-2", "gemini:file/3|tool|one call-1"}, ""},
		"a call that was cancelled": {foreign.Gemini, `{"sessionId":"s","projectHash":"h","messages":[{"id":"1","type":"gemini","content":"I look.","toolCalls":[{"id":"t","name":"f","args":{},"status":"cancelled"}]}]}`,
			[]string{"gemini:s/1|assistant|I look. f/t", "gemini:s/result-t|tool|(no output) t"}, ""},
		"calls without ids and results": {foreign.Cursor, `{"role":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","name":"Read","input":{"path":"a"}}]}}`,
			[]string{"cursor:file/1|assistant|I look.|"}, ""},
		"spoken words": {foreign.OpenAIChat, `[{"role":"assistant","content":null,"audio":{"id":"a","transcript":"Good day."}}]`, []string{"openai:file/1|assistant|Good day."}, ""},
		"a call as a block and in a list": {foreign.LangChain, `[{"type":"ai","data":{"content":[{"type":"text","text":"I look"},{"type":"tool_use","id":"t","name":"f","input":{}}],"tool_calls":[{"name":"f","args":{},"id":"t"}],"invalid_tool_calls":[{"name":"g","args":"{","id":"u"}]}}]`,
			[]string{"langchain:file/1|assistant|I look f/t g/u"}, ""},
		"a role in a message": {foreign.LangChain, `[{"type":"chat","data":{"content":"Hi.","role":"assistant"}},{"type":"chat","data":{"content":"Hm.","role":"critic"}}]`,
			[]string{"langchain:file/1|assistant|Hi.", "langchain:file/2||Hm."}, ""},
		"two agents of one name": {foreign.Letta, `{"agents":[{"id":"a0","name":"Ann","messages":[{"id":"m","role":"user","content":"one"}]},{"id":"a1","name":"Ann","messages":[{"id":"m","role":"user","content":"two"}]}],"blocks":[{"id":"b0","label":"human","value":"Kim"},{"id":"b1","label":"human","value":"Lee"}]}`,
			[]string{"letta:Ann/m|user|one", "letta:Ann-a1/m|user|two", "letta:block//human||human: Kim", "letta:block//human-b1||human: Lee"}, ""},
		"a call of a function": {foreign.Cursor, `{"type":"tool_call","subtype":"completed","call_id":"t","tool_call":{"function":{"name":"f","arguments":"{}"}},"session_id":"k"}`,
			[]string{"cursor:k/1|assistant| f/t"}, ""},
	} {
		var got []string
		_, err := foreign.Read(t.Context(), strings.NewReader(c.file), foreign.Options{Format: c.format, Name: "file"}, func(a store.Artefact, _ int) error {
			line := shown(&a)
			for _, call := range a.ToolCalls {
				line += " " + call.Name + "/" + call.ID
			}
			if a.ToolCallID != "" {
				line += " " + a.ToolCallID
			}
			got = append(got, line)
			return nil
		})
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// TestUTF16: a file that a shell of Windows redirected is read.
func TestUTF16(t *testing.T) {
	for _, order := range []unicode.Endianness{unicode.LittleEndian, unicode.BigEndian} {
		file := must(unicode.UTF16(order, unicode.UseBOM).NewEncoder().Bytes([]byte(samples[foreign.ClaudeCode])))(t)
		f, _, err := foreign.Detect(t.Context(), bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, foreign.ClaudeCode, f)
		want := must(read(t, f, samples[foreign.ClaudeCode]))(t)
		got := must(read(t, f, string(file)))(t)
		require.Equal(t, want, got)
	}
}
