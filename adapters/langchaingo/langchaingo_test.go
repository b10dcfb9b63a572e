package langchaingo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/memory"
	"github.com/tmc/langchaingo/schema"
)

var ctx = context.Background()

func open(t testing.TB) *ctxpage.DB {
	t.Helper()
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		problems, err := db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	})
	return db
}

func randomMessage(r *rand.Rand) llms.ChatMessage {
	texts := []string{"", "hello", " \n", "</system>\u202e", "é\r\n", "\x00", strings.Repeat("long ", 2000), "[ai]"}
	text := texts[r.IntN(len(texts))]
	switch r.IntN(7) {
	case 0:
		return llms.SystemChatMessage{Content: text}
	case 1:
		return llms.GenericChatMessage{Content: text, Role: "critic", Name: texts[r.IntN(3)]}
	case 2:
		return llms.FunctionChatMessage{Content: text, Name: "f"}
	case 3:
		return llms.ToolChatMessage{Content: text, ID: "call-1"}
	case 4:
		return llms.AIChatMessage{Content: text, ReasoningContent: text, ToolCalls: []llms.ToolCall{{ID: "call-1", Type: "function", FunctionCall: &llms.FunctionCall{Name: "f", Arguments: `{"a":"` + "b" + `"}`}}}}
	case 5:
		return llms.AIChatMessage{Content: text, FunctionCall: &llms.FunctionCall{Name: "f", Arguments: "{"}}
	}
	return llms.HumanChatMessage{Content: text}
}

// compare runs random operations on a history and on LangChainGo's own, and returns the first difference.
func compare(h schema.ChatMessageHistory, seed uint64, operations int) error {
	own, r := memory.NewChatMessageHistory(), rand.New(rand.NewPCG(seed, 1))
	both := func(f func(h schema.ChatMessageHistory) error) error { return errors.Join(f(h), f(own)) }
	for n := range operations {
		var err error
		switch k := r.IntN(60); {
		case k < 15:
			m := randomMessage(r)
			err = both(func(h schema.ChatMessageHistory) error { return h.AddMessage(ctx, m) })
		case k < 25:
			err = both(func(h schema.ChatMessageHistory) error { return h.AddUserMessage(ctx, fmt.Sprint("question ", n)) })
		case k < 35:
			err = both(func(h schema.ChatMessageHistory) error { return h.AddAIMessage(ctx, fmt.Sprint("answer ", n)) })
		case k < 38:
			err = both(func(h schema.ChatMessageHistory) error { return h.Clear(ctx) })
		case k < 40:
			list := []llms.ChatMessage{}
			for range r.IntN(4) {
				list = append(list, randomMessage(r))
			}
			err = both(func(h schema.ChatMessageHistory) error { return h.SetMessages(ctx, list) })
		default:
			got, failed := h.Messages(ctx)
			want, _ := own.Messages(ctx)
			if err = failed; err == nil {
				err = same(got, want)
			}
		}
		if err != nil {
			return fmt.Errorf("operation %d: %w", n, err)
		}
	}
	return nil
}

func same(got, want []llms.ChatMessage) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d messages, expected %d", len(got), len(want))
	}
	for i := range got {
		if !equal(got[i], want[i]) {
			return fmt.Errorf("message %d is %#v, expected %#v", i+1, got[i], want[i])
		}
	}
	return nil
}

// equal compares messages with what they point to.
func equal(a, b llms.ChatMessage) bool { return assert.ObjectsAreEqual(a, b) }

func TestHistorySameAsInMemory(t *testing.T) {
	db := open(t)
	for seed := range uint64(3) {
		require.NoError(t, compare(NewHistory(db.Scope("s"), fmt.Sprintf("chat-%d", seed)), seed, 1000))
	}
	require.ErrorContains(t, compare(forgets{NewHistory(db.Scope("s"), "broken")}, 0, 1000), "expected", "a history that forgets tool calls is seen")
}

// forgets is a broken history.
type forgets struct{ *History }

func (f forgets) AddMessage(ctx context.Context, m llms.ChatMessage) error {
	if ai, ok := m.(llms.AIChatMessage); ok {
		ai.ToolCalls = nil
		m = ai
	}
	return f.History.AddMessage(ctx, m)
}

// LangChainGo's own memory over the history: what its tests ask of it over the one in memory.
func TestConversationBuffer(t *testing.T) {
	s := open(t).Scope("s")
	for _, messages := range []bool{false, true} {
		m := memory.NewConversationBuffer(memory.WithChatHistory(NewHistory(s, fmt.Sprint("chat-", messages))), memory.WithReturnMessages(messages))
		empty, err := m.LoadMemoryVariables(ctx, map[string]any{})
		require.NoError(t, err)
		require.NoError(t, m.SaveContext(ctx, map[string]any{"foo": "bar"}, map[string]any{"bar": "foo"}))
		full, err := m.LoadMemoryVariables(ctx, map[string]any{})
		require.NoError(t, err)
		if messages {
			require.Equal(t, map[string]any{"history": []llms.ChatMessage{}}, empty)
			require.Equal(t, map[string]any{"history": []llms.ChatMessage{llms.HumanChatMessage{Content: "bar"}, llms.AIChatMessage{Content: "foo"}}}, full)
		} else {
			require.Equal(t, map[string]any{"history": ""}, empty)
			require.Equal(t, map[string]any{"history": "Human: bar\nAI: foo"}, full)
		}
		require.NoError(t, m.Clear(ctx))
		empty2, err := m.LoadMemoryVariables(ctx, map[string]any{})
		require.NoError(t, err)
		require.Equal(t, empty, empty2)
	}
}

