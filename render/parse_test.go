package render

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// errEscape means that a text contains an escape that Escape would not have written.
var errEscape = errors.New("render: bad escape")

// errParse means that bytes are not a pack of this Version.
var errParse = errors.New("render: not a rendered pack")

// parsed is the result of parsing: the fence and the pages in order.
type parsed struct {
	Fence string
	Pages []Page
}

// parsePack reads what Render wrote in that shape. See parseText and parseMessages for what is recovered. Anthropic and
// Gemini have no field for a turn's name, and none of the three message shapes has one for the name of a tool
// result.
func parsePack(b []byte, p shape) (parsed, error) {
	var msgs []Message
	var err error
	p, isLong := p.of()
	switch p {
	case shapeText:
		if !isLong {
			return readText(b)
		}
		return parseText(b)
	case shapeOpenAI:
		msgs, err = parseOpenAI(b)
	case shapeAnthropic:
		msgs, err = parseAnthropic(b)
	case shapeGemini:
		msgs, err = parseGemini(b)
	default:
		err = fmt.Errorf("render: no shape %v; use one of the shape constants", p)
	}
	if err != nil {
		return parsed{}, err
	}
	if !isLong {
		return readMessages(msgs)
	}
	return parseMessages(msgs)
}

func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", errParse, err)
	}
	return nil
}

// firstError keeps the first error of a run of decodings, so they read straight.
type firstError struct{ err error }

func (f *firstError) id(s string, p shape) string {
	v, err := parseCallID(s, p)
	return f.keep(v, err)
}

func (f *firstError) arguments(s string) string {
	v, err := parseArguments(s)
	return f.keep(v, err)
}

func (f *firstError) keep(v string, err error) string {
	if f.err == nil {
		f.err = err
	}
	return v
}

func parseOpenAI(b []byte) ([]Message, error) {
	var doc struct {
		Messages []struct {
			Role, Name string
			Content    json.RawMessage
			CallID     string `json:"tool_call_id"`
			Calls      []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var msgs []Message
	var f firstError
	for _, d := range doc.Messages {
		m := Message{Role: d.Role, Name: f.keep(parseName(d.Name)), ToolCallID: f.id(d.CallID, shapeOpenAI)}
		m.Parts = parseContent(d.Content, &f)
		for _, c := range d.Calls {
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: f.id(c.ID, shapeOpenAI),
				Name: c.Function.Name, Arguments: f.arguments(c.Function.Arguments)})
		}
		msgs = append(msgs, m)
	}
	return msgs, f.err
}

// parseContent reads a string, a list of text parts, or null.
func parseContent(raw json.RawMessage, f *firstError) []string {
	if len(raw) == 0 || raw[0] != '[' {
		var one *string
		f.keep("", decode(raw, &one))
		if one == nil {
			return nil
		}
		return []string{*one}
	}
	var list []struct{ Text string }
	f.keep("", decode(raw, &list))
	var parts []string
	for _, p := range list {
		parts = append(parts, p.Text)
	}
	return parts
}

type anthropicBlock struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	UseID                string `json:"tool_use_id"`
	Content              string
	own                  bool // it opens with ownTurn
}

func (b *anthropicBlock) UnmarshalJSON(raw []byte) error {
	type plain anthropicBlock
	b.own = strings.HasPrefix(string(raw), ownTurn)
	return json.Unmarshal(raw, (*plain)(b))
}

