package contexty

import (
	"maps"

	"github.com/ctxpage/ctxpage/token"
)

// Message is one turn of a conversation in the shape that providers share. It is not validated here.
type Message struct {
	ID         string         `json:"id,omitempty"` // names the message in reports; never counted
	Role       string         `json:"role"`
	Content    []ContentPart  `json:"content,omitempty"`
	Name       string         `json:"name,omitempty"`
	ToolCalls  []ToolCall     `json:"tool_calls,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"` // of a tool result: the call it answers
	Metadata   map[string]any `json:"metadata,omitempty"`     // carried along, never counted
}

// ContentPart is a piece of a message. Only the type "text" counts as text.
type ContentPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *ImageURL `json:"image_url,omitempty"`
}

// ImageURL points at an image; Detail is "low", "high" or empty.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// ToolCall asks for a tool.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
}

// FunctionCall names the function and carries its arguments as an opaque string.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// TextMessage returns a message of one text part.
func TextMessage(role, text string) Message {
	return Message{Role: role, Content: []ContentPart{{Type: "text", Text: text}}}
}

// MultipartMessage returns a message with these parts.
func MultipartMessage(role string, parts ...ContentPart) Message {
	return Message{Role: role, Content: parts}
}

// What a provider adds to the text of a message. The figures are those published for chat formats and image tiles,
// rounded up: framing of a message and its role, framing of a tool call, an image in low and in high detail.
const (
	messageTokens   = 4
	toolCallTokens  = 8
	imageLowTokens  = 85
	imageHighTokens = 765
)

// Weigh returns the cost of a message in tokens: its texts and tool calls by the counter, plus framing and a flat
// cost for each part that is not text. Compile calls it for a block without Weights. Call it once per message and
// store the result.
func Weigh(c token.Counter, m *Message) int {
	n := messageTokens
	if m.Name != "" {
		n += c.Count(m.Name)
	}
	for i := range m.Content {
		p := &m.Content[i]
		n += c.Count(p.Text)
		if p.Type != "text" {
			n += partTokens(p)
		}
	}
	for i := range m.ToolCalls {
		f := &m.ToolCalls[i].Function
		n += toolCallTokens + c.Count(f.Name) + c.Count(f.Arguments)
	}
	return n
}

func partTokens(p *ContentPart) int {
	if p.ImageURL != nil && p.ImageURL.Detail == "low" {
		return imageLowTokens
	}
	return imageHighTokens
}

// slab hands out the memory of copied messages in few pieces, so that a copy of many short messages is not as many
// allocations. A piece handed out has no spare capacity: appending to one message never reaches into the next.
type slab struct {
	parts  []ContentPart
	calls  []ToolCall
	images []ImageURL
}

func newSlab(messages []Message, keep []int) *slab {
	var parts, calls, images int
	for _, i := range keep {
		m := &messages[i]
		parts += len(m.Content)
		calls += len(m.ToolCalls)
		for j := range m.Content {
			if m.Content[j].ImageURL != nil {
				images++
			}
		}
	}
	return &slab{parts: make([]ContentPart, 0, parts), calls: make([]ToolCall, 0, calls), images: make([]ImageURL, 0, images)}
}

// copy returns a message that shares no memory a caller could write to. Values in Metadata are copied through maps and
// slices of any; other reference types inside are the caller's own.
func (s *slab) copy(m *Message) Message {
	c := *m
	c.Metadata = copyMap(m.Metadata)
	if m.ToolCalls != nil {
		at := len(s.calls)
		s.calls = append(s.calls, m.ToolCalls...)
		c.ToolCalls = s.calls[at:len(s.calls):len(s.calls)]
	}
	if m.Content != nil {
		at := len(s.parts)
		s.parts = append(s.parts, m.Content...)
		c.Content = s.parts[at:len(s.parts):len(s.parts)]
	}
	for i := range c.Content {
		if p := c.Content[i].ImageURL; p != nil {
			s.images = append(s.images, *p)
			c.Content[i].ImageURL = &s.images[len(s.images)-1]
		}
	}
	return c
}

func copyMap(m map[string]any) map[string]any {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = copyValue(v)
	}
	return c
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return copyMap(v)
	case []any:
		if v == nil {
			return v
		}
		c := make([]any, len(v))
		for i := range v {
			c[i] = copyValue(v[i])
		}
		return c
	}
	return v
}
