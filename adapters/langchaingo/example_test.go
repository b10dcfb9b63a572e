package langchaingo_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/adapters/langchaingo"
	"github.com/tmc/langchaingo/llms"
)

// A conversation with a tool call, kept as it was; and a memory that answers from it. The model is a stub.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "langchaingo")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	scope := db.Scope("acme/support")
	if _, err := scope.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds up to $400 need no approval."}); err != nil {
		log.Fatal(err)
	}

	history, memory := langchaingo.NewHistory(scope, "chat-1"), langchaingo.NewMemory(scope, "chat-1", 2000)
	add := func(m llms.ChatMessage) {
		if err := history.AddMessage(ctx, m); err != nil {
			log.Fatal(err)
		}
	}
	add(llms.HumanChatMessage{Content: "Is order 7 paid?"})
	for {
		messages, err := history.Messages(ctx)
		if err != nil {
			log.Fatal(err)
		}
		answer := stub(messages)
		add(answer)
		if len(answer.ToolCalls) == 0 {
			fmt.Println(answer.Content)
			break
		}
		add(llms.ToolChatMessage{ID: answer.ToolCalls[0].ID, Content: "paid on Monday"})
	}
	variables, err := memory.LoadMemoryVariables(ctx, map[string]any{"input": "May I refund $300?"})
	if err != nil {
		log.Fatal(err)
	}
	text := variables["history"].(string)
	fmt.Println(strings.Contains(text, "Refunds up to $400 need no approval."), strings.Contains(text, "paid on Monday"))
	// Output:
	// It was paid on Monday.
	// true true
}

func stub(messages []llms.ChatMessage) llms.AIChatMessage {
	if m, ok := messages[len(messages)-1].(llms.ToolChatMessage); ok {
		return llms.AIChatMessage{Content: "It was " + m.Content + "."}
	}
	return llms.AIChatMessage{ToolCalls: []llms.ToolCall{{ID: "1", Type: "function", FunctionCall: &llms.FunctionCall{Name: "order", Arguments: `{"id":7}`}}}}
}
