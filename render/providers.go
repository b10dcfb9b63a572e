package render

import (
	"strings"
	"unicode"
)

// OpenAI writes the "messages" of a chat completion request as a JSON object {"messages":[…]}. One part is a string,
// several are text parts. Errors match ErrSequence.
func OpenAI(msgs []Message) ([]byte, error) {
	if err := validate(msgs, shapeOpenAI); err != nil {
		return nil, err
	}
	w := writer{b: make([]byte, 0, jsonSize(msgs))}
	w.raw(`{"messages":[`)
	for i := range msgs {
		w.comma(i)
		w.openAIMessage(&msgs[i])
	}
	w.raw("]}")
	return w.b, nil
}

func (w *writer) openAIMessage(m *Message) {
	w.raw(`{"role":`)
	w.str(m.Role)
	if m.Name != "" && m.Role != RoleTool { // a tool message has no name there, the call has
		w.raw(`,"name":`)
		w.str(encodeName(m.Name))
	}
	if m.Role == RoleTool {
		w.raw(`,"tool_call_id":`)
		w.str(callID(m.ToolCallID, shapeOpenAI))
	}
	w.raw(`,"content":`)
	w.openAIContent(m)
	for i, c := range m.ToolCalls {
		w.raw([]string{`,"tool_calls":[`, `,`}[min(i, 1)])
		w.raw(`{"id":`)
		w.str(callID(c.ID, shapeOpenAI))
		w.raw(`,"type":"function","function":{"name":`)
		w.str(c.Name)
		w.raw(`,"arguments":`)
		w.str(callArguments(c.Arguments))
		w.raw("}}")
	}
	if len(m.ToolCalls) > 0 {
		w.raw("]")
	}
	w.raw("}")
}

func (w *writer) openAIContent(m *Message) {
	switch {
	case len(m.Parts) == 1:
		w.str(m.Parts[0])
	case len(m.Parts) > 1:
		w.raw("[")
		for i, part := range m.Parts {
			w.comma(i)
			w.raw(`{"type":"text","text":`)
			w.str(part)
			w.raw("}")
		}
		w.raw("]")
	case m.Role == RoleTool:
		w.raw(`""`)
	default:
		w.raw("null")
	}
}

// earlier stands as the user's where the first turn shown is the assistant's,
// because what came before it left the window: two providers take no
// conversation that the user does not begin. Its block opens like ownTurn, so
// that our parser tells it from a user who wrote the same.
const earlier = "(The conversation began before what is shown here.)"

// firstTurn returns the text of the user turn that the functions Anthropic and Gemini put before pages whose first turn is
// the assistant's; "" for other pages.
func firstTurn(pages []Page) string {
	for i := range pages {
		switch pages[i].Role {
		case RoleSystem:
		case RoleAssistant:
			return earlier
		default:
			return ""
		}
	}
	return ""
}

// beginsInside reports whether the user's turn that providers want first is missing.
func beginsInside(msgs []Message) bool { return len(msgs) > 0 && msgs[0].Role == RoleAssistant }

// Anthropic writes "system" and "messages" of a Messages request as one JSON object. Neighbours of one role share a
// message, results first. At most four blocks carry a cache mark, all in the stable prefix: the last system block, the
// last fenced block before the turns, the last stable block, and one that moves only every sixteen blocks. The
// provider looks back twenty blocks from a mark, so it always finds an older mark. The mark on the system block also
// covers tool definitions, which come before it; a host that marks those as well uses five. Errors match ErrSequence.
func Anthropic(msgs []Message) ([]byte, error) {
	if err := validate(msgs, shapeAnthropic); err != nil {
		return nil, err
	}
	w := writer{b: make([]byte, 0, jsonSize(msgs)), marks: cacheMarks(msgs)}
	turns := 0
	for turns < len(msgs) && msgs[turns].Role == RoleSystem {
		turns++
	}
	w.raw(`{"system":[`)
	w.anthropicBlocks(msgs[:turns], false)
	w.raw(`],"messages":[`)
	if beginsInside(msgs[turns:]) {
		w.raw(`{"role":"user","content":[` + ownTurn + `"type":"text","text":"` + earlier + `"}]},`)
	}
	for i := turns; i < len(msgs); {
		end := anthropicRun(msgs, i)
		w.comma(i - turns)
		w.raw(`{"role":`)
		w.str(anthropicRole(&msgs[i]))
		w.raw(`,"content":[`)
		w.anthropicBlocks(msgs[i:end], end == len(msgs) && msgs[i].Role == RoleAssistant)
		w.raw("]}")
		i = end
	}
	w.raw("]}")
	return w.b, nil
}

