package render

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Parse reads what Render wrote in that shape. See ParseText and ParseMessages for what is recovered. Anthropic and
// Gemini have no field for a turn's name, and none of the three message shapes has one for the name of a tool
// result.
func Parse(b []byte, p Provider) (Pack, error) {
	var msgs []Message
	var err error
	switch p {
	case ProviderText:
		return ParseText(b)
	case ProviderOpenAI:
		msgs, err = parseOpenAI(b)
	case ProviderAnthropic:
		msgs, err = parseAnthropic(b)
	case ProviderGemini:
		msgs, err = parseGemini(b)
	default:
		err = fmt.Errorf("render: no shape %v; use one of the Provider constants", p)
	}
	if err != nil {
		return Pack{}, err
	}
	return ParseMessages(msgs)
}

func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrParse, err)
	}
	return nil
}

// firstError keeps the first error of a run of decodings, so they read straight.
type firstError struct{ err error }

func (f *firstError) id(s string, p Provider) string {
	v, err := parseCallID(s, p)
	return f.keep(v, err)
}

func (f *firstError) arguments(s string) string {
	v, err := parseArguments(s)
	return f.keep(v, err)
}

func (f *firstError) keep(v string, err error) string {
	if f.err == nil {
		f.err = err
	}
	return v
}

func parseOpenAI(b []byte) ([]Message, error) {
	var doc struct {
		Messages []struct {
			Role, Name string
			Content    json.RawMessage
			CallID     string `json:"tool_call_id"`
			Calls      []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var msgs []Message
	var f firstError
	for _, d := range doc.Messages {
		m := Message{Role: d.Role, Name: f.keep(parseName(d.Name)), ToolCallID: f.id(d.CallID, ProviderOpenAI)}
		m.Parts = parseContent(d.Content, &f)
		for _, c := range d.Calls {
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: f.id(c.ID, ProviderOpenAI),
				Name: c.Function.Name, Arguments: f.arguments(c.Function.Arguments)})
		}
		msgs = append(msgs, m)
	}
	return msgs, f.err
}

// parseContent reads a string, a list of text parts, or null.
func parseContent(raw json.RawMessage, f *firstError) []string {
	if len(raw) == 0 || raw[0] != '[' {
		var one *string
		f.keep("", decode(raw, &one))
		if one == nil {
			return nil
		}
		return []string{*one}
	}
	var list []struct{ Text string }
	f.keep("", decode(raw, &list))
	var parts []string
	for _, p := range list {
		parts = append(parts, p.Text)
	}
	return parts
}

type anthropicBlock struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	UseID                string `json:"tool_use_id"`
	Content              string
	own                  bool // it opens with ownTurn
}

func (b *anthropicBlock) UnmarshalJSON(raw []byte) error {
	type plain anthropicBlock
	b.own = strings.HasPrefix(string(raw), ownTurn)
	return json.Unmarshal(raw, (*plain)(b))
}

func parseAnthropic(b []byte) ([]Message, error) {
	var doc struct {
		System   []anthropicBlock
		Messages []struct {
			Role    string
			Content []anthropicBlock
		}
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var f firstError
	system := Message{Role: RoleSystem}
	for _, block := range doc.System {
		system.Parts = append(system.Parts, block.Text)
	}
	msgs := []Message{system}
	for _, m := range doc.Messages {
		for i, block := range m.Content {
			msgs = block.addTo(msgs, m.Role, i == 0 || block.own, &f)
		}
	}
	return msgs, f.err
}

// addTo appends the block as a message; a call goes to the text before it.
func (b *anthropicBlock) addTo(msgs []Message, role string, fresh bool, f *firstError) []Message {
	switch b.Type {
	case "text":
		if b.own {
			return msgs // earlier
		}
		return append(msgs, Message{Role: role, Parts: []string{b.Text}})
	case "tool_result":
		return append(msgs, Message{Role: RoleTool, ToolCallID: f.id(b.UseID, ProviderAnthropic), Parts: []string{b.Content}})
	case "tool_use":
		return addCall(msgs, role, fresh, ToolCall{ID: f.id(b.ID, ProviderAnthropic), Name: b.Name,
			Arguments: f.arguments(string(b.Input))})
	}
	f.keep("", fmt.Errorf("%w: a content block of type %.40q", ErrParse, b.Type))
	return msgs
}

func addCall(msgs []Message, role string, fresh bool, c ToolCall) []Message {
	if fresh {
		msgs = append(msgs, Message{Role: role})
	}
	m := &msgs[len(msgs)-1]
	m.ToolCalls = append(m.ToolCalls, c)
	return msgs
}

type geminiPart struct {
	Text string
	Call *struct {
		ID, Name string
		Args     json.RawMessage
	} `json:"functionCall"`
	Response *struct {
		ID, Name string
		Response struct{ Output string }
	} `json:"functionResponse"`
	own bool // it opens with ownTurn
}

func (p *geminiPart) UnmarshalJSON(raw []byte) error {
	type plain geminiPart
	p.own = strings.HasPrefix(string(raw), ownTurn)
	return json.Unmarshal(raw, (*plain)(p))
}

func parseGemini(b []byte) ([]Message, error) {
	type content struct {
		Role  string
		Parts []geminiPart
	}
	var doc struct {
		System   content `json:"systemInstruction"`
		Contents []content
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var f firstError
	system := Message{Role: RoleSystem}
	for _, part := range doc.System.Parts {
		system.Parts = append(system.Parts, part.Text)
	}
	msgs := []Message{system}
	for _, c := range doc.Contents {
		for i := range c.Parts {
			msgs = c.Parts[i].addTo(msgs, c.Role, i == 0 || c.Parts[i].own, &f)
		}
	}
	return msgs, f.err
}

func (p *geminiPart) addTo(msgs []Message, role string, fresh bool, f *firstError) []Message {
	if role == "model" {
		role = RoleAssistant
	}
	switch {
	case p.Call != nil:
		return addCall(msgs, role, fresh, ToolCall{ID: f.id(p.Call.ID, ProviderGemini), Name: p.Call.Name,
			Arguments: f.arguments(string(p.Call.Args))})
	case p.Response != nil:
		return append(msgs, Message{Role: RoleTool, ToolCallID: f.id(p.Response.ID, ProviderGemini),
			Parts: []string{p.Response.Response.Output}})
	}
	if p.own {
		return msgs // earlier
	}
	return append(msgs, Message{Role: role, Parts: []string{p.Text}})
}
