package foreign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Message is one turn of a chat: the words, what it calls, or what a call gave.
type Message struct {
	ID         string // that it has in its file; ""
	Role       string // as the file says
	Name       string
	Text       string
	Parts      []store.Part // instead of Text, where it is not only text
	ToolCalls  []store.ToolCall
	ToolCallID string
}

// rawMessage is a message of either provider, or an item of the Responses API.
type rawMessage struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Role       string          `json:"role"`
	Name       string          `json:"name"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
		Custom struct { // a tool that takes text instead of JSON; rendering knows functions only
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		} `json:"custom"`
	} `json:"tool_calls"`
	Refusal   string          `json:"refusal"`
	CallID    string          `json:"call_id"`
	Arguments json.RawMessage `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Output    json.RawMessage `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// rawBlock is a part of a message, of whatever provider.
type rawBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	ToolID   string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsError  bool            `json:"is_error"`
	ImageURL json.RawMessage `json:"image_url"`
	Source   json.RawMessage `json:"source"` // of an image an object; of a search result a string
}

// ParseMessage reads one message of OpenAI or Anthropic, or one item of the Responses API, as they are. An Anthropic message with
// tool results is several turns. The error is a *portable.LineError; line counts from 1.
func ParseMessage(raw []byte, line int) ([]Message, error) {
	e := element{raw: raw, line: line}
	if err := check(e); err != nil {
		return nil, err
	}
	return messages(e)
}

func messages(e element) ([]Message, error) {
	var r rawMessage
	if err := decode(e, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Role != "":
		return r.turns(e)
	case r.Type == "function_call":
		call := store.ToolCall{ID: r.CallID, Type: "function", Name: r.Name, Arguments: arguments(r.Arguments)}
		return []Message{{ID: r.ID, Role: render.RoleAssistant, ToolCalls: []store.ToolCall{call}}}, nil
	case r.Type == "custom_tool_call":
		call := store.ToolCall{ID: r.CallID, Type: "function", Name: r.Name, Arguments: arguments(r.Input)}
		return []Message{{ID: r.ID, Role: render.RoleAssistant, ToolCalls: []store.ToolCall{call}}}, nil
	case r.Type == "function_call_output", r.Type == "custom_tool_call_output":
		return []Message{{ID: r.ID, Role: render.RoleTool, ToolCallID: r.CallID, Text: words(r.Output)}}, nil
	case r.Type != "":
		said := words(r.Summary)
		return []Message{{ID: r.ID, Role: render.RoleAssistant, Parts: []store.Part{{Type: "text", Text: strings.TrimSpace("[" + r.Type + "] " + said)}, keptPart(r.Type, e.raw)}}}, nil
	}
	return nil, e.wrong("role", store.Invalid("message", "neither role nor type", "a message with a role, or an item with a type"))
}

// turns are those of one message.
func (r *rawMessage) turns(e element) (out []Message, err error) {
	m := Message{ID: r.ID, Role: r.Role, Name: r.Name, ToolCallID: r.ToolCallID}
	for _, c := range r.ToolCalls {
		call := store.ToolCall{ID: c.ID, Type: "function", Name: c.Function.Name, Arguments: arguments(c.Function.Arguments)}
		if c.Type == "custom" {
			call.Name, call.Arguments = c.Custom.Name, arguments(c.Custom.Input)
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	var blocks []json.RawMessage
	switch {
	case len(r.Content) == 0 || string(r.Content) == "null":
		m.Text = r.Refusal
	case r.Content[0] == '"':
		m.Text = text(r.Content)
	case r.Content[0] == '[':
		if err := json.Unmarshal(r.Content, &blocks); err != nil {
			return nil, e.wrong("content", err)
		}
	default:
		return nil, e.wrong("content", store.Invalid("content", cut(string(r.Content), 40), "a string or a list of blocks"))
	}
	for i, raw := range blocks {
		var b rawBlock
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, e.wrong(fmt.Sprintf("content.%d", i), store.Invalid("block", cut(string(raw), 40), "an object with a type"))
		}
		if b.Type == "tool_result" {
			out = append(out, b.result(raw))
			continue
		}
		m.block(&b, raw)
	}
	m.settle()
	if len(out) > 0 && m.Text == "" && len(m.Parts)+len(m.ToolCalls) == 0 {
		return out, nil
	}
	return append(out, m), nil
}

// block adds a block to a message.
func (m *Message) block(b *rawBlock, raw json.RawMessage) {
	switch b.Type {
	case "text", "input_text", "output_text":
		m.Parts = append(m.Parts, store.Part{Type: "text", Text: b.Text})
	case "refusal":
		m.Parts = append(m.Parts, store.Part{Type: "text", Text: b.Refusal})
	case "tool_use":
		m.ToolCalls = append(m.ToolCalls, store.ToolCall{ID: b.ID, Type: "function", Name: b.Name, Arguments: arguments(b.Input)})
	case "image_url", "input_image", "image":
		if p, ok := b.image(); ok {
			m.Parts = append(m.Parts, p)
			return
		}
		fallthrough
	default:
		m.Parts = append(m.Parts, keptPart(b.Type, raw))
	}
}

// result is the turn of a tool result. One that is an error, or has more than words, is kept as it is beside its words.
func (b *rawBlock) result(raw json.RawMessage) Message {
	m := Message{Role: render.RoleTool, ToolCallID: b.ToolID, Text: words(b.Content)}
	var inner []rawBlock
	_ = json.Unmarshal(b.Content, &inner) // a string: none
	more := slices.ContainsFunc(inner, func(x rawBlock) bool { return x.Type != "text" })
	if m.Text != "" && (b.IsError || more) && len(raw) <= maxCarried {
		m.Parts, m.Text = []store.Part{{Type: "text", Text: m.Text}, keptPart(b.Type, raw)}, ""
	}
	return m
}

// image is an image that has an address.
func (b *rawBlock) image() (store.Part, bool) {
	url := struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	}{}
	_ = json.Unmarshal(b.Source, &url) // of no image that has an address
	if json.Unmarshal(b.ImageURL, &url) != nil && len(b.ImageURL) > 0 {
		url.URL = text(b.ImageURL)
	}
	if url.URL == "" || strings.HasPrefix(url.URL, "data:") {
		return store.Part{}, false
	}
	return store.Part{Type: "image_url", URL: url.URL, Detail: url.Detail}, true
}

// maxCarried is how much of a block that is no text is kept as it is; of a longer one its type and size.
const maxCarried = 64 << 10

// keptPart returns a block that is not text as a part, unchanged.
func keptPart(kind string, raw json.RawMessage) store.Part {
	if kind == "text" || kind == "" {
		kind = "item"
	}
	if len(raw) > maxCarried {
		return store.Part{Type: kind, Detail: fmt.Sprintf("%d bytes were left out", len(raw))}
	}
	return store.Part{Type: kind, Detail: string(raw)}
}

// settle makes text of parts that are only text.
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

// arguments are those of a call, as JSON text.
func arguments(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw)
	}
	return string(raw)
}

// words are the texts of a value that is a string, or a list of blocks, or something else, which is shown as it is.
func words(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return text(raw)
	}
	var blocks []rawBlock
	if json.Unmarshal(raw, &blocks) != nil {
		return string(raw)
	}
	var said []string
	for _, b := range blocks {
		if b.Text != "" {
			said = append(said, b.Text)
		} else {
			said = append(said, "["+b.Type+"]")
		}
	}
	return strings.Join(said, "\n")
}

// artefact is a message as it is stored: scratch, and a turn of its session. Instructions of a file instruct nobody.
func (m *Message) artefact() (a store.Artefact, ok bool) {
	a = store.Artefact{Kind: store.KindMessage, Role: m.Role, Name: label(m.Name), ToolCallID: label(m.ToolCallID), ToolCalls: m.ToolCalls}
	switch m.Role {
	case render.RoleUser, render.RoleAssistant:
	case render.RoleTool, "function":
		a.Role = render.RoleTool
	case "human":
		a.Role = render.RoleUser
	default:
		a.Role, a.Kind, a.Name = "", store.KindScratch, label(m.Role)
	}
	if a.Text, a.Parts = m.Text, m.Parts; len(a.Parts) > 0 {
		a.Text = ""
	}
	if len(a.Parts) > 0 && !hasText(a.Parts) {
		a.Parts = append([]store.Part{{Type: "text", Text: "[" + a.Parts[0].Type + "]"}}, a.Parts...)
	}
	return a, a.Text != "" || len(a.Parts)+len(a.ToolCalls) > 0
}

func hasText(parts []store.Part) bool {
	for _, p := range parts {
		if p.Type == "text" && p.Text != "" {
			return true
		}
	}
	return false
}
