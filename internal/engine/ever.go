package engine

import (
	"bytes"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// An erase must find every version of every artefact that is about a person, or was made from what
// goes. To read and prove a million heads for a thousand of them took longer than to copy the file.
// So the catalogue keeps for each artefact what any of its versions ever had (catalogue.ever), and a
// listing with ScanQuery.Ever reads only the heads of artefacts that may matter. It may list too
// many artefacts, and never too few:
//
//	install   looks at every version that the catalogue gets: from the rows, from the log, or from a commit    note
//	sticky    a bit is never taken back, although gc or an erase may have taken the version since
//	subject   of an artefact whose versions all have the same one, the column of its page has it; otherwise everVaried
//	group     likewise, the column of the artefact has it; otherwise everMoved
//
// A check compares every head row with what the catalogue would say of it (I7). Which fields link an
// artefact to others is said in everOf. An erase that learns to follow another field must add it
// there, and give the snapshot of the columns a new version: the bits in it are of the old rule.
//
// Rejected: a filter by the hash of each subject. It needs no comparison of versions, but in seven
// bits it lets a seventh of all artefacts through where each has a subject.

// Bits of catalogue.ever, which has a byte for each artefact: artCol has none left.
const (
	everLinked   = 1 << iota // a version may have been made from another artefact
	everReplaces             // a version supersedes others
	everSubject              // a version has a subject
	everVaried               // two versions differ in subject
	everMoved                // two versions differ in group
)

// Tags of the fields that link an artefact to others, beside those of facts.go.
const (
	tagSource  = 10
	tagGroup   = 16
	tagDerived = 19
)

// pageSource begins the source of an artefact that is a copy of another one.
const pageSource = "page:"

// everOf returns the bits of one version by the fields of its artefact. A page of a packet that a
// session received names what it came from in its metadata; to the engine, any scratch page of a
// group with metadata may be one.
func everOf(t *format.Hot, subject, meta, source, group, derived []byte) (ever uint8) {
	if len(derived) > 0 || bytes.HasPrefix(source, []byte(pageSource)) || t.Kind == store.KindScratch && len(meta) > 0 && len(group) > 0 {
		ever |= everLinked
	}
	if t.Flags&format.FlagSupersedes != 0 {
		ever |= everReplaces
	}
	if len(subject) > 0 {
		ever |= everSubject
	}
	return ever
}

// subject returns the subject in a combination. It is borrowed from the arena, which is never
// changed.
func (f *facts) subject(n uint32) []byte {
	if n == 0 {
		return nil
	}
	d := codec.Decoder{B: f.get(n)}
	return d.Bytes()
}

// subjectOf returns the subject in the column of an artefact's first page; nil without a page.
func (c *catalogue) subjectOf(a *artCol) []byte {
	if !a.live() {
		return nil
	}
	return c.facts.subject(c.page(uint64(a.first)).facts)
}

// before is what note must know of an artefact as it was before an install.
type before struct {
	fresh   bool // no version of it was known
	subject []byte
	group   uint32
}

// beforeInstall returns it.
func (c *catalogue) beforeInstall(num uint64) before {
	a := c.art(num)
	return before{a.version == 0, c.subjectOf(a), a.group}
}

// note adds what a version has to what its artefact ever had. The version is installed.
//
// Invariant: without everVaried, each subject that a version ever had is the one in the column of
// the first page. The column loses a subject only here: was.subject is then another one. A version
// may have a subject that no column shows, as a deletion does.
func (c *catalogue) note(t *format.Hot, was before) {
	a, ever := c.art(t.Art), c.ever.at(t.Art-1)
	*ever |= t.Ever
	now, own := c.subjectOf(a), c.facts.subject(t.Facts)
	lost := func(subject []byte) bool { return len(subject) > 0 && !bytes.Equal(subject, now) }
	if lost(was.subject) || lost(own) {
		*ever |= everVaried
	}
	if !was.fresh && was.group != uint32(t.Group) {
		*ever |= everMoved
	}
}

// everAtOnce is how many artefacts one page of a listing looks at: about a millisecond, in which
// commits wait for cat.mu.
const everAtOnce = 16384

// everMatch decides which artefacts a listing with ScanQuery.Ever includes.
type everMatch struct {
	bits    uint8  // any of them
	group   uint64 // 0: none
	subject []byte // nil: none
}

// newEverMatch returns nil for a listing of all artefacts. The caller holds cat.mu.
func (c *catalogue) newEverMatch(scope uint32, e *store.Ever) *everMatch {
	if e == nil {
		return nil
	}
	m := &everMatch{bits: everLinked, subject: []byte(e.Subject)}
	if e.Replaces {
		m.bits |= everReplaces
	}
	if e.Subject != "" {
		m.bits |= everVaried
	}
	if e.Group != "" {
		m.bits |= everMoved
		m.group = c.named[artKey{scope, e.Group}]
	}
	return m
}

// holds reports whether an artefact may matter. Most are decided by one byte.
func (m *everMatch) holds(c *catalogue, num uint64) bool {
	a, ever := c.art(num), *c.ever.at(num - 1)
	switch {
	case a.version == 0 || ever&m.bits != 0: // forgotten, and its rows may still be in the file
		return true
	case m.group != 0 && uint64(a.group) == m.group:
		return true
	}
	return len(m.subject) > 0 && ever&everSubject != 0 && bytes.Equal(c.subjectOf(a), m.subject)
}

// overlooked reports whether an erase would not look at an artefact although this version of it says
// that it should. A check asks it of every head row. The caller holds mu for reading.
func (c *catalogue) overlooked(h *store.Head) bool {
	if h.Art == 0 || h.Art > uint64(c.arts.len()) {
		return false // told already
	}
	missed := func(e store.Ever) bool {
		return !c.newEverMatch(c.byName[h.Scope], &e).holds(c, h.Art)
	}
	a := &h.Artefact
	linked := len(a.DerivedFrom) > 0 || strings.HasPrefix(a.Source, pageSource) || a.Kind == store.KindScratch && len(a.Meta) > 0 && a.Group != ""
	return linked && missed(store.Ever{}) || len(a.Supersedes) > 0 && missed(store.Ever{Replaces: true}) ||
		a.Subject != "" && missed(store.Ever{Subject: a.Subject}) || a.Group != "" && missed(store.Ever{Group: a.Group})
}
