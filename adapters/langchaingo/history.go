// Package langchaingo keeps the conversations of LangChainGo in sessions.
//
//	history := langchaingo.NewHistory(db.Scope("acme/support"), "chat-1")    // a schema.ChatMessageHistory: every message, as it was
//	memory := langchaingo.NewMemory(db.Scope("acme/support"), "chat-1", 4000) // a schema.Memory: what fits into 4,000 tokens
//
// A message is a turn of the session. Only what the user said counts as the user's words; what the model and tools said is seen
// in this conversation alone, until it passes the gate like any other draft.
package langchaingo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/schema"
)

// History is the whole conversation, message by message. It is safe for concurrent use, also by several processes on one
// database. It needs a scope of the host: a gated one refuses every message with store.ErrGated.
type History struct {
	session *ctxpage.Session
}

var _ schema.ChatMessageHistory = (*History)(nil)

// NewHistory makes the history of a session. A session needs no creating.
func NewHistory(scope *ctxpage.Scope, sessionID string) *History {
	return &History{scope.Session(sessionID)}
}

const item = "item" // the type of the part with the message as JSON

// message is a message as it is stored.
type message struct {
	Type         llms.ChatMessageType `json:"type"`
	Content      string               `json:"content"`
	Role         string               `json:"role,omitempty"`
	Name         string               `json:"name,omitempty"`
	ID           string               `json:"id,omitempty"`
	FunctionCall *llms.FunctionCall   `json:"function_call,omitempty"`
	ToolCalls    []plainCall          `json:"tool_calls,omitempty"`
	Reasoning    string               `json:"reasoning,omitempty"`
}

// plainCall is a tool call without LangChainGo's methods for JSON: what they write they cannot read, and the function is lost.
type plainCall llms.ToolCall

func convert[To, From llms.ToolCall | plainCall](calls []From) []To {
	var out []To
	for _, c := range calls {
		out = append(out, To(c))
	}
	return out
}

// words returns the words of a message by which it is found, and which contexts show.
func (m *message) words() string {
	if m.Content != "" {
		return m.Content
	}
	var calls []string
	for _, c := range m.ToolCalls {
		if c.FunctionCall != nil {
			calls = append(calls, c.FunctionCall.Name+"("+c.FunctionCall.Arguments+")")
		}
	}
	if m.FunctionCall != nil {
		calls = append(calls, m.FunctionCall.Name+"("+m.FunctionCall.Arguments+")")
	}
	if len(calls) > 0 {
		return strings.Join(calls, "\n")
	}
	return "[" + string(m.Type) + "]"
}

// turn makes the turn of a message: its words for contexts, and the message itself, which comes back as it was. A message of a
// type that this package does not know would not, so it is refused.
func turn(m llms.ChatMessage) (ctxpage.Turn, error) {
	var s message
	switch m := m.(type) {
	case llms.HumanChatMessage:
		s = message{Content: m.Content}
	case llms.AIChatMessage:
		s = message{Content: m.Content, FunctionCall: m.FunctionCall, ToolCalls: convert[plainCall](m.ToolCalls), Reasoning: m.ReasoningContent}
	case llms.SystemChatMessage:
		s = message{Content: m.Content}
	case llms.GenericChatMessage:
		s = message{Content: m.Content, Role: m.Role, Name: m.Name}
	case llms.FunctionChatMessage:
		s = message{Content: m.Content, Name: m.Name}
	case llms.ToolChatMessage:
		s = message{Content: m.Content, ID: m.ID}
	default:
		return ctxpage.Turn{}, fmt.Errorf("langchaingo: a message of type %T; expected a message type of package llms, by value", m)
	}
	s.Type = m.GetType()
	body, err := json.Marshal(s)
	if err != nil {
		return ctxpage.Turn{}, fmt.Errorf("langchaingo: a message is no JSON: %w", err)
	}
	role := render.RoleAssistant
	if s.Type == llms.ChatMessageTypeHuman {
		role = render.RoleUser
	}
	return ctxpage.Turn{Role: role, Parts: []store.Part{{Type: "text", Text: s.words()}, {Type: item, Text: string(body)}}}, nil
}

