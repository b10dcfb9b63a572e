// Package handoff packs a session for another agent: the sources of its contexts, checked now, the decisions of its user,
// its notes, and its window, as a session.Packet or as lines of a contract file. It also unpacks a received packet.
package handoff

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Packing has the inputs of a packet besides the session.
type Packing struct {
	Store store.Store
	Audit store.Audit
	View  freshness.View
	Chain store.Scopes // the session's scope first
	Told  directive.Effective
	By    string
	Now   time.Time
}

// Packet packs a session for another agent, and returns the leaf of the read. itself are the actions of commits that an
// assembly makes on its own.
func (f Packing) Packet(ctx context.Context, c *conversation.Conversation, to string, itself ...string) (p session.Packet, leaf *manifest.Record, err error) {
	n, err := c.Notes(ctx)
	if err != nil {
		return p, nil, err
	}
	in := Input{
		For: to, By: f.By, Session: store.Ref{Scope: c.Scope, ID: c.ID}.String(), At: f.Now, Goal: n.Goal, State: n.State, Status: n.Status,
		Claims: n.Claims, Questions: n.Questions, Done: n.Done, Open: n.Open, Boundaries: n.Boundaries, Next: n.Next, Notes: n.Text,
	}
	in.Decisions, in.Corrections = Directives(f.Told)
	leaf = &manifest.Record{Type: manifest.TypeHandoff, Session: c.ID, Note: to}
	var pages []store.PageKey // of the turns
	err = c.Exclusively(ctx, func() error {
		in.Intent, err = c.Intent()
		for i := range c.Blocks {
			b := &c.Blocks[i]
			if b.Expired(f.Now.UnixMicro()) {
				continue
			}
			in.Window = append(in.Window, windowItem(c, i))
			pages = append(pages, store.PageKey{Num: b.Nums[0], Version: b.Version})
		}
		leaf.LSN = c.LSN
		return err
	})
	if err != nil {
		return p, nil, err
	}
	was, err := servedTo(ctx, f.Audit, c.Scope, c.ID, itself)
	if err != nil {
		return p, nil, err
	}
	var sources []manifest.Page
	if in.Sources, sources, err = f.sources(ctx, c.ID, was); err != nil {
		return p, nil, err
	}
	p, named, err := f.titled(ctx, in, pages)
	if err != nil {
		return p, nil, err
	}
	for i, w := range in.Window { // a range serves nothing of its turns
		if named[w.Ref] {
			leaf.Pages = append(leaf.Pages, manifest.Page{Num: pages[i].Num, Version: pages[i].Version, Form: manifest.FormStub})
		}
	}
	leaf.Pages = append(leaf.Pages, sources...)
	return p, leaf, nil
}

// titled makes the packet, and returns the turns that it names one by one. Only these have titles, the first lines of their
// pages. A longer title leaves less room, so adding titles never adds turns.
func (f Packing) titled(ctx context.Context, in Input, pages []store.PageKey) (session.Packet, map[string]bool, error) {
	titled := map[int]bool{}
	for {
		p := Handoff(in)
		named := map[string]bool{}
		for _, r := range References(p) {
			named[r.Ref] = true
		}
		var at []int
		var keys []store.PageKey
		for i, w := range in.Window {
			if named[w.Ref] && !titled[i] {
				at, keys, titled[i] = append(at, i), append(keys, pages[i]), true
			}
		}
		if len(at) == 0 {
			return p, named, nil
		}
		loaded, err := f.Store.Load(ctx, f.Chain[:1], keys, store.WantText)
		if err != nil {
			return p, nil, err
		}
		for j, i := range at { // a turn whose text cannot be read has no title
			in.Window[i].Title = prose.Title(loaded[j].Text)
		}
	}
}

// windowItem describes a turn to a handoff, without its title.
func windowItem(c *conversation.Conversation, i int) WindowItem {
	b := &c.Blocks[i]
	actions := [session.Cold + 1]session.Action{session.Stub: session.Page, session.Cold: session.Evict}
	return WindowItem{
		Ref: store.Ref{Scope: c.Scope, ID: b.ID, Version: b.Version}.String(), Digest: hex.EncodeToString(b.Digest[:6]), Tokens: b.Row.Sizes[session.Raw],
		Action: actions[c.Shown(i)], Pinned: b.Row.Pinned, Why: c.Why(i),
	}
}

// sources returns the sources of pages that were served, except the session's own turns, in the order in which they were
// first served, each as its newest version served.
func (f Packing) sources(ctx context.Context, session string, served []servedPage) ([]SourceFact, []manifest.Page, error) {
	keys := make([]store.PageKey, len(served))
	for i, p := range served {
		keys[i] = p.key
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
		if l.Err != nil || l.Head.Group == session && l.Head.Scope == f.Chain[0] || l.Head.Kind == store.KindSystem || strings.HasPrefix(l.Head.ID, directivelog.Reserved) {
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
		x.read = x.read || served[i].read
	}
	out, pages := make([]SourceFact, len(order)), make([]manifest.Page, 0, len(order))
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
func (f Packing) name(ctx context.Context, h *store.Head) string {
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
func (f Packing) look(ctx context.Context, name string, h *store.Head, page int) SourceFact {
	if h.Artefact.Source == "" {
		out := SourceFact{Source: name, Type: h.Kind.String(), Digest: hex.EncodeToString(h.Rows[page-1].Digest[:6])}
		l, err := f.Store.Resolve(ctx, store.Scopes{h.Scope}, store.Ref{ID: h.ID})
		if out.Gone = err != nil || l.Expires != 0 && l.Expires <= f.Now.UnixMicro(); !out.Gone {
			out.Checked = true
			out.Same = l.By == 0 && slices.ContainsFunc(l.Pages, func(k store.PageKey) bool { return k.Num == h.Rows[page-1].Num })
		}
		return out
	}
	scheme, _, _ := strings.Cut(h.Artefact.Source, ":")
	out := SourceFact{Source: name, Type: scheme, Digest: fmt.Sprintf("xxhash64:%016x", h.Source.Hash)}
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

// servedPage is a page that a context of the session had, and whether an answer was committed from it.
type servedPage struct {
	key  store.PageKey
	read bool
}

// servedTo walks the manifests: the contexts that belong to the session, and those that an answer came from. Commits that
// an assembly makes itself answer nothing.
func servedTo(ctx context.Context, log store.Audit, scope, session string, itself []string) ([]servedPage, error) {
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
	var out []servedPage
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
				out = append(out, servedPage{key: k})
			}
			out[i].read = out[i].read || read
		}
		return nil
	})
	return out, err
}
