package eraseplan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// The model of a database that erases: what must be in it, and what must not. It knows nothing of how a store keeps things.
//
//	model.go    what is there, and what an erase does to it                     state
//	steps.go    the random calls, made to a database and to the model           walk.step
//	check.go    the comparison of the two                                       walk.check
//
// What gc drops the model does not foretell; it observes it, and asks that it was old and that the counts agree. All else is
// foretold.

const (
	modelAge   = 5 * 24 * time.Hour              // how old facts become before retention takes them
	modelPrune = 9*24*time.Hour + 30*time.Minute // how old bodies of leaves become; the clock moves in hours
)

type name struct{ scope, id string }

// version is one version of an artefact.
type version struct {
	text   string
	word   string
	erased string // by whom
	told   bool   // erased, and no gc ran since: every read must say who erased it
	gone   bool   // dropped by gc
	end    bool   // it says that the artefact is deleted, and has no content
}

func (v *version) readable() bool { return v.erased == "" && !v.gone && !v.end }

// art is an artefact. Subject, session and parent are fixed by its name, so that no version says anything else.
type art struct {
	name
	kind     store.Kind
	subject  string
	session  string
	parent   string
	versions []int // in state.versions
	live     bool
	at       time.Time // of the newest version
	lost     bool      // gc may have forgotten it
	nameless bool      // an erase with Names took it: nothing may be known of it
}

// assembled is a context.
type assembled struct {
	name    // scope and trace
	session string
	at      time.Time
	pages   []page
	draft   *name // of its transaction
	drafted string
	word    string // of the question
	text    string
	leaf    *manifest.Record
	asked   bool   // the question is there
	unsure  bool   // or it may be gone
	lost    bool   // gc may have dropped its draft
	taken   bool   // an erase took its draft
	pruned  string // by whom
	perhaps string // who may have pruned it
}

type page struct {
	ref     store.Ref
	version int // in state.versions; -1: directives
}

// directed reports whether a context shows directives, which are a page as well.
func (c *assembled) directed() bool {
	return slices.ContainsFunc(c.pages, func(p page) bool { return p.version < 0 && strings.HasPrefix(p.ref.ID, directivelog.Reserved) })
}

// held is a batch that was held.
type held struct {
	name
	batch   string
	subject string
	word    string
	text    string
	seen    []name // by its transaction
	waits   bool
	taken   bool   // by an erase
	erased  string // by whom, while that is told
}

// talk is what is noted of a session.
type talk struct{ words []string }

// state is plain data, so that a copy of it is the model of a backup.
type state struct {
	arts       map[name]*art
	versions   []version
	contexts   []assembled
	batches    []held
	talks      map[name]*talk
	directives map[string][]string // words, by scope
	heads      []manifest.Head
	never      map[string]bool // words that no file may have
}

func newState() *state {
	return &state{arts: map[name]*art{}, talks: map[name]*talk{}, directives: map[string][]string{}, never: map[string]bool{}}
}

func (s *state) clone() *state {
	c := *s
	c.arts, c.talks, c.directives, c.never = map[name]*art{}, map[name]*talk{}, map[string][]string{}, maps.Clone(s.never)
	for k, a := range s.arts {
		b := *a
		b.versions = slices.Clone(a.versions)
		c.arts[k] = &b
	}
	for k, x := range s.talks {
		c.talks[k] = &talk{slices.Clone(x.words)}
	}
	for k, x := range s.directives {
		c.directives[k] = slices.Clone(x)
	}
	c.versions, c.contexts, c.batches, c.heads = slices.Clone(s.versions), slices.Clone(s.contexts), slices.Clone(s.batches), slices.Clone(s.heads)
	return &c
}

func (s *state) sorted() (list []*art) {
	for _, k := range slices.SortedFunc(maps.Keys(s.arts), compareNames) {
		list = append(list, s.arts[k])
	}
	return list
}

func compareNames(a, b name) int { return strings.Compare(a.scope+"\x00"+a.id, b.scope+"\x00"+b.id) }

// put notes a version that the database has made.
func (s *state) put(a *art, ref store.Ref, word, text string, at time.Time) error {
	was := s.arts[a.name]
	switch {
	case was == nil || ref.Version == 1 && (was.lost || was.nameless):
		s.arts[a.name] = a
	case was.nameless:
		return fmt.Errorf("%s: its rows were erased, and it goes on with a version", ref)
	default:
		a = was
	}
	if int(ref.Version) != len(a.versions)+1 {
		return fmt.Errorf("%s: version %d expected", ref, len(a.versions)+1)
	}
	a.versions = append(a.versions, len(s.versions))
	a.live, a.at, a.lost = true, at, false
	s.versions = append(s.versions, version{text: text, word: word})
	return nil
}

