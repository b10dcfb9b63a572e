package ctxpage

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
)

// What a page costs in a context. A cost includes header, marks and escapes, because the budget is a promise on the
// rendered text; Query.ContentsOnly counts the text alone. A whole page always costs the same, so its frame keeps the cost in
// the dense form, one for its form as a page and one for its form as a turn, whose headers differ. Other forms, and counters of
// a query, count at each use. What opens a run of pages is charged to the best of them (opening).

// cost returns what a page takes, from its frame if it was counted before.
func (a *assembling) cost(it *item, text string) int {
	if it.continues() && !a.q.ContentsOnly && text == it.text && it.fixed() == manifest.FormFull && !it.stale {
		if render.Escape(text) != text {
			return a.counter.Count(render.Escape(text)) + 1
		}
		return tokens(a.counter, it.head, it.page, text) + 1
	}
	if it.frame == nil || a.foreign || it.stale || it.form != manifest.FormFull || it.fixed() != manifest.FormFull || a.q.ContentsOnly || a.q.LongForm || text != it.text {
		return a.count(it, text)
	}
	kept := &it.frame.cost
	if rendering.IsTurn(it.head, a.q.Session) && !it.quoted {
		kept = &it.frame.spoken
	}
	n := kept.Load()
	if n == 0 {
		n = int32(a.count(it, text))
		kept.Store(n)
	}
	return int(n)
}

// continues reports whether an item is a further page of a turn: it stands behind the page before, without a header.
func (it *item) continues() bool {
	return it.turn != nil && it.page > 1 && (it.turn.Pages == nil || it.page > it.turn.Pages[0]+1)
}

// count counts a page. For a text that needs no escapes it uses the stored count and counts only the header.
func (a *assembling) count(it *item, text string) int {
	count := a.counter.Count
	if a.q.ContentsOnly {
		if text == it.text && it.fixed() == manifest.FormFull {
			return tokens(a.counter, it.head, it.page, text)
		}
		return count(text)
	}
	p := a.renderAs(it, text)
	if text != it.text || it.fixed() != manifest.FormFull || render.Escape(text) != text {
		return count(render.Cost(p, a.q.LongForm))
	}
	stored := tokens(a.counter, it.head, it.page, text)
	if p.Text = ""; a.q.LongForm {
		return count(render.Cost(p, true)) + stored + 1
	}
	if name := p.Name + ": "; p.Role == "" && strings.HasPrefix(text, name) { // the header has the name, and the text has it no more
		p.Text, stored = name, stored+1-count(name)
	}
	return count(render.Cost(p, false)) + stored + ends(text) - 1 // without the text its two ends take one token
}

// ends returns the tokens that the white space around a text takes. A blank is part of the word behind it, and a line end of
// the full stop before it.
func ends(text string) (n int) {
	text = strings.TrimRight(text, "\n")
	if first, _ := utf8.DecodeRuneInString(text); !unicode.IsLetter(first) && strings.IndexByte(text, '\n') < 0 {
		n++
	}
	if text == "" || strings.IndexByte(".!?:;,)]}`|\"'", text[len(text)-1]) < 0 {
		n++
	}
	return n
}

// shownAs is a page as the model will see it. It depends only on what is stored and on the leaf, so that a replay has
// the same bytes. Steady does not: it is a hint for cache marks, which no text shows.
func (a *assembling) shownAs(it *item, text string) rendering.Page {
	return rendering.Page{Head: it.head, Ref: it.name, Text: text, Page: it.page, Form: it.form, Stale: it.stale, Steady: it.steady}
}

// renderAs is a page as it is rendered alone.
func (a *assembling) renderAs(it *item, text string) render.Page {
	as := a.shownAs(it, text)
	p := as.Render(a.q.Session)
	if it.quoted {
		p = rendering.Quoted(p)
	}
	return p
}

// costAs returns what a page takes in another form.
func (a *assembling) costAs(it *item, form manifest.Form, text string) int {
	was := it.form
	it.form = form
	n := a.count(it, text)
	it.form = was
	return n
}

// opening returns the tokens of what the dense form says once for pages that stand together, and of the time of a turn, if
// no better page has the same. Items must come best first: the allocator takes them in that order.
func (a *assembling) opening(it *item) int {
	if a.q.ContentsOnly || a.q.LongForm || it.continues() {
		return 0
	}
	if a.opened == nil {
		a.opened = map[opened]bool{}
	}
	n, o := 0, *a.opens(it)
	if o.line == "" {
		return 0
	}
	if run := (opened{line: o.line, group: o.group}); !a.opened[run] {
		a.opened[run] = true
		n = a.openingTokens(it)
	}
	if o.clock != "" && !a.opened[o] {
		if a.opened[o] = true; a.clock == 0 {
			a.clock = a.counter.Count(o.clock) // of all about the same
		}
		n += a.clock
	}
	return n
}

// opens returns the run that an item belongs to.
func (a *assembling) opens(it *item) *opened {
	if it.run.line == "" {
		p := a.renderAs(it, "")
		it.run.line, it.run.clock = render.Opening(p)
		it.run.group = p.Group
	}
	return &it.run
}

// openingTokens counts the line that opens a run of pages.
func (a *assembling) openingTokens(it *item) int {
	if it.frame == nil || a.foreign || it.stale || it.quoted || rendering.IsTurn(it.head, a.q.Session) {
		return a.counter.Count(it.run.line)
	}
	n := it.frame.opens.Load()
	if n == 0 {
		n = int32(a.counter.Count(it.run.line))
		it.frame.opens.Store(n)
	}
	return int(n)
}
