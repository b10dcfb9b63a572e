package ui

import (
	"net/http"
	"slices"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// diffView compares two contexts, A before B.
type diffView struct {
	A, B    *manifest.Record
	BarA    bar
	BarB    bar
	Fields  []manifest.FieldChange
	In, Out []diffPage
	Changed []diffText // the same page with another text
	Shown   []manifest.Change
	Names   map[uint64]string
	Problem string
}

// diffPage is a page that only one of the contexts has.
type diffPage struct {
	Ref  string
	Page manifest.Page
}

// diffText is a page of which the contexts have different versions.
type diffText struct {
	A, B  diffPage
	Lines []diffLine
}

func (h *Handler) diff(r *http.Request) (*content, error) {
	ctx := r.Context()
	a, _, err := h.assembly(ctx, r.FormValue("a"))
	if err != nil {
		return nil, err
	}
	b, _, err := h.assembly(ctx, r.FormValue("b"))
	if err != nil {
		return nil, err
	}
	d, err := h.o.DB.Diff(ctx, a.Trace, b.Trace)
	if err != nil {
		return nil, err
	}
	fields := slices.DeleteFunc(d.Fields, func(f manifest.FieldChange) bool { return f.Name == "rendered" }) // a digest, of what the rest shows
	v := &diffView{A: a, B: b, Fields: fields, Shown: d.Changed[:min(len(d.Changed), 2*rowsAtOnce)], Names: map[uint64]string{}}
	texts := map[uint64]string{}
	v.BarA, v.BarB = h.texts(r, a, texts, v), h.texts(r, b, texts, v)
	ref := func(p manifest.Page) diffPage {
		return diffPage{h.o.DB.RefOf(ctx, p.Num), p}
	}
	for _, c := range v.Shown {
		v.Names[c.B.Num] = h.o.DB.RefOf(ctx, c.B.Num)
	}
	gone := map[store.Ref]diffPage{}
	for _, p := range d.Out {
		x := ref(p)
		v.Out = append(v.Out, x)
		if of, is := pageOf(x.Ref); is {
			gone[of] = x
		}
	}
	for _, p := range d.In {
		x := ref(p)
		of, _ := pageOf(x.Ref)
		was, is := gone[of]
		if !is || len(v.Changed) == 10 {
			v.In = append(v.In, x)
			continue
		}
		v.Changed = append(v.Changed, diffText{A: was, B: x, Lines: diffTexts(texts[was.Page.Num], texts[p.Num])})
		v.Out = without(v.Out, was.Page.Num)
	}
	return &content{Name: "diff", Title: "Two contexts", Nav: "live", View: v}, nil
}

// texts adds the texts of a context, and returns its bar.
func (h *Handler) texts(r *http.Request, leaf *manifest.Record, to map[uint64]string, v *diffView) bar {
	replay, err := h.scope(leaf.Scope).Replay(r.Context(), leaf.Trace)
	if err != nil {
		v.Problem = problem(err)
	}
	if replay == nil {
		replay = &ctxpage.Replay{}
	}
	for _, b := range replay.Blocks {
		to[b.Num] = b.Text
	}
	return h.bar(leaf, replay)
}

// pageOf is the page that a reference names, whatever its version.
func pageOf(ref string) (store.Ref, bool) {
	of, err := store.ParseRef(ref)
	of.Version = 0
	return of, err == nil
}

func without(list []diffPage, num uint64) (out []diffPage) {
	for _, p := range list {
		if p.Page.Num != num {
			out = append(out, p)
		}
	}
	return out
}