// deleted notes the version that a deletion is.
func (s *state) deleted(a *art) {
	a.live = false
	a.versions = append(a.versions, len(s.versions))
	s.versions = append(s.versions, version{end: true})
}

// content reports whether any version of an artefact can be read.
func (s *state) content(a *art) bool {
	return slices.ContainsFunc(a.versions, func(v int) bool { return s.versions[v].readable() })
}

func within(scope, of string) bool { return scope == of || strings.HasPrefix(scope, of+"/") }

// whole reports whether a request asks for all of a scope.
func whole(req *ops.Request, scope string) bool {
	return req.Subject == "" && req.Scope != "" && within(scope, req.Scope)
}

// about reports whether a request asks for what is about a subject in a scope.
func about(req *ops.Request, scope, subject string) bool {
	return req.Subject != "" && req.Subject == subject && (req.Scope == "" || within(scope, req.Scope))
}

// asks reports whether a request asks for an artefact.
func asks(req *ops.Request, a *art) bool {
	switch {
	case req.Subject != "":
		return about(req, a.scope, a.subject)
	case req.Scope != "":
		return whole(req, a.scope)
	case req.Session != store.Ref{}:
		return a.scope == req.Session.Scope && a.session == req.Session.ID
	}
	return slices.Contains(req.Refs, store.Ref{Scope: a.scope, ID: a.id})
}

// goes are the artefacts that an erase takes. Of those without content the report decides: what they were about may be
// forgotten.
func (s *state) goes(req *ops.Request, rep *ops.Report) (map[name]bool, error) {
	said := map[name]bool{}
	for _, i := range rep.Erased {
		ref, err := store.ParseRef(i.Ref)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(ref.ID, directivelog.Reserved) {
			said[name{ref.Scope, ref.ID}] = true
		}
	}
	goes := map[name]bool{}
	for again := true; again; {
		again = false
		for _, a := range s.sorted() {
			follows := a.parent != "" && goes[name{a.scope, a.parent}] && (req.Cascade == ops.Erase || req.Cascade == ops.Rederive || a.kind == store.KindSummary)
			if goes[a.name] || !follows && !asks(req, a) || !s.content(a) && !said[a.name] {
				continue
			}
			goes[a.name], again = true, true
		}
	}
	if !maps.Equal(goes, said) {
		return nil, fmt.Errorf("the report has %v, expected %v", said, goes)
	}
	return goes, nil
}

// erase does to the model what a request does to the database; rep is what that reported.
func (s *state) erase(req *ops.Request, rep *ops.Report) error {
	goes, err := s.goes(req, rep)
	if err != nil {
		return err
	}
	if rep.Done == nil {
		return s.nothing(req)
	}
	touched, shown := s.touched(req, goes), map[string]bool{}
	for _, c := range rep.Contexts {
		shown[c.Trace] = true
	}
	for i := range s.contexts {
		if err := s.eraseContext(&s.contexts[i], req, goes, shown); err != nil {
			return err
		}
	}
	for i := range s.batches {
		s.eraseHeld(&s.batches[i], req, goes)
	}
	for k := range goes {
		s.eraseArtefact(s.arts[k], req)
	}
	for k := range touched {
		if t := s.talks[k]; t != nil {
			s.forget(t.words...)
			t.words = nil
		}
	}
	for scope, words := range s.directives {
		if whole(req, scope) {
			s.forget(words...)
			delete(s.directives, scope)
		}
	}
	return nil
}

// nothing is an erase that found nothing: of what gc dropped, no row says what it was. Bytes of that stay.
func (s *state) nothing(req *ops.Request) error {
	c := s.clone()
	for i := range c.batches {
		if c.eraseHeld(&c.batches[i], req, nil); c.batches[i].waits != s.batches[i].waits {
			return fmt.Errorf("nothing was found of %+v, and batch %s waits", req, s.batches[i].batch)
		}
	}
	return nil
}

func (s *state) forget(words ...string) {
	for _, w := range words {
		s.never[w] = true
	}
}

// touched are the sessions that lose turns.
func (s *state) touched(req *ops.Request, goes map[name]bool) map[name]bool {
	out := map[name]bool{{req.Session.Scope, req.Session.ID}: true}
	for k := range goes {
		if a := s.arts[k]; a.session != "" && s.content(a) { // what was noted after the turn went stays
			out[name{a.scope, a.session}] = true
		}
	}
	for k := range s.talks {
		if whole(req, k.scope) {
			out[k] = true
		}
	}
	return out
}