func parseAnthropic(b []byte) ([]Message, error) {
	var doc struct {
		System   []anthropicBlock
		Messages []struct {
			Role    string
			Content []anthropicBlock
		}
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var f firstError
	system := Message{Role: RoleSystem}
	for _, block := range doc.System {
		system.Parts = append(system.Parts, block.Text)
	}
	msgs := []Message{system}
	for _, m := range doc.Messages {
		for i, block := range m.Content {
			msgs = block.addTo(msgs, m.Role, i == 0 || block.own, &f)
		}
	}
	return msgs, f.err
}

// addTo appends the block as a message; a call goes to the text before it.
func (b *anthropicBlock) addTo(msgs []Message, role string, fresh bool, f *firstError) []Message {
	switch b.Type {
	case "text":
		if b.own {
			return msgs // earlier
		}
		return append(msgs, Message{Role: role, Parts: []string{b.Text}})
	case "tool_result":
		return append(msgs, Message{Role: RoleTool, ToolCallID: f.id(b.UseID, shapeAnthropic), Parts: []string{b.Content}})
	case "tool_use":
		return addCall(msgs, role, fresh, ToolCall{ID: f.id(b.ID, shapeAnthropic), Name: b.Name,
			Arguments: f.arguments(string(b.Input))})
	}
	f.keep("", fmt.Errorf("%w: a content block of type %.40q", errParse, b.Type))
	return msgs
}

func addCall(msgs []Message, role string, fresh bool, c ToolCall) []Message {
	if fresh {
		msgs = append(msgs, Message{Role: role})
	}
	m := &msgs[len(msgs)-1]
	m.ToolCalls = append(m.ToolCalls, c)
	return msgs
}

type geminiPart struct {
	Text string
	Call *struct {
		ID, Name string
		Args     json.RawMessage
	} `json:"functionCall"`
	Response *struct {
		ID, Name string
		Response struct{ Output string }
	} `json:"functionResponse"`
	own bool // it opens with ownTurn
}

func (p *geminiPart) UnmarshalJSON(raw []byte) error {
	type plain geminiPart
	p.own = strings.HasPrefix(string(raw), ownTurn)
	return json.Unmarshal(raw, (*plain)(p))
}

func parseGemini(b []byte) ([]Message, error) {
	type content struct {
		Role  string
		Parts []geminiPart
	}
	var doc struct {
		System   content `json:"systemInstruction"`
		Contents []content
	}
	if err := decode(b, &doc); err != nil {
		return nil, err
	}
	var f firstError
	system := Message{Role: RoleSystem}
	for _, part := range doc.System.Parts {
		system.Parts = append(system.Parts, part.Text)
	}
	msgs := []Message{system}
	for _, c := range doc.Contents {
		for i := range c.Parts {
			msgs = c.Parts[i].addTo(msgs, c.Role, i == 0 || c.Parts[i].own, &f)
		}
	}
	return msgs, f.err
}

func (p *geminiPart) addTo(msgs []Message, role string, fresh bool, f *firstError) []Message {
	if role == "model" {
		role = RoleAssistant
	}
	switch {
	case p.Call != nil:
		return addCall(msgs, role, fresh, ToolCall{ID: f.id(p.Call.ID, shapeGemini), Name: p.Call.Name,
			Arguments: f.arguments(string(p.Call.Args))})
	case p.Response != nil:
		return append(msgs, Message{Role: RoleTool, ToolCallID: f.id(p.Response.ID, shapeGemini),
			Parts: []string{p.Response.Response.Output}})
	}
	if p.own {
		return msgs // earlier
	}
	return append(msgs, Message{Role: role, Parts: []string{p.Text}})
}

// parseText reads what Text wrote: the same pages except for what is not shown (Stable; fractions of a second; form
// "full" and type "function", which come back empty). It accepts only what Text writes, in this
// Version: any change of the bytes is either an error or another pack.
func parseText(b []byte) (parsed, error) {
	fence, rest, err := parsePreamble(string(b))
	if err != nil {
		return parsed{}, err
	}
	pack := parsed{Fence: fence}
	for rest != "" {
		var p Page
		if rest, err = parsePage(rest, fence, &p); err != nil {
			return parsed{}, fmt.Errorf("page %d: %w", len(pack.Pages), err)
		}
		pack.Pages = append(pack.Pages, p)
	}
	return pack, checkCanonical(pack, b)
}

// checkCanonical renders again and compares, which catches every liberty the
// parser took: order and repetition of attributes, needless escapes, spellings
// of dates.
func checkCanonical(pack parsed, b []byte) error {
	for i := range pack.Pages {
		if !pack.Pages[i].eachString(fenceDigits, func(s string) bool { return !containsFence(s, pack.Fence) }) {
			return fmt.Errorf("%w: page %d holds the fence %s", errParse, i, pack.Fence)
		}
	}
	if bytes.Equal((&packer{mark: pack.Fence, long: true}).text(pack.Pages), b) {
		return nil
	}
	return fmt.Errorf("%w: it is not written the way version %d writes it", errParse, Version)
}

func parsePreamble(s string) (fence, rest string, err error) {
	at := len(preambleA)
	if len(s) < at+fenceDigits || s[:at] != preambleA {
		return "", "", fmt.Errorf("%w: it must start with %q", errParse, preambleA)
	}
	fence = s[at : at+fenceDigits]
	if strings.Trim(fence, "0123456789") != "" {
		return "", "", fmt.Errorf("%w: %q is no fence of %d digits", errParse, fence, fenceDigits)
	}
	rest, ok := strings.CutPrefix(s, string(appendPreamble(nil, fence)))
	if !ok {
		return "", "", fmt.Errorf("%w: the preamble is not that of version %d", errParse, Version)
	}
	return fence, rest, nil
}

// parsePage reads one block and gives what follows it.
func parsePage(s, fence string, p *Page) (rest string, err error) {
	s, ok := strings.CutPrefix(s, openPage+fence)
	if !ok {
		return "", fmt.Errorf("%w: %q expected", errParse, openPage+fence)
	}
	head, s, ok := strings.Cut(s, ">\n")
	if !ok {
		return "", fmt.Errorf("%w: the header does not end", errParse)
	}
	if err = parseHeader(head, p); err != nil {
		return "", err
	}
	body, rest, ok := strings.Cut("\n"+s, "\n"+closePage+fence+">\n")
	if !ok {
		return "", fmt.Errorf("%w: %q expected", errParse, closePage+fence+">")
	}
	return rest, parseBody(strings.TrimPrefix(body, "\n"), fence, p)
}

func parseBody(body, fence string, p *Page) (err error) {
	for {
		s, ok := strings.CutPrefix(body, openCall+fence)
		if !ok {
			p.Text, err = unescape(body)
			return err
		}
		var call ToolCall
		if body, err = parseCall(s, fence, &call); err != nil {
			return err
		}
		p.ToolCalls = append(p.ToolCalls, call)
	}
}

func parseCall(s, fence string, c *ToolCall) (rest string, err error) {
	head, s, ok := strings.Cut(s, ">")
	args, rest, ok2 := strings.Cut(s, closeCall+fence+">\n")
	if !ok || !ok2 {
		return "", fmt.Errorf("%w: %q expected", errParse, closeCall+fence+">")
	}
	if c.Arguments, err = unescape(args); err != nil {
		return "", err
	}
	return rest, parseAttributes(head, func(name, value string) bool {
		switch name {
		case "id":
			c.ID = value
		case "type":
			c.Type = value
		case "name":
			c.Name = value
		default:
			return false
		}
		return true
	})
}

func parseHeader(head string, p *Page) error {
	return parseAttributes(head, func(name, value string) bool {
		field := map[string]*string{
			"ref": &p.Ref, "kind": &p.Kind, "provenance": &p.Provenance, "source": &p.Source,
			"form": &p.Form, "role": &p.Role, "name": &p.Name, "answers": &p.ToolCallID,
		}[name]
		switch {
		case field != nil:
			*field = value
		case name == "date":
			return parseDate(value, &p.Date)
		case name == "stale":
			p.Stale = true
		default:
			return false
		}
		return true
	})
}

// parseAttributes hands over ` name="value"` pairs, unescaped.
func parseAttributes(s string, set func(name, value string) bool) error {
	for s != "" {
		name, after, ok := strings.Cut(s, `="`)
		value, rest, ok2 := strings.Cut(after, `"`)
		if !ok || !ok2 || !strings.HasPrefix(name, " ") {
			return fmt.Errorf("%w: ` name=\"value\"` expected at %.20q", errParse, s)
		}
		value, err := unescape(value)
		if err != nil {
			return err
		}
		if !set(name[1:], value) {
			return fmt.Errorf("%w: attribute %.20q=%.20q is not one of a header", errParse, name[1:], value)
		}
		s = rest
	}
	return nil
}

func parseDate(s string, t *time.Time) bool {
	var sec int64
	if n, err := fmt.Sscanf(s, "@%d", &sec); n == 1 && err == nil {
		*t = time.Unix(sec, 0).UTC()
		return true
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05Z"} {
		if d, err := time.Parse(layout, s); err == nil {
			*t = d
			return true
		}
	}
	return false
}

// parseMessages reads pages from the result of Messages. Of a turn it recovers only what a message carries: role, name,
// calls, call id, text, and for a stale turn its origin.
func parseMessages(msgs []Message) (parsed, error) {
	if len(msgs) == 0 || len(msgs[0].Parts) == 0 || msgs[0].Role != RoleSystem {
		return parsed{}, fmt.Errorf("%w: it must start with the preamble as a system part", errParse)
	}
	fence, rest, err := parsePreamble(msgs[0].Parts[0])
	if err != nil || rest != "" {
		return parsed{}, fmt.Errorf("%w: the preamble must be a part of its own", errParse)
	}
	pack := parsed{Fence: fence}
	for i, m := range msgs {
		if i == 0 {
			m.Parts = m.Parts[1:]
		}
		if err := pack.addMessage(&m, i == 0); err != nil {
			return parsed{}, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return pack, nil
}

func (pack *parsed) addMessage(m *Message, first bool) error {
	if len(m.Parts) == 0 && !first {
		pack.Pages = append(pack.Pages, Page{Role: m.Role, Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID})
	}
	for i, part := range m.Parts {
		var p Page
		if err := parsePart(part, m.Role, pack.Fence, &p); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		if p.Role != "" {
			p.Name = m.Name
			if i == len(m.Parts)-1 {
				p.ToolCalls, p.ToolCallID = m.ToolCalls, m.ToolCallID
			}
		}
		pack.Pages = append(pack.Pages, p)
	}
	return nil
}

// parsePart reads one part: fenced where it opens with the fence, else a turn.
func parsePart(part, role, fence string, p *Page) (err error) {
	if role == RoleUser && strings.HasPrefix(part, openPage+fence) {
		rest, err := parsePage(part, fence, p)
		if err == nil && rest != "" {
			err = fmt.Errorf("%w: text after the closing fence", errParse)
		}
		return err
	}
	p.Role = role
	if s, ok := strings.CutPrefix(part, openStale+fence); ok {
		head, body, ok := strings.Cut(s, ">\n")
		if !ok { // the end of a request to Anthropic, which takes no white space there
			head, ok = strings.CutSuffix(s, ">")
		}
		if !ok {
			return fmt.Errorf("%w: the line that says stale does not end", errParse)
		}
		if err := parseHeader(head, p); err != nil {
			return err
		}
		part = body
	}
	if role == RoleSystem {
		part = strings.TrimSuffix(part, "\n")
	}
	p.Text, err = unescape(part)
	return err
}
func parseCallID(s string, p shape) (string, error) {
	if p != shapeAnthropic {
		return unescape(s)
	}
	coded, ok := strings.CutPrefix(s, idMark)
	if !ok {
		return s, nil
	}
	id, err := hex.DecodeString(coded)
	if err != nil {
		return "", fmt.Errorf("%w: call id %.40q: %w", errParse, s, err)
	}
	return string(id), nil
}

func parseName(s string) (string, error) {
	name, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("%w: name %.40q: %w", errParse, s, err)
	}
	return name, nil
}

func parseArguments(s string) (string, error) {
	if s == "{ }" {
		return "", nil
	}
	if inner, ok := unwrapArguments(s); ok {
		return unescape(inner)
	}
	return s, nil
}

// unescape reverses Escape. It returns errEscape for a sequence that starts like an escape and is none. It accepts more
// than Escape writes; to be strict, compare the input with Escape of the result.
func unescape(s string) (string, error) {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for {
		out = append(out, s[:i]...)
		s = s[i:]
		if len(s) < 3 || s[2] != '{' || s[1] != 'u' && s[1] != 'x' {
			out, s = append(out, '\\'), s[1:]
		} else {
			n, err := 0, error(nil)
			if out, n, err = unescapeOne(out, s); err != nil {
				return "", err
			}
			s = s[n:]
		}
		if i = strings.IndexByte(s, '\\'); i < 0 {
			return string(append(out, s...)), nil
		}
	}
}

// unescapeOne decodes the escape s starts with and gives its length.
func unescapeOne(out []byte, s string) ([]byte, int, error) {
	end := strings.IndexByte(s[:min(len(s), len(`\u{10FFFF}`))], '}')
	if end < 0 {
		return nil, 0, fmt.Errorf("%w: no closing brace in %q", errEscape, s[:min(len(s), 12)])
	}
	v, err := strconv.ParseUint(s[3:end], 16, 32)
	if err != nil || s[1] == 'x' && v > 0xFF || s[1] == 'u' && !utf8.ValidRune(rune(v)) {
		return nil, 0, fmt.Errorf("%w: %q is no character", errEscape, s[:end+1])
	}
	if s[1] == 'x' {
		return append(out, byte(v)), end + 1, nil
	}
	return utf8.AppendRune(out, rune(v)), end + 1, nil
}

// fenceOf is the fence of texts.
func fenceOf(seed string, texts ...string) string {
	return fence(seed, func(yield func(string) bool) {
		for _, t := range texts {
			if !yield(t) {
				return
			}
		}
	})
}
