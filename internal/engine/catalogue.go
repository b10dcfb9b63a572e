package engine

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Every artefact and page version is a column in memory: a question looks at thousands of pages and
// may read none of their rows. A column has what a question asks of every page; texts, tags and the
// rest stay in the rows.
//
//	arts     by number; in newest, many and retired what few have: a newest version that differs from page 1, more pages, what supersedes it
//	pages    by number, also ended ones; in rare when they end, and which page answers for them; in wide large numbers
//	table    open addressing from (scope, id) to the number of an artefact; ids lie in one arena (keys)
//	classes  by scope and provenance: counts, and the lists of recent and expiring pages
//	groups   members in the order of Seq
//
// A page goes through these states, and never back but from retired to current:
//
//	current   end 0; link has entered it into the lists
//	retired   end 0, but another artefact supersedes its own: in no list of recent pages; a put makes the artefact current again
//	ended     end is the LSN of the version that no longer has it; next answers for it
//	gone      gc dropped every version that had it; the column keeps its place, because the past asks for it
//	empty     art 0: gc forgot its artefact; the number is never used again
//
// A page is current while end is 0 and its artefact is not superseded. link enters a current page
// into the lists, unlink takes it out. Code that changes what a list depends on (by, group, expiry,
// provenance) calls unlink before and link after.
//
// mu guards all of it. It comes after the tail of the log and sequencer.flight, and is not taken
// inside a snapshot of the rows, except by a check, which keeps checkpoints away. Writers are the
// installer and redo. A question takes it for writing only to sweep.
//
// Columns are in the order of their numbers and numbers are never reused, so a number that a reader
// still holds can be stale but never means another page.

// catalogue knows every page of the database: a column of plain numbers for each, without pointers,
// so that a million pages cost the garbage collector nothing. It is rebuilt at open from the head
// rows of bbolt and the redo of the log, and changed only by install, in LSN order. mu is never
// held while code of the host runs.
//
// The sizes of artCol and pageCol matter: every artefact and every page version that
// was ever written has one, also when it ended long ago. Eight bytes more in pageCol are eight
// megabytes for a million page versions. So numbers of artefacts, pages and groups have 32 bits
// (mostNumber), and what most rows do not have is kept apart (many, retired, rare, wide, newest).
//
// Numbers begin at 1, so that 0 can say "none" in a field, in a map and in the table. A column is
// therefore at its number minus one; art and page do the subtraction.
type catalogue struct {
	mu      sync.RWMutex
	lsn     uint64
	scopes  scopeTable
	byName  map[string]uint32
	arts    chunked[artCol]
	newest  chunked[newestCol]     // by artCol.newest
	history chunked[uint8]         // beside arts, whose rows have no byte left: the fields that any version ever had (facts.go)
	pages   chunked[pageCol]       // art 0: there is none
	rare    chunked[rareCol]       // by pageCol.rare-1
	wide    map[uint32]pageNumbers // by pageCol.rare: numbers that a column has no room for
	grouped bits                   // by number: the artefact of the page has a group
	current bits                   // by number: the page is live and no other artefact supersedes its own
	facts   facts
	periods []period // by number / blockPages
	sieves  sieves
	many    map[uint32][]uint32   // by artefact of several pages: those of its newest version
	retired map[uint32]succession // by artefact that another one supersedes
	groups  []groupCol            // by number-1
	keys    []byte                // arena of ids
	table   []uint32              // open addressing: art numbers by hash of (scope, id)
	used    int
	named   map[artKey]uint64   // groups by scope and name
	sums    map[artKey][]uint64 // by the artefact summarised: artefacts that were a summary of it once

	live      int // artefacts
	livePages int
	versions  int
	dropped   int // page versions that gc dropped
}

// artKey names an artefact or a group of a scope.
type artKey struct {
	scope uint32
	id    string
}

