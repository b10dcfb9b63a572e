package langchaingo

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/memory"
	"github.com/tmc/langchaingo/schema"
)

// Memory is the memory of a chain: for each input a context within a budget of tokens, made of the turns of the conversation and of the
// facts of the scope that answer the input. Set its fields before use. It is safe for concurrent use.
//
// A memory that returns the whole conversation is LangChainGo's own ConversationBuffer over a History.
type Memory struct {
	// Budget is the limit of tokens of the context.
	Budget int
	// MemoryKey is the variable of the prompt; "": history.
	MemoryKey string
	// InputKey and OutputKey name the values that are kept as turns; "": there must be only one.
	InputKey, OutputKey string
	// ReturnMessages makes the variable a []llms.ChatMessage, for chat prompts. Without it the variable is a text.
	ReturnMessages bool

	scope   *ctxpage.Scope
	history *History
}

var _ schema.Memory = (*Memory)(nil)

// NewMemory makes the memory of a session.
func NewMemory(scope *ctxpage.Scope, sessionID string, budget int) *Memory {
	return &Memory{Budget: budget, scope: scope, history: NewHistory(scope, sessionID)}
}

// GetMemoryKey returns the name of the variable.
func (m *Memory) GetMemoryKey(context.Context) string {
	if m.MemoryKey == "" {
		return "history"
	}
	return m.MemoryKey
}

// MemoryVariables returns the names of the variables that the memory sets.
func (m *Memory) MemoryVariables(ctx context.Context) []string {
	return []string{m.GetMemoryKey(ctx)}
}

// LoadMemoryVariables assembles a context for an input. Without inputs it has the turns of the conversation and recent facts. A manifest records each
// context, so that Scope.Replay and DB.Why explain it later.
func (m *Memory) LoadMemoryVariables(ctx context.Context, inputs map[string]any) (map[string]any, error) {
	question := ""
	if len(inputs) > 0 {
		var err error
		if question, err = memory.GetInputValue(inputs, m.InputKey); err != nil {
			return nil, err
		}
	}
	q := ctxpage.Query{Text: question, Budget: m.Budget, Session: m.history.session.ID()}
	a, err := m.scope.Assemble(ctx, q)
	if errors.Is(err, store.ErrNotFound) { // nothing was said in this session yet
		q.Session = ""
		a, err = m.scope.Assemble(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("langchaingo: %w", err)
	}
	if m.ReturnMessages {
		return map[string]any{m.GetMemoryKey(ctx): messagesOf(a)}, nil
	}
	text := ""
	if len(a.Blocks) > 0 {
		text = a.Text()
	}
	return map[string]any{m.GetMemoryKey(ctx): text}, nil
}

// messagesOf turns a context into messages.
func messagesOf(a *ctxpage.Assembly) []llms.ChatMessage {
	out := []llms.ChatMessage{}
	if len(a.Blocks) == 0 {
		return out
	}
	for _, m := range a.Messages() {
		text := m.Text()
		switch m.Role {
		case render.RoleSystem:
			out = append(out, llms.SystemChatMessage{Content: text})
		case render.RoleAssistant:
			out = append(out, llms.AIChatMessage{Content: text, ToolCalls: callsOf(m.ToolCalls)})
		case render.RoleTool:
			out = append(out, llms.ToolChatMessage{ID: m.ToolCallID, Content: text})
		default:
			out = append(out, llms.HumanChatMessage{Content: text})
		}
	}
	return out
}

// callsOf turns the calls of a turn into those of LangChainGo.
func callsOf[T store.ToolCall | render.ToolCall](calls []T) []llms.ToolCall {
	var out []llms.ToolCall
	for _, call := range calls {
		c := store.ToolCall(call)
		out = append(out, llms.ToolCall{ID: c.ID, Type: "function", FunctionCall: &llms.FunctionCall{Name: c.Name, Arguments: c.Arguments}})
	}
	return out
}

// SaveContext keeps an input and its output as two turns, both or none.
func (m *Memory) SaveContext(ctx context.Context, inputs, outputs map[string]any) error {
	said, err := memory.GetInputValue(inputs, m.InputKey)
	if err != nil {
		return err
	}
	answer, err := memory.GetInputValue(outputs, m.OutputKey)
	if err != nil {
		return err
	}
	return m.history.add(ctx, llms.HumanChatMessage{Content: said}, llms.AIChatMessage{Content: answer})
}

// Clear deletes the turns of the conversation. Facts of the scope stay.
func (m *Memory) Clear(ctx context.Context) error { return m.history.Clear(ctx) }
