package erasing

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/erase"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// With Request.Names what goes loses its names, too. Where a name stands in a field of its own it is compared as such. In text
// that somebody wrote (notes, reasons, filters, actors) it counts where it stands as a word, so a short name may take leaves
// that mean something else: rather one body too many than a name too few.

// nameSet is the names of what goes.
type nameSet struct {
	arts     map[artefact]bool
	sessions map[session]bool
	words    []string // ids, sessions, subjects, scopes
}

// earlierRuns finds the erases without Names that were asked for the same. What they left are names, without the subject, the
// session or the lineage that they were found by: only the run that erased them leads there.
func (f *finder) earlierRuns() error {
	if !f.req.Names || len(f.req.Refs) > 0 || nameless(f.req) {
		return nil
	}
	info, err := f.st.Info(f.ctx)
	if err != nil {
		return err
	}
	is := asked(info.Secret, &erase.Request{Subject: f.req.Subject, Scope: f.req.Scope, Session: f.req.Session}, nil)[0]
	f.runs = map[string]bool{}
	return walkRows(f.ctx, f.st, func(row eraseRow) {
		if slices.Contains(row.Report.Asked, is) {
			f.runs[row.Report.Trace] = true
		}
	})
}

// collectNames runs when all that goes is known.
func (f *finder) collectNames() error {
	if !f.req.Names {
		return nil
	}
	n := &nameSet{arts: map[artefact]bool{}, sessions: map[session]bool{}}
	words := map[string]bool{f.req.Subject: true, f.req.Scope: true, f.req.Session.ID: true}
	for a := range f.named {
		n.arts[a], words[a.id] = true, true
	}
	for a := range f.arts {
		n.arts[a], words[a.id] = true, true
	}
	for s := range f.touched {
		if f.inSession(s.scope, s.id) {
			n.sessions[s], words[s.id] = true, true
		}
	}
	for _, s := range f.allScopes {
		if f.inScope(s) {
			words[s] = true
		}
	}
	delete(words, "")
	for w := range words {
		n.words = append(n.words, w)
	}
	slices.Sort(n.words)
	f.names = n
	return nil
}

// nameless takes the body of a leaf that names what goes, with the question that it was asked.
func (f *finder) nameless(r *manifest.Record) {
	if f.names == nil || r.Pruned != nil || !manifest.Prunable(r.Type) || !f.leafNames(r) {
		return
	}
	f.bodies = append(f.bodies, r.Index)
	if r.QuestionKept && !slices.Contains(f.job.Questions, r.Index) && f.asked(r) {
		f.job.Questions = append(f.job.Questions, r.Index)
	}
}

func (f *finder) leafNames(r *manifest.Record) bool {
	if f.inScope(r.Scope) || f.names.sessions[session{r.Scope, r.Session}] {
		return true
	}
	for _, w := range r.Writes {
		if f.refNames(w.Ref) {
			return true
		}
	}
	for _, c := range r.Conflicts {
		if f.refNames(c.Ref) {
			return true
		}
	}
	reason := r.Reason
	if from, is := promotedFrom(r); is { // it is a reference, and the leaf is needed while the original stays
		if f.refNames(from.String()) {
			return true
		}
		reason = ""
	}
	for _, text := range []string{r.Note, reason, r.Action, r.Filter, r.Actor, r.By, r.Evaluator, r.Session, r.Trace, r.Parent, r.Batch, r.Status} {
		if f.names.in(text) {
			return true
		}
	}
	for _, s := range r.Stale {
		if f.names.in(s.Reason) {
			return true
		}
	}
	return false
}

// refNames says whether a reference in the audit is one of what goes.
func (f *finder) refNames(text string) bool {
	ref, err := store.ParseRef(text)
	if err != nil {
		return f.names.in(text)
	}
	return f.names.arts[artefact{ref.Scope, ref.ID}] || f.inScope(ref.Scope)
}

// in says whether a text has one of the words.
func (n *nameSet) in(text string) bool {
	return text != "" && slices.ContainsFunc(n.words, func(w string) bool { return hasWord(text, w) })
}

func hasWord(text, word string) bool {
	for at := 0; ; {
		k := strings.Index(text[at:], word)
		if k < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at+k])
		after, _ := utf8.DecodeRuneInString(text[at+k+len(word):])
		if !partOfWord(before) && !partOfWord(after) {
			return true
		}
		at += k + 1
	}
}

func partOfWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// policyRow takes the quota and the retention of a scope that goes.
func (f *finder) policyRow(r store.StateRow) error {
	if _, scope, _ := strings.Cut(r.Key, "/"); f.inScope(scope) {
		f.gone(r)
	}
	return nil
}

// batchNames says whether a held batch names what goes.
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

// artefactNames says whether an artefact that stays names what goes.
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
	f.job.Names, f.job.Leaves = true, manifest.SpansOf(f.bodies)
	f.report.Bodies = manifest.CountOf(f.job.Leaves)
	for _, s := range f.allScopes {
		if f.inScope(s) {
			f.job.Scopes = append(f.job.Scopes, s)
		}
	}
	for s := range f.names.sessions {
		f.job.Groups = append(f.job.Groups, store.Ref{Scope: s.scope, ID: s.id})
	}
	slices.SortFunc(f.job.Groups, func(a, b store.Ref) int { return strings.Compare(a.String(), b.String()) })
	for _, x := range f.linked { // what stays and has a parent that goes
		if from, _ := f.split(slices.Concat(x.parents, x.replaced)); len(from) > 0 {
			f.report.NamedBy = append(f.report.NamedBy, store.Ref{Scope: x.scope, ID: x.id}.String())
		}
	}
	slices.Sort(f.report.NamedBy)
}
