package foreign

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// dialect describes the transcripts of one program: how to recognise them, and where the parts of a turn are. Of several paths, the
// first with a value counts. A transcript is lines, or an object with a list of lines under one of lists.
type dialect struct {
	format Format
	why    string // what Detect says
	is     func(key, kind string, v fields) bool
	lists  []string
	// session names the conversation, from a line or from the object around the list; "" for most lines of some programs.
	session func(kind string, v fields) string
	kind    []string // what kind of line it is, or who speaks
	// kinds map to a role; "" for lines that are no turns, asItem for an item of the Responses API. A key that ends with a dot or
	// an underscore stands for all kinds that begin with it.
	kinds    map[string]string
	message  []string // the message in a line; default: the line itself
	id, at   []string
	content  []string // in the message
	replaces bool     // a later line with the same id replaces the turn; otherwise it adds blocks
	// unusual reads lines of some kind that have a shape of their own; nil: none.
	unusual func(kind string, v fields) []Message
	facts   []string // lists of an object whose items are memories with a label and a value
	// event takes a line that changes what lines before it said, and reports whether it is one; nil: there are none. If holds is set,
	// it may take turns back, so they wait for the end of the file.
	event func(x *reading, e element, v fields) (is bool, err error)
	holds bool
	// silent: the program writes no results of calls without an id.
	silent bool
}

// asItem is the role of lines whose message is an item of the Responses API.
const asItem = "item"

const (
	user      = render.RoleUser
	assistant = render.RoleAssistant
	tool      = render.RoleTool
	system    = "system"
)

func at(paths ...string) func(string, fields) string {
	return func(_ string, v fields) string { return name(v, paths...) }
}

func has(v fields, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return v[k] == nil })
}

