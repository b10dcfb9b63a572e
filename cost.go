package ctxpage

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
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
	return max(int(n), it.again)
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
	if o.line == "" || o == a.paid { // most pages are of the run of the page before
		return 0
	}
	a.paid = o
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
	if it.run.line != "" {
		return &it.run
	}
	h := it.head
	if h.Kind == store.KindMessage || h.Kind == store.KindSystem {
		it.run = a.newRun(it)
		return &it.run
	}
	of := runOf{kind: h.Kind, provenance: h.Provenance, form: it.form, stale: it.stale, day: math.MinInt64}
	if !h.CurrentAsOf.IsZero() {
		of.day = h.CurrentAsOf.Unix()
		if of.day >= 0 && of.day < year10000 { // a day is shown; else a second
			of.day -= of.day % (24 * 60 * 60)
		}
	}
	if h.Artefact.Source != "" {
		of.source, of.scope, of.id = h.Artefact.Source, h.Scope, h.ID
	}
	r := a.scratch.runs[of]
	if r == nil {
		r = &keptRun{opened: a.newRun(it)}
		a.scratch.runs[of] = r
	}
	it.run, it.kept = r.opened, r
	return &it.run
}

// newRun renders the opening of an item.
func (a *assembling) newRun(it *item) (run opened) {
	p := a.renderAs(it, "")
	run.line, run.clock = render.Opening(p)
	run.group = p.Group
	return run
}

// openingTokens counts the line that opens a run of pages.
func (a *assembling) openingTokens(it *item) int {
	if it.kept == nil || a.foreign {
		return a.counter.Count(it.run.line)
	}
	if it.kept.tokens == 0 {
		it.kept.tokens = a.counter.Count(it.run.line)
	}
	return it.kept.tokens
}

// A counter that counts a text piece by piece can count it in parts. So a context is counted line by line, and the frame of a
// page keeps what its text comes to: a hundred bytes of text a page take most of the time, its number takes next to none.

// adder is a counter whose counts of the parts of a text add up: Part counts one, and Total of the sums returns what Count does for
// the whole. A part must end where a piece of the encodings does: behind a line end if neither white
// space nor a slash follows, between a sign and a digit, and as in pageAt.
type adder interface {
	Part(text string) (sum, cut int)
	Total(sum, cut int) int
}

// countShown counts the rendered context, by parts if the counter can.
func (a *assembling) countShown() int {
	by, ok := a.counter.(adder)
	if !ok || a.foreign || a.q.LongForm {
		return a.counter.Count(a.out.text)
	}
	mark, _, _ := strings.Cut(a.out.text, " ") // the legend begins with it
	signs, cuts := by.Part(mark)
	sum, cut := 0, 0
	next := "\n" + mark // no piece goes on behind a line end but with white space or a slash
	for rest := a.out.text; rest != ""; {
		end := strings.Index(rest, next) + 1
		if end == 0 {
			end = len(rest)
		}
		s, c, ok := a.countLine(by, rest[:end], len(mark))
		if ok {
			s, c = s+signs, c+cuts
		} else {
			s, c = by.Part(rest[:end])
		}
		sum, cut, rest = sum+s, cut+c, rest[end:]
	}
	return by.Total(sum, cut)
}

// countLine counts what stands behind a mark up to the next. ok: it is a page whose text is in memory. The count of its text is
// kept there. A frame has one text, so the length says which end of it was counted.
func (a *assembling) countLine(by adder, line string, from int) (sum, cut int, ok bool) {
	f, at := a.pageAt(line, from)
	if f == nil {
		return 0, 0, false
	}
	tail := line[at:]
	sum, cut = by.Part(line[from:at])
	kept := f.tail.Load()
	if int(kept>>(2*tailBits)) != len(tail) {
		s, c := by.Part(tail)
		if kept = uint64(len(tail))<<(2*tailBits) | uint64(c)<<tailBits | uint64(s); max(len(tail), s, c) < 1<<tailBits {
			f.tail.Store(kept)
		}
		return sum + s, cut + c, true
	}
	const mask = 1<<tailBits - 1
	return sum + int(kept&mask), cut + int(kept>>tailBits&mask), true
}

const tailBits = 21

// pageAt returns the frame of the page that a line shows, and where the part begins that has its text: at the blank behind the
// colon, or at the colon if the text begins on a line of its own. nil: the line shows anything but an end of a text that is in
// memory, or a sign stands before the colon, which the line end belongs to with it.
func (a *assembling) pageAt(line string, at int) (*frame, int) {
	n := 0
	for ; at < len(line) && line[at]-'0' < 10 && n < len(a.placed); at++ {
		n = 10*n + int(line[at]-'0')
	}
	if n == 0 || n > len(a.placed) || a.placed[n-1].frame == nil {
		return nil, 0
	}
	f, colon := a.placed[n-1].frame, strings.IndexByte(line[at:], ':')
	if colon < 0 || at+colon+2 >= len(line) || !strings.HasSuffix(f.text, line[at+colon+2:len(line)-1]) {
		return nil, 0
	}
	at += colon
	switch before := line[at-1]; {
	case line[at+1] == ' ':
		return f, at + 1
	case line[at+1] == '\n' && (before|0x20-'a' < 26 || before-'0' < 10):
		return f, at
	}
	return nil, 0
}
