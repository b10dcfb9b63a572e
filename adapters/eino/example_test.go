package eino_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/adapters/eino"
)

type question struct {
	Text string `json:"text"`
}

// An agent whose tool looks into the documents of a scope. The model is a stub that calls the tool once.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "eino")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	documents := eino.NewDocuments(db.Scope("acme/support"), "handbook/")
	if _, err := documents.Store(ctx, []*schema.Document{{ID: "refunds", Content: "Refunds up to $400 need no approval."}}); err != nil {
		log.Fatal(err)
	}
	look, err := utils.InferTool("look", "Looks into the handbook.", func(ctx context.Context, q question) (string, error) {
		docs, err := documents.Retrieve(ctx, q.Text)
		if err != nil || len(docs) == 0 {
			return "nothing", err
		}
		return docs[0].Content, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	agent, err := react.NewAgent(ctx, &react.AgentConfig{ToolCallingModel: stub{}, ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{look}}})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := agent.Generate(ctx, []*schema.Message{schema.UserMessage("May I refund $300?")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Content)
	// Output: The handbook says: Refunds up to $400 need no approval.
}

type stub struct{}

func (stub) Generate(_ context.Context, in []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	if last := in[len(in)-1]; last.Role == schema.Tool {
		return schema.AssistantMessage("The handbook says: "+last.Content, nil), nil
	}
	return schema.AssistantMessage("", []schema.ToolCall{{ID: "1", Function: schema.FunctionCall{Name: "look", Arguments: `{"text":"refund approval"}`}}}), nil
}

func (stub) Stream(context.Context, []*schema.Message, ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	return nil, errors.New("the stub does not stream")
}

func (s stub) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return s, nil }