// dialects lists all dialects, the most specific first.
var dialects = []dialect{{
	format: ClaudeCode, why: "lines with uuid, sessionId and a message, as in ~/.claude/projects",
	is: func(_, kind string, v fields) bool {
		return has(v, "uuid") && (has(v, "sessionId") || has(v, "session_id")) && kind != "" || kind == "file-history-snapshot" || kind == "summary" && has(v, "leafUuid")
	},
	session: at("sessionId", "session_id"), unusual: queuedPrompt, kind: []string{"type"}, message: []string{"message"}, id: []string{"message.id", "uuid"}, at: []string{"timestamp"}, content: []string{"content"},
	kinds: map[string]string{
		"user": user, "assistant": assistant, "system": "", "summary": "", "file-history-snapshot": "", "progress": "", "queue-operation": "", "attachment": "", "custom-title": "",
		"ai-title": "", "agent-name": "", "agent-color": "", "agent-setting": "", "last-prompt": "", "pr-link": "", "permission-mode": "", "mode": "", "tag": "", "worktree-state": "",
		"saved_hook_context": "", "content-replacement": "", "result": "", "stream_event": "", "rate_limit_event": "", "bridge-session": "",
	},
}, {
	format: Codex, why: "lines of type session_meta or response_item with a payload, as in ~/.codex/sessions",
	is: func(_, kind string, v fields) bool {
		return has(v, "payload") && slices.Contains([]string{"session_meta", "response_item", "event_msg", "turn_context", "compacted"}, kind) ||
			kind == "" && has(v, "id", "timestamp") && (has(v, "instructions") || has(v, "git")) || has(v, "record_type")
	},
	session: func(kind string, v fields) string {
		if kind == "session_meta" {
			return name(v, "payload.id")
		}
		if kind == "" {
			return name(v, "id")
		}
		return ""
	},
	kind: []string{"type"}, message: []string{"payload"}, at: []string{"timestamp"},
	kinds: map[string]string{
		"": "", "session_meta": "", "turn_context": "", "event_msg": "", "compacted": "", "ghost_snapshot": "", "response_item": asItem,
		"message": asItem, "reasoning": asItem, "function_": asItem, "custom_": asItem, "local_": asItem, "web_": asItem,
	},
}, {
	format: Gemini, why: "messages of type user and gemini, or with role and parts, as in ~/.gemini/tmp and in the Gemini API",
	is: func(_, kind string, v fields) bool {
		return has(v, "sessionId", "projectHash") || has(v, "role", "parts") || has(v, "id", "timestamp", "content") && !has(v, "role") && slices.Contains([]string{"user", "gemini", "info", "error"}, kind)
	},
	lists: []string{"messages", "history", "contents"}, session: func(_ string, v fields) string { return name(v, "sessionId") },
	kind: []string{"type", "role"}, id: []string{"id"}, at: []string{"timestamp"}, content: []string{"content", "parts"}, replaces: true, unusual: geminiContent,
	kinds: map[string]string{"user": user, "gemini": assistant, "model": assistant, "function": tool, "system": system, "info": "", "error": "", "warning": "", "": ""},
	event: geminiRewind, holds: true,
}, {
	format: Copilot, why: "requests with message and response, a log of changes to them, or events with data, as Copilot Chat and Copilot CLI write them",
	is: func(key, kind string, v fields) bool {
		return string(v["kind"]) == "0" && has(object(v["v"]), "requests") || has(v, "requests") && (has(v, "responderUsername") || has(v, "requesterUsername")) || key == "requests" && has(v, "message", "response") ||
			has(v, "data", "id", "timestamp") && strings.Contains(kind, ".")
	},
	lists: []string{"requests"}, session: func(kind string, v fields) string { return name(v, "data.sessionId", "sessionId") },
	kind: []string{"type"}, message: []string{"data"}, id: []string{"data.messageId", "id"}, at: []string{"timestamp"}, content: []string{"content", "result.content", "result", "error.message"},
	kinds: map[string]string{
		"user.message": user, "assistant.message": assistant, "tool.execution_complete": tool, "session.": "", "assistant.": "", "tool.": "", "hook.": "", "subagent.": "", "system.": "",
		"abort": "", "model.": "", "skill.": "",
	},
	unusual: copilotRequest, event: chatLog,
}, {
	format: OpenCode, why: "messages with info and parts, as opencode export writes them",
	is:    func(_, _ string, v fields) bool { return has(v, "info", "parts") || has(v, "info", "messages") },
	lists: []string{"messages"}, session: at("info.sessionID", "info.id"), kind: []string{"info.role"}, id: []string{"info.id"}, at: []string{"info.time.created"}, content: []string{"parts"},
	kinds: map[string]string{"user": user, "assistant": assistant},
}, {
	format: Hermes, why: "messages with message_id, or with session_id and timestamp, as Hermes exports them",
	is: func(_, _ string, v fields) bool {
		return has(v, "role", "timestamp") && (has(v, "message_id") || has(v, "session_id")) || has(v, "messages") && has(v, "session_id")
	},
	lists: []string{"messages"}, session: at("session_id", "id"), kind: []string{"role"}, id: []string{"message_id", "id"}, at: []string{"timestamp"}, content: []string{"text", "content"},
	kinds: map[string]string{"user": user, "assistant": assistant, "system": system, "tool": tool, "session_meta": ""},
}, {
	format: LangChain, why: "messages of type human and ai with data or kwargs, as LangChain dumps them",
	is: func(_, kind string, v fields) bool {
		known := slices.Contains([]string{"human", "ai", "AIMessageChunk", "HumanMessageChunk"}, kind)
		return has(v, "lc", "kwargs") || has(v, "data") && (known || kind == "system" || kind == "tool") || has(v, "content") && known
	},
	lists: []string{"messages"}, kind: []string{"kwargs.type", "data.type", "type"}, message: []string{"data", "kwargs"}, id: []string{"data.id", "kwargs.id", "id"}, content: []string{"content"},
	kinds:   map[string]string{"human": user, "ai": assistant, "AIMessageChunk": assistant, "HumanMessageChunk": user, "SystemMessageChunk": system, "ToolMessageChunk": tool, "FunctionMessageChunk": tool, "system": system, "tool": tool, "function": tool, "developer": system, "remove": ""},
	unusual: langChainConstructor,
}, {
	format: ShareGPT, why: "conversations of messages with from and value",
	is: func(_, _ string, v fields) bool {
		return has(v, "from", "value") || filled(v["conversations"]) && has(object(list(v["conversations"])[0]), "from")
	},
	lists: []string{"conversations"}, session: at("id", "conversation_id"), kind: []string{"from"}, content: []string{"value"},
	kinds: map[string]string{
		"human": user, "user": user, "gpt": assistant, "chatgpt": assistant, "assistant": assistant, "bing": assistant, "bard": assistant, "model": assistant, "function_call": assistant,
		"system": system, "tool": tool, "observation": tool, "function_response": tool,
	},
}, {
	format: Letta, why: "an agent file with agents and blocks, or with core_memory",
	is: func(key, _ string, v fields) bool {
		return key == "agents" && has(v, "messages") || has(v, "agents", "blocks") || has(v, "core_memory") || has(v, "role", "tool_returns")
	},
	lists: []string{"messages", "agents"}, session: at("name", "id"), kind: []string{"role"}, id: []string{"id"}, at: []string{"created_at"}, content: []string{"content", "text"},
	kinds: map[string]string{"user": user, "assistant": assistant, "system": system, "tool": tool, "approval": "", "summary": ""}, facts: []string{"core_memory", "blocks"},
}, {
	format: Cursor, why: "lines with role and message, or events with session_id, as Cursor's agent writes them",
	is: func(_, kind string, v fields) bool {
		return has(v, "role", "message") || has(v, "session_id") && slices.Contains([]string{"system", "user", "assistant", "tool_call", "result", "thinking"}, kind)
	},
	session: at("session_id"), kind: []string{"role", "type"}, message: []string{"message"}, id: []string{"id"}, at: []string{"timestamp_ms"}, content: []string{"content"},
	kinds:   map[string]string{"user": user, "assistant": assistant, "system": "", "result": "", "thinking": "", "tool_call": "", "turn_ended": ""},
	unusual: cursorCall, silent: true,
}}