// scopeCol is a scope. arts counts its live artefacts.
type scopeCol struct {
	name          string
	classes       [provenances]*class // nil: no page of it was ever live; see class and ownClass
	unconditional []uint64            // pinned and system pages: candidates for every question
	arts          int
	sourced       uint64 // the LSN of the last change of an artefact that has or had a source
	byID          idList

	uses []use // of all stored page versions, by kind; kinds at the end that it never had are left out
}

// noClass stands for a class without pages. It is never written to.
var noClass class

// class returns a class to read. Most scopes have one or two: a hundred thousand scopes with all of them take 60 MiB more.
func (s *scopeCol) class(prov int) *class {
	if cl := s.classes[prov]; cl != nil {
		return cl
	}
	return &noClass
}

// ownClass returns a class to change.
func (s *scopeCol) ownClass(prov store.Provenance) *class {
	if s.classes[prov] == nil {
		s.classes[prov] = &class{}
	}
	return s.classes[prov]
}

// use returns what the scope holds of a kind, to change.
func (s *scopeCol) use(kind int) *use {
	if n := kind + 1 - len(s.uses); n > 0 {
		s.uses = slices.Clip(append(s.uses, make([]use, n)...))
	}
	return &s.uses[kind]
}

// class is the live pages of one scope and provenance. Its counts let a question say how many pages
// a rule left out without a look at them.
//
// A page moves between n and retired when its artefact is superseded or put again.
type class struct {
	n       int        // those that no other artefact supersedes
	recent  sortedList // of n by current-as-of, without turns (their session lists them) and without what expired up to swept
	expiry  sortedList // those of n that expire, by expiry
	swept   int64      // microseconds; see sweep
	retired int32      // live pages of artefacts that another artefact supersedes
	turns   int32      // those of n that only their own session may see
}

// groupCol is a group: a conversation, a file, or the pages of one artefact.
type groupCol struct {
	scope   uint32
	name    string
	members []uint32 // live pages by (seq, artefact, page)
	moved   uint64   // the LSN of the last commit that did more than append members
	// By provenance: how many members no other artefact supersedes, and how many of these are
	// turns.
	live, turns [provenances]uint32
	recent      *[provenances]sortedList // the turns, by current-as-of; nil: there never was one
}

// noTurns stands for recent in a group without turns. It is never written to.
var noTurns [provenances]sortedList

// turnsOf returns the turns of a group to read.
func (g *groupCol) turnsOf() *[provenances]sortedList {
	if g.recent == nil {
		return &noTurns
	}
	return g.recent
}

func newCatalogue() *catalogue {
	return &catalogue{byName: map[string]uint32{}, many: map[uint32][]uint32{}, retired: map[uint32]succession{}, wide: map[uint32]pageNumbers{}, named: map[artKey]uint64{}, sums: map[artKey][]uint64{}, table: make([]uint32, 64)}
}

// reserve sizes the table of ids for that many artefacts. It is for a catalogue that is still
// empty: the table is replaced without moving its entries.
func (c *catalogue) reserve(arts uint64) {
	for 4*(arts+1) > 3*uint64(len(c.table)) {
		c.table = make([]uint32, 2*len(c.table))
	}
}

// addScope enters a scope under its number. A gap before it stays nil: gc dropped the names of such
// scopes. A scope that is there already keeps its counts.
func (c *catalogue) addScope(num uint32, name string) {
	c.scopes.grow(int(num))
	if c.scopes.name(num) == "" {
		c.scopes.cols[num-1].Store(&scopeCol{name: name})
	}
	c.byName[name] = num
}

// addGroup enters a group under its number. Group numbers have gaps where gc forgot artefacts that had a
// group of their own pages; such a column has scope 0 and no name.
func (c *catalogue) addGroup(num uint64, scope uint32, name string) {
	for uint64(len(c.groups)) < num {
		c.groups = append(c.groups, groupCol{})
	}
	c.groups[num-1].scope, c.groups[num-1].name = scope, name
	c.named[artKey{scope, name}] = num
}

// scopeName returns the name of a scope; "": the number is not in use, or gc dropped the name.
func (c *catalogue) scopeName(num uint32) string {
	if num == 0 || int(num) > len(c.scopes.cols) {
		return ""
	}
	return c.scopes.name(num)
}

