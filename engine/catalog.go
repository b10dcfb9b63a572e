package engine

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/store"
)

// Every artefact and page version as a column in memory: a question looks at thousands of pages and may read none of
// their rows. A column has what a question asks of every page; texts, tags and the rest stay in the rows.
//
//	arts     by number; the newest version and what supersedes it
//	pages    by number, also those that ended: end and next say when, and which page answers for it
//	table    open addressing from (scope, id) to the number of an artefact; ids lie in one arena (keys)
//	classes  by scope and provenance: counts and the lists of recent and expiring pages
//	groups   members in the order of Seq
//
// A page is current while end is 0 and its artefact is not superseded. link enters a current page into the lists, unlink
// takes it out; whoever changes what a list depends on (by, group, expiry, provenance) calls unlink before and link after.
//
// mu guards all of it. It comes after the tail of the log and sequencer.flight, and is not taken inside a snapshot of the
// rows, but by a check, which keeps checkpoints away. Writers are the installer and redo; a question takes it for writing
// only to sweep.

// catalogue knows every page of the database: a column of plain numbers for each, no pointers, so that a million
// pages are nothing to the garbage collector. It is rebuilt on open from the head rows of bbolt and the redo of the
// log, and changed only by install, in LSN order. mu is never held while anything of the host's runs.
type catalogue struct {
	mu      sync.RWMutex
	lsn     uint64
	scopes  []scopeCol // by number-1
	byName  map[string]uint32
	arts    []artCol  // by number-1
	pages   []pageCol // by number-1; art 0: there is none
	grouped bits      // by number: pages whose artefact has a group
	current bits      // by number: live pages that no other artefact supersedes
	facts   facts
	periods []period // by number / blockPages
	sieves  sieves
	many    map[uint64][]uint64
	groups  []groupCol // by number-1
	keys    []byte     // arena of ids
	table   []uint32   // open addressing: art numbers by hash of (scope, id)
	used    int
	named   map[artKey]uint64   // groups by scope and name
	sums    map[artKey][]uint64 // by what they derive from: artefacts that once were a summary of it

	live      int // artefacts
	livePages int
	versions  int
	dropped   int // page versions that are gone
	unproved  int // versions of artefacts in the file whose rows have no digest in the audit
}

type artKey struct {
	scope uint32
	id    string
}

type scopeCol struct {
	name          string
	classes       [int(store.HumanVerified) + 1]class
	unconditional []uint64 // pinned and system pages: candidates whatever the question
	arts          int
	sourced       uint64 // LSN of the last change of an artefact that has, or had, a source
	byID          *idList
}

// class is the live pages of one scope and provenance.
type class struct {
	n       int        // those that no other artefact supersedes
	recent  sortedList // of n by current-as-of, without turns (their session has them) and what expired up to swept
	expiry  sortedList // of n those that expire
	swept   int64      // see sweep
	retired int        // live pages of artefacts that another artefact supersedes
	turns   int        // of n those that only their own session may see
}

type artCol struct {
	keyAt   uint64
	lsn     uint64
	first   uint64 // number of page 1; the rest in many
	group   uint64
	by      uint64 // artefact that supersedes it
	since   uint64 // LSN from which an artefact does, which may have been another one first
	putAt   int64
	scope   uint32
	version uint32
	pages   uint32
	keyLen  uint16
	flags   uint8
}

// pageCol is a page version. What a query looks at of every page that it hits stands first, and nothing of its artefact
// is among that: another place in memory would be another miss.
type pageCol struct {
	art     uint64
	end     uint64 // LSN that ended it; 0: current
	expires int64
	scope   uint32
	kind    store.Kind
	prov    store.Provenance
	flags   uint8
	retired bool // current, but another artefact supersedes its own
	lsn     uint64
	next    uint64 // page that answers for it; 0: none
	asOf    int64
	seq     int64
	page    uint32
	version uint32 // of the artefact in which it appeared
	head    uint32 // newest version of the artefact that has it
	tokens  uint32
	facts   uint32 // see type facts
}

