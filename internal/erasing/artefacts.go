package erasing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/erase"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/store"
)

// scanRows is how much is listed at a time. A commit waits until a page of the listing is read, and readers behind it, so that
// pages are small.
const scanRows = 128

// artefacts looks at all of them, then follows what was derived from those that go.
func (f *finder) artefacts() error {
	for _, r := range f.req.Refs {
		f.named[artefact{r.Scope, r.ID}] = true
	}
	var scopes []string
	for q := (store.ScanQuery{What: store.ScanScopes, Limit: scanRows}); ; {
		page, err := f.st.Scan(f.ctx, q)
		if err != nil {
			return err
		}
		for _, s := range page.Names {
			scopes = append(scopes, s.Name)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
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
	f.follow()
	return nil
}

func (f *finder) scope(scope string) error {
	for q := (store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Limit: scanRows}); ; {
		page, err := f.st.Scan(f.ctx, q)
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			if h.Deleted && h.ErasedBy != "" && !f.req.Names { // nothing is left of it but its name
				continue
			}
			if err := f.artefact(h); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// artefact looks at all versions of one, of which it is given the newest.
func (f *finder) artefact(newest *store.Head) error {
	x := &found{artefact: artefact{newest.Scope, newest.ID}, kind: newest.Kind, versions: newest.Version}
	f.version(x, newest)
	for q := (store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{newest.Scope}, ID: newest.ID, Limit: scanRows}); newest.Version > 1; {
		page, err := f.st.Scan(f.ctx, q)
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			f.version(x, h)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if f.isNamed(x.artefact) {
		x.why = "asked for"
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
	if f.seen != nil {
		f.seen(h)
	}
	turn := h.Kind == store.KindMessage && h.Group != ""
	if base, from, ref := talk.Received(h); base != "" {
		turn, x.packet, x.from = true, base, from
		if ref != (store.Ref{}) {
			x.handed = append(x.handed, artefact{ref.Scope, ref.ID})
		}
	}
	switch {
	case f.isSubject(h.Subject):
		x.why = "its subject"
	case f.inScope(h.Scope):
		x.why = "of the scope"
	case h.Group != "" && f.inSession(h.Scope, h.Group):
		x.why = "of the session"
	case f.lost(h):
		x.why = lostWhy
	}
	if turn && !slices.Contains(x.sessions, h.Group) {
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
	x.copies = x.copies || copies
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
	for again := true; again; {
		again = f.followPackets()
		f.linked = slices.DeleteFunc(f.linked, func(x *found) bool {
			from, _ := f.split(x.parents)
			if len(from) == 0 || !f.follows(x.kind, x.copies) {
				return false
			}
			x.why = fmt.Sprintf("derived from %s", from[0])
			f.take(x)
			again = true
			return true
		})
	}
	for _, x := range f.linked {
		if from, left := f.split(x.parents); len(from) > 0 {
			f.report.Derived = append(f.report.Derived, erase.Derived{Ref: store.Ref{Scope: x.scope, ID: x.id}.String(), From: from, Left: some(left), Stays: true})
		}
	}
	if f.cascade == erase.Rederive {
		for _, x := range f.arts {
			if from, left := f.split(x.parents); len(from) > 0 && len(left) > 0 {
				f.report.Derived = append(f.report.Derived, erase.Derived{Ref: store.Ref{Scope: x.scope, ID: x.id}.String(), From: from, Left: left})
			}
		}
	}
	slices.SortFunc(f.report.Derived, func(a, b erase.Derived) int { return strings.Compare(a.Ref, b.Ref) })
}

// followPackets takes packets that a session received from one that goes or loses turns: a packet has their titles, and the
// notes of the session. All pages of such a packet go. It reports whether it took any.
func (f *finder) followPackets() (again bool) {
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
		again = true
		return true
	})
	f.linked = slices.DeleteFunc(f.linked, func(x *found) bool { return f.arts[x.artefact] != nil })
	return again
}

// follows says whether what was derived goes with its parent: a summary and a copy hold its words.
func (f *finder) follows(kind store.Kind, copies bool) bool {
	return f.cascade != erase.Keep || kind == store.KindSummary || copies
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
