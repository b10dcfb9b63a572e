package eraseplan

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// scanRows is how much is listed at a time. A commit waits until a page of the listing is read, and readers behind it, so that
// pages are small.
const scanRows = 128

// artefacts looks at all of them, then follows what was derived from those that go.
func (f *finder) artefacts() error {
	var scopes []string
	for page, err := range f.pages(store.ScanQuery{What: store.ScanScopes}) {
		if err != nil {
			return err
		}
		for _, s := range page.Names {
			scopes = append(scopes, s.Name)
		}
	}
	f.allScopes = scopes
	for i, scope := range scopes {
		f.progress("scopes", uint64(i), uint64(len(scopes)))
		if err := f.scope(scope); err != nil {
			return err
		}
	}
	f.progress("scopes", uint64(len(scopes)), uint64(len(scopes)))
	for n := range maps.Clone(f.matched) {
		if n.kind != askedRef {
			continue
		}
		if err := f.byName(artefact{n.scope, n.id}); err != nil {
			return err
		}
	}
	for r := range f.promoted {
		a := artefact{r.Scope, r.ID}
		if slices.ContainsFunc(f.linked, func(x *found) bool { return x.artefact == a }) { // it was listed, and stays
			continue
		}
		if err := f.byName(a); err != nil {
			return err
		}
	}
	f.follow()
	return nil
}

func (f *finder) scope(scope string) error {
	for page, err := range f.pages(store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Ever: f.ever(scope)}) {
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			if err := f.artefact(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// pages ranges over the parts of a listing.
func (f *finder) pages(q store.ScanQuery) iter.Seq2[store.ScanPage, error] {
	q.Limit = scanRows
	return format.Pages(f.ctx, f.st, q)
}

// ever narrows the listing of a scope to what version looks for; nil: all of it must be read. Artefacts that were asked for by
// name are read by it (byName). Whoever makes version look for more makes the store look for it, too (engine/facts.go).
func (f *finder) ever(scope string) *store.Ever {
	if f.inScope(scope) || f.was != nil || len(f.runs) > 0 {
		return nil
	}
	e := &store.Ever{Subject: f.req.Subject, Replaces: f.req.Names}
	if f.req.Session.Scope == scope {
		e.Group = f.req.Session.ID
	}
	return e
}

// byName looks at an artefact that was asked for by its name, if it was not listed.
func (f *finder) byName(a artefact) error {
	if f.arts[a] != nil || !slices.Contains(f.allScopes, a.scope) {
		return nil
	}
	page, err := f.st.Scan(f.ctx, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{a.scope}, ID: a.id, Limit: 1})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.artefact(page.Heads[0])
}

// artefact looks at all versions of one, of which it is given the newest.
func (f *finder) artefact(newest *store.Head) error {
	bare := newest.Deleted && newest.ErasedBy != ""
	if bare && !f.req.Names {
		return nil
	}
	x := &found{artefact: artefact{newest.Scope, newest.ID}, kind: newest.Kind, bare: bare, versions: newest.Version}
	f.version(x, newest)
	if newest.Version > 1 {
		for page, err := range f.pages(store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{newest.Scope}, ID: newest.ID}) {
			if err != nil {
				return err
			}
			for _, h := range page.Heads {
				f.version(x, h)
			}
		}
	}
	switch {
	case f.isNamed(x.artefact):
		x.why = "asked for"
	case x.why == "" && bare && f.runs[newest.GoneBy]:
		x.why = "erased before"
	}
	switch {
	case x.why != "":
		f.take(x)
	default:
		if x.packet != "" {
			f.packets = append(f.packets, x)
		}
		if len(x.parents)+len(x.replaced) > 0 {
			f.linked = append(f.linked, x)
		}
	}
	return nil
}

// version notes what one version says. A message is a turn of the session that its group names, and so is a page of a packet.
func (f *finder) version(x *found, h *store.Head) {
	turn := h.Kind == store.KindMessage && h.Group != ""
	if base, from, ref := handoff.Received(h); base != "" {
		turn, x.packet, x.from = true, base, from
		if ref != (store.Ref{}) {
			x.handed = append(x.handed, artefact{ref.Scope, ref.ID})
		}
	}
	switch {
	case f.isSubject(h.Scope, h.Subject):
		x.why = "its subject"
	case f.inScope(h.Scope):
		x.why = "of the scope"
	case h.Group != "" && f.inSession(h.Scope, h.Group):
		x.why = "of the session"
	case f.lost(h):
		x.why = lostWhy
	case x.why == "":
		x.why = f.promotedWhy(x, h)
	}
	if turn && !x.bare && !slices.Contains(x.sessions, h.Group) {
		x.sessions = append(x.sessions, h.Group)
	}
	if strings.HasPrefix(h.Artefact.Source, "file:") && !slices.Contains(x.files, h.Artefact.Source) {
		x.files = append(x.files, h.Artefact.Source)
	}
	for _, r := range h.Rows {
		x.nums = append(x.nums, r.Num)
	}
	if f.req.Names {
		for _, id := range h.Supersedes {
			x.replaced = append(x.replaced, store.Ref{Scope: h.Scope, ID: id})
		}
	}
	parents, copies := madeFrom(h.Scope, &h.Artefact)
	if copies || h.Kind == store.KindSummary {
		x.words = append(x.words, parents...)
	}
	for _, p := range parents {
		if !slices.Contains(x.parents, p) {
			x.parents = append(x.parents, p)
		}
	}
}

