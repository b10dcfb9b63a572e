package genkitsession_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/adapters/genkitsession"
	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/x/session"
	"github.com/firebase/genkit/go/genkit"
)

type likes struct{ Drinks []string }

// A flow whose tool keeps what the user likes in the session. The model is a stub that calls the tool once.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "genkit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	sessions := genkitsession.New[likes](db.Scope("acme/sessions"))
	s, err := session.New(ctx, session.WithID[likes]("chat-1"), session.WithStore[likes](sessions))
	if err != nil {
		log.Fatal(err)
	}
	g := genkit.Init(ctx)
	remember := genkit.DefineTool(g, "remember", "Remembers a drink.", func(tc *ai.ToolContext, drink string) (string, error) {
		s := session.FromContext[likes](tc)
		return "noted", s.UpdateState(tc, likes{append(s.State().Drinks, drink)})
	})
	genkit.DefineModel(g, "stub/model", &ai.ModelOptions{Supports: &ai.ModelSupports{Tools: true, Multiturn: true}}, stub)
	answer, err := genkit.GenerateText(session.NewContext(ctx, s), g, ai.WithModelName("stub/model"), ai.WithPrompt("I like coffee."), ai.WithTools(remember))
	if err != nil {
		log.Fatal(err)
	}
	again, err := session.Load(ctx, session.Store[likes](sessions), "chat-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer, again.State().Drinks)
	// Output: You like coffee. [coffee]
}

func stub(_ context.Context, q *ai.ModelRequest, _ ai.ModelStreamCallback) (*ai.ModelResponse, error) {
	if q.Messages[len(q.Messages)-1].Role == ai.RoleTool {
		return &ai.ModelResponse{Request: q, Message: ai.NewModelTextMessage("You like coffee.")}, nil
	}
	call := ai.NewToolRequestPart(&ai.ToolRequest{Name: "remember", Input: "coffee"})
	return &ai.ModelResponse{Request: q, Message: ai.NewModelMessage(call)}, nil
}
