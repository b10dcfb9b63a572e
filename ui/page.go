package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// pageView is an artefact, or one of its pages.
type pageView struct {
	Ref      ctxpage.Ref
	Version  *ctxpage.Version // nil: it cannot be read
	Problem  string
	Text     *part
	Fields   [][2]string
	Pages    []ctxpage.Page // the first of many
	Versions []*ctxpage.Version
	Next     string // cursor of the versions that follow
	Against  *ctxpage.Version
	Diff     []diffLine
	Lineage  []lineage
	Asked    bool               // what was made from it was looked for
	Further  string             // cursor of the artefacts that were not looked at; "": there are none
	Written  []*manifest.Record // what the audit says of the commit that wrote it
	Looked   bool               // contexts were looked for
	Contexts []leafRow
	Before   uint64 // leaf before which more contexts may be; 0: there are none
}

const (
	maxLineage    = 12   // members of a lineage on each side
	derivedAtOnce = 1000 // artefacts that a request looks at to find what was made from a page
)

// lineage is an artefact that a page has to do with.
type lineage struct {
	How   string // what the page is to it: derived from, supersedes, copy of, superseded by, origin of
	Ref   string
	Level int // -1: it was before the page, 1: after
	Row   int
	Y     int
}

func (h *Handler) page(r *http.Request) (*content, error) {
	ctx := r.Context()
	ref, err := store.ParseRef(r.FormValue("ref"))
	if err != nil {
		return nil, err
	}
	v, s := &pageView{Ref: ref}, h.scope(ref.Scope)
	for x, err := range s.Versions(ctx, ref.ID, ctxpage.AtMost(20, r.FormValue("after"), &v.Next)) {
		if err != nil {
			return nil, err
		}
		v.Versions = append(v.Versions, x)
	}
	if len(v.Versions) == 0 {
		return nil, fmt.Errorf("%w: %s has no version here", store.ErrNotFound, ref)
	}
	v.Version, err = s.Recall(ctx, ref, ctxpage.WithCheck(ctxpage.CheckNever), ctxpage.ServeStale())
	switch {
	case err == nil:
		h.describe(v, atoi(r.FormValue("at")))
		if err := h.wrote(ctx, v); err != nil {
			return nil, err
		}
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrGone), errors.Is(err, store.ErrExpired), errors.Is(err, store.ErrDirty):
		v.Problem = problem(err)
	default:
		return nil, err
	}
	if n := atoi(r.FormValue("with")); n > 0 && v.Version != nil {
		other := ctxpage.Ref{Scope: v.Version.Ref.Scope, ID: ref.ID, Page: ref.Page, Version: uint32(n)}
		if v.Against, err = s.Recall(ctx, other, ctxpage.WithCheck(ctxpage.CheckNever)); err != nil {
			return nil, err
		}
		v.Diff = diffTexts(v.Against.Text, v.Version.Text)
	}
	if r.FormValue("derived") != "" && v.Version != nil {
		if err := h.derived(r, v); err != nil {
			return nil, err
		}
	}
	v.layout()
	if r.FormValue("contexts") != "" && v.Version != nil {
		if err := h.served(r, v); err != nil {
			return nil, err
		}
	}
	return &content{Name: "page", Title: plain(ref.ID), Nav: "browse", View: v}, nil
}

