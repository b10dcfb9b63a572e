package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Message is one turn of a chat: words, calls of tools, or the result of a call.
type Message struct {
	ID         string // its id in the file; "" if it has none
	Role       string // as the file spells it
	Name       string
	Text       string
	Parts      []store.Part // instead of Text if the message has more than text
	ToolCalls  []store.ToolCall
	ToolCallID string
	At         time.Time // zero if the file does not say
}

// Speaks reports whether the message says, calls or answers anything. It adds a word such as "[image]" to a message without text, because
// a turn needs words.
func (m *Message) Speaks() bool {
	if len(m.Parts) > 0 && !hasText(m.Parts) {
		m.Parts = append([]store.Part{{Type: "text", Text: "[" + m.Parts[0].Type + "]"}}, m.Parts...)
	}
	return strings.TrimSpace(m.Text) != "" || len(m.Parts)+len(m.ToolCalls) > 0
}

func (m *Message) Texts() (all []string) {
	if m.Text != "" {
		all = []string{m.Text}
	}
	for _, p := range m.Parts {
		if p.Type == "text" && p.Text != "" {
			all = append(all, p.Text)
		}
	}
	return all
}

// fields is a JSON object, undecoded.
type fields = map[string]json.RawMessage

func object(raw json.RawMessage) (v fields) {
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

func list(raw json.RawMessage) (v []json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// first returns the first value that is not empty. A key may be a path, as in function.name.
func first(v fields, keys ...string) json.RawMessage {
	for _, key := range keys {
		raw := v[key]
		if head, rest, nested := strings.Cut(key, "."); nested {
			raw = dig(v[head], strings.Split(rest, "."))
		}
		if filled(raw) {
			return raw
		}
	}
	return nil
}

func filled(raw json.RawMessage) bool {
	return len(raw) > 0 && !slices.Contains([]string{"null", `""`, "[]", "{}"}, string(raw))
}

// name returns the first value that is a string or a number.
func name(v fields, keys ...string) string { return scalar(first(v, keys...)) }

// ParseMessage reads one message of OpenAI or Anthropic, or one item of the Responses API. An Anthropic message with tool results
// is several turns. An item of another type is an error, because its words would be lost. The error is a *portable.LineError;
// line counts from 1.
func ParseMessage(raw []byte, line int) ([]Message, error) {
	e := element{raw: raw, line: line}
	if err := check(e); err != nil {
		return nil, err
	}
	return messages(e)
}

// responseTypes are the items of the Responses API. Items without a way to become a turn are kept whole, with their type as text.
var responseTypes = []string{
	"message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "local_shell_call", "local_shell_call_output",
	"shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "web_search_call", "file_search_call", "computer_call", "computer_call_output",
	"code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction", "item_reference",
}

func messages(e element) ([]Message, error) {
	var v fields
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	kind, m := name(v, "type"), Message{ID: name(v, "id"), Role: name(v, "role")}
	switch {
	case m.Role != "":
		m.Name, m.ToolCallID = readName(name(v, "name")), name(v, "tool_call_id")
		out, err := body(e, m, v, "content")
		if err == nil && !filled(v["content"]) {
			err = unread(e, v, out)
		}
		return out, err
	case strings.HasSuffix(kind, "_output") && slices.Contains(responseTypes, kind):
		m.Role, m.ToolCallID, m.Text = render.RoleTool, name(v, "call_id"), words(v["output"])
	case kind == "function_call", kind == "custom_tool_call", kind == "local_shell_call":
		m.Role, m.ToolCalls = render.RoleAssistant, []store.ToolCall{callOf(v)}
	case slices.Contains(responseTypes, kind):
		m.Role = render.RoleAssistant
		m.Parts = []store.Part{{Type: "text", Text: strings.TrimSpace("[" + kind + "] " + words(v["summary"]))}, keptPart(kind, e.raw)}
	case kind != "":
		return nil, e.wrong("type", store.Invalid("type", fmt.Sprintf("%q", short(kind)),
			"a message with a role, or an item of the Responses API ("+strings.Join(responseTypes[:4], ", ")+" …); dbctl import reads transcripts of other programs"))
	default:
		return nil, e.wrong("role", store.Invalid("message", "neither role nor type", "a message with a role, or an item with a type"))
	}
	return []Message{m}, nil
}

// unread refuses a message that says nothing under the keys of its format and something under the key of another one.
func unread(e element, v fields, out []Message) error {
	for i := range out {
		if out[i].Speaks() || out[i].ToolCallID != "" {
			return nil
		}
	}
	for _, key := range []string{"text", "parts", "message", "value", "data", "body"} {
		if filled(v[key]) {
			return e.wrong(key, store.Invalid("message", "no content, and words under "+key, "content; dbctl import detects the formats of other programs, and --from names one"))
		}
	}
	return nil
}

// speaker collects the turns of one message. Results of tools are turns of their own: those in a message of the user come first,
// those in a message of the assistant after the calls before them.
type speaker struct {
	Message
	out   []Message
	after []Message // results
}

// body reads a message: texts, calls, results and other blocks, wherever its program puts them. content are the keys under which
// the words may be.
func body(e element, m Message, v fields, content ...string) ([]Message, error) {
	s := &speaker{Message: m}
	for _, key := range []string{"thoughts", "reasoning", "reasoning_content", "reasoningText"} {
		if raw := v[key]; filled(raw) {
			b, _ := json.Marshal(fields{"type": json.RawMessage(`"` + key + `"`), key: raw}) // both are JSON
			s.Parts = append(s.Parts, keptPart(key, b))
		}
	}
	raw := first(v, content...)
	switch blocks := list(raw); {
	case len(raw) == 0:
		s.said(text(first(v, "refusal", "audio.transcript")))
	case raw[0] == '"':
		s.said(text(raw))
	case blocks != nil:
		for i, b := range blocks {
			if !s.block(b) {
				return nil, e.wrong(fmt.Sprintf("content.%d", i), store.Invalid("block", cut(string(b), 40), "an object with a type"))
			}
		}
	case object(raw) != nil && filled(first(object(raw), "text", "value", "content")):
		s.said(words(first(object(raw), "text", "value", "content")))
	default:
		return nil, e.wrong("content", store.Invalid("content", cut(string(raw), 40), "a string or a list of blocks"))
	}
	for _, c := range list(v["toolCalls"]) { // of Gemini CLI, with their results
		s.answered(object(c))
	}
	for _, c := range list(first(v, "tool_calls", "toolRequests", "additional_kwargs.tool_calls")) {
		s.call(object(c))
	}
	for _, c := range list(v["invalid_tool_calls"]) { // of LangChain: their arguments are no JSON
		s.call(object(c))
	}
	if c := object(first(v, "function_call", "additional_kwargs.function_call")); c != nil && len(s.ToolCalls) == 0 {
		s.call(fields{"name": c["name"], "arguments": c["arguments"]})
	}
	for _, r := range list(first(v, "tool_results")) {
		s.result(object(r), r)
	}
	s.flush()
	if len(s.out) == 0 {
		return []Message{m}, nil
	}
	return s.out, nil
}

func (s *speaker) said(text string) {
	if text != "" {
		s.Parts = append(s.Parts, store.Part{Type: "text", Text: text})
	}
}

// flush ends a turn: what the message said so far, and the results that follow it.
func (s *speaker) flush() {
	if s.settle(); s.Text != "" || len(s.Parts)+len(s.ToolCalls) > 0 {
		s.out = append(s.out, s.Message)
	}
	s.out = append(s.out, s.after...)
	s.after, s.Text, s.Parts, s.ToolCalls = nil, "", nil, nil
}

// block adds a block. It reports false for one that is neither a text nor an object.
func (s *speaker) block(raw json.RawMessage) bool {
	if len(raw) > 0 && raw[0] == '"' {
		s.said(text(raw))
		return true
	}
	b := object(raw)
	if b == nil {
		return false
	}
	if len(s.after) > 0 {
		s.flush()
	}
	kind := name(b, "type", "kind")
	switch {
	case filled(b["functionCall"]):
		s.call(object(b["functionCall"]))
	case filled(b["functionResponse"]):
		s.result(object(b["functionResponse"]), raw)
	case kind == "tool_use", kind == "tool-call", kind == "tool_call":
		s.call(b)
	case kind == "tool_result", kind == "tool-result":
		s.result(b, raw)
	case kind == "tool" && filled(b["state"]): // OpenCode: a call and its result
		state := object(b["state"])
		s.answered(fields{"id": first(b, "callID", "id"), "name": b["tool"], "input": state["input"], "result": first(state, "output", "error")})
	case kind == "toolInvocationSerialized": // Copilot: what was shown of a call and its result
		s.answered(fields{"id": b["toolCallId"], "name": first(b, "toolId", "toolName"), "input": b["invocationMessage"], "result": b["pastTenseMessage"]})
	case string(b["thought"]) != "true" && (kind == "" || kind == "text" || kind == "input_text" || kind == "output_text" || kind == "refusal" || kind == "markdownContent"):
		if said := words(first(b, "text", "refusal", "value", "content.value", "content")); said != "" || len(b) == 0 || kind != "" {
			s.said(said)
		} else {
			s.Parts = append(s.Parts, keptPart(kind, raw))
		}
	default:
		s.other(kind, b, raw)
	}
	return true
}

// other keeps a block that is not text, with the text beside it.
func (s *speaker) other(kind string, b fields, raw json.RawMessage) {
	if p, ok := image(b); ok && (kind == "image_url" || kind == "input_image" || kind == "image") {
		s.Parts = append(s.Parts, p)
		return
	}
	if kind == "" || string(b["thought"]) == "true" {
		kind = "thought"
	} else if said := text(b["text"]); said != "" && kind != "reasoning" {
		s.said(said)
	}
	s.Parts = append(s.Parts, keptPart(kind, raw))
}

// answered adds a call whose result is beside it, if it has one. A call that was cancelled has none: no context would show it and
// what was said with it.
func (s *speaker) answered(v fields) {
	if v != nil && !filled(v["result"]) {
		v["result"] = quoted(noOutput)
	}
	s.call(v)
}

func (s *speaker) call(v fields) {
	if v == nil {
		return
	}
	c := callOf(v)
	if c.ID == "" || !slices.ContainsFunc(s.ToolCalls, func(x store.ToolCall) bool { return x.ID == c.ID && x.Name == c.Name }) { // some files have a call as a block and in a list
		s.ToolCalls = append(s.ToolCalls, c)
	}
	r := first(v, "result")
	if r == nil {
		return
	}
	for _, x := range list(r) {
		if f := object(object(x)["functionResponse"]); f != nil {
			r = first(f, "response", "output")
		}
	}
	s.after = append(s.after, Message{Role: render.RoleTool, Name: c.Name, ToolCallID: c.ID, Text: words(r), At: s.At})
}

// callOf reads a call of a tool as any program writes it.
func callOf(v fields) store.ToolCall {
	if custom := object(v["custom"]); custom != nil {
		v["name"], v["input"] = custom["name"], custom["input"]
	}
	c := store.ToolCall{ID: name(v, "call_id", "toolCallId", "action_id", "id"), Type: "function", Name: name(v, "name", "function.name", "tool_name", "toolName")}
	if c.Name == "" {
		c.Name = strings.TrimSuffix(name(v, "type"), "_call")
	}
	for _, raw := range []json.RawMessage{v["arguments"], object(v["function"])["arguments"], v["input"], v["args"], v["arguments_json"], v["action"]} {
		if len(raw) > 0 && string(raw) != "null" {
			c.Arguments = arguments(raw)
			break
		}
	}
	return c
}

// result adds the turn of a tool result. A result that is an error, or has more than words, is kept whole beside its words.
func (s *speaker) result(b fields, raw json.RawMessage) {
	content := first(b, "content", "output", "response", "result", "output_preview", "tool_return")
	m := Message{Role: render.RoleTool, Name: name(b, "name"), ToolCallID: name(b, "tool_use_id", "tool_call_id", "toolCallId", "action_id", "call_id", "id"), Text: words(content), At: s.At}
	more := slices.ContainsFunc(list(content), func(x json.RawMessage) bool { return name(object(x), "type") != "text" })
	if m.Text != "" && (string(b["is_error"]) == "true" || more) {
		m.Parts, m.Text = []store.Part{{Type: "text", Text: m.Text}, keptPart(toolResult, raw)}, ""
	}
	if s.Role == render.RoleAssistant {
		s.after = append(s.after, m)
	} else {
		s.out = append(s.out, m)
	}
}

func image(b fields) (store.Part, bool) {
	p := store.Part{Type: "image_url", URL: name(b, "image_url.url", "image_url", "source.url"), Detail: name(b, "image_url.detail")}
	return p, p.URL != "" && !strings.HasPrefix(p.URL, "data:")
}

// keptPart returns a block that is not text as a part, unchanged. The limit of an artefact applies.
func keptPart(kind string, raw json.RawMessage) store.Part {
	if kind == "text" || kind == "" {
		kind = "item"
	}
	return store.Part{Type: kind, Detail: string(raw)}
}

func (m *Message) settle() {
	var said []string
	for _, p := range m.Parts {
		if p.Type != "text" {
			return
		}
		said = append(said, p.Text)
	}
	if len(m.Parts) > 0 {
		m.Text, m.Parts = strings.Join(said, ""), nil
	}
}

func (m *Message) add(before, text string) {
	if len(m.Parts) == 0 {
		m.Text += before + text
		return
	}
	m.Parts = append(m.Parts, store.Part{Type: "text", Text: strings.TrimSpace(before) + "\n" + text})
}

// join adds the blocks of a later line that has the same id, and reports whether it said anything new.
func (m *Message) join(more *Message) (grew bool) {
	parts := func(x *Message) []store.Part {
		if x.Text == "" {
			return slices.Clone(x.Parts)
		}
		return []store.Part{{Type: "text", Text: x.Text}}
	}
	mine := parts(m)
	for _, p := range parts(more) {
		if !slices.Contains(mine, p) {
			mine, grew = append(mine, p), true
		}
	}
	for _, c := range more.ToolCalls {
		if !slices.Contains(m.ToolCalls, c) {
			m.ToolCalls, grew = append(m.ToolCalls, c), true
		}
	}
	if grew {
		m.Text, m.Parts = "", mine
		m.settle()
	}
	return grew
}

func arguments(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw)
	}
	return string(raw)
}

