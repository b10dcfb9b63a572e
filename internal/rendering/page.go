// Package rendering shows pages to a model, and judges by what it showed: header, form, cuts, turns put together; a past
// context again (Replayer), byte for byte, because the result depends only on what is stored and on the manifest; and the
// drafts of a transaction: which of them such a context supports (Judge), whether two spellings are one name, so that nobody
// approves what he wrote himself (IsWriter), and whether writes supersede each other in a circle (Supersedes).
package rendering

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Page is a page of a context and the form it was given.
type Page struct {
	Head  *store.Head
	Ref   string
	Text  string
	Page  int // counted from 1
	Form  manifest.Form
	Stale bool
	// Steady says that the next contexts have it in the same place: a hint for cache marks.
	Steady bool
}

// Pages appends the pages of a context, turns of several pages put together.
func Pages(dst []render.Page, shown []Page, session string) []render.Page {
	m := merger{pages: slices.Grow(dst, len(shown))}
	for i := range shown {
		m.add(&shown[i], i+1, session)
	}
	m.close()
	return m.pages
}

// Render is the page as it is rendered for a session, or for none.
func (p *Page) Render(session string) render.Page {
	h := p.Head
	out := render.Page{
		Ref: p.Ref, Kind: h.Kind.String(), Provenance: trust(h, p.Form).String(), Source: h.Artefact.Source, Date: h.CurrentAsOf,
		Stale: p.Stale, Form: p.Form.String(), Name: h.Name, Text: p.Text,
	}
	switch { // two scopes may each have a conversation, or a file, of one name
	case h.Kind == store.KindMessage:
		out.Group = h.Scope + "\x00" + h.Group
	case out.Source != "":
		out.Group = h.Scope
	}
	if strings.HasSuffix(out.Source, "/"+h.ID) && strings.HasPrefix(out.Source, "file:") {
		out.From = h.ID // below its folder
	}
	switch {
	case h.Kind == store.KindSystem:
		out.Role, out.Stable = render.RoleSystem, true
		if directivelog.IsPage(h.Kind, h.ID) {
			out.Kind = "directive"
		}
	case IsTurn(h, session):
		out.Role, out.ToolCallID = store.SpokenAs(h.Role), h.ToolCallID
		for _, c := range h.ToolCalls {
			if p.Form == manifest.FormStub {
				c.Arguments = "{}" // a stub says that there is more, and how to get it
			}
			out.ToolCalls = append(out.ToolCalls, render.ToolCall{ID: c.ID, Type: c.Type, Name: c.Name, Arguments: c.Arguments})
		}
	case h.Kind == store.KindMessage:
		out.Name = cmp.Or(h.Name, h.Role)
	}
	out.Stable = out.Stable || h.Pinned || p.Steady
	return out
}

// trust is the provenance a header shows. A summary is a model's words: it is worth at most what the gate lets through,
// whatever it sums up.
func trust(h *store.Head, form manifest.Form) store.Provenance {
	if form == manifest.FormSummary {
		return min(h.Provenance, store.Validated)
	}
	return h.Provenance
}

// roles are the roles that providers accept.
var roles = []string{render.RoleSystem, store.RoleDeveloper, render.RoleUser, render.RoleAssistant, render.RoleTool}

// IsTurn reports whether a page is a message of a session's requests. One with a role that no provider takes is data,
// whatever calls it has.
func IsTurn(h *store.Head, session string) bool {
	return session != "" && h.Group == session && h.Kind == store.KindMessage && (h.Role == "" || slices.Contains(roles, h.Role))
}

// Stub returns the text that stands for a turn; text belongs to its first page.
func Stub(h *store.Head, text string) string {
	return prose.StubText(store.Ref{Scope: h.Scope, ID: h.ID}.String(), hex.EncodeToString(h.Rows[0].Digest[:6]), conversation.SumTokens(h.Rows), text)
}

// Cut is a page cut to ranges. The lines of directives stand for themselves: a mark at a gap would only make one ask
// what is missing.
func Cut(k store.Kind, id, text string, cuts [][2]uint32) string {
	if !directivelog.IsPage(k, id) {
		return prose.ShowParts(text, cuts)
	}
	var b strings.Builder
	for _, r := range cuts {
		b.WriteString(text[r[0]:r[1]])
	}
	return b.String()
}