// names returns the names of the scope and the group of a row.
func (c *catalogue) names(t *format.Hot) (scope, group string) {
	if t.Group != 0 && t.Group <= uint64(len(c.groups)) {
		group = c.groups[t.Group-1].name
	}
	return c.scopeName(t.Scope), group
}

// namesOf is names for a caller that does not hold cat.mu.
func (s *Engine) namesOf(t *format.Hot) (scope, group string) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.names(t)
}

// chain returns the numbers of the scopes that exist, nearest first.
func (c *catalogue) chain(scopes store.Scopes) []uint32 {
	return c.appendChain(make([]uint32, 0, len(scopes)), scopes)
}

// appendChain is chain in the memory of nums. Scopes that were never written to have no number and
// are left out.
func (c *catalogue) appendChain(nums []uint32, scopes store.Scopes) []uint32 {
	for _, s := range scopes {
		if n := c.byName[s]; n != 0 {
			nums = append(nums, n)
		}
	}
	return nums
}

// keyHash is the place of (scope, id) in the table. It decides nothing but places in memory and in
// a snapshot of the columns, so an attacker who makes ids collide only slows lookups down.
func keyHash(scope uint32, id string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(scope))
	d.WriteString(id)
	return d.Sum64()
}

// lookup returns the number of the artefact with a key; 0: none.
func (c *catalogue) lookup(scope uint32, id string) uint64 {
	id = store.Canonical(id)
	mask := uint64(len(c.table) - 1)
	for i := keyHash(scope, id) & mask; c.table[i] != 0; i = (i + 1) & mask {
		a := c.art(uint64(c.table[i]))
		if a.scope == scope && a.idLen() == len(id) && string(c.idOf(a)) == id {
			return uint64(c.table[i])
		}
	}
	return 0
}

// addKey enters the id of a new artefact: into the arena, into the table, which is at most three
// quarters full, and into the list of its scope.
func (c *catalogue) addKey(num uint64, scope uint32, id string) {
	if 4*(c.used+1) > 3*len(c.table) {
		c.grow()
	}
	a := c.art(num)
	a.scope = scope
	a.setIDAt(uint64(len(c.keys)))
	a.setIDLen(len(id))
	c.keys = append(c.keys, id...)
	c.place(num, keyHash(scope, id))
	c.scope(scope).byID.add(num)
	c.used++
}

// place puts a number into the first free place at or after the one of its hash. The key must not
// be in the table yet.
func (c *catalogue) place(num, hash uint64) {
	mask := uint64(len(c.table) - 1)
	i := hash & mask
	for c.table[i] != 0 {
		i = (i + 1) & mask
	}
	c.table[i] = uint32(num)
}

// grow doubles the table and places every artefact anew. A column without an id is a number that gc
// forgot.
func (c *catalogue) grow() {
	c.table = make([]uint32, 2*len(c.table))
	for num, a := range c.arts.all() {
		if a.idLen() > 0 {
			c.place(num, keyHash(a.scope, c.id(a)))
		}
	}
}

