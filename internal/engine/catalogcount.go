package engine

import (
	"bytes"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Answers from the columns: which page answers for another one, which rule keeps a page out, how
// many pages each rule keeps out, and the artefacts of a scope in order. Everything here runs under
// catalogue.mu and reads no row.
//
// The rules are decided in two ways that must agree. excluded decides for one page, with a look at
// its column. count decides for all pages of a chain, from the counts of each class, because the
// cost of a question must not grow with what it leaves out.

// resolve follows a page version to the live page that answers for it as of an LSN (0: now). That
// is its successor, or, if the artefact was superseded as a whole, the first page of the one that
// replaced it. past has that first page as of the LSN, where it has changed since. 0: no page
// answers. The number of hops is bounded, so that a damaged file cannot make a circle that never
// ends.
func (c *catalogue) resolve(num, asOf uint64, past map[uint64]uint64) uint64 {
	for hops := 0; hops < 1000; hops++ {
		if num == 0 || num > uint64(c.pages.len()) {
			return 0
		}
		p := c.page(num)
		r := c.rareOf(p)
		switch {
		case p.art == 0 || asOf != 0 && p.lsn > asOf:
			return 0
		case r.end != 0 && (asOf == 0 || r.end <= asOf):
			num = uint64(r.next)
			continue
		case p.gone():
			return 0
		case !p.retired || c.supersededAfter(p, asOf):
			return num
		}
		by := uint64(c.succession(uint64(p.art)).by)
		if num = past[by]; num == 0 {
			num = uint64(c.art(by).first)
		}
	}
	return 0
}

// firstAt returns, by artefact, the first page as of an LSN, for artefacts that have got another
// one since or are deleted. It looks at every column; questions about the past are rare enough for
// that.
func (c *catalogue) firstAt(asOf uint64) map[uint64]uint64 {
	past := map[uint64]uint64{}
	for num, p := range c.pages.all() {
		if p.art != 0 && p.page == 1 && p.lsn <= asOf && c.end(p) > asOf {
			past[uint64(p.art)] = num
		}
	}
	return past
}

// supersededAfter reports whether a page that is superseded now was not yet superseded at an LSN.
func (c *catalogue) supersededAfter(p *pageCol, asOf uint64) bool {
	return p.retired && asOf != 0 && c.succession(uint64(p.art)).since > asOf
}

// excluded returns the rule that keeps a live page out of a context; "": none does. The rules are
// in the order in which they are reported: a page that is expired and below the floor counts as
// expired.
func (c *catalogue) excluded(p *pageCol, q *store.CandidateQuery, session uint64) string {
	if at := c.expires(p); at != 0 && at <= codec.Micros(q.Now) {
		return store.ReasonExpired
	}
	if c.exemptFromRules(p) {
		return ""
	}
	if p.prov < q.Floor && (session == 0 || uint64(c.pageArt(p).group) != session) {
		return store.ReasonFloor
	}
	if c.ownTurn(p) && uint64(c.pageArt(p).group) != session {
		return store.ReasonOther
	}
	if len(q.Kinds) > 0 && !slices.Contains(q.Kinds, p.kind) {
		return store.ReasonKind
	}
	return ""
}

// ofSession returns, by provenance, the pages of a session that are not in the lists of their
// classes, or that a question with this floor does not look for there.
func (c *catalogue) ofSession(session uint64, floor store.Provenance) (own [provenances]*sortedList) {
	g := &c.groups[session-1]
	for prov := range own {
		own[prov] = &g.turnsOf()[prov]
		if store.Provenance(prov) >= floor || g.live[prov] == g.turns[prov] {
			continue
		}
		var all []entry // few ask for a floor above what the user says
		for _, num := range g.members {
			if p := c.page(uint64(num)); !p.retired && int(p.prov) == prov {
				all = append(all, entry{p.asOf, uint64(num)})
			}
		}
		slices.SortFunc(all, compareEntries)
		list := sortedOf(all)
		own[prov] = &list
	}
	return own
}

// exemptFromRules reports whether a page enters every context, whatever floor and kinds a query
// asks for. Only the host writes system pages, and a context without them would make another agent.
func (c *catalogue) exemptFromRules(p *pageCol) bool { return p.kind == store.KindSystem }

// exclusions counts the live pages that each rule keeps out.
type exclusions struct{ expired, floor, retired, turns int }

// count returns how many live pages of the chain each rule keeps out, without looking at the pages.
// A turn that is also expired counts as both.
func (c *catalogue) count(chain []uint32, q *store.CandidateQuery, session uint64) (e exclusions) {
	now := codec.Micros(q.Now)
	for _, n := range chain {
		for prov := range c.scopes[n-1].classes {
			cl := &c.scopes[n-1].classes[prov]
			dead := cl.expiry.upTo(now)
			e.expired += dead
			e.retired += cl.retired
			if store.Provenance(prov) < q.Floor {
				e.floor += cl.n - dead
			} else {
				e.turns += cl.turns
			}
		}
		for _, num := range c.scopes[n-1].unconditional {
			if p := c.page(num); p.prov < q.Floor && c.exemptFromRules(p) {
				e.floor--
			}
		}
	}
	if session != 0 { // its own turns are let in
		g := &c.groups[session-1]
		for prov := range g.live {
			if store.Provenance(prov) < q.Floor {
				e.floor -= int(g.live[prov])
			} else {
				e.turns -= int(g.turns[prov])
			}
		}
	}
	return e
}

// idBytes returns the id of an artefact, borrowed from the arena: valid while the caller holds mu.
func (c *catalogue) idBytes(num uint32) []byte {
	return c.idOf(c.art(uint64(num)))
}

// idList is the artefacts of a scope by id, for listings. It is sorted when a listing asks and it
// has grown since. So a scope that is never listed costs four bytes a key, and a listing of many
// pages sorts once.
//
// Readers hold slices of it without a lock, so a slice that was handed out is never changed:
// sorted, merged and remove make new ones.
type idList struct {
	mu   sync.Mutex // readers of the catalogue sort; a leaf
	arts []uint32
	done int // how many are in order

	byAge []uint32 // by the commit of their newest version, latest first; valid at LSN aged
	aged  uint64
}

// all returns the artefacts in no particular order. The slice must not be changed.
func (l *idList) all() []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arts
}

// add appends a new artefact. The caller holds mu of the catalogue for writing, so no reader sorts
// meanwhile.
func (l *idList) add(art uint64) { l.arts = append(l.arts, uint32(art)) }

// sorted returns the artefacts in order. New ones are sorted apart and merged, so that listings
// between writes cost one copy.
func (l *idList) sorted(c *catalogue) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == len(l.arts) {
		return l.arts
	}
	byID := func(a, b uint32) int { return bytes.Compare(c.idBytes(a), c.idBytes(b)) }
	fresh := slices.Clone(l.arts[l.done:])
	slices.SortFunc(fresh, byID)
	l.arts = merged(l.arts[:l.done], fresh, byID)
	l.done = len(l.arts)
	return l.arts
}

// merged is a new slice: readers may hold the old one.
func merged(a, b []uint32, compare func(a, b uint32) int) []uint32 {
	out := make([]uint32, 0, len(a)+len(b))
	for _, x := range b {
		at, _ := slices.BinarySearchFunc(a, x, compare)
		out = append(append(out, a[:at]...), x)
		a = a[at:]
	}
	return append(out, a...)
}