// gone says that gc dropped every version that had the page. The column keeps its place: what it was followed by, from
// when to when it stood, and of what it was a page.
func (p *pageCol) gone() bool { return p.flags&FlagGone != 0 }

// unconditional says that a page is a candidate whatever a question says: it is pinned, or of kind system.
func (p *pageCol) unconditional() bool { return p.flags&flagPinned != 0 || p.kind == store.KindSystem }

type groupCol struct {
	scope   uint32
	name    string
	members []uint64 // live pages by (seq, artefact, page)
	moved   uint64   // LSN of the last commit that did more to them than add some at the end
	// By provenance: those of members that no other artefact supersedes, and of these the turns.
	live, turns [int(store.HumanVerified) + 1]int
	recent      [int(store.HumanVerified) + 1]sortedList // of the turns by current-as-of
}

func newCatalogue() *catalogue {
	return &catalogue{byName: map[string]uint32{}, many: map[uint64][]uint64{}, named: map[artKey]uint64{}, sums: map[artKey][]uint64{}, table: make([]uint32, 64)}
}

// bits is a set of page numbers. A query asks it of every page that it hits: a bit a page stays in the processor's cache
// where the columns do not.
type bits []uint64

func (b *bits) set(num uint64, in bool) {
	for uint64(len(*b)) <= num/64 {
		*b = append(*b, 0)
	}
	if in {
		(*b)[num/64] |= 1 << (num % 64)
	} else {
		(*b)[num/64] &^= 1 << (num % 64)
	}
}

func (b bits) has(num uint64) bool { return num/64 < uint64(len(b)) && b[num/64]&(1<<(num%64)) != 0 }

// reserve allocates columns for so many artefacts and page versions.
func (c *catalogue) reserve(arts, pages uint64) {
	c.arts = slices.Grow(c.arts, int(arts))
	c.pages = slices.Grow(c.pages, int(pages))
	for 4*(arts+1) > 3*uint64(len(c.table)) {
		c.table = make([]uint32, 2*len(c.table))
	}
}

func (c *catalogue) addScope(num uint32, name string) {
	for len(c.scopes) < int(num) {
		c.scopes = append(c.scopes, scopeCol{byID: &idList{}})
	}
	c.scopes[num-1].name = name
	c.byName[name] = num
}

func (c *catalogue) addGroup(num uint64, scope uint32, name string) {
	for uint64(len(c.groups)) < num {
		c.groups = append(c.groups, groupCol{})
	}
	c.groups[num-1].scope, c.groups[num-1].name = scope, name
	c.named[artKey{scope, name}] = num
}

func (c *catalogue) scopeName(num uint32) string {
	if num == 0 || int(num) > len(c.scopes) {
		return ""
	}
	return c.scopes[num-1].name
}

// names are what the numbers in a row stand for.
func (c *catalogue) names(t *hot) (scope, group string) {
	if t.group != 0 && t.group <= uint64(len(c.groups)) {
		group = c.groups[t.group-1].name
	}
	return c.scopeName(t.Scope), group
}

func (s *Engine) namesOf(t *hot) (scope, group string) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.names(t)
}

// chain gives the numbers of the scopes that exist, nearest first.
func (c *catalogue) chain(scopes store.Scopes) []uint32 {
	return c.appendChain(make([]uint32, 0, len(scopes)), scopes)
}

func (c *catalogue) appendChain(nums []uint32, scopes store.Scopes) []uint32 {
	for _, s := range scopes {
		if n := c.byName[s]; n != 0 {
			nums = append(nums, n)
		}
	}
	return nums
}

func (c *catalogue) art(num uint64) *artCol   { return &c.arts[num-1] }
func (c *catalogue) page(num uint64) *pageCol { return &c.pages[num-1] }

