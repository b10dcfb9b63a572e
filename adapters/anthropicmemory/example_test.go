package anthropicmemory_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/adapters/anthropicmemory"
)

// An agent with a memory: it writes a note, reads it, and answers. The model is a stub.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "memory")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	model := stubModel()
	defer model.Close()

	client := anthropic.NewClient(option.WithBaseURL(model.URL), option.WithAPIKey("stub"))
	tool := anthropicmemory.New(db.Scope("acme/support"))
	runner := client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{tool}, anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model:     "stub",
			MaxTokens: 512,
			Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("I like coffee."))},
		},
	})
	anthropicmemory.Declare(runner.Params.Tools)
	answer, err := runner.RunToCompletion(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Content[0].Text)
	for _, m := range runner.Messages() {
		for _, block := range m.Content {
			if r := block.OfToolResult; r != nil {
				fmt.Println(r.Content[0].OfText.Text)
			}
		}
	}
	// Output:
	// Noted.
	// File created successfully at: /memories/tastes.md
	// Here's the content of /memories/tastes.md with line numbers:
	//      1	likes coffee
}

// stubModel calls the memory tool twice, and then answers.
func stubModel() *httptest.Server {
	script := []string{
		`"tool_use","content":[{"type":"tool_use","id":"1","name":"memory","input":{"command":"create","path":"/memories/tastes.md","file_text":"likes coffee"}}]`,
		`"tool_use","content":[{"type":"tool_use","id":"2","name":"memory","input":{"command":"view","path":"/memories/tastes.md"}}]`,
		`"end_turn","content":[{"type":"text","text":"Noted."}]`,
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"memory_20250818"`) || len(script) == 0 {
			http.Error(w, "expected the memory tool, and three requests", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":"stub","usage":{"input_tokens":1,"output_tokens":1},"stop_reason":%s}`, script[0])
		script = script[1:]
	}))
}
