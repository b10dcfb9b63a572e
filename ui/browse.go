package ui

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// scopesView is the tree of scopes.
type scopesView struct {
	Prefix string
	Sizes  bool
	Scopes []scopeRow
	Next   string
}

// scopeRow is a scope in the tree.
type scopeRow struct {
	store.ScopeInfo
	Depth int
	Bytes int64
	Old   int64
}

// browse shows the tree of scopes, or the artefacts of one.
func (h *Handler) browse(r *http.Request) (*content, error) {
	if r.FormValue("scope") != "" {
		return h.artefacts(r)
	}
	v := &scopesView{Prefix: r.FormValue("prefix"), Sizes: r.FormValue("sizes") != ""}
	list, err := h.scopes(r.Context(), v.Prefix, 2*rowsAtOnce, r.FormValue("after"), &v.Next)
	if err != nil {
		return nil, err
	}
	spaces := map[string]store.ScopeInfo{}
	if v.Sizes {
		all, err := h.o.DB.Admin().Quotas().Spaces(r.Context())
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			spaces[s.Name] = s
		}
	}
	for _, s := range list {
		row := scopeRow{ScopeInfo: s, Depth: strings.Count(s.Name, "/")}
		for _, k := range spaces[s.Name].Space {
			row.Bytes += k.Bytes
			row.Old += k.OldBytes
		}
		v.Scopes = append(v.Scopes, row)
	}
	return &content{Name: "scopes", Title: "Scopes", Nav: "browse", View: v}, nil
}

func (h *Handler) scopes(ctx context.Context, prefix string, limit int, after string, next *string) (list []store.ScopeInfo, err error) {
	for s, err := range h.o.DB.Scopes(ctx, prefix, ctxpage.AtMost(limit, after, next)) {
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// artefactsView is a list of the artefacts of a scope, or what a search in it found.
type artefactsView struct {
	Scope                             string
	Up                                []string // the ancestors, nearest last
	Prefix, Kind, Tag, Subject, State string
	Kinds, States                     []string
	Newest                            bool
	Rows                              []artefactRow
	Next                              string
	Query                             string
	Found                             *ctxpage.Found
	Texts                             []part
	Sessions                          []string
}

// artefactRow is an artefact in a list.
type artefactRow struct {
	*ctxpage.Version
	State string
}

// states lists the properties that people look for beside kind, tag and subject.
var states = []string{"pinned", "expires", "expired", "superseded", "from a source", "derived", "deleted"}

// stateOf describes an artefact in the words of states.
func stateOf(v *ctxpage.Version, now time.Time) string {
	var out []string
	for i, is := range []bool{
		v.Pinned, !v.ExpiresAt.IsZero() && v.ExpiresAt.After(now), !v.ExpiresAt.IsZero() && !v.ExpiresAt.After(now), v.SupersededBy != "",
		v.Source != "", len(v.DerivedFrom) > 0, v.Deleted,
	} {
		if is {
			out = append(out, states[i])
		}
	}
	return strings.Join(out, ", ")
}

func (h *Handler) artefacts(r *http.Request) (*content, error) {
	get := r.FormValue
	v := &artefactsView{
		Scope: get("scope"), Prefix: get("prefix"), Kind: get("kind"), Tag: get("tag"), Subject: get("subject"), State: get("state"),
		Newest: get("order") == "newest", Query: strings.TrimSpace(get("q")), Kinds: store.KindNames[1:], States: states[:len(states)-1],
	}
	chain := store.ScopeChain(v.Scope)
	for i := len(chain) - 1; i > 0; i-- {
		v.Up = append(v.Up, chain[i])
	}
	f := ctxpage.Filter{Subject: v.Subject}
	if v.Tag != "" {
		f.TagsAll = []string{v.Tag}
	}
	if v.Kind != "" {
		k, err := store.ParseKind(v.Kind)
		if err != nil {
			return nil, err
		}
		f.Kinds = []store.Kind{k}
	}
	c := &content{Name: "artefacts", Title: "Scope " + plain(v.Scope), Nav: "browse", View: v}
	if v.Query != "" {
		return c, h.search(r.Context(), v, f)
	}
	var next string
	for s, err := range h.scope(v.Scope).Sessions(r.Context(), ctxpage.AtMost(10, "", &next)) {
		if err != nil {
			return nil, err
		}
		v.Sessions = append(v.Sessions, s)
	}
	return c, h.list(r.Context(), v, f, get("after"))
}

// list reads artefacts until a view is full. A state is no condition of a filter, so it is looked for in a bounded number of them.
func (h *Handler) list(ctx context.Context, v *artefactsView, f ctxpage.Filter, after string) error {
	now := h.o.Now()
	for looked := 0; looked < leavesAtOnce; looked += rowsAtOnce {
		var next string
		opts := []ctxpage.ReadOption{ctxpage.AtMost(rowsAtOnce-len(v.Rows), after, &next), ctxpage.Where(f)}
		if v.Newest {
			opts = append(opts, ctxpage.NewestFirst())
		}
		for a, err := range h.scope(v.Scope).Artefacts(ctx, v.Prefix, opts...) {
			if err != nil {
				return err
			}
			s := stateOf(a, now)
			if v.State == "" || slices.Contains(strings.Split(s, ", "), v.State) {
				v.Rows = append(v.Rows, artefactRow{a, s})
			}
		}
		if v.Next, after = next, next; next == "" || len(v.Rows) >= rowsAtOnce {
			return nil
		}
	}
	return nil
}

func (h *Handler) search(ctx context.Context, v *artefactsView, f ctxpage.Filter) error {
	found, err := h.scope(v.Scope).Search(ctx, v.Query, 20, ctxpage.Where(f), ctxpage.WithCheck(ctxpage.CheckNever))
	if err != nil {
		return err
	}
	v.Found = &found
	for _, hit := range found.Hits {
		v.Texts = append(v.Texts, partOf(hit.Text, 0, 600))
	}
	v.Found.Left = v.Found.Left[:min(len(v.Found.Left), rowsAtOnce)]
	return nil
}

// sourcesView compares what a scope stores with its sources.
type sourcesView struct {
	Scope   string
	Report  ops.RefreshReport
	Problem string
	Expired []*ctxpage.Version
	Cut     bool // lists were shortened
}

// sources probes the sources of a scope. It fetches nothing.
func (h *Handler) sources(r *http.Request) (*content, error) {
	v := &sourcesView{Scope: r.FormValue("scope")}
	var err error
	v.Report, err = h.scope(v.Scope).Refresh(r.Context(), ops.RefreshOptions{DryRun: true})
	switch {
	case errors.Is(err, store.ErrFileRoot):
		v.Problem = problem(err)
	case err != nil:
		return nil, err
	}
	for _, list := range []*[]string{&v.Report.Changed, &v.Report.Vanished, &v.Report.New, &v.Report.NotTaken} {
		if len(*list) > 2*rowsAtOnce {
			*list, v.Cut = (*list)[:2*rowsAtOnce], true
		}
	}
	if len(v.Report.Failed) > rowsAtOnce {
		v.Report.Failed, v.Cut = v.Report.Failed[:rowsAtOnce], true
	}
	list := &artefactsView{Scope: v.Scope, State: "expired"}
	if err := h.list(r.Context(), list, ctxpage.Filter{}, ""); err != nil {
		return nil, err
	}
	for _, row := range list.Rows {
		v.Expired = append(v.Expired, row.Version)
	}
	return &content{Name: "sources", Title: "Stale pages of " + plain(v.Scope), Nav: "browse", View: v}, nil
}