func (c *catalogue) id(a *artCol) string {
	return string(c.keys[a.keyAt : a.keyAt+uint64(a.keyLen)])
}

func keyHash(scope uint32, id string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(scope))
	d.WriteString(id)
	return d.Sum64()
}

// lookup finds an artefact by its key; 0: none.
func (c *catalogue) lookup(scope uint32, id string) uint64 {
	mask := uint64(len(c.table) - 1)
	for i := keyHash(scope, id) & mask; c.table[i] != 0; i = (i + 1) & mask {
		a := c.art(uint64(c.table[i]))
		if a.scope == scope && int(a.keyLen) == len(id) && string(c.keys[a.keyAt:a.keyAt+uint64(a.keyLen)]) == id {
			return uint64(c.table[i])
		}
	}
	return 0
}

func (c *catalogue) addKey(num uint64, scope uint32, id string) {
	if 4*(c.used+1) > 3*len(c.table) {
		c.grow()
	}
	a := c.art(num)
	a.scope, a.keyAt, a.keyLen = scope, uint64(len(c.keys)), uint16(len(id))
	c.keys = append(c.keys, id...)
	c.place(num, keyHash(scope, id))
	c.scopes[scope-1].byID.add(num)
	c.used++
}

func (c *catalogue) place(num, hash uint64) {
	mask := uint64(len(c.table) - 1)
	i := hash & mask
	for c.table[i] != 0 {
		i = (i + 1) & mask
	}
	c.table[i] = uint32(num)
}

func (c *catalogue) grow() {
	c.table = make([]uint32, 2*len(c.table))
	for i := range c.arts {
		if a := &c.arts[i]; a.keyLen > 0 {
			c.place(uint64(i+1), keyHash(a.scope, c.id(a)))
		}
	}
}

// nums gives the pages of an artefact's newest version. The slice is the catalogue's own.
func (c *catalogue) nums(num uint64) []uint64 {
	a := c.art(num)
	if a.pages > 1 {
		return c.many[num]
	}
	if a.pages == 1 {
		return []uint64{a.first}
	}
	return nil
}

// install makes a head the newest version of its artefact. Heads of one artefact come in the order of their versions.
func (c *catalogue) install(t *hot, rows []store.PageRow) {
	for uint64(len(c.arts)) < t.Art {
		c.arts = append(c.arts, artCol{})
	}
	a := c.art(t.Art)
	if a.keyLen == 0 {
		c.addKey(t.Art, t.Scope, string(t.id))
		a = c.art(t.Art)
	}
	prev := slices.Clone(c.nums(t.Art))
	for _, n := range prev {
		c.unlink(n)
	}
	if wasLive := len(prev) > 0; wasLive != (len(rows) > 0) {
		d := 1
		if wasLive {
			d = -1
		}
		c.live += d
		c.scopes[t.Scope-1].arts += d
	}
	if (a.flags|t.Flags)&flagSourced != 0 {
		c.scopes[t.Scope-1].sourced = max(c.scopes[t.Scope-1].sourced, t.lsn)
	}
	ended := t.lsn
	if a.by != 0 { // it did not answer any more
		ended = a.since
	}
	// A put after a supersession is newer than it: the artefact is current again.
	a.version, a.lsn, a.flags, a.group, a.putAt, a.by, a.since = t.Version, t.lsn, t.Flags, t.group, t.putAt, 0, 0
	c.setNums(t.Art, rows)
	for i := range rows {
		c.setPage(t, &rows[i], uint32(i+1))
	}
	c.end(ended, prev, rows)
	for i := range rows {
		c.link(rows[i].Num)
	}
}

// addSummary notes what a summary stands for, if that is one artefact. Notes are never taken back: who reads them looks
// at the summary as it is.
func (c *catalogue) addSummary(t *hot, from []store.Ref) {
	if t.kind != store.KindSummary || len(from) != 1 {
		return
	}
	k := artKey{c.byName[from[0].Scope], from[0].ID}
	if !slices.Contains(c.sums[k], t.Art) {
		c.sums[k] = append(c.sums[k], t.Art)
	}
}