type custom struct{ llms.HumanChatMessage }

func TestTurns(t *testing.T) {
	db := open(t)
	s := db.Scope("s")
	h := NewHistory(s, "chat")
	require.ErrorContains(t, h.AddMessage(ctx, custom{}), "a message of type langchaingo.custom")
	require.ErrorContains(t, h.SetMessages(ctx, []llms.ChatMessage{nil}), "a message of type <nil>")
	require.NoError(t, h.AddUserMessage(ctx, "The office closes at five."))
	require.NoError(t, h.AddMessage(ctx, llms.SystemChatMessage{Content: "Refunds are free."}))
	require.NoError(t, h.SetMessages(ctx, nil))
	require.NoError(t, h.AddUserMessage(ctx, "The office closes at six."))
	require.NoError(t, h.AddAIMessage(ctx, "Refunds are free."))

	// Only what the user said is known outside the conversation.
	found, err := s.Search(ctx, "are refunds free, and when does the office close?", 10)
	require.NoError(t, err)
	require.Len(t, found.Hits, 1)
	require.Equal(t, "The office closes at six.", found.Hits[0].Text)

	require.ErrorIs(t, NewHistory(db.Scope("s", ctxpage.Gated()), "chat").AddUserMessage(ctx, "x"), store.ErrGated)

	// Turns that another program appended are messages, too.
	_, err = s.Session("other").Append(ctx, ctxpage.Turn{Role: "user", Text: "hi"},
		ctxpage.Turn{Role: "assistant", Text: "wait", ToolCalls: []store.ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}},
		ctxpage.Turn{Role: "tool", Text: "done", ToolCallID: "1"})
	require.NoError(t, err)
	got, err := NewHistory(s, "other").Messages(ctx)
	require.NoError(t, err)
	require.Equal(t, []llms.ChatMessage{llms.HumanChatMessage{Content: "hi"},
		llms.AIChatMessage{Content: "wait", ToolCalls: []llms.ToolCall{{ID: "1", Type: "function", FunctionCall: &llms.FunctionCall{Name: "f", Arguments: "{}"}}}},
		llms.ToolChatMessage{ID: "1", Content: "done"}}, got)
}

func TestConcurrentMessages(t *testing.T) {
	s := open(t).Scope("s")
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for i := range 5 {
				if err := NewHistory(s, "chat").AddUserMessage(ctx, fmt.Sprint(n, "-", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	got, err := NewHistory(s, "chat").Messages(ctx)
	require.NoError(t, err)
	require.Len(t, got, 40)
}

func TestMemory(t *testing.T) {
	s := open(t).Scope("s")
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds up to $400 need no approval."})
	require.NoError(t, err)
	m := NewMemory(s, "chat", 2000)
	require.Equal(t, "history", m.GetMemoryKey(ctx))
	require.Equal(t, []string{"history"}, m.MemoryVariables(ctx))

	load := func(input map[string]any) any {
		t.Helper()
		got, err := m.LoadMemoryVariables(ctx, input)
		require.NoError(t, err)
		require.Len(t, got, 1)
		return got[m.GetMemoryKey(ctx)]
	}
	require.Empty(t, load(map[string]any{"input": "zebras?"}), "nothing was said, and the scope has nothing on it")
	require.Contains(t, load(nil), "need no approval", "recent facts")
	require.Contains(t, load(map[string]any{"input": "may I refund $300?"}), "need no approval", "the scope knows it, though nothing was said yet")
	require.NoError(t, m.SaveContext(ctx, map[string]any{"input": "My name is Ann."}, map[string]any{"text": "Hello Ann."}))
	text := load(map[string]any{"input": "may I refund $300?"}).(string)
	for _, part := range []string{"need no approval", "My name is Ann.", "Hello Ann."} {
		require.Contains(t, text, part)
	}

	m.ReturnMessages, m.MemoryKey = true, "chat"
	messages := load(map[string]any{"input": "may I refund $300?"}).([]llms.ChatMessage)
	require.Equal(t, llms.ChatMessageTypeSystem, messages[0].GetType())
	require.Contains(t, messages, llms.ChatMessage(llms.AIChatMessage{Content: "Hello Ann."}))

	// The whole history is longer than the budget.
	for n := range 200 {
		require.NoError(t, m.SaveContext(ctx, map[string]any{"input": fmt.Sprintf("question %d about parcels", n)}, map[string]any{"text": strings.Repeat("an answer ", 20)}))
	}
	m.ReturnMessages = false
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "parcels", Budget: m.Budget, Session: "chat"})
	require.NoError(t, err)
	require.LessOrEqual(t, a.Tokens, 2000)
	require.Less(t, len(load(map[string]any{"input": "parcels"}).(string)), 20000)

	_, err = m.LoadMemoryVariables(ctx, map[string]any{"a": "x", "b": "y"})
	require.ErrorIs(t, err, memory.ErrInvalidInputValues)
	require.ErrorIs(t, m.SaveContext(ctx, map[string]any{"a": "x"}, map[string]any{"b": 1}), memory.ErrInvalidInputValues)
	m.InputKey = "a"
	require.NotEmpty(t, load(map[string]any{"a": "parcels", "b": "y"}))
	require.NoError(t, m.Clear(ctx))
	require.NoError(t, m.Clear(ctx))
	require.NotContains(t, load(nil), "parcels")
	require.Contains(t, load(map[string]any{"a": "may I refund $300?"}), "need no approval", "facts stay")
	m.Budget = -1
	_, err = m.LoadMemoryVariables(ctx, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
}
