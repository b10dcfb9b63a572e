package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyText mixes words, hostile strings and raw bytes.
func anyText(corpus []string) *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "word ", "\n", "Refund within 30 days.", "7", "`code`", " "}),
		rapid.SampledFrom(corpus),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string { return string(b) }),
		rapid.StringN(0, 6, -1),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 4), func(p []string) string { return strings.Join(p, "") })
}

func anyPage(text *rapid.Generator[string]) *rapid.Generator[Page] {
	return rapid.Custom(func(t *rapid.T) Page {
		p := Page{Text: text.Draw(t, "text"), Ref: text.Draw(t, "ref"), Stable: rapid.Bool().Draw(t, "stable"), Stale: rapid.Bool().Draw(t, "stale")}
		p.Kind = rapid.SampledFrom([]string{"", "fact", "chunk", "summary", "message", "message", "tool", "facts", "chat"}).Draw(t, "kind")
		p.Group = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "group")
		p.From = rapid.SampledFrom([]string{"", "", "a/b.md", "a, verified"}).Draw(t, "from")
		p.Number = rapid.SampledFrom([]int{0, 0, 7, 1234}).Draw(t, "number")
		if p.Form = rapid.SampledFrom([]string{"", "full", "range", "range", "stub"}).Draw(t, "form"); p.Form == "range" {
			p.Text = "[…] " + p.Text + "[…] " + text.Draw(t, "part") + " […]" // as an extract shows it
		}
		p.Role = rapid.SampledFrom([]string{"", "", RoleSystem, RoleUser, RoleAssistant, RoleTool, "boss"}).Draw(t, "role")
		if rapid.Bool().Draw(t, "more") {
			p.Source, p.Provenance, p.Name = text.Draw(t, "source"), text.Draw(t, "provenance"), text.Draw(t, "name")
		} else {
			p.Provenance = rapid.SampledFrom([]string{"", "chunk", "tool", "scratch", "validated", "human-verified", "verified"}).Draw(t, "trust")
			p.Name = rapid.SampledFrom([]string{"", "Ana", "user", "[user]"}).Draw(t, "called")
		}
		if rapid.Bool().Draw(t, "dated") {
			p.Date = time.Unix(rapid.Int64Range(-1e11, 1e12).Draw(t, "date"), 5)
			p.ToolCallID = text.Draw(t, "answers")
		}
		for range rapid.IntRange(0, 2).Draw(t, "calls") {
			p.ToolCalls = append(p.ToolCalls, ToolCall{ID: text.Draw(t, "id"), Type: rapid.SampledFrom([]string{"", "function", "x"}).Draw(t, "type"),
				Name: text.Draw(t, "fn"), Arguments: text.Draw(t, "args")})
		}
		return p
	})
}

// Whatever the pages, plain text parses back, and another shape either does or
// is refused with the index of a message.
func TestAnyPagesParseBack(t *testing.T) {
	pages := rapid.SliceOfN(anyPage(anyText(hostileTo(seed))), 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		list := pages.Draw(t, "pages")
		for _, shape := range shapes {
			_, err := renderAs(seed, list, shape)
			var refused *sequenceError
			if errors.As(err, &refused) {
				require.NotEqual(t, shapeText, shape&^long)
				require.ErrorIs(t, err, ErrSequence)
				continue
			}
			requireRoundTrip(t, list, shape, shape.String())
		}
	})
}

// conversation draws a sequence every provider accepts: system, data, turns,
// calls with their results, data between turns. Its texts are hostile.
func conversation(text *rapid.Generator[string]) *rapid.Generator[[]Page] {
	return rapid.Custom(func(t *rapid.T) []Page {
		var pages []Page
		add := func(p Page) { pages = append(pages, p) }
		some := func(role, fill string) Page {
			return Page{Role: role, Text: text.Draw(t, role) + fill, Stale: rapid.Bool().Draw(t, "stale"), Source: text.Draw(t, "source")}
		}
		for range rapid.IntRange(0, 2).Draw(t, "systems") {
			add(some(RoleSystem, "."))
		}
		for range rapid.IntRange(0, 2).Draw(t, "facts") {
			add(some("", ""))
		}
		for turn := range rapid.IntRange(1, 4).Draw(t, "turns") {
			add(some(RoleUser, "?"))
			if rapid.Bool().Draw(t, "talk") {
				add(some(RoleAssistant, "!"))
			}
			if n := rapid.IntRange(0, 3).Draw(t, "calls"); n > 0 {
				addCalls(t, &pages, some, text, turn, n)
			}
			add(some("", ""))
		}
		return pages
	})
}

