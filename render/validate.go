package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// shape is a form in which pages are sent.
type shape uint8

// The shapes. shapeText is the plain text of Text.
const (
	shapeText shape = iota
	shapeOpenAI
	shapeAnthropic
	shapeGemini
)

// String returns the name of the shape.
func (p shape) String() string {
	names := [...]string{"text", "OpenAI", "Anthropic", "Gemini"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("shape(%d)", uint8(p))
}

// ErrSequence is matched by the error for messages that a provider would refuse. The text says which message, what was
// expected there and what was found.
var ErrSequence = errors.New("render: illegal message sequence")

// sequenceError matches ErrSequence. index may be one past the end.
type sequenceError struct {
	provider      shape
	index         int
	expected, got string
}

func (e *sequenceError) Error() string {
	return fmt.Sprintf("%v: %v message %d: expected %s, got %s", ErrSequence, e.provider, e.index, e.expected, e.got)
}

func (e *sequenceError) Unwrap() error { return ErrSequence }

// validate refuses, with a *sequenceError, what the provider would refuse: an unknown role; a result without its call,
// or a call without its result right after it; empty content (a tool result may be empty); names and ids outside the
// provider's rules; for Anthropic and Gemini also a system message after the first turn, and for Anthropic a call id
// used twice. It does not check that these two require a user's turn first: the functions Anthropic and Gemini add
// one. For shapeText only roles are checked.
func validate(msgs []Message, p shape) error {
	v := validator{provider: p, used: map[string]bool{}}
	if len(msgs) == 0 {
		return v.fail(0, "a message", "an empty list")
	}
	for i := range msgs {
		if err := v.step(i, &msgs[i]); err != nil {
			return err
		}
	}
	if len(v.pending) > 0 {
		return v.fail(len(msgs), "the result of call "+quoteAll(v.pending)+", which waits for it: a tool message must answer it first", "the end")
	}
	return nil
}

type validator struct {
	provider shape
	turns    bool            // a message that is not system was seen
	pending  []string        // ids of calls whose result is due
	used     map[string]bool // ids of all calls so far
}

func (v *validator) fail(i int, expected, got string) error {
	return &sequenceError{v.provider, i, expected, got}
}

func (v *validator) step(i int, m *Message) error {
	if !slices.Contains([]string{RoleSystem, RoleUser, RoleAssistant, RoleTool}, m.Role) {
		return v.fail(i, "a role of system, user, assistant, tool", fmt.Sprintf("%.40q", m.Role))
	}
	if v.provider == shapeText {
		return nil
	}
	for _, check := range []func(int, *Message) error{v.checkSequence, v.fields, v.content, v.calls} {
		if err := check(i, m); err != nil {
			return err
		}
	}
	return nil
}

// checkSequence checks the order of messages: results directly after their call, then the provider's
// own rules.
func (v *validator) checkSequence(i int, m *Message) error {
	if m.Role == RoleTool {
		at := slices.Index(v.pending, m.ToolCallID)
		if at < 0 {
			return v.fail(i, "a call before its result", fmt.Sprintf("a result for %.40q", m.ToolCallID))
		}
		v.pending = slices.Delete(v.pending, at, at+1)
		return nil
	}
	if len(v.pending) > 0 {
		return v.fail(i, "the result of call "+quoteAll(v.pending), "a "+m.Role+" message")
	}
	strict := v.provider == shapeAnthropic || v.provider == shapeGemini
	if m.Role == RoleSystem {
		if strict && v.turns {
			return v.fail(i, "system messages before all others", "one after a turn")
		}
		return nil
	}
	v.turns = true
	return nil
}

// fields: what a role may carry.
func (v *validator) fields(i int, m *Message) error {
	if len(m.ToolCalls) > 0 && m.Role != RoleAssistant {
		return v.fail(i, "calls on assistant messages only", "calls of role "+m.Role)
	}
	if m.ToolCallID != "" && m.Role != RoleTool {
		return v.fail(i, "a call id on tool messages only", "one of role "+m.Role)
	}
	return nil
}

func (v *validator) content(i int, m *Message) error {
	if len(m.Parts) == 0 && len(m.ToolCalls) == 0 && m.Role != RoleTool {
		return v.fail(i, "content", "an empty "+m.Role+" message")
	}
	if m.Role == RoleTool && len(m.Parts) > 1 {
		return v.fail(i, "one part a tool result", fmt.Sprintf("%d", len(m.Parts)))
	}
	for n, part := range m.Parts {
		if m.Role != RoleTool && strings.TrimSpace(part) == "" {
			return v.fail(i, "text", fmt.Sprintf("a blank part %d", n))
		}
		if !utf8.ValidString(part) {
			return v.fail(i, "escaped text", fmt.Sprintf("part %d, which is not UTF-8", n))
		}
	}
	return nil
}

func (v *validator) calls(i int, m *Message) error {
	for _, c := range m.ToolCalls {
		if c.Type != "" && c.Type != "function" {
			return v.fail(i, "calls of type function", fmt.Sprintf("%.40q", c.Type))
		}
		if rule := nameRule(c.Name, v.provider); rule != "" {
			return v.fail(i, "a function name "+rule, fmt.Sprintf("%.80q", c.Name))
		}
		if err := v.callID(i, c.ID); err != nil {
			return err
		}
		v.pending = append(v.pending, c.ID)
	}
	return nil
}

// CallRefused says what every provider expects instead of this call; "": at least one provider accepts it. A call
// that all refuse makes its conversation useless everywhere. A call that only some refuse is an error when a
// request is written for those.
func CallRefused(c ToolCall) string {
	var wants []string
	for _, p := range [...]shape{shapeOpenAI, shapeAnthropic, shapeGemini} {
		v := validator{provider: p, used: map[string]bool{}}
		var e *sequenceError
		if !errors.As(v.calls(0, &Message{ToolCalls: []ToolCall{c}}), &e) {
			return ""
		}
		wants = append(wants, fmt.Sprintf("%s (%v)", e.expected, p))
	}
	return strings.Join(wants, ", ")
}

func (v *validator) callID(i int, id string) error {
	switch {
	case id == "":
		return v.fail(i, "a call with an id", "none")
	case slices.Contains(v.pending, id), v.used[id] && v.provider == shapeAnthropic:
		return v.fail(i, "a call id used once", fmt.Sprintf("%.40q again", id))
	}
	v.used[id] = true
	return nil
}

// nameRule returns the rule a function name breaks, "" when it breaks none.
func nameRule(name string, p shape) string {
	limit, extra := 64, "_-"
	switch p {
	case shapeAnthropic:
		limit = 128
	case shapeGemini:
		extra = "_-.:"
		if name != "" && name[0] != '_' && !isLetter(name[0]) {
			return "that starts with a letter or _"
		}
	}
	if len(name) == 0 || len(name) > limit {
		return fmt.Sprintf("of 1 to %d bytes", limit)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; !isLetter(c) && !isDecimal(c) && strings.IndexByte(extra, c) < 0 {
			return "of letters, digits and " + extra
		}
	}
	return ""
}

func isLetter(c byte) bool  { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

func quoteAll(ids []string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.40q", id)
	}
	return b.String()
}
