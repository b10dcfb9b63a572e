package render

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The readers below know nothing of this package: they hold a request to the
// rules a provider answers 400 for.

var (
	legalFunction    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	legalParticipant = regexp.MustCompile(`^[^\s<|\\/>]{1,64}$`)
	legalCallID      = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

func requireObject(t require.TestingT, raw []byte) {
	var m map[string]any
	require.NoError(t, json.Unmarshal(raw, &m), "%s", raw)
	require.NotNil(t, m)
}

func requireWords(t require.TestingT, text string) {
	require.NotEmpty(t, strings.TrimSpace(text), "%q", text)
}

func legalOpenAI(t require.TestingT, b []byte) {
	var doc struct {
		Messages []struct {
			Role, Name string
			Content    json.RawMessage
			Answers    *string `json:"tool_call_id"`
			Calls      []struct {
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	due := map[string]bool{}
	for _, m := range doc.Messages {
		require.Contains(t, []string{"system", "user", "assistant", "tool"}, m.Role)
		if m.Name != "" {
			require.Regexp(t, legalParticipant, m.Name)
		}
		if m.Role == "tool" {
			require.NotNil(t, m.Answers)
			require.True(t, due[*m.Answers], "%q is not due", *m.Answers)
			delete(due, *m.Answers)
			require.Equal(t, byte('"'), m.Content[0])
			continue
		}
		require.Nil(t, m.Answers)
		require.Empty(t, due, "before a %s message", m.Role)
		switch m.Content[0] {
		case '"':
			var text string
			require.NoError(t, json.Unmarshal(m.Content, &text))
			requireWords(t, text)
		case '[':
			var parts []struct{ Type, Text string }
			require.NoError(t, json.Unmarshal(m.Content, &parts))
			require.NotEmpty(t, parts)
			for _, p := range parts {
				require.Equal(t, "text", p.Type)
				requireWords(t, p.Text)
			}
		default:
			require.Equal(t, "null", string(m.Content))
			require.NotEmpty(t, m.Calls)
		}
		for _, c := range m.Calls {
			require.Equal(t, "assistant", m.Role)
			require.Equal(t, "function", c.Type)
			require.Regexp(t, legalFunction, c.Function.Name)
			require.NotEmpty(t, c.ID)
			require.LessOrEqual(t, len(c.ID), 40)
			require.False(t, due[c.ID], "%q twice", c.ID)
			due[c.ID] = true
			requireObject(t, []byte(c.Function.Arguments))
		}
	}
	require.Empty(t, due)
}

type wireBlock struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	UseID                string `json:"tool_use_id"`
	Content              *string
	Cache                *struct{ Type string } `json:"cache_control"`
}

func legalAnthropic(t require.TestingT, b []byte) {
	var doc struct {
		System   []wireBlock
		Messages []struct {
			Role    string
			Content []wireBlock
		}
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	marks, seen := 0, map[string]bool{}
	for _, s := range doc.System {
		require.Equal(t, "text", s.Type)
		requireWords(t, s.Text)
		if s.Cache != nil {
			marks++
		}
	}
	var due []string
	if n := len(doc.Messages); n > 0 && doc.Messages[n-1].Role == "assistant" {
		said := doc.Messages[n-1].Content
		last := said[len(said)-1].Text
		require.Equal(t, strings.TrimRightFunc(last, unicode.IsSpace), last, "white space at the end of the assistant's words")
	}
	for i, m := range doc.Messages {
		require.Equal(t, []string{"user", "assistant"}[i%2], m.Role, "roles take turns, the user's first")
		require.NotEmpty(t, m.Content)
		for _, c := range m.Content {
			if c.Cache != nil {
				marks++
				require.Equal(t, "ephemeral", c.Cache.Type)
			}
			if len(due) > 0 { // results first, and all of them
				require.Equal(t, "tool_result", c.Type)
				require.Contains(t, due, c.UseID)
				require.NotNil(t, c.Content)
				due = without(due, c.UseID)
				continue
			}
			switch c.Type {
			case "text":
				requireWords(t, c.Text)
			case "tool_use":
				require.Equal(t, "assistant", m.Role)
				require.Regexp(t, legalCallID, c.ID)
				require.False(t, seen[c.ID])
				seen[c.ID] = true
				require.Regexp(t, legalFunction, c.Name)
				requireObject(t, c.Input)
			default:
				require.Fail(t, "an illegal block", "%q", c.Type)
			}
		}
		for _, c := range m.Content {
			if c.Type == "tool_use" {
				due = append(due, c.ID)
			}
		}
	}
	require.Empty(t, due)
	require.LessOrEqual(t, marks, 4)
}

func without(list []string, one string) (rest []string) {
	for i, s := range list {
		if s == one {
			return append(append(rest, list[:i]...), list[i+1:]...)
		}
	}
	return list
}

func legalGemini(t require.TestingT, b []byte) {
	type call struct {
		ID, Name string
		Args     json.RawMessage
	}
	type content struct {
		Role  string
		Parts []struct {
			Text     *string
			Call     *call `json:"functionCall"`
			Response *struct {
				ID, Name string
				Response json.RawMessage
			} `json:"functionResponse"`
		}
	}
	var doc struct {
		System   *content `json:"systemInstruction"`
		Contents []content
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	if doc.System != nil {
		require.NotEmpty(t, doc.System.Parts)
	}
	var due []call
	last := "model" // the first content is the user's
	for _, c := range doc.Contents {
		require.Contains(t, []string{"user", "model"}, c.Role)
		require.NotEmpty(t, c.Parts)
		require.False(t, last == "model" && c.Role == "model", "two contents of the model's in a row, or one first")
		last = c.Role
		answers := len(due) > 0
		for _, p := range c.Parts {
			if answers {
				require.Equal(t, "user", c.Role)
				require.NotNil(t, p.Response, "a content of results holds nothing else")
				require.NotEmpty(t, due)
				found := -1
				for i, d := range due {
					if d.ID == p.Response.ID {
						found = i
					}
				}
				require.GreaterOrEqual(t, found, 0)
				require.Equal(t, due[found].Name, p.Response.Name)
				requireObject(t, p.Response.Response)
				due = append(due[:found], due[found+1:]...)
				continue
			}
			require.Nil(t, p.Response)
			if p.Call == nil {
				requireWords(t, *p.Text)
				continue
			}
			require.Equal(t, "model", c.Role)
			require.Regexp(t, legalFunction, p.Call.Name)
			requireObject(t, p.Call.Args)
		}
		require.Empty(t, due)
		for _, p := range c.Parts {
			if p.Call != nil {
				due = append(due, *p.Call)
			}
		}
	}
	require.Empty(t, due)
}

var legal = map[shape]func(require.TestingT, []byte){shapeOpenAI: legalOpenAI, shapeAnthropic: legalAnthropic, shapeGemini: legalGemini}

// anyTurns draws pages in an order every provider takes, with answers in a row,
// calls with and without a text, results in any order, data anywhere.
func anyTurns(text *rapid.Generator[string]) *rapid.Generator[[]Page] {
	name := rapid.Map(text, func(s string) string { return clip(s, 12) })
	return rapid.Custom(func(t *rapid.T) []Page {
		some := func(role string) Page {
			return Page{Role: role, Name: name.Draw(t, "name"), Ref: text.Draw(t, "ref"), Kind: text.Draw(t, "kind"), Text: text.Draw(t, "text"),
				Stale: rapid.Bool().Draw(t, "stale"), Source: text.Draw(t, "source"), Stable: rapid.Bool().Draw(t, "stable")}
		}
		words := func(role string) Page { p := some(role); p.Text += "."; return p }
		var pages []Page
		for range rapid.IntRange(0, 3).Draw(t, "systems") {
			pages = append(pages, words(RoleSystem))
		}
		// The assistant's: what the user said first left the window. "call" leaves the first turn to the loop.
		if first := rapid.SampledFrom([]string{"", RoleUser, RoleAssistant, "call"}).Draw(t, "first"); first != "call" {
			pages = append(pages, words(first))
		} else {
			pages = append(pages, anyCalls(t, some, name, text, 7)...)
		}
		for turn := range rapid.IntRange(0, 6).Draw(t, "turns") {
			switch rapid.IntRange(0, 4).Draw(t, "turn") {
			case 0:
				pages = append(pages, words(RoleUser))
			case 1:
				pages = append(pages, some(""))
			case 2:
				pages = append(pages, words(RoleAssistant))
			default:
				pages = append(pages, anyCalls(t, some, name, text, turn)...)
			}
		}
		return pages
	})
}

func anyCalls(t *rapid.T, some func(string) Page, name, args *rapid.Generator[string], turn int) []Page {
	ask := some(RoleAssistant)
	if rapid.Bool().Draw(t, "silent") {
		ask.Text, ask.Stale = "", false
	}
	var results []Page
	for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
		id := string(rune('a'+turn)) + string(rune('a'+i)) + clip(name.Draw(t, "id"), 6)
		ask.ToolCalls = append(ask.ToolCalls, ToolCall{ID: id, Name: rapid.StringMatching(`[a-zA-Z_][a-zA-Z0-9_-]{0,12}`).Draw(t, "fn"), Arguments: args.Draw(t, "args")})
		result := some(RoleTool)
		result.ToolCallID = id
		results = append(results, result)
	}
	return append([]Page{ask}, rapid.Permutation(results).Draw(t, "results")...)
}

// What the validator accepts a provider accepts, and it reads back.
func TestAnyTurnsAreLegal(t *testing.T) { rapid.Check(t, turnsAreLegal()) }

func FuzzTurns(f *testing.F) { f.Fuzz(rapid.MakeFuzz(turnsAreLegal())) }

func turnsAreLegal() func(*rapid.T) {
	pages := anyTurns(anyText(hostileTo(seed)))
	return func(t *rapid.T) {
		list := pages.Draw(t, "pages")
		for _, shape := range shapes {
			requireRoundTrip(t, list, shape, shape.String())
			if provider, _ := shape.of(); provider != shapeText {
				b := must(renderAs(seed, list, shape))(t)
				legal[provider](t, b)
			}
		}
	}
}

// Calls behind a text of the same role: one message to the provider, which
// refuses two in a row, and still two pages to us.
func TestCallsBehindAnAnswer(t *testing.T) {
	result := Page{Role: RoleTool, ToolCallID: "1", Text: "ok"}
	call := []ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}
	apart := []Page{{Role: RoleUser, Text: "q"}, {Role: RoleAssistant, Text: "Let me see."}, {Role: RoleAssistant, ToolCalls: call}, result}
	joined := []Page{{Role: RoleUser, Text: "q"}, {Role: RoleAssistant, Text: "Let me see.", ToolCalls: call}, result}
	for shape, check := range legal {
		a := must(renderAs(seed, apart, shape))(t)
		j := must(renderAs(seed, joined, shape))(t)
		check(t, a)
		check(t, j)
		requireRoundTrip(t, apart, shape, shape.String())
		requireRoundTrip(t, joined, shape, shape.String())
		if shape != shapeOpenAI {
			require.JSONEq(t, string(j), string(a), "the provider sees no difference")
		}
	}
}

// A name or a call id that is longer than OpenAI accepts is written shorter, and two that begin alike stay apart.
func TestLongNames(t *testing.T) {
	for _, one := range []string{"x", "é", " ", "\u202e", "%", "■"} {
		for n := 50; n < 300; n += 7 {
			long := strings.Repeat(one, n)
			list := []Page{{Role: RoleUser, Name: long + "a", Text: "q"}, {Role: RoleUser, Name: long + "b", Text: "q"},
				{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: long + "a", Name: "f"}, {ID: long + "b", Name: "f"}}},
				{Role: RoleTool, ToolCallID: long + "b", Text: "2"}, {Role: RoleTool, ToolCallID: long + "a", Text: "1"}}
			for shape, check := range legal {
				b := must(renderAs(seed, list, shape))(t)
				check(t, b)
			}
			b := must(renderAs(seed, list, shapeOpenAI))(t)
			var doc struct{ Messages []struct{ Name string } }
			require.NoError(t, json.Unmarshal(b, &doc))
			require.NotEqual(t, doc.Messages[1].Name, doc.Messages[2].Name)
		}
	}
}

// A conversation may end with the assistant's words, and Anthropic takes no white space behind them.
func TestEndOfTheAssistantsWords(t *testing.T) {
	call := Page{Role: RoleAssistant, Text: "See. ", ToolCalls: []ToolCall{{ID: "1", Name: "f"}}}
	for _, list := range [][]Page{
		{{Role: RoleUser, Text: "q "}, {Role: RoleAssistant, Text: "a \n\u00a0\t"}},
		{{Role: RoleUser, Text: "q "}, {Role: RoleAssistant, Text: "a "}, {Role: RoleAssistant, Text: " b\n"}},
		{{Role: RoleAssistant, Text: "a "}}, {{Role: RoleUser, Text: "q "}, {Role: RoleAssistant, Text: "a "}, {Role: RoleUser, Text: "q "}},
		{{Role: RoleUser, Text: "q "}, call, {Role: RoleTool, ToolCallID: "1", Text: "1 "}},
	} {
		b := must(renderAs(seed, list, shapeAnthropic))(t)
		legalAnthropic(t, b)
		requireRoundTrip(t, list, shapeAnthropic, "nothing else is cut")
	}
}

// The control: the readers refuse what a provider refuses.
func TestReadersRefuse(t *testing.T) {
	for shape, bad := range map[shape][]string{
		shapeOpenAI: {
			`{"messages":[{"role":"user","content":""}]}`,
			`{"messages":[{"role":"tool","tool_call_id":"1","content":"x"}]}`,
			`{"messages":[{"role":"user","name":"a b","content":"x"}]}`,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"[]"}}]},{"role":"tool","tool_call_id":"1","content":""}]}`,
		},
		shapeAnthropic: {
			`{"messages":[{"role":"assistant","content":[{"type":"text","text":"x"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":" "}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"a "}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"text","text":"b"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"1","content":""}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"tool_use","id":"a b","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a b","content":""}]}]}`,
		},
		shapeGemini: {
			`{"contents":[{"role":"model","parts":[{"text":"x"}]}]}`,
			`{"contents":[{"role":"user","parts":[]}]}`,
			`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{}}}]}]}`,
			`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{}}},{"text":"x"}]}]}`,
			`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{}}}]}]}`,
		},
	} {
		for _, b := range bad {
			var r refusal
			func() {
				defer func() { _ = recover() }() // FailNow
				legal[shape](&r, []byte(b))
			}()
			require.True(t, r.refused, "%v accepts %s", shape, b)
		}
	}
}

// refusal records that a check failed.
type refusal struct{ refused bool }

func (r *refusal) Errorf(string, ...any) { r.refused = true }
func (r *refusal) FailNow()              { panic("refused") }

// Where the user's first turn left the window, a turn of the user stands before the assistant's for those who want one; it
// is no page, and not taken for a user's who wrote the same.
func TestConversationBeginsEarlier(t *testing.T) {
	same := Page{Role: RoleUser, Text: earlier}
	for _, list := range [][]Page{
		{{Role: RoleSystem, Text: "be kind"}, {Role: RoleAssistant, Text: "As I said."}, {Role: RoleUser, Text: "q"}},
		{{Role: RoleAssistant, Text: "As I said."}, same},
		{same, {Role: RoleAssistant, Text: "As I said."}},
	} {
		for shape, check := range legal {
			b := must(renderAs(seed, list, shape))(t)
			check(t, b)
			requireRoundTrip(t, list, shape, shape.String())
			paid := list[0].Role != RoleUser && shape != shapeOpenAI
			require.Equal(t, paid, firstTurn(list) != "" && strings.Contains(string(b), ownTurn))
			if list[0].Role != RoleUser {
				require.Equal(t, shape != shapeOpenAI, strings.Contains(string(b), ownTurn), "only where it is wanted")
			}
		}
	}
}
