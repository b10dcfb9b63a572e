package contexty_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/compat/contexty"
)

func ExampleNewBuilder() {
	b := contexty.NewBuilder(contexty.AllocatorConfig{
		MaxTokens:    100,
		TokenCounter: &contexty.CharFallbackCounter{CharsPerToken: 4},
	})
	b.AddBlock(contexty.MemoryBlock{
		ID: "sys", Tier: contexty.TierSystem, Strategy: contexty.NewStrictStrategy(),
		Messages: []contexty.Message{contexty.TextMessage("system", "You are helpful.")},
	})
	msgs, report, err := b.Compile(context.Background())
	fmt.Printf("messages: %d, tokens: %d, error: %v\n", len(msgs), report.TotalTokensUsed, err)
	// Output: messages: 1, tokens: 4, error: <nil>
}

func ExampleBuilder_Compile() {
	b := contexty.NewBuilder(contexty.AllocatorConfig{MaxTokens: 50, TokenCounter: &contexty.CharFallbackCounter{CharsPerToken: 4}})
	b.AddBlock(contexty.MemoryBlock{
		ID: "history", Tier: contexty.TierHistory, Strategy: contexty.NewTruncateOldestStrategy(),
		Messages: []contexty.Message{contexty.TextMessage("user", "Hi"), contexty.TextMessage("assistant", "Hello!")},
	}).AddBlock(contexty.MemoryBlock{
		ID: "core", Tier: contexty.TierCore, Strategy: contexty.NewDropStrategy(),
		Messages: []contexty.Message{contexty.TextMessage("system", "User: Alice")},
	})
	msgs, report, _ := b.Compile(context.Background())
	fmt.Printf("msgs=%d first=%q evictions=%v\n", len(msgs), msgs[0].Content[0].Text, report.Evictions)
	// Output: msgs=3 first="User: Alice" evictions=map[]
}

// A history of six messages in a budget that has room for five beside the system prompt.
func Example_chatHistory() {
	b := contexty.NewBuilder(contexty.AllocatorConfig{MaxTokens: 300, TokenCounter: &contexty.FixedCounter{TokensPerMessage: 50}})
	b.AddBlock(contexty.MemoryBlock{
		ID: "sys", Tier: contexty.TierSystem, Strategy: contexty.NewStrictStrategy(),
		Messages: []contexty.Message{contexty.TextMessage("system", "You are helpful.")},
	})
	var history []contexty.Message
	for range 3 {
		history = append(history, contexty.TextMessage("user", "hi"), contexty.TextMessage("assistant", "hello"))
	}
	b.AddBlock(contexty.MemoryBlock{
		ID: "history", Tier: contexty.TierHistory, Strategy: contexty.NewTruncateOldestStrategy(), Messages: history,
	})
	msgs, report, _ := b.Compile(context.Background())
	fmt.Printf("messages: %d, tokens: %d, eviction(history)=%q\n", len(msgs), report.TotalTokensUsed, report.Evictions["history"])
	// Output: messages: 6, tokens: 300, eviction(history)="truncated"
}

// All tiers in a budget that is too small for all of them.
func Example_fullAssembly() {
	b := contexty.NewBuilder(contexty.AllocatorConfig{MaxTokens: 60, TokenCounter: &contexty.FixedCounter{TokensPerMessage: 10}})
	block := func(id string, tier contexty.Tier, s contexty.EvictionStrategy, n int) {
		b.AddBlock(contexty.MemoryBlock{ID: id, Tier: tier, Strategy: s, Messages: make([]contexty.Message, n)})
	}
	block("persona", contexty.TierSystem, contexty.NewStrictStrategy(), 1)
	block("patient", contexty.TierCore, contexty.NewDropStrategy(), 1)
	block("articles", contexty.TierRAG, contexty.NewDropStrategy(), 5)
	block("chat", contexty.TierHistory, contexty.NewTruncateOldestStrategy(contexty.MinMessages(2)), 7)
	msgs, report, _ := b.Compile(context.Background())
	fmt.Println(len(msgs), report.TotalTokensUsed, report.OriginalTokens, report.RemainingTokens)
	fmt.Println(report.Evictions, report.BlocksDropped)
	fmt.Println(report.TokensPerBlock)
	// Output:
	// 6 60 140 0
	// map[articles:dropped chat:truncated] [articles]
	// map[chat:40 patient:10 persona:10]
}

func ExampleInjectIntoSystem() {
	m := contexty.InjectIntoSystem(contexty.TextMessage("system", "You are a doctor."),
		contexty.TextMessage("user", "Patient has fever."), contexty.TextMessage("user", "Allergies: none & <unknown>."))
	fmt.Println(m.Role)
	fmt.Println(m.Content[0].Text)
	// Output:
	// system
	// You are a doctor.
	// <context>
	//   <fact>Patient has fever.</fact>
	//   <fact>Allergies: none &amp; &lt;unknown&gt;.</fact>
	// </context>
}

func ExampleErrBudgetExceeded() {
	b := contexty.NewBuilder(contexty.AllocatorConfig{MaxTokens: 1, TokenCounter: &contexty.FixedCounter{TokensPerMessage: 2}})
	b.AddBlock(contexty.MemoryBlock{ID: "sys", Strategy: contexty.NewStrictStrategy(), Messages: make([]contexty.Message, 1)})
	_, _, err := b.Compile(context.Background())
	fmt.Println(errors.Is(err, contexty.ErrBudgetExceeded))
	// Output: true
}