// install makes a head the newest version of its artefact. Heads of one artefact come in the order
// of their versions.
//
// The order of its steps keeps the lists right. The old pages are unlinked first, while the
// artefact still has the group, expiry and provenance by which link entered them. Then the artefact
// and its pages change, the old pages that do not continue are ended, and the new ones are linked.
// A page that continues is unlinked and linked again: its head may have moved it to another list.
func (c *catalogue) install(t *format.Hot, rows []store.PageRow) {
	c.growArts(int(t.Art))
	a := c.art(t.Art)
	if a.idLen() == 0 {
		c.addKey(t.Art, t.Scope, string(t.ID))
	}
	prev, was := slices.Clone(c.nums(t.Art)), before{fresh: c.newestOf(a).version == 0, group: a.group}
	if len(prev) > 0 {
		was.subject = c.subjectOf(a)
	}
	for _, n := range prev {
		c.unlink(uint64(n))
	}
	if wasLive := len(prev) > 0; wasLive != (len(rows) > 0) {
		d := 1
		if wasLive {
			d = -1
		}
		c.live += d
		c.scope(t.Scope).arts += d
	}
	if (a.flags|t.Flags)&format.FlagSourced != 0 {
		c.scope(t.Scope).sourced = max(c.scope(t.Scope).sourced, t.LSN)
	}
	ended := t.LSN
	if a.retired() { // it did not answer any more
		ended = c.succession(t.Art).since
	}
	// A put after a supersession is newer than it: the artefact is current again.
	if a.retired() {
		c.setSuccession(t.Art, succession{})
	}
	a.flags, a.group = t.Flags, uint32(t.Group)
	c.setNums(t.Art, rows)
	for i := range rows {
		c.setPage(t, &rows[i], uint32(i+1))
	}
	c.setNewest(a, newestCol{t.LSN, t.PutAt, t.Version})
	if len(prev) > 0 {
		c.endPages(ended, prev, rows)
	}
	for i := range rows {
		c.link(rows[i].Num)
	}
	if *c.history.at(t.Art - 1) |= t.Ever; !was.fresh || t.Facts != 0 {
		c.note(t, was)
	}
}

// addSummary notes what a summary stands for, if that is one artefact. Notes are never taken back:
// who reads them looks at the summary as it is.
func (c *catalogue) addSummary(t *format.Hot, from []store.Ref) {
	if t.Kind != store.KindSummary || len(from) != 1 {
		return
	}
	k := artKey{c.byName[from[0].Scope], from[0].ID}
	if !slices.Contains(c.sums[k], t.Art) {
		c.sums[k] = append(c.sums[k], t.Art)
	}
}

// setPage fills the column of a page version from a head and one of its page rows. A page that
// continues in a new version keeps its number, so its column is filled again with the fields of the
// new head. The page of a version without content (gone) gets a column only if no version before it
// had the page.
func (c *catalogue) setPage(t *format.Hot, r *store.PageRow, page uint32) {
	c.pages.grow(int(r.Num))
	p := c.page(r.Num)
	if t.Flags&format.FlagGone != 0 {
		if p.art == 0 { // otherwise an older version has it, which stays or is gone as well
			c.setGone(p, t, r, page)
			c.dropped++
		}
		return
	}
	if p.gone() {
		c.dropped--
	}
	if p.art == 0 || p.gone() {
		c.versions++
	} else {
		c.account(p, -1)
	}
	c.setPageCol(p, pageCol{art: uint32(t.Art), asOf: t.AsOf, scope: t.Scope, kind: t.Kind, prov: t.Provenance, flags: t.Flags, facts: t.Facts},
		pageNumbers{r.LSN, t.Seq, page, r.Version, t.Version, r.Tokens, r.Bytes})
	if p.rare != 0 || t.Expires != 0 {
		c.setRare(p, rareCol{expires: t.Expires})
	}
	c.account(p, 1)
	if p.asOf == 0 {
		p.asOf = t.PutAt
	}
	c.grouped.set(r.Num, t.Group != 0)
	c.date(r.Num, p.asOf, t.PutAt)
}

// endPages closes the page versions that the new head no longer has, as of an LSN, and names their
// successors: the page in the same place, or the last one if the artefact got shorter.
func (c *catalogue) endPages(lsn uint64, prev []uint32, rows []store.PageRow) {
	for i, n := range prev {
		num := uint64(n)
		if i < len(rows) && rows[i].Num == num {
			continue
		}
		if slices.ContainsFunc(rows, func(r store.PageRow) bool { return r.Num == num }) {
			continue
		}
		p := c.page(num)
		r := *c.rareOf(p)
		r.end = lsn
		if len(rows) > 0 {
			r.next = uint32(rows[min(i, len(rows)-1)].Num)
		}
		c.setRare(p, r)
	}
}

