package ctxpage

import (
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
)

// What a page costs in a context. A cost includes header, fence and escapes, because the budget is a promise on the
// rendered text; Query.ContentsOnly counts the text alone. A whole page always costs the same, so its frame keeps the cost,
// one for its form as a page and one for its form as a turn, whose headers differ. Other forms, and counters of a query, count
// at each use.

// cost returns what a page takes, from its frame if it was counted before.
func (a *assembling) cost(it *item, text string) int {
	if it.continues() && !a.q.ContentsOnly && text == it.text && it.fixed() == manifest.FormFull && !it.stale {
		if render.Escape(text) != text {
			return a.counter.Count(render.Escape(text)) + 1
		}
		return tokens(a.counter, it.head, it.page, text) + 1
	}
	if it.frame == nil || a.foreign || it.stale || it.form != manifest.FormFull || it.fixed() != manifest.FormFull || a.q.ContentsOnly || text != it.text {
		return a.count(it, text)
	}
	kept := &it.frame.cost
	if rendering.IsTurn(it.head, a.q.Session) {
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
	as := a.shownAs(it, text)
	p := as.Render(a.q.Session)
	if text == it.text && it.fixed() == manifest.FormFull && render.Escape(text) == text {
		p.Text = ""
		return count(render.Cost(p)) + tokens(a.counter, it.head, it.page, text) + 1
	}
	return count(render.Cost(p))
}

// shownAs is a page as the model will see it. It depends only on what is stored and on the leaf, so that a replay has
// the same bytes. Steady does not: it is a hint for cache marks, which no text shows.
func (a *assembling) shownAs(it *item, text string) rendering.Page {
	return rendering.Page{Head: it.head, Ref: it.name, Text: text, Page: it.page, Form: it.form, Stale: it.stale, Steady: it.steady}
}

// costAs returns what a page takes in another form.
func (a *assembling) costAs(it *item, form manifest.Form, text string) int {
	was := it.form
	it.form = form
	n := a.count(it, text)
	it.form = was
	return n
}
