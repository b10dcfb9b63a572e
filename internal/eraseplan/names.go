package eraseplan

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// With Request.Names what goes loses its names, too (format.NameSet).

// earlierRuns finds the erases without Names that were asked for the same. What they left are names, without the subject, the
// session or the lineage that they were found by: only the run that erased them leads there.
func (f *finder) earlierRuns() error {
	same := map[string]bool{}
	for n := range f.matched {
		if n.kind != askedRef {
			same[n.digest(f.secret)] = true
		}
	}
	if !f.req.Names || len(same) == 0 {
		return nil
	}
	f.runs = map[string]bool{}
	return walkRows(f.ctx, f.st, func(row eraseRow) {
		if slices.ContainsFunc(row.Report.Asked, func(is string) bool { return same[is] }) {
			f.runs[row.Report.Trace] = true
		}
	})
}

// collectNames runs when all that goes is known.
func (f *finder) collectNames() error {
	if !f.req.Names {
		return nil
	}
	n := &f.job.Named
	words, refs := map[string]bool{}, map[artefact]bool{}
	for m := range f.matched {
		switch m.kind {
		case askedRef:
			refs[artefact{m.scope, m.id}] = true
		case askedScope:
			n.Scopes, words[m.scope] = append(n.Scopes, m.scope), true
		default:
			words[m.id] = true
		}
	}
	for a := range f.arts {
		refs[a] = true
	}
	for a := range refs {
		n.Refs, words[a.id] = append(n.Refs, store.Ref{Scope: a.scope, ID: a.id}), true
	}
	for s := range f.touched {
		if f.inSession(s.scope, s.id) {
			n.Sessions, words[s.id] = append(n.Sessions, store.Ref{Scope: s.scope, ID: s.id}), true
		}
	}
	for _, s := range f.allScopes {
		if f.inScope(s) {
			words[s] = true
		}
	}
	n.Words = slices.Sorted(maps.Keys(words))
	slices.Sort(n.Scopes)
	sort.Slice(n.Refs, func(i, j int) bool { return byText(n.Refs[i], n.Refs[j]) < 0 })
	sort.Slice(n.Sessions, func(i, j int) bool { return byText(n.Sessions[i], n.Sessions[j]) < 0 })
	f.names = format.NewNameSet(n)
	return nil
}

func byText(a, b store.Ref) int { return strings.Compare(a.String(), b.String()) }

// askedIn notes the names in a leaf that the erase to be repeated was asked for: it takes them also where no row has them any
// more.
func (f *finder) askedIn(r *manifest.Record) {
	if f.was == nil || !f.req.Names {
		return
	}
	f.inSession(r.Scope, r.Session)
	for _, w := range r.Writes {
		if ref, err := store.ParseRef(w.Ref); err == nil && !f.inScope(ref.Scope) {
			f.isNamed(artefact{ref.Scope, ref.ID})
		}
	}
}

// nameless takes the body of a leaf that names what goes, with the question that it was asked.
func (f *finder) nameless(r *manifest.Record) {
	if f.names == nil || r.Pruned != nil || !archive.Prunable(r.Type) || !f.names.InLeaf(r) {
		return
	}
	f.bodies = append(f.bodies, r.Index)
	if r.QuestionKept && !slices.Contains(f.job.Questions, r.Index) && f.asked(r) {
		f.job.Questions = append(f.job.Questions, r.Index)
	}
}

// policyRow takes the quota and the retention of a scope that goes.
func (f *finder) policyRow(r store.StateRow) error {
	if _, scope, _ := strings.Cut(r.Key, "/"); f.inScope(scope) {
		f.gone(r)
	}
	return nil
}

// batchNames reports whether a held batch names what goes.
func (f *finder) batchNames(b *store.Batch) bool {
	named := func(scope, id string) bool {
		return f.arts[artefact{scope, id}] != nil || f.isNamed(artefact{scope, id}) || f.inScope(scope)
	}
	for _, c := range b.Context {
		if named(c.Scope, c.ID) {
			return true
		}
	}
	for _, e := range b.Expect {
		if named(e.Ref.Scope, e.Ref.ID) {
			return true
		}
	}
	for _, id := range b.Deletes {
		if named(b.Scope, id) {
			return true
		}
	}
	for i := range b.Puts {
		if f.artefactNames(b.Scope, &b.Puts[i].Artefact) {
			return true
		}
	}
	return false
}

// artefactNames reports whether an artefact that stays names what goes.
func (f *finder) artefactNames(scope string, a *store.Artefact) bool {
	parents, _ := madeFrom(scope, a)
	for _, id := range a.Supersedes {
		parents = append(parents, store.Ref{Scope: scope, ID: id})
	}
	from, _ := f.split(parents)
	return len(from) > 0
}

// takeNames completes the job.
func (f *finder) takeNames() {
	if f.names == nil {
		return
	}
	f.job.Names, f.job.Leaves = true, archive.SpansOf(f.bodies)
	f.report.Bodies = archive.CountOf(f.job.Leaves)
	for _, s := range f.allScopes {
		if f.inScope(s) {
			f.job.Scopes = append(f.job.Scopes, s)
		}
	}
	f.job.Groups = f.job.Named.Sessions
	for _, x := range f.linked { // what stays and has a parent that goes
		if from, _ := f.split(slices.Concat(x.parents, x.replaced)); len(from) > 0 {
			f.report.NamedBy = append(f.report.NamedBy, store.Ref{Scope: x.scope, ID: x.id}.String())
		}
	}
	slices.Sort(f.report.NamedBy)
}