func anthropicRole(m *Message) string {
	if m.Role == RoleTool {
		return RoleUser
	}
	return m.Role
}

// anthropicRun returns the end of the run of messages that share one: some servers
// refuse two of one role in a row.
func anthropicRun(msgs []Message, i int) int {
	role := anthropicRole(&msgs[i])
	for i++; i < len(msgs) && anthropicRole(&msgs[i]) == role; i++ {
	}
	return i
}

// ownTurn opens the first call of a turn that has no text, where it stands
// behind another turn in one message. The blank means nothing to a provider and
// tells our parser that the call is not of the text before it.
const ownTurn = "{ "

// callBrace returns the opening of the n-th call of the message. Message i is the
// i-th of the messages that stand in one.
func (m *Message) callBrace(i, n int) string {
	if i > 0 && n == 0 && len(m.Parts) == 0 {
		return ownTurn
	}
	return "{"
}

// anthropicBlocks writes the contents of messages that share one. The assistant's words at the end of a request may not end in
// white space.
func (w *writer) anthropicBlocks(msgs []Message, last bool) {
	first := true
	open := func(brace, kind string) {
		if !first {
			w.raw(",")
		}
		first = false
		w.raw(brace + `"type":"` + kind + `"`)
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Role == RoleTool {
			open("{", "tool_result")
			w.raw(`,"tool_use_id":`)
			w.str(callID(m.ToolCallID, shapeAnthropic))
			w.raw(`,"content":`)
			w.str(m.Text())
			w.endBlock()
			continue
		}
		for n, part := range m.Parts {
			if last && i == len(msgs)-1 && n == len(m.Parts)-1 {
				part = strings.TrimRightFunc(part, unicode.IsSpace)
			}
			open("{", "text")
			w.raw(`,"text":`)
			w.str(part)
			w.endBlock()
		}
		for n, c := range m.ToolCalls {
			open(m.callBrace(i, n), "tool_use")
			w.raw(`,"id":`)
			w.str(callID(c.ID, shapeAnthropic))
			w.raw(`,"name":`)
			w.str(c.Name)
			w.raw(`,"input":`)
			w.raw(callArguments(c.Arguments))
			w.endBlock()
		}
	}
}

// endBlock closes a block, with a cache mark when its number calls for one.
func (w *writer) endBlock() {
	for _, mark := range w.marks {
		if mark == w.block {
			w.raw(`,"cache_control":{"type":"ephemeral"}`)
			break
		}
	}
	w.block++
	w.raw("}")
}

// markGrid is the distance between the slow mark's places. Anthropic looks back
// twenty blocks from a mark for an entry of an earlier call.
const markGrid = 16

// cacheMarks numbers the blocks to mark. Block i is the i-th content block,
// system first.
func cacheMarks(msgs []Message) []int {
	system, fenced, all := 0, 0, 0
	for i := range msgs {
		m := &msgs[i]
		n, whole := stableBlocks(m)
		all += n
		if m.Role == RoleSystem {
			system = all
		}
		if i == 0 || msgs[i-1].Role == RoleSystem {
			fenced = all // the message behind the system ones: fenced pages, where there are any
		}
		if !whole {
			break
		}
	}
	marks := make([]int, 0, 4)
	for _, n := range []int{system, fenced, all, all / markGrid * markGrid} {
		if n > 0 {
			marks = append(marks, n-1)
		}
	}
	return marks
}