// queuedPrompt reads what the user said while Claude Code was at work: it is in no message of its own.
func queuedPrompt(kind string, v fields) []Message {
	if a := object(v["attachment"]); kind == "attachment" && name(a, "type") == "queued_command" && filled(a["prompt"]) {
		if out, err := body(element{}, Message{ID: name(v, "uuid"), Role: user}, a, "prompt"); err == nil {
			return out
		}
	}
	return nil
}

// geminiContent reads a content without a role, which is the user's.
func geminiContent(kind string, v fields) []Message {
	if kind == "" && filled(v["parts"]) {
		if out, err := body(element{}, Message{Role: user}, v, "parts"); err == nil {
			return out
		}
	}
	return nil
}

func copilotRequest(_ string, v fields) []Message {
	id := name(v, "requestId")
	if !has(v, "message") || !has(v, "response") && id == "" {
		return nil
	}
	out := []Message{{ID: id, Role: user, Text: words(first(v, "message.text", "message"))}}
	s := &speaker{Message: Message{ID: cmp.Or(name(v, "responseId"), id+"/response"), Role: assistant}}
	for _, b := range list(v["response"]) {
		s.block(b)
	}
	s.flush()
	return append(out, s.out...)
}

// langChainConstructor reads a message whose type is only the last part of its class name, and one of a role of its own.
func langChainConstructor(kind string, v fields) []Message {
	if kind == "chat" || kind == "ChatMessageChunk" { // the role is any word
		m := object(first(v, "kwargs", "data"))
		if m == nil {
			m = v
		}
		out, _ := body(element{}, Message{ID: name(m, "id"), Role: name(m, "role"), Name: name(m, "name")}, m, "content")
		return out
	}
	class := list(v["id"])
	if len(class) == 0 || filled(first(v, "kwargs.type")) {
		return nil
	}
	role := map[string]string{"HumanMessage": user, "AIMessage": assistant, "AIMessageChunk": assistant, "SystemMessage": system, "ToolMessage": tool, "FunctionMessage": tool, "HumanMessageChunk": user, "ToolMessageChunk": tool}[text(class[len(class)-1])]
	k := object(v["kwargs"])
	if role == "" || k == nil {
		return nil
	}
	out, _ := body(element{}, Message{ID: name(k, "id"), Role: role, Name: name(k, "name"), ToolCallID: name(k, "tool_call_id")}, k, "content")
	return out
}