func (c *catalogue) setNums(art uint64, rows []store.PageRow) {
	a := c.art(art)
	delete(c.many, art)
	a.pages, a.first = uint32(len(rows)), 0
	if len(rows) > 0 {
		a.first = rows[0].Num
	}
	if len(rows) > 1 {
		nums := make([]uint64, len(rows))
		for i := range rows {
			nums[i] = rows[i].Num
		}
		c.many[art] = nums
	}
}

func (c *catalogue) setPage(t *hot, r *store.PageRow, page uint32) {
	for uint64(len(c.pages)) < r.Num {
		c.pages = append(c.pages, pageCol{})
	}
	p := c.page(r.Num)
	if t.Flags&FlagGone != 0 {
		if p.art == 0 { // else an older version has it, which stays or is gone as well
			*p = goneCol(t.Art, t.Scope, r, page)
			c.dropped++
		}
		return
	}
	if p.gone() {
		c.dropped--
	}
	if p.art == 0 || p.gone() {
		c.versions++
	}
	*p = pageCol{
		art: t.Art, lsn: r.LSN, asOf: t.asOf, expires: t.expires, seq: t.seq, page: page, version: r.Version, head: t.Version,
		tokens: r.Tokens, scope: t.Scope, kind: t.kind, prov: t.provenance, flags: t.Flags, facts: t.facts,
	}
	if p.asOf == 0 {
		p.asOf = t.putAt
	}
	c.grouped.set(r.Num, t.group != 0)
	c.date(r.Num, p.asOf, t.putAt)
}

// end closes the page versions that the new head no longer has, as of an LSN, and names their successors: the page in the
// same place, or the last one when the artefact got shorter.
func (c *catalogue) end(lsn uint64, prev []uint64, rows []store.PageRow) {
	for i, n := range prev {
		if i < len(rows) && rows[i].Num == n {
			continue
		}
		if slices.ContainsFunc(rows, func(r store.PageRow) bool { return r.Num == n }) {
			continue
		}
		p := c.page(n)
		p.end = lsn
		if len(rows) > 0 {
			p.next = rows[min(i, len(rows)-1)].Num
		}
	}
}

// supersede retires another artefact of the scope in favour of one written after it, or with it. It holds until the retired one
// is put again, and also when its successor is deleted: what was replaced does not come back by itself.
func (c *catalogue) supersede(num, by, lsn uint64) {
	for _, n := range c.nums(num) {
		c.unlink(n)
	}
	a := c.art(num)
	if a.by == 0 {
		a.since = lsn
	}
	a.by = by
	if a.flags&flagSourced != 0 {
		c.scopes[a.scope-1].sourced = max(c.scopes[a.scope-1].sourced, lsn)
	}
	for _, n := range c.nums(num) {
		c.link(n)
	}
}

// isCurrent says whether there is such an artefact, not deleted, and no other one supersedes it.
func (c *catalogue) isCurrent(scope uint32, id string) bool {
	num := c.lookup(scope, id)
	return num != 0 && c.art(num).by == 0 && c.art(num).flags&flagDeleted == 0
}

// supersededBy is the id of the artefact that supersedes another one; "": none does.
func (c *catalogue) supersededBy(a *artCol) string {
	if a.by == 0 {
		return ""
	}
	return c.id(c.art(a.by))
}

// link enters a live page into the lists of its class and group, unlink takes it out.
func (c *catalogue) link(num uint64) {
	p := c.page(num)
	s := &c.scopes[p.scope-1]
	cl := &s.classes[p.prov]
	c.livePages++
	if p.retired = c.art(p.art).by != 0; p.retired {
		cl.retired++
	} else {
		cl.n++
		c.current.set(num, true)
		c.sieves.enter(c, num)
		if c.listed(p, cl) {
			cl.recent.insert(p.asOf, num)
		}
		c.countTurn(num, p, cl, 1)
		if p.expires != 0 {
			cl.expiry.insert(p.expires, num)
		}
		if p.unconditional() {
			s.unconditional = append(s.unconditional, num)
		}
	}
	if g := c.art(p.art).group; g != 0 {
		if m, at, found := c.member(g, num); !found {
			*m = slices.Insert(*m, at, num)
		}
	}
}

