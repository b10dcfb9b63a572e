package foreign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// Format is how a file is made.
type Format string

// The formats.
const (
	OpenAIChat Format = "openai"     // messages of the Chat Completions API
	Responses  Format = "responses"  // items of the Responses API
	Anthropic  Format = "anthropic"  // messages with blocks
	Mem0       Format = "mem0"       // what get_all answers
	MCPMemory  Format = "mcp-memory" // the JSONL of the MCP server-memory
	ChatGPT    Format = "chatgpt"    // conversations.json of an export
	Claude     Format = "claude"     // conversations.json or memories.json of an export
	LangGraph  Format = "langgraph"  // items of a store
	PAM        Format = "pam"        // Portable AI Memory 1.0
	JSONL      Format = "jsonl"      // objects of any shape, with Options.Map
)

// Formats are all of them.
var Formats = []Format{OpenAIChat, Responses, Anthropic, Mem0, MCPMemory, ChatGPT, Claude, LangGraph, PAM, JSONL}

// lists are the keys under which a format has its items; nil: they stand by themselves.
var lists = map[Format][]string{
	OpenAIChat: {"messages", "data"}, Responses: {"items", "input", "output", "data"}, Anthropic: {"messages"}, Mem0: {"results", "memories"},
	ChatGPT: {"conversations"}, Claude: {"conversations"}, LangGraph: {"items"}, PAM: {"memories"},
}

// detectItems is how many items are looked at to find out the format.
const detectItems = 64

var errEnough = errors.New("enough")

// Detect finds out the format of a file from its first items, and says why. It reads as much of r as these are.
func Detect(ctx context.Context, r io.Reader) (f Format, why string, err error) {
	var all []string
	for _, f := range Formats {
		all = append(all, lists[f]...)
	}
	s, n := newScanner(ctx, r, all...), 0
	s.limit = MaxChat
	chat := false
	err = s.each(func(e element) error {
		if err := check(e); err != nil {
			return err
		}
		var v map[string]json.RawMessage
		if err := decode(e, &v); err != nil {
			return err
		}
		if n++; n > detectItems {
			return errEnough
		}
		if f, why = formatOf(e.key, v); f == OpenAIChat && why == plainMessage { // blocks, if there are any, come later
			chat, f = true, ""
			return nil
		}
		if f != "" || n == 1 && !chat {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return "", "", err
	case f == "" && chat:
		return OpenAIChat, plainMessage, nil
	case f == "":
		return "", "", store.Invalid("format", "a file that looks like none of "+list(), "--from FORMAT; for objects of another shape jsonl with a map of fields")
	}
	return f, why, nil
}

func list() string {
	var names []string
	for _, f := range Formats {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

const plainMessage = "messages with a role"

var responseTypes = []string{"message", "reasoning", "function_call", "function_call_output", "web_search_call", "file_search_call", "computer_call", "code_interpreter_call", "item_reference"}

// formatOf tells the format by the keys of one item.
func formatOf(key string, v map[string]json.RawMessage) (Format, string) {
	has := func(keys ...string) bool {
		return !slices.ContainsFunc(keys, func(k string) bool { return v[k] == nil })
	}
	kind := text(v["type"])
	switch {
	case has("mapping") && (has("current_node") || has("conversation_id") || has("title")):
		return ChatGPT, "conversations with a mapping of nodes"
	case has("chat_messages"), has("conversations_memory"):
		return Claude, "conversations with chat_messages, or conversations_memory"
	case kind == "entity" && has("name", "observations"), kind == "relation" && has("from", "to", "relationType"):
		return MCPMemory, "entities and relations"
	case has("namespace", "key", "value"):
		return LangGraph, "items with namespace, key and value"
	case has("id", "memory") && (key == "results" || key == "memories" || has("user_id") || has("created_at")):
		return Mem0, "memories with id and memory"
	case key == "memories" && has("id", "content"), has("content_hash", "content", "temporal"):
		return PAM, "memories with content and content_hash"
	case has("role"):
		return chatFormat(v)
	case slices.Contains(responseTypes, kind):
		return Responses, "items of type " + kind
	}
	return "", ""
}

// chatFormat tells the format of a message.
func chatFormat(v map[string]json.RawMessage) (Format, string) {
	if text(v["type"]) == "message" {
		return Responses, "items of type message"
	}
	if v["tool_calls"] != nil || v["tool_call_id"] != nil || slices.Contains([]string{"tool", "developer", "function"}, text(v["role"])) {
		return OpenAIChat, "messages with tool_calls, or of tools"
	}
	var blocks []struct {
		Type   string          `json:"type"`
		Source json.RawMessage `json:"source"`
	}
	if json.Unmarshal(v["content"], &blocks) != nil {
		return OpenAIChat, plainMessage
	}
	for _, b := range blocks {
		switch b.Type {
		case "tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image":
			return Anthropic, "messages with blocks of type " + b.Type
		case "image_url", "input_audio", "file", "refusal":
			return OpenAIChat, "messages with parts of type " + b.Type
		case "input_text", "output_text", "input_image":
			return Responses, "messages with parts of type " + b.Type
		}
	}
	return OpenAIChat, plainMessage
}

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains(Formats, f) {
		return f, nil
	}
	return "", store.Invalid("format", fmt.Sprintf("%q", s), "one of "+list())
}
