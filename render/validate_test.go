package render

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func system(text string) Message    { return Message{Role: RoleSystem, Parts: []string{text}} }
func user(text string) Message      { return Message{Role: RoleUser, Parts: []string{text}} }
func assistant(text string) Message { return Message{Role: RoleAssistant, Parts: []string{text}} }
func result(id string) Message {
	return Message{Role: RoleTool, ToolCallID: id, Parts: []string{"ok"}}
}

func calls(ids ...string) Message {
	m := Message{Role: RoleAssistant}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: id, Name: "lookup", Arguments: "{}"})
	}
	return m
}

func named(fn string) []Message {
	m := calls("a")
	m.ToolCalls[0].Name = fn
	return []Message{user("q"), m, result("a")}
}

func TestValidateRefuses(t *testing.T) {
	all := []shape{shapeOpenAI, shapeAnthropic, shapeGemini}
	strict := all[1:]
	tool := Message{Role: RoleTool, ToolCallID: "a", Parts: []string{"1", "2"}}
	typed := calls("a")
	typed.ToolCalls[0].Type = "custom"
	userCalls := user("q")
	userCalls.ToolCalls = calls("a").ToolCalls
	answering := user("q")
	answering.ToolCallID = "a"
	for _, c := range []struct {
		name      string
		msgs      []Message
		providers []shape
		index     int
		expected  string
	}{
		{"nothing", nil, all, 0, "a message"},
		{"unknown role", []Message{user("q"), {Role: "boss", Parts: []string{"x"}}}, all, 1, "a role of"},
		{"role with a line end", []Message{{Role: "user\n", Parts: []string{"x"}}}, all, 0, "a role of"},
		{"result without a call", []Message{user("q"), result("a")}, all, 1, "a call before its result"},
		{"result of another call", []Message{user("q"), calls("a"), result("b")}, all, 2, "a call before its result"},
		{"result twice", []Message{user("q"), calls("a"), result("a"), result("a")}, all, 3, "a call before its result"},
		{"result after a turn", []Message{user("q"), calls("a"), user("?"), result("a")}, all, 2, `the result of call "a"`},
		{"call without a result", []Message{user("q"), calls("a", "b"), result("b")}, all, 3, `the result of call "a", which waits for it: a tool message must answer it first`},
		{"call id twice", []Message{user("q"), calls("a", "a"), result("a"), result("a")}, all, 1, "used once"},
		{"call id again", []Message{user("q"), calls("a"), result("a"), calls("a"), result("a")}, strict[:1], 3, "used once"},
		{"call without an id", []Message{user("q"), calls("")}, all, 1, "with an id"},
		{"empty user", []Message{{Role: RoleUser}}, all, 0, "content"},
		{"empty assistant", []Message{user("q"), {Role: RoleAssistant}}, all, 1, "content"},
		{"blank text", []Message{user("q"), assistant(" \n\u00a0")}, all, 1, "text"},
		{"blank system", []Message{system("\n"), user("q")}, all, 0, "text"},
		{"not UTF-8", []Message{user("\xff")}, all, 0, "escaped text"},
		{"two parts of a result", []Message{user("q"), calls("a"), tool}, all, 2, "one part"},
		{"call by the user", []Message{userCalls}, all, 0, "assistant messages only"},
		{"answer by the user", []Message{answering}, all, 0, "tool messages only"},
		{"another type", []Message{user("q"), typed, result("a")}, all, 1, "type function"},
		{"function name with a space", named("look up"), all, 1, "letters, digits"},
		{"function name with quotes", named(`f","x":"`), all, 1, "letters, digits"},
		{"no function name", named(""), all, 1, "1 to"},
		{"long function name", named(strings.Repeat("f", 129)), all, 1, "1 to"},
		{"function name with a dot", named("a.b"), all[:2], 1, "letters, digits"},
		{"function name with a digit first", named("1f"), all[2:], 1, "starts with a letter"},
		{"system in the middle", []Message{user("q"), system("now obey")}, strict, 1, "before all others"},
		{"result first", []Message{result("a"), user("q")}, all, 0, "a call before its result"},
	} {
		for _, p := range all {
			refuses := false
			for _, q := range c.providers {
				refuses = refuses || p == q
			}
			err := validate(c.msgs, p)
			if !refuses {
				require.NoError(t, err, "%s, %v", c.name, p)
				continue
			}
			var e *sequenceError
			require.True(t, errors.As(err, &e), "%s, %v: %v", c.name, p, err)
			require.ErrorIs(t, err, ErrSequence)
			require.Equal(t, c.index, e.index, "%s, %v: %v", c.name, p, err)
			require.Contains(t, e.expected, c.expected, "%s, %v", c.name, p)
			_, err = map[shape]func([]Message) ([]byte, error){
				shapeOpenAI: OpenAI, shapeAnthropic: Anthropic, shapeGemini: Gemini}[p](c.msgs)
			require.ErrorIs(t, err, ErrSequence, "the writer refuses too")
		}
	}
}

// CallRefused is what Validate says of a call at every provider, and nothing that one of them takes.
func TestCallRefused(t *testing.T) {
	long := strings.Repeat("f", 100)
	refused := 0
	for _, c := range []ToolCall{
		{ID: "a", Name: "lookup"}, {ID: "a", Name: ""}, {ID: "", Name: "lookup"}, {ID: "a", Name: "look up"}, {ID: "a", Name: "1f"}, {ID: "a", Name: "a.b"},
		{ID: "a", Name: "1.b"}, {ID: "a", Name: long}, {ID: "a", Name: long + long}, {ID: "a", Name: long + ".b"}, {ID: long, Name: "lookup"},
		{ID: long, Name: "a.b"}, {ID: "a", Name: "lookup", Type: "custom"}, {ID: "a", Name: "größe"}, {ID: long, Name: long},
	} {
		taken := false
		for _, p := range []shape{shapeOpenAI, shapeAnthropic, shapeGemini} {
			msgs := []Message{user("q"), {Role: RoleAssistant, ToolCalls: []ToolCall{c}}, result(c.ID)}
			taken = taken || validate(msgs, p) == nil
		}
		wants := CallRefused(c)
		require.Equal(t, taken, wants == "", "%+v: %s", c, wants)
		if !taken {
			refused++
			for _, p := range []string{"OpenAI", "Anthropic", "Gemini"} {
				require.Contains(t, wants, p)
			}
		}
	}
	require.Equal(t, 8, refused)
}

func TestValidateAccepts(t *testing.T) {
	empty := result("b")
	empty.Parts = nil
	for name, msgs := range map[string][]Message{
		"a question":             {system("s"), user("q")},
		"no turns yet":           {system("s")},
		"results in other order": {user("q"), calls("a", "b"), empty, result("a"), user("x")},
		"text, then a call":      {user("q"), assistant("let me see"), calls("a"), result("a"), assistant("done")},
		"users in a row":         {user("data"), user("q")},
		"assistant first":        {system("s"), assistant("hi"), user("q")},
		"call first":             {calls("a"), result("a")},
	} {
		for _, p := range shapes[:4] {
			require.NoError(t, validate(msgs, p), "%s, %v", name, p)
		}
	}
}

// A system page with calls is a mistake that must not pass unseen.
func TestSystemPageWithCallsIsRefused(t *testing.T) {
	msgs := Messages(seed, []Page{{Role: RoleSystem, Text: "x", ToolCalls: []ToolCall{{ID: "1", Name: "f"}}}}, false)
	require.ErrorIs(t, validate(msgs, shapeOpenAI), ErrSequence)
}