// listed says whether a page of a class is in its recent.
func (c *catalogue) listed(p *pageCol, cl *class) bool {
	return !c.ownTurn(p) && (p.expires == 0 || p.expires > cl.swept)
}

// What is left in the lists of recent pages although it expired: a while, so that clocks that are a little apart do not
// move pages to and fro, and a number that is not worth a lock.
const (
	sweepAfter = int64(time.Minute / time.Microsecond)
	sweepMany  = 256
)

// unswept says whether the chain's lists of recent pages are not as a question of a time needs them: pages are missing
// that have not expired by then (mustn't), or many are there that have.
func (c *catalogue) unswept(chain []uint32, now int64) bool {
	for _, n := range chain {
		for prov := range c.scopes[n-1].classes {
			cl := &c.scopes[n-1].classes[prov]
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

// sweep takes pages that expired a while before now out of the lists of recent ones, which every question walks, and
// puts those back that have not expired by now, when the clock went backwards. A page is moved once in its life.
func (c *catalogue) sweep(chain []uint32, now int64) {
	for _, n := range chain {
		for prov := range c.scopes[n-1].classes {
			cl := &c.scopes[n-1].classes[prov]
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

// countTurn keeps the counts and the lists of what only its own session may see.
func (c *catalogue) countTurn(num uint64, p *pageCol, cl *class, d int) {
	if c.art(p.art).group == 0 {
		return
	}
	g := &c.groups[c.art(p.art).group-1]
	g.live[p.prov] += d
	if !c.ownTurn(p) {
		return
	}
	cl.turns += d
	if g.turns[p.prov] += d; d > 0 {
		g.recent[p.prov].insert(p.asOf, num)
	} else {
		g.recent[p.prov].remove(p.asOf, num)
	}
}

// ownTurn says that a page is what an agent or a tool said in a conversation: it stays there until it has passed the gate.
func (c *catalogue) ownTurn(p *pageCol) bool {
	if p.kind != store.KindMessage || p.prov > store.Tool || c.exemptFromRules(p) {
		return false
	}
	g := c.art(p.art).group
	return g != 0 && !strings.HasPrefix(c.groups[g-1].name, "\x00") // the pages of an artefact alone are no conversation
}

func (c *catalogue) unlink(num uint64) {
	p := c.page(num)
	s := &c.scopes[p.scope-1]
	cl := &s.classes[p.prov]
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
		c.countTurn(num, p, cl, -1)
		if p.expires != 0 {
			cl.expiry.remove(p.expires, num)
		}
		if p.unconditional() {
			s.unconditional = slices.DeleteFunc(s.unconditional, func(n uint64) bool { return n == num })
		}
	}
	if g := c.art(p.art).group; g != 0 {
		if m, at, found := c.member(g, num); found {
			*m = slices.Delete(*m, at, at+1)
		}
	}
}

// member finds the place of a page in a group that is about to change.
func (c *catalogue) member(group, num uint64) (members *[]uint64, at int, found bool) {
	g := &c.groups[group-1]
	if at, found = slices.BinarySearchFunc(g.members, num, c.compareMembers); at < len(g.members) {
		g.moved = c.lsn + 1 // of the commit that is installed
	}
	return &g.members, at, found
}

func (c *catalogue) compareMembers(a, b uint64) int {
	x, y := c.page(a), c.page(b)
	return cmp.Or(cmp.Compare(x.seq, y.seq), cmp.Compare(x.art, y.art), cmp.Compare(x.page, y.page), cmp.Compare(a, b))
}