// describe fills in what a version itself says.
func (h *Handler) describe(v *pageView, at int) {
	x := v.Version
	p := partOf(x.Text, at, partBytes)
	v.Text, v.Pages = &p, x.Pages[:min(len(x.Pages), rowsAtOnce)]
	add := func(name, value string) {
		if value != "" {
			v.Fields = append(v.Fields, [2]string{name, value})
		}
	}
	add("kind", x.Kind.String())
	add("provenance", x.Provenance.String())
	add("written", when(x.PutAt)+" by "+x.Actor)
	add("current as of", when(x.CurrentAsOf))
	if !x.ExpiresAt.IsZero() {
		add("expires", when(x.ExpiresAt))
	}
	add("state", stateOf(x, h.o.Now()))
	add("source", x.Source)
	add("its file is on", x.Elsewhere)
	add("subject", x.Subject)
	add("role", strings.TrimSpace(x.Role+" "+x.Name))
	if x.Group != "" {
		add("group", fmt.Sprintf("%s, place %d", x.Group, x.Seq))
	}
	add("tags", strings.Join(x.Tags, ", "))
	if len(x.Meta) > 0 {
		b, _ := json.Marshal(x.Meta)
		add("metadata", string(b))
	}
	if len(x.ToolCalls) > 0 {
		b, _ := json.Marshal(x.ToolCalls)
		add("tool calls", string(b))
	}
	add("answers the call", x.ToolCallID)
	add("tokens", fmt.Sprintf("%d in %d pages", x.Tokens, len(x.Pages)))
	add("log sequence number", fmt.Sprint(x.LSN))

	for _, d := range x.DerivedFrom {
		v.Lineage = append(v.Lineage, lineage{How: "derived from", Ref: d.String(), Level: -1})
	}
	for _, id := range x.Supersedes {
		v.Lineage = append(v.Lineage, lineage{How: "supersedes", Ref: ctxpage.Ref{Scope: x.Ref.Scope, ID: id}.String(), Level: -1})
	}
	if rest, is := strings.CutPrefix(x.Source, "page:"); is {
		if of, err := store.ParseRef(rest); err == nil {
			v.Lineage = append(v.Lineage, lineage{How: "copy of", Ref: of.String(), Level: -1})
		}
	}
	if x.SupersededBy != "" {
		v.Lineage = append(v.Lineage, lineage{How: "superseded by", Ref: ctxpage.Ref{Scope: x.Ref.Scope, ID: x.SupersededBy}.String(), Level: 1})
	}
	v.Lineage = v.Lineage[:min(len(v.Lineage), maxLineage)]
}

// derived adds artefacts of the scope that were made from this one. It looks at a bounded number of them, newest first: what
// is made from a page is younger than the page.
func (h *Handler) derived(r *http.Request, v *pageView) error {
	v.Asked = true
	found := 0
	list := h.scope(v.Version.Ref.Scope).Artefacts(r.Context(), "", ctxpage.NewestFirst(), ctxpage.AtMost(derivedAtOnce, r.FormValue("from"), &v.Further))
	for x, err := range list {
		if err != nil {
			return err
		}
		made := slices.ContainsFunc(x.DerivedFrom, func(d ctxpage.Ref) bool { return d.Scope == v.Version.Ref.Scope && d.ID == v.Version.Ref.ID })
		if made && found < maxLineage {
			v.Lineage = append(v.Lineage, lineage{How: "origin of", Ref: x.Ref.String(), Level: 1})
			found++
		}
	}
	return nil
}

// layout sets the places of the members of the lineage in its graph.
func (v *pageView) layout() {
	row := map[int]int{}
	for i := range v.Lineage {
		l := &v.Lineage[i]
		l.Row = row[l.Level]
		l.Y = 20 + 48*l.Row
		row[l.Level]++
	}
}

// Height is the height of the graph of the lineage.
func (v *pageView) Height() int {
	n := 1
	for _, l := range v.Lineage {
		n = max(n, l.Row+1)
	}
	return 48*n + 10
}

// wrote finds the leaves that wrote a version, where its trace leads to them: who judged it, and who approved it.
func (h *Handler) wrote(ctx context.Context, v *pageView) error {
	if v.Version.Trace == "" {
		return nil
	}
	leaves, err := h.o.DB.Manifests().ByTrace(ctx, v.Version.Trace)
	if errors.Is(err, manifest.ErrNoLeaf) {
		return nil
	}
	for _, l := range leaves {
		for _, w := range l.Writes {
			if w.Version == v.Version.Version && slices.ContainsFunc(v.Version.Pages, func(p ctxpage.Page) bool { return p.Num == w.Num }) {
				v.Written = append(v.Written, l)
				break
			}
		}
	}
	return err
}

// served finds contexts that showed a page of this version, in a bounded number of leaves.
func (h *Handler) served(r *http.Request, v *pageView) error {
	before, err := h.before(r)
	if err != nil {
		return err
	}
	nums := map[uint64]bool{}
	for _, p := range v.Version.Pages {
		nums[p.Num] = true
	}
	v.Looked = true
	v.Contexts, v.Before, err = h.newest(r.Context(), before, 20, func(l *manifest.Record) bool {
		return l.Type == manifest.TypeAssemble && slices.ContainsFunc(l.Pages, func(p manifest.Page) bool { return nums[p.Num] })
	})
	return err
}