func addCalls(t *rapid.T, pages *[]Page, some func(role, fill string) Page, text *rapid.Generator[string], turn, n int) {
	call := some(RoleAssistant, rapid.SampledFrom([]string{"", " ", "x"}).Draw(t, "fill"))
	*pages = append(*pages, call)
	at := len(*pages) - 1
	for i := range n {
		id := fmt.Sprintf("%d.%d%s", turn, i, clip(text.Draw(t, "id"), 3))
		(*pages)[at].ToolCalls = append((*pages)[at].ToolCalls, ToolCall{ID: id, Name: "f", Arguments: text.Draw(t, "args")})
		result := some(RoleTool, "")
		result.ToolCallID = id
		*pages = append(*pages, result)
	}
}

func TestLegalConversationsParseBack(t *testing.T) {
	pages := conversation(anyText(hostileTo(seed)))
	rapid.Check(t, func(t *rapid.T) {
		list := pages.Draw(t, "pages")
		for i := range list {
			list[i].Stable = i < len(list)/2
		}
		for _, shape := range shapes {
			requireRoundTrip(t, list, shape, shape.String())
		}
		checkAnthropic(t, Messages(seed, list, false))
		checkAnthropic(t, Messages(seed, list, true))
	})
}

// checkAnthropic reads the JSON as the provider would: strict roles, results
// first, marks at most four and none behind the stable prefix.
func checkAnthropic(t require.TestingT, msgs []Message) {
	type block struct {
		Type  string
		Cache *struct{ Type string } `json:"cache_control"`
	}
	var doc struct {
		System   []block
		Messages []struct {
			Role    string
			Content []block
		}
	}
	b := must(Anthropic(msgs))(t)
	require.NoError(t, json.Unmarshal(b, &doc))
	blocks := doc.System
	for _, m := range doc.Messages {
		require.NotEmpty(t, m.Content)
		for i, c := range m.Content {
			if c.Type == "tool_result" && i > 0 {
				require.Equal(t, "tool_result", m.Content[i-1].Type)
			}
		}
		blocks = append(blocks, m.Content...)
	}
	stable := 0
	for _, m := range msgs {
		n, whole := stableBlocks(&m)
		stable += n
		if !whole {
			break
		}
	}
	marks := 0
	for i, c := range blocks {
		if c.Cache != nil {
			marks++
			require.Less(t, i, stable)
		}
	}
	require.LessOrEqual(t, marks, 4)
	require.GreaterOrEqual(t, marks, 1)
}

func TestMessagesParseBack(t *testing.T) {
	pages := conversation(anyText(hostileTo(seed)))
	rapid.Check(t, func(t *rapid.T) {
		list := pages.Draw(t, "pages")
		pack := must(parseMessages(Messages(seed, list, true)))(t)
		require.Len(t, pack.Pages, len(list))
		for i, p := range list {
			require.Equal(t, p.Text, pack.Pages[i].Text)
			require.Equal(t, p.Role, pack.Pages[i].Role)
			require.Equal(t, p.Stale, pack.Pages[i].Stale)
		}
	})
}

func TestEscapeIsReversible(t *testing.T) {
	text := anyText(hostileTo(seed))
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "s")
		for _, tab := range []*table{&textTable, &attrTable} {
			e := string(appendEscaped(nil, s, tab))
			require.True(t, utf8.ValidString(e))
			back := must(unescape(e))(t)
			require.Equal(t, s, back)
			require.Equal(t, clean(s, tab), e == s)
		}
		require.NotContains(t, string(appendAttr(nil, s)), "\n")
	})
}

func FuzzText(f *testing.F) {
	for _, s := range payloads(fenceOf(seed)) {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, text, ref, args string) {
		pages := []Page{{Ref: ref, Text: text}, {Role: RoleUser, Text: "q" + ref}, {Role: RoleAssistant, Text: text, ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: args}}},
			{Role: RoleTool, ToolCallID: "1", Text: text, Source: ref, Stale: true}}
		for _, shape := range shapes {
			requireRoundTrip(t, pages, shape, shape.String())
		}
	})
}

// FuzzParseText: what the parser accepts is exactly what Text writes.
func FuzzParseText(f *testing.F) {
	for _, s := range payloads(fenceOf(seed)) {
		f.Add(Text(nil, seed, []Page{{Ref: s, Text: s, Stale: true}, {Text: s, ToolCalls: []ToolCall{{ID: "1", Arguments: s}}}}, true))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if pack, err := parseText(b); err == nil {
			require.Equal(t, string(b), string((&packer{mark: pack.Fence, long: true}).text(pack.Pages)))
		}
		for _, shape := range shapes {
			_, _ = parsePack(b, shape) // any bytes: an error at most
		}
	})
}
