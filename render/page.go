// Package render turns pages into what a provider gets: plain text, or the
// message fragments of OpenAI, Anthropic and Gemini requests.
//
// Rendering is a boundary: page text is data. A page without a role is a fenced block under a
// header. The lines that fence it carry a number that no shown page contains. Everything that could
// hide or restructure text (control, bidi, tag and zero-width characters, invalid UTF-8) is written
// as a visible escape. A pack always parses back to the page list that it was made from; tests of
// the package check that.
//
// This contains injection; it does not prevent it. Contained: a page cannot close its block, open
// another, forge a header, a role, a tool call or a result, hide text from a reader, or reach the
// system slot unless the caller gave it the role "system". Not contained: words that persuade the
// model, and Markdown images or links, which stay as they are inside the fence. A program that
// shows a model's answer must not load addresses from it.
//
// Everything here is pure (no clock, no randomness, no goroutine, no file) and so safe for
// concurrent use. The same pages and seed give the same bytes under one Version.
package render

import "time"

// Version names the rendering. Under one Version the bytes for a given input
// never change; manifests record it.
const Version = 1

// Roles a page or message may carry. A page without a role is data.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Page is one page as the caller wants it shown. All strings may be hostile.
type Page struct {
	Ref        string    // scope:id#page@version, already percent-encoded
	Kind       string    // system, fact, chunk, message, tool, scratch, summary, directive
	Provenance string    // who wrote it, in words of trust
	Source     string    // "" or file:…, http:…, page:…
	Date       time.Time // current as of; shown in UTC to the second, zero: not shown
	Stale      bool      // the source changed and the page is served all the same: the header says so
	Form       string    // full, range, summary, stub; "" and full show nothing

	// Role makes the page a turn of its own: system, user, assistant, tool.
	// Such a page has no header in the message shapes; the caller vouches for
	// the role. Empty: the page is fenced data, in a user message.
	Role       string
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string

	Text   string
	Stable bool // belongs to the stable prefix; it is a hint for cache marks and not shown
}

// ToolCall is a call an assistant turn made. Arguments is the provider's
// opaque string, normally a JSON object. Type "" means "function".
type ToolCall struct {
	ID        string
	Type      string
	Name      string
	Arguments string
}
