package render

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Message is the neutral message from which the provider shapes are written.
//
// Parts are texts, already escaped, in order: the first message is a system message whose first
// part is the preamble; system pages follow it, a part each; fenced pages that stand together share
// a user message, a part each; every other turn is a message with one part, or none when it has
// only calls. Name, ToolCalls and ToolCallID are as the page has them; OpenAI, Anthropic and Gemini
// encode them as their provider allows.
type Message struct {
	Role       string
	Name       string
	Parts      []string
	Stable     int // how many leading parts belong to the stable prefix; 1 covers a message of calls
	ToolCalls  []ToolCall
	ToolCallID string
}

// Text joins the parts, for a host that wants one string a message.
func (m Message) Text() string { return strings.Join(m.Parts, "") }

// Messages lays pages out as messages. The stable prefix is the leading run of pages marked Stable. Later marks are
// ignored, because a cache ends at the first change.
func Messages(seed string, pages []Page, long bool) []Message {
	l := layout{packer: *newPacker(make([]byte, 0, sizeHint(pages)), seed, pages, long), stable: true, kind: partSystem,
		msgs: make([]Message, 0, len(pages)+1), parts: make([]span, 0, len(pages)+1)}
	l.msgs = append(l.msgs, Message{Role: RoleSystem})
	l.legend(false)
	l.part()
	for i := range pages {
		l.add(&pages[i], i+1)
	}
	l.turnTo(partSystem)
	return l.done()
}

// Three kinds of pages: system and fenced pages join a message of their kind
// that stands right before them, a turn never does.
type partKind uint8

const (
	partSystem partKind = iota
	partFenced
	partTurn
)

// layout collects messages. The texts of all parts are written one behind the
// other and cut apart at the end: two allocations instead of two a page.
type layout struct {
	packer
	stable bool     // no page so far was unstable
	kind   partKind // of the last message
	msgs   []Message
	parts  []span
}

// span is a part: which message it belongs to and where its text ends.
type span struct{ msg, end int }

func (l *layout) add(p *Page, n int) {
	l.stable = l.stable && p.Stable
	switch {
	case p.Role == "":
		l.join(RoleUser, partFenced)
		l.page(p, n)
	case p.Role == RoleSystem && len(p.ToolCalls) == 0 && p.ToolCallID == "": // else validate refuses it
		// A line of its own: servers that join the parts of a system message
		// do so without a separator.
		l.join(RoleSystem, partSystem)
		l.native(p)
		l.b = append(l.b, '\n')
	default:
		l.turnTo(partTurn)
		from := len(l.b)
		l.msgs = append(l.msgs, Message{Role: p.Role, Name: p.Name, ToolCalls: slices.Clone(p.ToolCalls), ToolCallID: p.ToolCallID})
		l.native(p)
		if l.stable {
			l.last().Stable = 1
		}
		if len(l.b) == from && p.Role != RoleTool {
			return // nothing but calls
		}
	}
	l.part()
}

func (l *layout) last() *Message { return &l.msgs[len(l.msgs)-1] }

func (l *layout) join(role string, kind partKind) {
	if l.kind != kind {
		l.turnTo(kind)
		l.msgs = append(l.msgs, Message{Role: role})
	}
}

// turnTo begins a message of a kind. Pages that end here are closed in their last part.
func (l *layout) turnTo(kind partKind) {
	if l.kind == partFenced {
		l.end()
		l.parts[len(l.parts)-1].end = len(l.b)
	}
	l.kind = kind
}

// part ends the part whose text was just written.
func (l *layout) part() {
	l.parts = append(l.parts, span{msg: len(l.msgs) - 1, end: len(l.b)})
	if l.stable && l.kind != partTurn {
		l.last().Stable++
	}
}

func (l *layout) done() []Message {
	text, from := string(l.b), 0
	all := make([]string, len(l.parts))
	for i, p := range l.parts {
		all[i], from = text[from:p.end], p.end
	}
	for i := 0; i < len(l.parts); {
		n := i
		for n < len(l.parts) && l.parts[n].msg == l.parts[i].msg {
			n++
		}
		l.msgs[l.parts[i].msg].Parts = all[i:n:n]
		i = n
	}
	return l.msgs
}

// native writes the text of a page that speaks in its own role. A stale page says so in a line that carries the fence or
// the mark, so no text can imitate it. White space alone gets its first character escaped: providers refuse blank
// texts.
func (w *packer) native(p *Page) {
	if p.Stale && w.long {
		w.b = append(append(w.b, openStale...), w.mark...)
		w.b = append(appendOrigin(w.b, p), ">\n"...)
	} else if p.Stale {
		w.b = append(appendOpening(append(w.b, w.mark...), p), '\n')
	}
	if p.Text == "" || strings.TrimSpace(p.Text) != "" {
		w.b = appendText(w.b, p.Text)
		return
	}
	text := Escape(p.Text)
	if strings.TrimSpace(text) == "" {
		_, size := utf8.DecodeRuneInString(text)
		w.b, text = appendEscape(w.b, text[:size]), text[size:]
	}
	w.b = append(w.b, text...)
}