// madeFrom are the artefacts that one was derived from, or has as its source; copies: it has one as its source. A source
// without a scope may be in any of the chain.
func madeFrom(scope string, a *store.Artefact) (parents []store.Ref, copies bool) {
	for _, r := range a.DerivedFrom {
		parents = append(parents, store.Ref{Scope: r.Scope, ID: r.ID})
	}
	key, ok := strings.CutPrefix(a.Source, "page:")
	if !ok {
		return parents, false
	}
	ref, err := store.SourceRef(key)
	if err != nil {
		return parents, false
	}
	if ref.Scope != "" {
		return append(parents, store.Ref{Scope: ref.Scope, ID: ref.ID}), true
	}
	for _, s := range store.ScopeChain(scope) {
		parents = append(parents, store.Ref{Scope: s, ID: ref.ID})
	}
	return parents, true
}

// take notes that an artefact goes.
func (f *finder) take(x *found) {
	f.arts[x.artefact] = x
	for _, n := range x.nums {
		f.nums[n] = true
	}
	for _, s := range x.sessions {
		f.touched[session{x.scope, s}] = true
	}
}

// follow takes what holds the content of what goes, and by the cascade what was derived from it, until nothing is added.
func (f *finder) follow() {
	for grew := true; grew; {
		grew = f.followPackets()
		f.linked = slices.DeleteFunc(f.linked, func(x *found) bool {
			parents := x.parents
			if f.cascade == ops.Keep {
				parents = x.words
			}
			from, _ := f.split(parents)
			if len(from) == 0 {
				return false
			}
			x.why = fmt.Sprintf("derived from %s", from[0])
			f.take(x)
			grew = true
			return true
		})
	}
	for _, x := range f.linked {
		if from, left := f.split(x.parents); len(from) > 0 {
			f.report.Derived = append(f.report.Derived, ops.Derived{Ref: store.Ref{Scope: x.scope, ID: x.id}.String(), From: from, Left: notNil(left), Stays: true})
		}
	}
	if f.cascade == ops.Rederive {
		for _, x := range f.arts {
			if from, left := f.split(x.parents); len(from) > 0 && len(left) > 0 {
				f.report.Derived = append(f.report.Derived, ops.Derived{Ref: store.Ref{Scope: x.scope, ID: x.id}.String(), From: from, Left: left})
			}
		}
	}
	sort.Slice(f.report.Derived, func(i, j int) bool { return f.report.Derived[i].Ref < f.report.Derived[j].Ref })
}

// followPackets takes packets that a session received from one that goes or loses turns: a packet has their titles, and the
// notes of the session. All pages of such a packet go. It reports whether it took any.
func (f *finder) followPackets() (took bool) {
	goes := map[artefact]bool{}
	for _, x := range f.packets {
		handed := slices.ContainsFunc(x.handed, func(a artefact) bool { return f.arts[a] != nil })
		from := session{x.from.Scope, x.from.ID}
		if x.from != (store.Ref{}) && (f.touched[from] || f.inSession(from.scope, from.id) || f.inScope(from.scope)) || handed {
			goes[artefact{x.scope, x.packet}] = true
		}
	}
	f.packets = slices.DeleteFunc(f.packets, func(x *found) bool {
		if !goes[artefact{x.scope, x.packet}] {
			return false
		}
		if f.arts[x.artefact] == nil {
			x.why = "handed on from what goes"
			f.take(x)
		}
		took = true
		return true
	})
	f.linked = slices.DeleteFunc(f.linked, func(x *found) bool { return f.arts[x.artefact] != nil })
	return took
}

// split parts parents into those that go and those that stay.
func (f *finder) split(parents []store.Ref) (from, left []string) {
	for _, p := range parents {
		if f.arts[artefact{p.Scope, p.ID}] != nil {
			from = append(from, p.String())
		} else {
			left = append(left, p.String())
		}
	}
	return from, left
}
