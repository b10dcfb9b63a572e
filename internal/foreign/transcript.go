package foreign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Markdown is a transcript for people.
const Markdown Format = "md"

// Elements calls fn for the objects of a file of messages: one after the other, in a list, or in an object with a list of messages or
// items. fn must not keep raw. The error is a *portable.LineError, or comes from fn or r.
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

// Transcript writes the turns of a session (ctxpage.Session.Turns): messages of OpenAI or Anthropic, one a line, which ParseMessage
// reads, or Markdown. It returns how many it wrote.
//
// Providers refuse a call without its results, and a result in another place than behind its call. So a late result moves to its call,
// and calls and results without the other are left out and counted, as are parts that the provider does not accept from who said
// them: another provider's thoughts, or an image from a tool. Markdown has all.
func Transcript(w io.Writer, f Format, turns iter.Seq2[*ctxpage.Version, error]) (n, left int, err error) {
	if f == Markdown {
		for v, err := range turns {
			if err == nil {
				err = markdownTurn(w, v)
			}
			if err != nil {
				return n, 0, err
			}
			n++
		}
		return n, 0, nil
	}
	shapes := map[Format]func(*transcript, *ctxpage.Version, []*ctxpage.Version) []any{
		OpenAIChat: (*transcript).openAIExchange, Anthropic: (*transcript).anthropicExchange}
	t := transcript{shape: shapes[f], enc: json.NewEncoder(w)}
	if t.shape == nil {
		return 0, 0, store.Invalid("format", fmt.Sprintf("%q", f), "openai, anthropic or md")
	}
	t.enc.SetEscapeHTML(false)
	for v, err := range turns {
		if err == nil {
			err = t.take(v)
		}
		if err != nil {
			return t.n, t.left, err
		}
	}
	err = t.write(0)
	return t.n, t.left, err
}

// transcript holds turns back while a call before them waits for its results.
type transcript struct {
	shape func(t *transcript, turn *ctxpage.Version, results []*ctxpage.Version) []any
	enc   *json.Encoder
	held  []heldTurn
	n     int // turns written
	left  int // calls, results and parts left out
}

type heldTurn struct {
	*ctxpage.Version
	results []*ctxpage.Version
}

// maxHeld bounds how many turns are held back: a call that so many turns later has no result will get none.
const maxHeld = 10_000

func (t *transcript) take(v *ctxpage.Version) error {
	if v.Role != render.RoleTool {
		t.held = append(t.held, heldTurn{Version: v})
		return t.write(maxHeld)
	}
	for i := len(t.held) - 1; i >= 0; i-- {
		if h := &t.held[i]; h.calls(v.ToolCallID) && !h.answered(v.ToolCallID) {
			h.results = append(h.results, v)
			return t.write(maxHeld)
		}
	}
	t.left++
	return nil
}

func (h *heldTurn) calls(id string) bool {
	return slices.ContainsFunc(h.ToolCalls, func(c store.ToolCall) bool { return c.ID == id })
}

func (h *heldTurn) answered(id string) bool {
	return slices.ContainsFunc(h.results, func(r *ctxpage.Version) bool { return r.ToolCallID == id })
}

// write writes turns from the front: those whose calls are all answered, and whatever exceeds most.
func (t *transcript) write(most int) error {
	for len(t.held) > 0 && (len(t.held) > most || len(t.held[0].results) == len(t.held[0].ToolCalls)) {
		h := t.held[0]
		t.held = t.held[1:]
		turn := *h.Version
		turn.ToolCalls = slices.DeleteFunc(slices.Clone(turn.ToolCalls), func(c store.ToolCall) bool { return !h.answered(c.ID) })
		t.left += len(h.ToolCalls) - len(turn.ToolCalls)
		if len(turn.ToolCalls) == 0 && len(h.ToolCalls) > 0 && fullText(&turn) == "" {
			continue // nothing but calls
		}
		messages := t.shape(t, &turn, h.results)
		if len(messages) == 0 {
			t.left++ // blank, and the provider refuses that
			continue
		}
		t.n += 1 + len(h.results)
		for _, m := range messages {
			if err := t.enc.Encode(m); err != nil {
				return fmt.Errorf("ctxpage: transcript: %w", err)
			}
		}
	}
	return nil
}

