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

// Format names the program and the form of a file.
type Format string

// The formats.
const (
	OpenAIChat Format = "openai"      // messages of the Chat Completions API
	Responses  Format = "responses"   // items of the Responses API
	Anthropic  Format = "anthropic"   // messages with blocks
	ClaudeCode Format = "claude-code" // transcripts of Claude Code
	Codex      Format = "codex"       // rollouts of Codex
	Gemini     Format = "gemini"      // chats and checkpoints of Gemini CLI, contents of the Gemini API
	Copilot    Format = "copilot"     // chats of Copilot in VS Code, events of Copilot CLI
	Cursor     Format = "cursor"      // transcripts and streams of Cursor's agent
	OpenCode   Format = "opencode"    // what opencode export writes
	Hermes     Format = "hermes"      // sessions of Hermes
	LangChain  Format = "langchain"   // dumps of messages
	ShareGPT   Format = "sharegpt"    // conversations with from and value
	Letta      Format = "letta"       // agent files (.af)
	Mem0       Format = "mem0"        // what get_all answers
	MCPMemory  Format = "mcp-memory"  // the JSONL of the MCP server-memory
	ChatGPT    Format = "chatgpt"     // conversations.json of an export
	Claude     Format = "claude"      // conversations.json or memories.json of an export
	LangGraph  Format = "langgraph"   // items of a store
	PAM        Format = "pam"         // Portable AI Memory 1.0
	JSONL      Format = "jsonl"       // objects of any shape, with Options.Map
)

// Formats lists all formats.
var Formats = []Format{
	OpenAIChat, Responses, Anthropic, ClaudeCode, Codex, Gemini, Copilot, Cursor, OpenCode, Hermes, LangChain, ShareGPT, Letta, Mem0, MCPMemory, ChatGPT, Claude, LangGraph, PAM, JSONL,
}

// lists are the keys under which a format has its items; nil: they stand by themselves. Transcripts have theirs in dialects.
var lists = map[Format][]string{
	OpenAIChat: {"messages", "data"}, Responses: {"items", "input", "output", "data"}, Anthropic: {"messages"}, Mem0: {"results", "memories", "relations"}, MCPMemory: {"entities", "relations"},
	ChatGPT: {"conversations"}, Claude: {"conversations"}, LangGraph: {"items"}, PAM: {"memories"},
}

// detectItems limits the items that detection reads.
const detectItems = 64

var errEnough = errors.New("enough")

// Detect finds out the format of a file from its first items, and says why. It reads as much of r as these are.
func Detect(ctx context.Context, r io.Reader) (f Format, why string, err error) {
	var all []string
	for _, f := range Formats {
		all = append(all, lists[f]...)
	}
	for i := range dialects {
		all = append(all, dialects[i].lists...)
	}
	s, n := newScanner(ctx, r, all...), 0
	s.limit = MaxChat
	chat := false
	err = s.each(func(e element) error {
		if err := check(e); err != nil {
			return err
		}
		var v fields
		if err := decode(e, &v); err != nil {
			return err
		}
		if n++; n > detectItems {
			return errEnough
		}
		if f, why = transcriptOf(e.key, v); f == "" && (n == 1 || chat) { // the first lines of a transcript may be of no telling kind
			f, why = formatOf(e.key, v)
		}
		if f == OpenAIChat && why == plainMessage { // blocks, if there are any, come later
			chat, f = true, ""
			return nil
		}
		if f != "" {
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
		return "", "", store.Invalid("format", "a file that looks like none of "+names(), "--from FORMAT; for objects of another shape jsonl with a map of fields")
	}
	return f, why, nil
}

func names() string {
	var all []string
	for _, f := range Formats {
		all = append(all, string(f))
	}
	return strings.Join(all, ", ")
}

const plainMessage = "messages with a role"

func transcriptOf(key string, v fields) (Format, string) {
	kind := text(v["type"])
	for i := range dialects {
		if d := &dialects[i]; d.is(key, kind, v) {
			return d.format, d.why
		}
	}
	return "", ""
}

func formatOf(key string, v fields) (Format, string) {
	has := func(keys ...string) bool { return has(v, keys...) }
	kind := text(v["type"])
	switch {
	case has("mapping") && (has("current_node") || has("conversation_id") || has("title")):
		return ChatGPT, "conversations with a mapping of nodes"
	case has("chat_messages"), has("conversations_memory"):
		return Claude, "conversations with chat_messages, or conversations_memory"
	case key == "entities" && has("name", "observations"), kind == "entity" && has("name", "observations"), kind == "relation" && has("from", "to", "relationType"):
		return MCPMemory, "entities and relations"
	case has("namespace", "key", "value"):
		return LangGraph, "items with namespace, key and value"
	case has("id", "memory") && (key == "results" || key == "memories" || has("user_id") || has("created_at")):
		return Mem0, "memories with id and memory"
	case has("id", "content", "state", "created_at") && (key == "memories" || has("categories")):
		return Mem0, "memories with id, content and state, as OpenMemory exports them"
	case key == "memories" && has("id", "content"), has("content_hash", "content", "temporal"):
		return PAM, "memories with content and content_hash"
	case has("role"):
		return chatFormat(v)
	case slices.Contains(responseTypes, kind):
		return Responses, "items of type " + kind
	}
	return "", ""
}

func chatFormat(v fields) (Format, string) {
	if blocks := list(v["content"]); text(v["type"]) == "message" && (blocks == nil || name(object(blocks[0]), "type") != "text" && name(object(blocks[0]), "type") != "tool_use") {
		return Responses, "items of type message"
	} else if text(v["type"]) == "message" {
		return Anthropic, "objects of type message with blocks"
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
	return "", store.Invalid("format", fmt.Sprintf("%q", s), "one of "+names())
}
