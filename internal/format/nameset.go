package format

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// NameSet finds audit leaves that name what an erase takes. Where a name is in a field of its own it is compared as such. In
// text that somebody wrote (notes, reasons, filters, actors) it counts where it is a word, so a short name may take leaves that
// mean something else: rather one body too many than a name too few.
type NameSet struct {
	refs, sessions map[store.Ref]bool
	scopes, words  []string
}

// NewNameSet makes the set of what a job names.
func NewNameSet(n *store.Named) *NameSet {
	s := &NameSet{refs: map[store.Ref]bool{}, sessions: map[store.Ref]bool{}, scopes: n.Scopes, words: n.Words}
	for _, r := range n.Refs {
		s.refs[r] = true
	}
	for _, r := range n.Sessions {
		s.sessions[r] = true
	}
	return s
}

// InLeaf reports whether a leaf names anything of the set.
func (n *NameSet) InLeaf(r *manifest.Record) bool {
	if n.inScope(r.Scope) || n.sessions[store.Ref{Scope: r.Scope, ID: r.Session}] {
		return true
	}
	for _, w := range r.Writes {
		if n.ref(w.Ref) {
			return true
		}
	}
	for _, c := range r.Conflicts {
		if n.ref(c.Ref) {
			return true
		}
	}
	reason := r.Reason
	if from, is := Promoted(r); is { // it is a reference, and the leaf is needed while the original stays
		if n.ref(from.String()) {
			return true
		}
		reason = ""
	}
	for _, text := range []string{r.Note, reason, r.Action, r.Filter, r.Actor, r.By, r.Evaluator, r.Session, r.Trace, r.Parent, r.Batch, r.Status} {
		if n.in(text) {
			return true
		}
	}
	return slices.ContainsFunc(r.Stale, func(s manifest.Stale) bool { return n.in(s.Reason) })
}

// InBatch reports whether a held batch names anything of the set.
func (n *NameSet) InBatch(b *store.Batch) bool {
	named := func(scope, id string) bool { return n.refs[store.Ref{Scope: scope, ID: id}] || n.inScope(scope) }
	if named(b.Scope, "") || slices.ContainsFunc(b.Deletes, func(id string) bool { return named(b.Scope, id) }) {
		return true
	}
	if slices.ContainsFunc(b.Context, func(c store.Seen) bool { return named(c.Scope, c.ID) }) ||
		slices.ContainsFunc(b.Expect, func(e store.Precondition) bool { return named(e.Ref.Scope, e.Ref.ID) }) {
		return true
	}
	return slices.ContainsFunc(b.Puts, func(p store.Put) bool {
		a := &p.Artefact
		return named(b.Scope, a.ID) || n.sessions[store.Ref{Scope: b.Scope, ID: a.Group}] ||
			slices.ContainsFunc(a.Supersedes, func(id string) bool { return named(b.Scope, id) }) ||
			slices.ContainsFunc(a.DerivedFrom, func(r store.Ref) bool { return named(r.Scope, r.ID) })
	})
}

// inScope reports whether a scope is one of the set, or below it.
func (n *NameSet) inScope(scope string) bool {
	return slices.ContainsFunc(n.scopes, func(s string) bool { return scope == s || strings.HasPrefix(scope, s+"/") })
}

// ref reports whether a reference of the audit is one of what goes.
func (n *NameSet) ref(text string) bool {
	ref, err := store.ParseRef(text)
	if err != nil {
		return n.in(text)
	}
	return n.refs[store.Ref{Scope: ref.Scope, ID: ref.ID}] || n.inScope(ref.Scope)
}

// in reports whether a text has one of the words.
func (n *NameSet) in(text string) bool {
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

// PromotedFrom begins the reason in the leaf of a promotion; the reference of the original follows.
const PromotedFrom = "promoted from "

// Promoted reads the original in the leaf of a promotion.
func Promoted(r *manifest.Record) (from store.Ref, is bool) {
	text, is := strings.CutPrefix(r.Reason, PromotedFrom)
	if r.Type != manifest.TypePromote || !is {
		return from, false
	}
	from, err := store.ParseRef(text)
	return from, err == nil
}