// supersede retires an artefact in favour of another one of its scope, written with it or after it.
// This holds until the retired one is put again, even if its successor is deleted: a superseded
// artefact does not come back by itself.
func (c *catalogue) supersede(num, by, lsn uint64) {
	for _, n := range c.nums(num) {
		c.unlink(uint64(n))
	}
	a, s := c.art(num), c.succession(num)
	if s.by == 0 {
		s.since = lsn
	}
	s.by = uint32(by)
	c.setSuccession(num, s)
	if a.flags&format.FlagSourced != 0 {
		c.scope(a.scope).sourced = max(c.scope(a.scope).sourced, lsn)
	}
	for _, n := range c.nums(num) {
		c.link(uint64(n))
	}
}

// isCurrent reports whether such an artefact exists, is not deleted, and is not superseded.
//
// The caller holds mu.
func (c *catalogue) isCurrent(scope uint32, id string) bool {
	num := c.lookup(scope, id)
	return num != 0 && !c.art(num).retired() && c.art(num).flags&format.FlagDeleted == 0
}

// supersededBy returns the id of the artefact that supersedes one; "": none does.
func (c *catalogue) supersededBy(art uint64) string {
	by := c.succession(art).by
	if by == 0 {
		return ""
	}
	return c.id(c.art(uint64(by)))
}

// link enters a live page into the lists of its class and group; unlink takes it out.
func (c *catalogue) link(num uint64) {
	p := c.page(num)
	s := c.scope(p.scope)
	cl := s.ownClass(p.prov)
	c.livePages++
	if p.retired = c.art(uint64(p.art)).retired(); p.retired {
		cl.retired++
	} else {
		cl.n++
		c.current.set(num, true)
		c.sieves.enter(c, num)
		if c.listed(p, cl) {
			cl.recent.insert(p.asOf, num)
		}
		if c.art(uint64(p.art)).group != 0 {
			c.countTurn(num, p, cl, 1)
		}
		if at := c.expires(p); at != 0 {
			cl.expiry.insert(at, num)
		}
		if p.unconditional() {
			s.unconditional = append(s.unconditional, num)
		}
	}
	if g := c.art(uint64(p.art)).group; g != 0 {
		if m, at, found := c.member(g, num); !found {
			*m = slices.Insert(*m, at, uint32(num))
		}
	}
}

// listed reports whether a page belongs in the recent list of its class.
func (c *catalogue) listed(p *pageCol, cl *class) bool {
	at := c.expires(p)
	return !c.ownTurn(p) && (at == 0 || at > cl.swept)
}

// Expired pages that may stay in the lists of recent pages: those that expired in the last minute,
// so that clocks that differ a little do not move pages back and forth, and a number too small to
// be worth a write lock.
const (
	sweepAfter = int64(time.Minute / time.Microsecond)
	sweepMany  = 256
)

// unswept reports whether the chain's lists of recent pages do not suit a question at a time: pages
// are missing that have not expired by then, or many are left that have.
func (c *catalogue) unswept(chain []uint32, now int64) bool {
	for _, n := range chain {
		s := c.scope(n)
		for prov := range s.classes {
			cl := s.class(prov)
			if len(cl.expiry.chunks) == 0 {
				continue
			}
			gone := cl.expiry.upTo(cl.swept)
			if now < cl.swept && gone > cl.expiry.upTo(now) || cl.expiry.upTo(now-sweepAfter)-gone > sweepMany {
				return true
			}
		}
	}
	return false
}

// sweep takes pages that expired a while before now out of the lists of recent pages, which every
// question walks. If the clock went backwards, it puts back those that have not expired by now. A
// page is moved once in its life otherwise.
func (c *catalogue) sweep(chain []uint32, now int64) {
	for _, n := range chain {
		for _, cl := range c.scope(n).classes {
			if cl == nil {
				continue
			}
			from, to := cl.swept, now-sweepAfter
			cl.swept = to
			cl.expiry.between(min(from, to), max(from, to), func(num uint64) {
				switch p := c.page(num); {
				case c.ownTurn(p):
				case to > from:
					cl.recent.remove(p.asOf, num)
				default:
					cl.recent.insert(p.asOf, num)
				}
			})
		}
	}
}

