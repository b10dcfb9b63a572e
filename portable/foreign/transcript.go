package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/portable"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Markdown is a transcript for people.
const Markdown Format = "md"

// Elements gives the objects of a file of messages, as they are: one after the other, in a list, or in an object that has a list
// of messages or items. fn must not keep raw. The error is a *portable.LineError, that of fn, or of r.
func Elements(ctx context.Context, r io.Reader, fn func(raw []byte, line int) error) error {
	return newScanner(ctx, r, "messages", "items", "input").each(func(e element) error {
		if e.rest {
			return nil
		}
		if err := check(e); err != nil {
			return err
		}
		return fn(e.raw, e.line)
	})
}

// Transcript writes the turns of a session: messages of OpenAI or Anthropic, one a line, which Session.Append takes again by
// ParseMessage; or Markdown. The turns are those of ctxpage.Session.Turns. It returns how many it wrote.
func Transcript(w io.Writer, f Format, turns iter.Seq2[*ctxpage.Version, error]) (n int, err error) {
	write, ok := map[Format]func(*ctxpage.Version) any{OpenAIChat: openAIMessage, Anthropic: anthropicMessage}[f]
	if !ok && f != Markdown {
		return 0, store.Invalid("format", fmt.Sprintf("%q", f), "openai, anthropic or md")
	}
	var results *anthropicTurn // tool results that are one message
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	put := func(v any) error {
		buf.Reset()
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("ctxpage: transcript: %w", err)
		}
		_, err := w.Write(buf.Bytes())
		return err
	}
	flush := func() error {
		if results == nil {
			return nil
		}
		r := results
		results = nil
		return put(r)
	}
	for v, err := range turns {
		if err != nil {
			return n, err
		}
		n++
		if f == Markdown {
			if err := markdownTurn(w, v); err != nil {
				return n, err
			}
			continue
		}
		m := write(v)
		if t, ok := m.(*anthropicTurn); ok && v.Role == render.RoleTool {
			if results == nil {
				results = t
			} else {
				results.Content = append(results.Content, t.Content...)
			}
			continue
		}
		if err := flush(); err != nil {
			return n, err
		}
		if err := put(m); err != nil {
			return n, err
		}
	}
	return n, flush()
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type openAITurn struct {
	Role       string       `json:"role"`
	Name       string       `json:"name,omitempty"`
	Content    any          `json:"content"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

func openAIMessage(v *ctxpage.Version) any {
	m := &openAITurn{Role: roleOf(v), Name: v.Name, Content: v.Text, ToolCallID: v.ToolCallID}
	for _, c := range v.ToolCalls {
		call := openAICall{ID: c.ID, Type: "function"}
		call.Function.Name, call.Function.Arguments = c.Name, c.Arguments
		m.ToolCalls = append(m.ToolCalls, call)
	}
	if len(v.Parts) > 0 {
		var parts []any
		for _, p := range v.Parts {
			switch {
			case p.Type == "text":
				parts = append(parts, map[string]any{"type": "text", "text": p.Text})
			case p.Type == "image_url" && p.URL != "":
				image := map[string]any{"url": p.URL}
				if p.Detail != "" {
					image["detail"] = p.Detail
				}
				parts = append(parts, map[string]any{"type": "image_url", "image_url": image})
			case p.Type == toolResult: // its words are told already
			default:
				parts = append(parts, originalPart(p))
			}
		}
		m.Content = parts
	} else if v.Text == "" && len(m.ToolCalls) > 0 {
		m.Content = nil
	}
	return m
}

// toolResult is the type of a part that is an Anthropic tool result as it came.
const toolResult = "tool_result"

type anthropicTurn struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

func anthropicMessage(v *ctxpage.Version) any {
	m := &anthropicTurn{Role: roleOf(v), Content: []any{}}
	if v.Role == render.RoleTool {
		m.Role = render.RoleUser
		for _, p := range v.Parts {
			if p.Type == toolResult {
				m.Content = append(m.Content, originalPart(p))
				return m
			}
		}
		m.Content = append(m.Content, map[string]any{"type": "tool_result", "tool_use_id": v.ToolCallID, "content": fullText(v)})
		return m
	}
	if len(v.Parts) == 0 && v.Text != "" {
		m.Content = append(m.Content, map[string]any{"type": "text", "text": v.Text})
	}
	for _, p := range v.Parts {
		switch {
		case p.Type == "text":
			m.Content = append(m.Content, map[string]any{"type": "text", "text": p.Text})
		case p.Type == "image_url" && p.URL != "":
			m.Content = append(m.Content, map[string]any{"type": "image", "source": map[string]any{"type": "url", "url": p.URL}})
		default:
			m.Content = append(m.Content, originalPart(p))
		}
	}
	for _, c := range v.ToolCalls {
		input := json.RawMessage(c.Arguments)
		if !json.Valid(input) {
			input = json.RawMessage("{}")
		}
		m.Content = append(m.Content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	return m
}

// originalPart returns a part that was kept as it came.
func originalPart(p store.Part) any {
	if raw := json.RawMessage(p.Detail); json.Valid(raw) && bytes.HasPrefix(raw, []byte("{")) {
		return raw
	}
	return map[string]any{"type": "text", "text": strings.TrimSpace("[" + p.Type + "] " + p.URL)}
}

// roleOf returns the role of a turn; data without a role counts as the user's.
func roleOf(v *ctxpage.Version) string {
	if v.Role == "" {
		return render.RoleUser
	}
	return v.Role
}

// fullText returns the whole text of a turn.
func fullText(v *ctxpage.Version) string {
	if len(v.Parts) == 0 {
		return v.Text
	}
	var said []string
	for _, p := range v.Parts {
		if p.Text != "" {
			said = append(said, p.Text)
		}
	}
	return strings.Join(said, "")
}

// markdownTurn is a turn for people.
func markdownTurn(w io.Writer, v *ctxpage.Version) error {
	who := roleOf(v)
	if v.Name != "" {
		who += " (" + portable.Line(v.Name) + ")"
	}
	if _, err := fmt.Fprintf(w, "## %d. %s, %s\n\n", v.Seq, who, v.CurrentAsOf.UTC().Format("2006-01-02 15:04:05 UTC")); err != nil {
		return err
	}
	if v.Trace != "" {
		if _, err := fmt.Fprintf(w, "written from the context of trace %s\n\n", portable.Line(v.Trace)); err != nil {
			return err
		}
	}
	for _, c := range v.ToolCalls {
		if _, err := fmt.Fprintf(w, "calls %s with `%s`\n\n", portable.Line(c.Name), portable.Line(c.Arguments)); err != nil {
			return err
		}
	}
	if said := fullText(v); said != "" {
		if _, err := fmt.Fprintf(w, "%s\n\n", portable.Quote(said)); err != nil {
			return err
		}
	}
	return nil
}
