package foreign_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"

	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/store"
)

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