// countTurn keeps the counts and lists of the turns that only their own session may see. The page is
// in a group. d is 1 or -1.
func (c *catalogue) countTurn(num uint64, p *pageCol, cl *class, d int) {
	g := &c.groups[c.art(uint64(p.art)).group-1]
	g.live[p.prov] += uint32(d) // it wraps around: -1 takes one away
	if !c.ownTurn(p) {
		return
	}
	cl.turns += int32(d)
	if g.recent == nil {
		g.recent = new([provenances]sortedList)
	}
	if g.turns[p.prov] += uint32(d); d > 0 {
		g.recent[p.prov].insert(p.asOf, num)
	} else {
		g.recent[p.prov].remove(p.asOf, num)
	}
}

// ownTurn reports whether an agent or a tool said the page in a conversation. It is visible
// there only, until it has passed the gate.
func (c *catalogue) ownTurn(p *pageCol) bool {
	if p.kind != store.KindMessage || p.prov > store.Tool || c.exemptFromRules(p) {
		return false
	}
	g := c.art(uint64(p.art)).group
	return g != 0 && !strings.HasPrefix(c.groups[g-1].name, "\x00") // the pages of an artefact alone are no conversation
}

// unlink takes a live page out of the lists that link entered it into. It must see the same expiry,
// provenance and group as link did, or an entry is left behind.
func (c *catalogue) unlink(num uint64) {
	p := c.page(num)
	s := c.scope(p.scope)
	cl := s.ownClass(p.prov)
	c.livePages--
	if p.retired {
		p.retired = false
		cl.retired--
	} else {
		cl.n--
		c.current.set(num, false)
		c.sieves.leave(num)
		if c.listed(p, cl) {
			cl.recent.remove(p.asOf, num)
		}
		if c.art(uint64(p.art)).group != 0 {
			c.countTurn(num, p, cl, -1)
		}
		if at := c.expires(p); at != 0 {
			cl.expiry.remove(at, num)
		}
		if p.unconditional() {
			s.unconditional = slices.DeleteFunc(s.unconditional, func(n uint64) bool { return n == num })
		}
	}
	if g := c.art(uint64(p.art)).group; g != 0 {
		if m, at, found := c.member(g, num); found {
			*m = slices.Delete(*m, at, at+1)
		}
	}
}

// member returns the place of a page in a group that is about to change.
func (c *catalogue) member(group uint32, num uint64) (members *[]uint32, at int, found bool) {
	g := &c.groups[group-1]
	if at, found = slices.BinarySearchFunc(g.members, uint32(num), c.compareMembers); at < len(g.members) {
		g.moved = c.lsn + 1 // the commit that is being installed
	}
	return &g.members, at, found
}

// compareMembers orders the members of a group: by Seq, then by artefact, page and number.
func (c *catalogue) compareMembers(a, b uint32) int {
	x, y := c.page(uint64(a)), c.page(uint64(b))
	m, n := c.numbers(x), c.numbers(y)
	return cmp.Or(cmp.Compare(m.seq, n.seq), cmp.Compare(x.art, y.art), cmp.Compare(m.page, n.page), cmp.Compare(a, b))
}

// account adds a page version to what its scope holds, or with n -1 takes it away.
func (c *catalogue) account(p *pageCol, n int) {
	if p.art == 0 || p.gone() || p.scope == 0 {
		return
	}
	u := c.scope(p.scope).use(min(int(p.kind), len(store.KindNames)-1))
	u.pages += n
	u.bytes += int64(n) * int64(c.numbers(p).bytes)
}

// highest returns the numbers given so far: the lengths of the tables, because no number is ever
// taken back.
func (c *catalogue) highest() highest {
	return highest{uint64(c.arts.len()), uint64(c.pages.len()), uint64(len(c.groups)), uint64(len(c.scopes.cols))}
}