// merger puts the pages of one turn together again: a provider takes one message for a turn, one for a result, and each
// call once.
type merger struct {
	pages  []render.Page
	last   *store.Head       // of the turn that the last of them shows
	page   int               // its last page so far
	some   bool              // pages of it are missing
	short  bool              // a stub or a summary stands for it, or for a page
	seq    int64             // of the newest turn so far
	called map[string]string // the id that each call has in the context, by its scope and id
	used   map[string]bool   // those ids
}

// inOrder reports whether the place of a turn in a context says how it is shown: a turn that comes after a newer one is a
// quotation. Calls and results have their place by each other, what a host has pinned or verified comes first, and so do
// turns of the role system.
func inOrder(h *store.Head) bool {
	return h.Version > 0 && !conversation.UsesTools(h) && !h.Pinned && h.Provenance != store.HumanVerified && store.SpokenAs(h.Role) != render.RoleSystem
}

// add adds the n-th page of the context. That is its number, which a model can name: the manifest has the pages in this order.
func (m *merger) add(s *Page, n int, session string) {
	h, p := s.Head, s.Render(session)
	p.Number = n
	if IsTurn(h, session) && inOrder(h) {
		if h.Seq < m.seq {
			p = Quoted(p) // as a message it would seem to be said just now
		} else {
			m.seq = h.Seq
		}
	}
	short := s.Form == manifest.FormStub || s.Form == manifest.FormSummary
	if m.last != nil && p.Role != "" && m.last.ID == h.ID && m.last.Scope == h.Scope && s.Page > m.page {
		m.gap(s.Page - m.page - 1)
		m.pages[len(m.pages)-1].Text += p.Text
		m.page, m.short = s.Page, m.short || short
		return
	}
	m.close()
	m.pages = append(m.pages, p)
	if p.Role != "" && p.Role != render.RoleSystem {
		m.pairUp(h)
		m.last, m.page, m.some, m.short = h, 0, false, short
		m.gap(s.Page - 1)
		m.page = s.Page
	}
}

// Quoted is a turn as a page of data.
func Quoted(p render.Page) render.Page {
	p.Name, p.Role = cmp.Or(p.Name, p.Role), ""
	return p
}

// gap marks that pages of the turn are missing here.
func (m *merger) gap(pages int) {
	if pages <= 0 || m.short {
		return
	}
	m.some = true
	p := &m.pages[len(m.pages)-1]
	if m.page == 0 {
		p.Text = "[…] " + p.Text
	} else {
		p.Text += "\n[…]\n"
	}
}

// close ends a turn. A turn of which pages are missing says so, and where the whole is.
func (m *merger) close() {
	if m.last == nil {
		return
	}
	if m.gap(len(m.last.Rows) - m.page); m.some && !m.short {
		p := &m.pages[len(m.pages)-1]
		p.Text = fmt.Sprintf("%s\n[cut: parts of %s, which has %d tokens]", p.Text, store.Ref{Scope: m.last.Scope, ID: m.last.ID}, conversation.SumTokens(m.last.Rows))
	}
	m.last = nil
}

// pairUp assigns ids of their own to the calls of a turn, and to its result the id of its call. Sessions store such ids when turns are
// appended; turns that came in another way may share one, and so may turns of two scopes.
func (m *merger) pairUp(h *store.Head) {
	p := &m.pages[len(m.pages)-1]
	if p.ToolCallID != "" {
		p.ToolCallID = cmp.Or(m.called[h.Scope+"\x00"+p.ToolCallID], p.ToolCallID)
	}
	for i := range p.ToolCalls {
		if m.used == nil {
			m.used, m.called = map[string]bool{}, map[string]string{}
		}
		given, c := p.ToolCalls[i].ID, &p.ToolCalls[i]
		for m.used[c.ID] {
			c.ID += "_t" + strconv.FormatInt(h.Seq, 10)
		}
		m.used[c.ID], m.called[h.Scope+"\x00"+given] = true, c.ID
	}
}
