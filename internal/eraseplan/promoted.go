package eraseplan

import (
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A promoted artefact is a copy in an ancestor scope, word for word. Its row does not say where it came from, because readers
// of the ancestor do not see that scope; the leaf of the promotion does. Like other copies it goes with its original, whatever
// the cascade.

// PromotedFrom begins the reason in the leaf of a promotion; the reference of the original follows.
const PromotedFrom = format.PromotedFrom

// promotion is a copy that an operator made.
type promotion struct{ from, to store.Ref }

// promotion notes what the leaf of one says.
func (f *finder) promotion(r *manifest.Record) {
	from, is := format.Promoted(r)
	if !is {
		return
	}
	for _, w := range r.Writes {
		if to, err := store.ParseRef(w.Ref); err == nil {
			f.promotions = append(f.promotions, promotion{store.Ref{Scope: from.Scope, ID: from.ID}, store.Ref{Scope: to.Scope, ID: to.ID, Version: to.Version}})
		}
	}
}

// promotedCopies are the promoted copies of what goes, with what they were promoted from.
func (f *finder) promotedCopies() map[store.Ref]store.Ref {
	more := map[store.Ref]store.Ref{}
	for _, p := range f.promotions {
		if a := (artefact{p.from.Scope, p.from.ID}); f.arts[a] != nil || f.isNamed(a) || f.inScope(a.scope) {
			more[p.to] = p.from
		}
	}
	return more
}

// promotedWhy says of what a version is a copy; "": of nothing that goes. One that has no content any more is none: what was
// put under its name later is something else. If nothing was, its name goes, too.
func (f *finder) promotedWhy(x *found, h *store.Head) string {
	from, is := f.promoted[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}]
	if !is || !x.bare && (h.Deleted || h.Gone || h.ErasedBy != "") {
		return ""
	}
	return PromotedFrom + from.String()
}

// copiesTaken are the promoted copies that go, sorted.
func (f *finder) copiesTaken() (list []store.Ref) {
	for r := range f.promoted {
		if ref := (store.Ref{Scope: r.Scope, ID: r.ID}); f.arts[artefact{r.Scope, r.ID}] != nil && !slices.Contains(list, ref) {
			list = append(list, ref)
		}
	}
	slices.SortFunc(list, func(a, b store.Ref) int { return strings.Compare(a.String(), b.String()) })
	return list
}