// cursorCall reads a completed call: its only field names the tool.
func cursorCall(kind string, v fields) []Message {
	if kind != "tool_call" || name(v, "subtype") != "completed" {
		return nil
	}
	s := &speaker{Message: Message{Role: assistant}}
	for tool, raw := range object(v["tool_call"]) {
		c := object(raw)
		switch {
		case tool == "function" && has(c, "name"):
			s.call(fields{"id": v["call_id"], "name": c["name"], "arguments": c["arguments"], "result": first(c, "result.success", "result")})
		case c != nil && (has(c, "args") || has(c, "result")):
			s.call(fields{"id": v["call_id"], "name": quoted(strings.TrimSuffix(tool, "ToolCall")), "args": c["args"], "result": first(c, "result.success", "result")})
		}
	}
	s.flush()
	return s.out
}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a text always has a form
	return b
}

func dialectOf(f Format) *dialect {
	for i := range dialects {
		if dialects[i].format == f {
			return &dialects[i]
		}
	}
	return nil
}

func (d *dialect) role(kind string) (role string, known bool) {
	if role, known = d.kinds[kind]; known {
		return role, true
	}
	if i := strings.IndexAny(kind, "._"); i > 0 {
		role, known = d.kinds[kind[:i+1]]
	}
	return role, known
}

// read reads one line. left names the kind of a line that is no turn; unknown reports a kind that the dialect does not know.
func (d *dialect) read(e element, v fields) (out []Message, left string, unknown bool, err error) {
	kind := name(v, d.kind...)
	at := e.when(first(v, d.at...))
	if d.unusual != nil {
		if out = d.unusual(kind, v); out != nil {
			return stamped(out, at), "", false, nil
		}
	}
	role, known := d.role(kind)
	switch {
	case string(v["isMeta"]) == "true", name(v, "state") == "rewound":
		return nil, "meta", false, nil
	case role == "":
		return nil, cmp.Or(kind, "header"), !known || kind == "" && says(v), nil
	}
	inner, raw := v, json.RawMessage(e.raw)
	if m := first(v, d.message...); m != nil {
		if inner, raw = object(m), m; inner == nil {
			inner = fields{d.content[0]: m} // the message is its text
		}
	}
	if role == asItem {
		if kind := name(inner, "type"); name(inner, "role") == "" && !slices.Contains(responseTypes, kind) {
			_, known := d.kinds[kind]
			return nil, cmp.Or(kind, "header"), !known, nil
		}
		out, err = messages(element{raw: raw, line: e.line})
		return stamped(out, at), "", false, err
	}
	m := Message{ID: name(v, d.id...), Role: role, Name: name(inner, "name", "tool_name"), At: at}
	if role == tool {
		m.ToolCallID = name(inner, "tool_call_id", "toolCallId", "call_id")
	}
	out, err = body(e, m, inner, d.content...)
	return stamped(out, at), "", false, err
}

func says(v fields) bool { return filled(first(v, "content", "parts", "text", "value")) }

// stamped sets the time of turns, and ids of results, which have none in any file.
func stamped(out []Message, at time.Time) []Message {
	for i := range out {
		out[i].At = at
		if m := &out[i]; m.ID == "" && m.Role == tool && m.ToolCallID != "" {
			m.ID = "result-" + m.ToolCallID
		}
	}
	return out
}

// TranscriptLine is one line of a program's transcript.
type TranscriptLine struct {
	ID       string // its own id, even if several lines are one message
	Messages []Message
	Side     bool // a subagent's, in whose conversation it is
}

// ParseClaudeCode reads one line of a Claude Code transcript. Lines that are no turns, and lines that the host wrote in the user's
// name, have no messages.
func ParseClaudeCode(raw []byte) (TranscriptLine, error) {
	v := object(raw)
	if v == nil {
		return TranscriptLine{}, store.Invalid("line", cut(string(raw), 40), "a JSON object")
	}
	if name(v, "type") == "attachment" { // said while the host was at work, so it begins no turn
		return TranscriptLine{ID: name(v, "uuid")}, nil
	}
	out, _, _, err := dialects[0].read(element{raw: raw, line: 1}, v)
	return TranscriptLine{ID: name(v, "uuid"), Messages: out, Side: string(v["isSidechain"]) == "true"}, err
}