// words returns the texts of a string, a list of blocks, or an object around one; anything else unchanged.
func words(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"':
		return text(raw)
	case raw[0] == '{':
		v := object(raw)
		if inner := first(v, "output", "content", "value", "text"); inner != nil && len(v) <= 2 {
			return words(inner)
		}
		return string(raw)
	}
	blocks := list(raw)
	if blocks == nil {
		return string(raw)
	}
	var said []string
	for _, b := range blocks {
		v := object(b)
		switch {
		case v == nil:
			said = append(said, words(b))
		case filled(v["text"]):
			said = append(said, text(v["text"]))
		default:
			said = append(said, "["+name(v, "type")+"]")
		}
	}
	return strings.Join(said, "\n")
}

// hasWords reports whether a value has a text of at least two words anywhere.
func hasWords(raw json.RawMessage) bool {
	switch {
	case len(raw) == 0:
		return false
	case raw[0] == '"':
		s := strings.Fields(text(raw))
		return len(s) > 1 && slices.ContainsFunc(s, func(w string) bool { return strings.ToLower(w) != strings.ToUpper(w) || w > "\u2e7f" })
	case raw[0] == '{':
		return slices.ContainsFunc(slices.Collect(maps.Values(object(raw))), hasWords)
	}
	return slices.ContainsFunc(list(raw), hasWords)
}

// artefact makes a message the turn of a session: scratch. Instructions in a file instruct nobody, so they lose their role.
func (m *Message) artefact() (a store.Artefact, ok bool) {
	ok = m.Speaks()
	a = store.Artefact{
		Kind: store.KindMessage, Role: m.Role, Name: label(m.Name), Text: m.Text, Parts: m.Parts, ToolCallID: label(m.ToolCallID), ToolCalls: m.ToolCalls, CurrentAsOf: m.At,
	}
	switch m.Role {
	case render.RoleUser, render.RoleAssistant:
	case render.RoleTool, "function":
		a.Role = render.RoleTool
	case "human":
		a.Role = render.RoleUser
	default:
		a.Role, a.Kind, a.Name = "", store.KindScratch, label(m.Role)
	}
	if len(a.Parts) > 0 {
		a.Text = ""
	}
	if !ok && a.Role == render.RoleTool && a.ToolCallID != "" { // without its result a call is in no context
		a.Text, ok = noOutput, true
	}
	return a, ok
}

// noOutput stands for the result of a call that has none.
const noOutput = "(no output)"

func hasText(parts []store.Part) bool {
	return slices.ContainsFunc(parts, func(p store.Part) bool { return p.Type == "text" && p.Text != "" })
}