func (t *transcript) openAIExchange(turn *ctxpage.Version, results []*ctxpage.Version) []any {
	out := []any{t.openAIMessage(turn)}
	for _, r := range results {
		out = append(out, t.openAIMessage(r))
	}
	return out
}

func (t *transcript) anthropicExchange(turn *ctxpage.Version, results []*ctxpage.Version) []any {
	first := t.anthropicMessage(turn)
	if len(first.Content) == 0 {
		return nil
	}
	out := []any{first}
	var all *anthropicTurn
	for _, r := range results {
		m := t.anthropicMessage(r)
		if all == nil {
			all = m
			out = append(out, m)
			continue
		}
		all.Content = append(all.Content, m.Content...)
	}
	return out
}

// The parts that a provider accepts beside text and images, by role.
var (
	openAIParts = map[string][]string{
		render.RoleUser:      {"input_audio", "file"},
		render.RoleAssistant: {"refusal"},
	}
	anthropicParts = map[string][]string{
		render.RoleUser: {"document", "search_result", "container_upload"},
		render.RoleAssistant: {"thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
			"code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result"},
	}
)

// imageURL returns the address of an image, a data: URL of one that is in the part; "" of another part.
func imageURL(p store.Part) string {
	if p.Type != "image_url" && p.Type != "input_image" && p.Type != "image" || p.URL != "" {
		return p.URL
	}
	v := object(json.RawMessage(p.Detail))
	if address := name(v, "image_url.url", "image_url", "source.url"); address != "" {
		return address
	}
	if data := name(v, "source.data"); data != "" {
		return "data:" + name(v, "source.media_type") + ";base64," + data
	}
	return ""
}

// shortID stands for a call id that a provider does not accept.
func shortID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
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

func openAIID(id string) string {
	if len(id) > 40 { // Chat Completions refuses what its own Responses API and others make
		return shortID(id)
	}
	return id
}

// functionName writes the name of a called function with the characters and in the length that OpenAI and Anthropic accept.
func functionName(name string, limit int) string {
	legal := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name)
	return legal[:min(len(legal), limit)]
}

