package eraseplan

import (
	"slices"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// The kinds of names that can be asked for.
const (
	askedSubject = "subject"
	askedScope   = "scope"
	askedSession = "session"
	askedRef     = "ref"
)

// askedNames stands among what was asked for if names were to go.
const askedNames = "names"

// name is one name in a request: a subject (of one scope, or of all), a scope, a session or an artefact.
type name struct{ kind, scope, id string }

// text is the name as a receipt digests it.
func (n name) text() string {
	switch {
	case n.id == "":
		return n.scope
	case n.scope == "":
		return n.id
	}
	return n.scope + "\x00" + n.id
}

// digest is the name under the secret of a database.
func (n name) digest(secret []byte) string { return format.AskedOf(secret, n.kind, n.text()) }

// namesOf lists what a request asks for.
func namesOf(req *ops.Request) (list []name) {
	switch {
	case req.Subject != "":
		list = []name{{askedSubject, req.Scope, req.Subject}}
	case req.Scope != "":
		list = []name{{askedScope, req.Scope, ""}}
	case req.Session != (store.Ref{}):
		list = []name{{askedSession, req.Session.Scope, req.Session.ID}}
	}
	for _, r := range req.Refs {
		list = append(list, name{askedRef, r.Scope, r.ID})
	}
	return list
}

// asked describes a request in the report and, as a digest, in the leaf. Promoted copies are among it, as references:
// an export has no audit that tells of them.
func asked(secret []byte, req *ops.Request, promoted []store.Ref) (list []string) {
	for _, n := range append(namesOf(req), namesOf(&ops.Request{Refs: promoted})...) {
		list = append(list, n.digest(secret))
	}
	if req.Names {
		list = append(list, askedNames)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// memoNames bounds the names whose comparison with digests is remembered.
const memoNames = 4096

// digested returns the test whether a name is among digests. It remembers the names that recur.
func digested(secret []byte, of map[string]bool) func(name) bool {
	memo := map[name]bool{}
	return func(n name) bool {
		is, known := memo[n]
		if known {
			return is
		}
		is = of[n.digest(secret)]
		if len(memo) >= memoNames {
			clear(memo)
		}
		if n.kind != askedRef {
			memo[n] = is
		}
		return is
	}
}

// asks reports whether a name was asked for, and notes it if it was.
func (f *finder) asks(n name) bool {
	if f.matched[n] {
		return true
	}
	if f.among == nil || !f.among(n) {
		return false
	}
	f.matched[n] = true
	return true
}

// inScope reports whether a scope goes as a whole: one that is erased, or one below it.
func (f *finder) inScope(scope string) bool {
	goes, known := f.whole[scope]
	if !known {
		goes = slices.ContainsFunc(store.ScopeChain(scope), func(s string) bool { return f.asks(name{askedScope, s, ""}) })
		f.whole[scope] = goes
	}
	return goes
}

// inSession reports whether a session goes as a whole.
func (f *finder) inSession(scope, id string) bool {
	return id != "" && (f.inScope(scope) || f.emptied[session{scope, id}] || f.asks(name{askedSession, scope, id}))
}

// isSubject reports whether everything about a person goes in a scope: because it was asked for in that scope or one above
// it, or in all scopes.
func (f *finder) isSubject(scope, who string) bool {
	return who != "" && (f.asks(name{askedSubject, "", who}) ||
		slices.ContainsFunc(store.ScopeChain(scope), func(s string) bool { return f.asks(name{askedSubject, s, who}) }))
}

// isNamed reports whether an artefact was asked for by its name.
func (f *finder) isNamed(a artefact) bool { return f.asks(name{askedRef, a.scope, a.id}) }