// stableBlocks counts the leading stable blocks of m and reports whether that is
// all of it.
func stableBlocks(m *Message) (n int, whole bool) {
	total := max(len(m.Parts)+len(m.ToolCalls), 1)
	if len(m.ToolCalls) > 0 || len(m.Parts) == 0 {
		if m.Stable > 0 {
			return total, true
		}
		return 0, false
	}
	n = min(m.Stable, total)
	return n, n == total
}

// Gemini writes "systemInstruction" and "contents" of a generateContent request as one JSON object. Results of one turn
// share a content of their own. Pages carry no thought signatures; a host whose model requires them adds them to the
// functionCall parts. Errors match ErrSequence.
func Gemini(msgs []Message) ([]byte, error) {
	if err := validate(msgs, shapeGemini); err != nil {
		return nil, err
	}
	w := writer{b: make([]byte, 0, jsonSize(msgs))}
	turns := 0
	for turns < len(msgs) && msgs[turns].Role == RoleSystem {
		turns++
	}
	w.raw("{")
	if turns > 0 {
		w.raw(`"systemInstruction":{"parts":[`)
		w.geminiParts(msgs[:turns], nil)
		w.raw("]},")
	}
	w.raw(`"contents":[`)
	if beginsInside(msgs[turns:]) {
		w.raw(`{"role":"user","parts":[` + ownTurn + `"text":"` + earlier + `"}]},`)
	}
	names := map[string]string{} // function name of each call id so far
	for i := turns; i < len(msgs); {
		end := geminiRun(msgs, i)
		w.comma(i - turns)
		w.raw(`{"role":"` + geminiRole(&msgs[i]) + `","parts":[`)
		w.geminiParts(msgs[i:end], names)
		w.raw("]}")
		i = end
	}
	w.raw("]}")
	return w.b, nil
}

func geminiRole(m *Message) string {
	if m.Role == RoleAssistant {
		return "model"
	}
	return RoleUser
}

// geminiRun returns the end of the run of messages that share a content: calls
// must come right behind a content of the user's, not behind one of the model's.
func geminiRun(msgs []Message, i int) int {
	role := msgs[i].Role
	for i++; i < len(msgs) && msgs[i].Role == role; i++ {
	}
	return i
}

func (w *writer) geminiParts(msgs []Message, names map[string]string) {
	first := true
	open := func(s string) {
		if !first {
			w.raw(",")
		}
		first = false
		w.raw(s)
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Role == RoleTool {
			open(`{"functionResponse":{"id":`)
			w.str(callID(m.ToolCallID, shapeGemini))
			w.raw(`,"name":`)
			w.str(names[m.ToolCallID])
			w.raw(`,"response":{"output":`)
			w.str(m.Text())
			w.raw("}}}")
			continue
		}
		for _, part := range m.Parts {
			open(`{"text":`)
			w.str(part)
			w.raw("}")
		}
		for n, c := range m.ToolCalls {
			names[c.ID] = c.Name
			open(m.callBrace(i, n) + `"functionCall":{"id":`)
			w.str(callID(c.ID, shapeGemini))
			w.raw(`,"name":`)
			w.str(c.Name)
			w.raw(`,"args":`)
			w.raw(callArguments(c.Arguments))
			w.raw("}}")
		}
	}
}

// writer appends JSON.
type writer struct {
	b     []byte
	block int   // number of the next Anthropic content block
	marks []int // blocks to mark
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }
func (w *writer) str(s string) { w.b = appendJSON(w.b, s) }

func (w *writer) comma(i int) {
	if i > 0 {
		w.b = append(w.b, ',')
	}
}

func jsonSize(msgs []Message) int {
	n := 256
	for i := range msgs {
		n += 128
		for _, p := range msgs[i].Parts {
			n += len(p) + len(p)/16 + 64
		}
	}
	return n
}
