package eraseplan

import (
	"slices"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// Earlier finds in an export what erases took that came after it was made. Each report says under the secret of the database
// what was asked for; names in the export are compared with that. They follow the rules of the erase itself:
//
//	Version   every version in the file, in any order
//	Follow    then what was derived from those that go
//	Takes, Row, Held   then what is to be left out
//
// It has memory for what goes, for packets that sessions received, and for what was derived from something, not for the rest of
// the file.
type Earlier struct {
	finders []*finder // one for each rule
	made    []map[artefact]*found
}

// rule says what an erase took beyond the request: what was derived, and names.
type rule struct {
	cascade ops.Cascade
	names   bool
}

// NewEarlier looks for what erases took. Those that do not say what was asked for are passed over.
func NewEarlier(secret []byte, done []store.EraseReport) *Earlier {
	wanted := map[rule]map[string]bool{}
	for i := range done {
		r := rule{ops.Keep, tookNames(&done[i])}
		if d := ops.Cascade(done[i].Cascade); d == ops.Rederive || d == ops.Erase {
			r.cascade = ops.Erase
		}
		if wanted[r] == nil {
			wanted[r] = map[string]bool{}
		}
		for _, a := range done[i].Asked {
			wanted[r][a] = true
		}
	}
	e := &Earlier{}
	for _, r := range []rule{{ops.Keep, false}, {ops.Keep, true}, {ops.Erase, false}, {ops.Erase, true}} {
		if len(wanted[r]) == 0 {
			continue
		}
		f := newFinder(&ops.Request{Cascade: r.cascade, Names: r.names})
		f.among = digested(secret, wanted[r])
		e.finders, e.made = append(e.finders, f), append(e.made, map[artefact]*found{})
	}
	return e
}

// Version looks at one version of an artefact.
func (e *Earlier) Version(h *store.Head) {
	a := artefact{h.Scope, h.ID}
	for i, f := range e.finders {
		x := f.arts[a]
		if x == nil {
			x = e.made[i][a]
		}
		if x == nil {
			x = &found{artefact: a}
		}
		x.kind = h.Kind
		f.version(x, h)
		switch {
		case x.why != "" || f.isNamed(a):
			f.take(x)
			delete(e.made[i], a)
		case len(x.parents) > 0 || x.packet != "":
			e.made[i][a] = x
		}
	}
}

// Follow takes what was derived from what goes.
func (e *Earlier) Follow() {
	for i, f := range e.finders {
		for _, x := range e.made[i] {
			if x.packet != "" {
				f.packets = append(f.packets, x)
			}
			if len(x.parents) > 0 {
				f.linked = append(f.linked, x)
			}
		}
		slices.SortFunc(f.linked, func(a, b *found) int { return compare(a.artefact, b.artefact) })
		f.follow()
	}
}

// Takes reports whether all versions of an artefact go.
func (e *Earlier) Takes(ref store.Ref) bool {
	return slices.ContainsFunc(e.finders, func(f *finder) bool { return f.arts[artefact{ref.Scope, ref.ID}] != nil })
}

// Row returns what stays of a row of state; gone: nothing.
func (e *Earlier) Row(r store.StateRow) (value []byte, gone bool, err error) {
	for _, f := range e.finders {
		for prefix, look := range f.looks() {
			if !strings.HasPrefix(r.Key, prefix) {
				continue
			}
			f.job.State = nil
			if err := look(r); err != nil {
				return nil, false, err
			}
			f.draftsWithoutAudit(r)
			if len(f.job.State) == 0 {
				continue
			}
			if r.Value = f.job.State[0].Value; r.Value == nil {
				return nil, true, nil
			}
		}
	}
	return r.Value, false, nil
}

// draftsWithoutAudit takes a row of drafts that has one that goes. An export has no audit to say of which scope their
// context was, so drafts are taken by their subject and by what they were derived from.
func (f *finder) draftsWithoutAudit(r store.StateRow) {
	for _, list := range f.drafts {
		for _, d := range list {
			if slices.ContainsFunc(d.puts, func(p store.Put) bool { return f.putWhy("", &p.Artefact) != "" }) {
				f.job.State = []store.StateRow{{Key: r.Key}}
			}
		}
	}
	clear(f.drafts)
}

// Held reports whether a held batch goes.
func (e *Earlier) Held(b *store.Batch) bool {
	h := &store.HeldBatch{Batch: *b}
	return slices.ContainsFunc(e.finders, func(f *finder) bool {
		return f.heldWhy(h) != "" || f.cascade != ops.Keep && slices.ContainsFunc(b.Context, func(s store.Seen) bool { return f.arts[artefact{s.Scope, s.ID}] != nil })
	})
}

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
	sort.Slice(list, func(i, j int) bool { return list[i].String() < list[j].String() })
	return list
}