func (s *state) eraseArtefact(a *art, req *ops.Request) {
	if last := s.versions[a.versions[len(a.versions)-1]]; !last.end || last.erased == "" {
		s.deleted(a)
	}
	for _, i := range a.versions {
		v := &s.versions[i]
		s.forget(v.word)
		if v.erased == "" {
			v.erased, v.told = req.By, !v.gone // of what gc dropped only the number may be left
		}
	}
	a.nameless = a.nameless || req.Names
}

func (s *state) eraseContext(c *assembled, req *ops.Request, goes map[name]bool, said map[string]bool) error {
	if c.pruned != "" {
		return nil
	}
	emptied, sure := s.emptied(name{c.scope, c.session}, req, goes)
	ours := whole(req, c.scope) || c.session != "" && req.Session == store.Ref{Scope: c.scope, ID: c.session} || emptied && sure
	shows := false
	for _, p := range c.pages {
		if p.version >= 0 && goes[name{p.ref.Scope, p.ref.ID}] && s.versions[p.version].readable() {
			shows = true
		}
	}
	if shows && !said[c.id] {
		return fmt.Errorf("context %s showed what goes, and the report does not name it", c.id)
	}
	draft := c.draft != nil && (ours || goes[*c.draft] || about(req, c.draft.scope, subjectOf(c.draft.id)) || slices.Contains(req.Refs, store.Ref{Scope: c.draft.scope, ID: c.draft.id}) ||
		req.Cascade != ops.Keep && said[c.id])
	if draft && !c.taken {
		c.taken = true
		s.forget(c.drafted)
	}
	switch {
	case ours || shows || said[c.id] || draft && !c.lost:
		c.asked = false
		s.forget(c.word)
	case draft: // gc may have dropped the draft before, and nothing says what the context showed
		c.unsure = true
	}
	c.taken = c.taken || ours && whole(req, c.scope) && c.directed()
	switch {
	case req.Names && ours:
		c.pruned = req.By
	case emptied:
		c.perhaps, c.unsure, c.lost = req.By, true, true
	}
	return nil
}

// emptied reports whether an erase with Names takes all that is left of a session, so that its name goes, too, and whether that is
// sure: gc may have forgotten what stays.
func (s *state) emptied(session name, req *ops.Request, goes map[name]bool) (is, sure bool) {
	if !req.Names || session.id == "" || !s.touched(req, goes)[session] {
		return false, true
	}
	sure = true
	for k, a := range s.arts {
		switch {
		case k.scope != session.scope || a.session != session.id || goes[k] || a.nameless:
		case a.lost:
			sure = false
		default:
			return false, true
		}
	}
	return true, sure
}

func (s *state) eraseHeld(h *held, req *ops.Request, goes map[name]bool) {
	named := func(k name) bool { return goes[k] || slices.Contains(req.Refs, store.Ref{Scope: k.scope, ID: k.id}) }
	takes := whole(req, h.scope) || about(req, h.scope, h.subject) || named(h.name)
	if req.Cascade != ops.Keep {
		takes = takes || slices.ContainsFunc(h.seen, func(k name) bool { return goes[k] })
	}
	if req.Names {
		takes = takes || slices.ContainsFunc(h.seen, named)
	}
	if !takes || h.taken {
		return
	}
	s.forget(h.word)
	if h.taken = true; h.waits {
		h.erased = req.By // of a decided one nobody is told
	}
	h.waits = false
}

// kept are the words that one thing lost and another has: a draft is in its context, in the batch that waited, and in the
// artefact that it became. Of a version that gc dropped a record remains, with its tags, until it is erased.
func (s *state) kept() map[string]bool {
	words := map[string]bool{}
	for _, v := range s.versions {
		words[v.word] = words[v.word] || v.erased == ""
	}
	for _, h := range s.batches {
		words[h.word] = words[h.word] || !h.taken
	}
	for _, c := range s.contexts {
		words[c.drafted] = words[c.drafted] || !c.taken
	}
	return words
}

// subjectOf is fixed by the id.
func subjectOf(id string) string {
	switch id[len(id)-1] % 4 {
	case 0:
		return "annsubject"
	case 1:
		return "bobsubject"
	}
	return ""
}

// dice are the random choices of a sequence.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

// call is something that a sequence may do; it is drawn as often as its weight says.
type call struct {
	name   string
	weight int
	do     func() error
}

// draw draws one of some calls.
func (d dice) draw(calls []call) call {
	sum := 0
	for _, c := range calls {
		sum += c.weight
	}
	at := d.IntN(sum)
	for _, c := range calls {
		if at -= c.weight; at < 0 {
			return c
		}
	}
	panic("no call has a weight")
}
