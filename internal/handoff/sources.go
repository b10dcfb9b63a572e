// Package handoff gathers what a session hands on: the sources its contexts were made of, looked at now, what its user
// decided, what was noted. The rules of a packet are those of package session.
package handoff

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Facts looks at sources for a session.
type Facts struct {
	Store   store.Store
	View    freshness.View
	Chain   store.Scopes // the session's scope first
	Session string
}

// Of returns the sources of pages that were served, but for the session's own turns, in the order in which they
// were first served, each as its newest version served.
func (f Facts) Of(ctx context.Context, served []Served) ([]session.SourceFact, []manifest.Page, error) {
	keys := make([]store.PageKey, len(served))
	for i, p := range served {
		keys[i] = p.Key
	}
	loaded, err := f.Store.Load(ctx, f.Chain, keys, store.WantHead)
	if err != nil {
		return nil, nil, err
	}
	type fact struct {
		head *store.Head
		key  store.PageKey
		page int
		read bool
	}
	var order []string
	facts := map[string]*fact{}
	for i := range loaded {
		l := &loaded[i]
		if l.Err != nil || l.Head.Group == f.Session && l.Head.Scope == f.Chain[0] || l.Head.Kind == store.KindSystem || strings.HasPrefix(l.Head.ID, directivelog.Reserved) {
			continue
		}
		name := f.name(ctx, l.Head)
		x := facts[name]
		if x == nil {
			x = &fact{}
			facts[name] = x
			order = append(order, name)
		}
		if x.head == nil || l.Head.Version >= x.head.Version {
			x.head, x.key, x.page = l.Head, l.Key, l.Page
		}
		x.read = x.read || served[i].Read
	}
	out, pages := make([]session.SourceFact, len(order)), make([]manifest.Page, 0, len(order))
	for i, name := range order {
		x := facts[name]
		out[i] = f.look(ctx, name, x.head, x.page)
		out[i].Read = x.read
		pages = append(pages, manifest.Page{Num: x.key.Num, Version: x.key.Version, Form: manifest.FormStub})
	}
	return out, pages, nil
}

// name names the source of a page, or the page itself when it has none. What a page: source of an ancestor copies is
// named with its scope: the session's own scope may call something else by that id.
func (f Facts) name(ctx context.Context, h *store.Head) string {
	key, copies := strings.CutPrefix(h.Artefact.Source, "page:")
	switch {
	case h.Artefact.Source == "":
		return store.Ref{Scope: h.Scope, ID: h.ID}.String()
	case !copies || h.Scope == f.Chain[0]:
		return h.Artefact.Source
	}
	ref, err := store.SourceRef(key)
	if err != nil {
		return h.Artefact.Source
	}
	if ref.Scope == "" {
		ref.Scope = h.Scope
		if l, err := f.View.Copied(ctx, h, key); err == nil {
			ref.Scope = l.Scope
		}
	}
	return "page:" + ref.String()
}

// look looks at a source now: its hash, or, for a page without one, whether the version that was read still stands.
func (f Facts) look(ctx context.Context, name string, h *store.Head, page int) session.SourceFact {
	if h.Artefact.Source == "" {
		out := session.SourceFact{Source: name, Type: h.Kind.String(), Digest: hex.EncodeToString(h.Rows[page-1].Digest[:6])}
		l, err := f.Store.Resolve(ctx, store.Scopes{h.Scope}, store.Ref{ID: h.ID})
		if out.Gone = err != nil; !out.Gone {
			out.Checked = true
			out.Same = l.By == 0 && slices.ContainsFunc(l.Pages, func(k store.PageKey) bool { return k.Num == h.Rows[page-1].Num })
		}
		return out
	}
	scheme, _, _ := strings.Cut(h.Artefact.Source, ":")
	out := session.SourceFact{Source: name, Type: scheme, Digest: fmt.Sprintf("xxhash64:%016x", h.Source.Hash)}
	if f.View.Elsewhere(h) != "" {
		return out
	}
	// Without a stamp to go by the source has to look at its content. The page's own scope says what the source names.
	v, err := f.View.Reprobe(ctx, h, store.Validator{Hash: h.Source.Hash})
	if out.Gone = err != nil; !out.Gone {
		out.Checked, out.Same = true, v.Hash == h.Source.Hash
	}
	return out
}

// Served is a page that a context of the session had, and whether an answer was committed from it.
type Served struct {
	Key  store.PageKey
	Read bool
}

// ServedTo walks the manifests: which contexts belong to the session, which of them an answer came from. What an assembly
// itself commits, by its actions, answers nothing.
func ServedTo(ctx context.Context, log store.Audit, scope, session string, itself ...string) ([]Served, error) {
	mine, answered := map[string]bool{}, map[string]bool{}
	size, err := log.Size(ctx)
	if err != nil {
		return nil, err
	}
	err = store.EachRecord(ctx, log, 0, size, false, func(r *manifest.Record) error {
		if r.Scope != scope {
			return nil
		}
		ends := r.Parent != "" && !slices.Contains(itself, r.Action) &&
			(r.Type == manifest.TypeCommit || r.Type == manifest.TypeApprove)
		if ends {
			answered[r.Parent] = true
		}
		switch {
		case r.Session != session:
		case r.Type.Reads():
			mine[r.Trace] = true
		case ends:
			mine[r.Parent] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []Served
	at := map[store.PageKey]int{}
	err = store.EachRecord(ctx, log, 0, size, false, func(r *manifest.Record) error {
		if r.Scope != scope || !r.Type.Reads() || !mine[r.Trace] && !mine[r.Parent] {
			return nil
		}
		read := answered[r.Trace] || answered[r.Parent]
		for _, p := range r.Pages {
			k := store.PageKey{Num: p.Num, Version: p.Version}
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, Served{Key: k})
			}
			out[i].Read = out[i].Read || read
		}
		return nil
	})
	return out, err
}
