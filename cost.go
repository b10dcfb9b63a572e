package ctxpage

import (
	"github.com/ctxpage/ctxpage/internal/shown"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
)

// cost is what a page takes, header and escapes included. That of a whole page is always the same, but for a turn in the
// requests of its session, which has another header: both are kept with its frame.
func (a *assembling) cost(it *item, text string) int {
	if it.frame == nil || it.stale || it.form != manifest.FormFull || it.fixed() != manifest.FormFull || a.q.Charge == ChargeContents || text != it.text {
		return a.count(it, text)
	}
	kept := &it.frame.cost
	if shown.IsTurn(it.head, a.q.Session) {
		kept = &it.frame.spoken
	}
	n := kept.Load()
	if n == 0 {
		n = int32(a.count(it, text))
		kept.Store(n)
	}
	return int(n)
}

// count counts a page. A text that needs no escapes costs what was counted when it was written; only its header is
// counted now.
func (a *assembling) count(it *item, text string) int {
	count := a.s.db.opts.Counter.Count
	if a.q.Charge == ChargeContents {
		if text == it.text && it.fixed() == manifest.FormFull {
			return a.s.db.tokens(it.head, it.page, text)
		}
		return count(text)
	}
	as := a.shownAs(it, text)
	p := as.Render(a.q.Session)
	if text == it.text && it.fixed() == manifest.FormFull && render.Escape(text) == text {
		p.Text = ""
		return count(render.Cost(p, render.ProviderText)) + a.s.db.tokens(it.head, it.page, text) + 1
	}
	return count(render.Cost(p, render.ProviderText))
}

// shownAs is a page as the model will see it. It depends on what is stored and on the leaf alone, so that a replay gives
// the same.
func (a *assembling) shownAs(it *item, text string) shown.Page {
	return shown.Page{Head: it.head, Ref: it.name, Text: text, Page: it.page, Form: it.form, Stale: it.stale}
}

// costAs is what a page takes in a form, which its header names.
func (a *assembling) costAs(it *item, form manifest.Form, text string) int {
	was := it.form
	it.form = form
	n := a.count(it, text)
	it.form = was
	return n
}
