// Package anthropicmemory handles Anthropic's memory tool (memory_20250818): files below /memories as pages of a scope.
//
//	tool := anthropicmemory.New(db.Scope("acme/support"))
//	runner := client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{tool}, params)
//	anthropicmemory.Declare(runner.Params.Tools)
//	answer, err := runner.RunToCompletion(ctx)
//
// The file /memories/a/b.md is the page memories/a/b.md, of kind scratch. The model sees its files at once. Contexts and
// searches do not show them until a person or the gate lifts them. Every version stays, so an overwritten note can be read
// again. Over a gated scope each change is held for review, and the model is told so.
//
// Answers and errors are those of the memory tool in Anthropic's Python SDK, which models know. A directory is a page whose
// id ends with a slash, so that an empty one stays.
package anthropicmemory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/respjson"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Command is one command of the model.
type Command = anthropic.BetaMemoryTool20250818CommandUnion

// Tool answers the commands of the memory tool. It is an anthropic.BetaTool. It is safe for concurrent use, and so are several
// tools over one scope: an edit is written against the version that was read.
type Tool struct{ scope *ctxpage.Scope }

var _ anthropic.BetaTool = (*Tool)(nil)

// New makes the tool of a scope. It sees the files of the scope itself, not those of the scopes above.
func New(scope *ctxpage.Scope) *Tool { return &Tool{scope} }

const name = "memory"

// Name returns the name that the model calls.
func (t *Tool) Name() string { return name }

// Description describes the tool for models that get it as an ordinary tool, without Declare.
func (t *Tool) Description() string {
	return "Files that you keep between conversations, all below /memories. View the directory /memories before you begin a task. " +
		"Write down what you must know later, and keep the files short and in order."
}

// InputSchema describes the input for models that get it as an ordinary tool, without Declare.
func (t *Tool) InputSchema() anthropic.BetaToolInputSchemaParam {
	text := func(about string) map[string]any { return map[string]any{"type": "string", "description": about} }
	return anthropic.BetaToolInputSchemaParam{
		Properties: map[string]any{
			"command":     map[string]any{"type": "string", "enum": commands()},
			"path":        text("The file or directory, below /memories. Not for rename."),
			"view_range":  map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "description": "view: the first and the last line; -1: to the end"},
			"file_text":   text("create: the content of the new file"),
			"old_str":     text("str_replace: the text to replace, which is in the file once"),
			"new_str":     text("str_replace: the new text"),
			"insert_line": map[string]any{"type": "integer", "description": "insert: the line after which to insert; 0: at the beginning"},
			"insert_text": text("insert: the text to insert"),
			"old_path":    text("rename: the file or directory"),
			"new_path":    text("rename: its new path"),
		},
		Required: []string{"command"},
	}
}

// Declare turns the definition of the tool in a request into Anthropic's built-in memory tool, which models are trained on.
// Call it with the Params.Tools of a runner, once, after the runner was made.
func Declare(tools []anthropic.BetaToolUnionParam) {
	for i := range tools {
		if tools[i].OfTool != nil && tools[i].OfTool.Name == name {
			tools[i] = anthropic.BetaToolUnionParam{OfMemoryTool20250818: &anthropic.BetaMemoryTool20250818Param{}}
		}
	}
}

// Execute runs a command as the model sent it. The runner sends an error to the model as the result of its call.
func (t *Tool) Execute(ctx context.Context, input json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	var c Command
	if err := json.Unmarshal(input, &c); err != nil {
		return nil, fmt.Errorf("the input of the memory tool is not a JSON object: %w", err)
	}
	if err := complete(&c); err != nil {
		return nil, err
	}
	text, err := t.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: text}}}, nil
}

type field struct {
	name string
	got  func(*Command) respjson.Field
}

var (
	pathField = field{"path", func(c *Command) respjson.Field { return c.JSON.Path }}
	// needed lists the commands, and the fields that each needs.
	needed = map[string][]field{
		"view":   {pathField},
		"create": {pathField, {"file_text", func(c *Command) respjson.Field { return c.JSON.FileText }}},
		"str_replace": {pathField, {"old_str", func(c *Command) respjson.Field { return c.JSON.OldStr }},
			{"new_str", func(c *Command) respjson.Field { return c.JSON.NewStr }}},
		"insert": {pathField, {"insert_line", func(c *Command) respjson.Field { return c.JSON.InsertLine }},
			{"insert_text", func(c *Command) respjson.Field { return c.JSON.InsertText }}},
		"delete": {pathField},
		"rename": {{"old_path", func(c *Command) respjson.Field { return c.JSON.OldPath }}, {"new_path", func(c *Command) respjson.Field { return c.JSON.NewPath }}},
	}
)

func commands() []string {
	return []string{"view", "create", "str_replace", "insert", "delete", "rename"}
}

// complete refuses a command that lacks a field: written with an empty text in its place, it would do something else.
func complete(c *Command) error {
	for _, f := range needed[c.Command] {
		if !f.got(c).Valid() {
			return fmt.Errorf("the command %s needs `%s`, of the type that the memory tool defines", c.Command, f.name)
		}
	}
	return nil
}

// Run runs a command. An error whose text is that of the memory tool is meant for the model; others are those of the
// database, such as a *store.HeldError.
func (t *Tool) Run(ctx context.Context, c Command) (string, error) {
	switch c.Command {
	case "view":
		return t.view(ctx, c)
	case "create":
		return t.create(ctx, c)
	case "str_replace":
		return t.replace(ctx, c)
	case "insert":
		return t.insert(ctx, c)
	case "delete":
		return t.delete(ctx, c)
	case "rename":
		return t.rename(ctx, c)
	}
	return "", fmt.Errorf("unknown command %q; expected one of %s", c.Command, strings.Join(commands(), ", "))
}

// Clear deletes all files and directories. The model has no command for it.
func (t *Tool) Clear(ctx context.Context) error {
	return t.update(ctx, func(tx *ctxpage.Txn) error {
		ids, err := t.below(ctx, root)
		if err != nil {
			return err
		}
		return remove(ctx, tx, ids)
	})
}

// update commits what fn writes. On a gated scope it is a draft.
func (t *Tool) update(ctx context.Context, fn func(tx *ctxpage.Txn) error) error {
	err := t.scope.Update(ctx, fn, ctxpage.VouchedBy("memory tool", ""))
	if errors.Is(err, store.ErrGated) {
		err = t.draft(ctx, fn)
	}
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("other agents are changing these files; please try again: %w", err)
	}
	return err
}

// draft leaves the verdict to the evaluator of the scope; without one the draft is held.
func (t *Tool) draft(ctx context.Context, fn func(tx *ctxpage.Txn) error) error {
	tx, err := t.scope.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // harmless after Commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx, ctxpage.Verdict{})
}

func remove(ctx context.Context, tx *ctxpage.Txn, ids []string) error {
	for _, id := range slices.Backward(ids) {
		if err := tx.Delete(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