func (t *transcript) openAIMessage(v *ctxpage.Version) any {
	m := &openAITurn{Role: roleOf(v), Name: writtenName(v.Name), Content: v.Text, ToolCallID: openAIID(v.ToolCallID)}
	for _, c := range v.ToolCalls {
		call := openAICall{ID: openAIID(c.ID), Type: "function"}
		call.Function.Name, call.Function.Arguments = functionName(c.Name, 64), c.Arguments
		m.ToolCalls = append(m.ToolCalls, call)
	}
	if len(v.Parts) > 0 {
		var parts []any
		for _, p := range v.Parts {
			switch address := imageURL(p); {
			case p.Type == "text":
				parts = append(parts, map[string]any{"type": "text", "text": p.Text})
			case address != "" && m.Role == render.RoleUser:
				image := map[string]any{"url": address}
				if p.Detail != "" && p.URL != "" {
					image["detail"] = p.Detail
				}
				parts = append(parts, map[string]any{"type": "image_url", "image_url": image})
			case p.Type == toolResult: // its words are told already
			case slices.Contains(openAIParts[m.Role], p.Type):
				parts = append(parts, originalPart(p))
			default:
				t.left++
			}
		}
		m.Content = parts
		if len(parts) == 0 {
			m.Content = fullText(v)
		}
	}
	if m.Content == "" && len(m.ToolCalls) > 0 {
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

var anthropicIDs = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func anthropicID(id string) string {
	if !anthropicIDs.MatchString(id) {
		return shortID(id)
	}
	return id
}

func (t *transcript) anthropicMessage(v *ctxpage.Version) *anthropicTurn {
	m := &anthropicTurn{Role: roleOf(v), Content: []any{}}
	if v.Role == render.RoleTool {
		m.Role = render.RoleUser
		for _, p := range v.Parts {
			if p.Type == toolResult {
				m.Content = append(m.Content, withCallID(originalPart(p), anthropicID(v.ToolCallID)))
				return m
			}
			if p.Type != "text" {
				t.left++
			}
		}
		m.Content = append(m.Content, map[string]any{"type": "tool_result", "tool_use_id": anthropicID(v.ToolCallID), "content": fullText(v)})
		return m
	}
	parts := v.Parts
	if len(parts) == 0 {
		parts = []store.Part{{Type: "text", Text: v.Text}}
	}
	for _, p := range parts {
		switch address := imageURL(p); {
		case p.Type == "text":
			if strings.TrimSpace(p.Text) != "" { // Anthropic refuses a blank block
				m.Content = append(m.Content, map[string]any{"type": "text", "text": p.Text})
			}
		case p.Type == "image" && m.Role == render.RoleUser, slices.Contains(anthropicParts[m.Role], p.Type):
			m.Content = append(m.Content, originalPart(p))
		case address != "" && m.Role == render.RoleUser:
			m.Content = append(m.Content, map[string]any{"type": "image", "source": imageSource(address)})
		default:
			t.left++
		}
	}
	for _, c := range v.ToolCalls {
		input := json.RawMessage(c.Arguments)
		if object(input) == nil {
			input = json.RawMessage("{}")
			if c.Arguments != "" {
				input, _ = json.Marshal(map[string]string{"_unparsed": c.Arguments}) // a string always marshals
			}
		}
		m.Content = append(m.Content, map[string]any{"type": "tool_use", "id": anthropicID(c.ID), "name": functionName(c.Name, 128), "input": input})
	}
	return m
}

// imageSource is where Anthropic finds an image: it accepts no data: URL.
func imageSource(address string) map[string]any {
	if inside, ok := strings.CutPrefix(address, "data:"); ok {
		if media, data, ok := strings.Cut(inside, ";base64,"); ok {
			return map[string]any{"type": "base64", "media_type": media, "data": data}
		}
	}
	return map[string]any{"type": "url", "url": address}
}

func originalPart(p store.Part) any {
	if raw := json.RawMessage(p.Detail); json.Valid(raw) && bytes.HasPrefix(raw, []byte("{")) {
		return raw
	}
	return map[string]any{"type": "text", "text": strings.TrimSpace("[" + p.Type + "] " + p.URL)}
}

// withCallID sets the id of the call of a tool result, as the session stores it.
func withCallID(part any, id string) any {
	var fields map[string]json.RawMessage
	if raw, ok := part.(json.RawMessage); !ok || json.Unmarshal(raw, &fields) != nil {
		return part
	}
	want, err := json.Marshal(id)
	if err != nil || bytes.Equal(fields["tool_use_id"], want) {
		return part
	}
	fields["tool_use_id"] = want
	return fields
}

// writtenName writes a speaker's name as OpenAI accepts it: with %XX in place of what it refuses. A name that is too long is left out.
func writtenName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsSpace(r) || strings.ContainsRune(`<|\/>%`, r) {
			b.WriteString(url.PathEscape(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	if b.Len() > 64 {
		return ""
	}
	return b.String()
}

// readName reads what writtenName wrote, and returns any other name as it is.
func readName(written string) string {
	if name, err := url.PathUnescape(written); err == nil && writtenName(name) == written {
		return name
	}
	return written
}

func roleOf(v *ctxpage.Version) string {
	if v.Role == "" {
		return render.RoleUser
	}
	return v.Role
}

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