// messageOf returns the message of a turn. A turn that another program appended is one of a human or of an AI.
func messageOf(v *ctxpage.Version) (llms.ChatMessage, error) {
	for _, p := range v.Parts {
		if p.Type == item {
			return stored(v, p.Text)
		}
	}
	text := v.Text
	for _, p := range v.Parts {
		if p.Type == "text" {
			text += p.Text
		}
	}
	switch v.Role {
	case render.RoleUser:
		return llms.HumanChatMessage{Content: text}, nil
	case render.RoleTool:
		return llms.ToolChatMessage{ID: v.ToolCallID, Content: text}, nil
	}
	return llms.AIChatMessage{Content: text, ToolCalls: callsOf(v.ToolCalls)}, nil
}

func stored(v *ctxpage.Version, body string) (llms.ChatMessage, error) {
	var s message
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return nil, fmt.Errorf("langchaingo: %s has a part that is no message: %w", v.Ref, err)
	}
	switch s.Type {
	case llms.ChatMessageTypeHuman:
		return llms.HumanChatMessage{Content: s.Content}, nil
	case llms.ChatMessageTypeAI:
		return llms.AIChatMessage{Content: s.Content, FunctionCall: s.FunctionCall, ToolCalls: convert[llms.ToolCall](s.ToolCalls), ReasoningContent: s.Reasoning}, nil
	case llms.ChatMessageTypeSystem:
		return llms.SystemChatMessage{Content: s.Content}, nil
	case llms.ChatMessageTypeGeneric:
		return llms.GenericChatMessage{Content: s.Content, Role: s.Role, Name: s.Name}, nil
	case llms.ChatMessageTypeFunction:
		return llms.FunctionChatMessage{Content: s.Content, Name: s.Name}, nil
	case llms.ChatMessageTypeTool:
		return llms.ToolChatMessage{Content: s.Content, ID: s.ID}, nil
	}
	return nil, fmt.Errorf("langchaingo: %s is a message of type %q, which this release does not know", v.Ref, s.Type)
}

// AddMessage adds a message at the end.
func (h *History) AddMessage(ctx context.Context, m llms.ChatMessage) error {
	return h.add(ctx, m)
}

// AddUserMessage adds what the user said.
func (h *History) AddUserMessage(ctx context.Context, text string) error {
	return h.add(ctx, llms.HumanChatMessage{Content: text})
}

// AddAIMessage adds what the model said.
func (h *History) AddAIMessage(ctx context.Context, text string) error {
	return h.add(ctx, llms.AIChatMessage{Content: text})
}

// add appends messages in one transaction.
func (h *History) add(ctx context.Context, messages ...llms.ChatMessage) error {
	turns := make([]ctxpage.Turn, len(messages))
	for i, m := range messages {
		var err error
		if turns[i], err = turn(m); err != nil {
			return err
		}
	}
	if len(turns) == 0 {
		return nil
	}
	_, err := h.session.Append(ctx, turns...)
	return err
}

// Clear deletes all messages. Their versions stay for replays, until gc.
func (h *History) Clear(ctx context.Context) error {
	_, err := h.session.Truncate(ctx, 0, "")
	if errors.Is(err, store.ErrNotFound) {
		return nil // nothing was ever said
	}
	return err
}

// Messages returns all messages in order.
func (h *History) Messages(ctx context.Context) ([]llms.ChatMessage, error) {
	out := []llms.ChatMessage{}
	for v, err := range h.session.Turns(ctx, 0) {
		if errors.Is(err, store.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		m, err := messageOf(v)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// SetMessages replaces all messages: it deletes them and adds the new ones, in two transactions. A crash between the two leaves an empty
// conversation, whose deleted messages can still be read by reference.
func (h *History) SetMessages(ctx context.Context, messages []llms.ChatMessage) error {
	for _, m := range messages {
		if _, err := turn(m); err != nil {
			return err
		}
	}
	if err := h.Clear(ctx); err != nil {
		return err
	}
	return h.add(ctx, messages...)
}
