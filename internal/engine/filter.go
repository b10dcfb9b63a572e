package engine

import (
	"bytes"
	mathbits "math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// A question with a filter gets a set of the page numbers that pass it. The index asks the set for
// every posting: one bit, where the columns of a page would cost a cache miss each. The set is made
// of
//
//	sieve     the live pages of a chain that pass the filter apart from its times: kept for the next question, and kept
//	          correct by every commit (link, unlink)
//	times     page by page, in blocks that know from when to when their pages are, so that a range of the last days
//	          looks at the last blocks only
//	exempt    system pages, and the turns of the session that asks
//	not live  pages whose words lead to a page that answers for them: Resolve finds it, and it must pass
//
// A question about the past has no set. It looks at each page that the words find.

// bits is a set of page numbers. A query asks it of every page that it hits: one bit a page stays
// in the processor's cache where the columns do not.
type bits []uint64

// set puts a number into the set or takes it out. The set grows as far as the number.
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

// has reports whether a number is in the set. Numbers beyond its length are not.
func (b bits) has(num uint64) bool { return num/64 < uint64(len(b)) && b[num/64]&(1<<(num%64)) != 0 }

// matcher decides by columns whether a page passes a filter, apart from its times. It remembers the
// answer for each combination of tags and metadata, of which there are far fewer than pages. So a
// filter on tags costs each page a look-up by number, not a comparison.
type matcher struct {
	kinds  []store.Kind
	prefix string
	asked  asked
	any    bool    // asked is not empty
	known  []uint8 // by number of facts: 0 not compared yet, 1 no, 2 yes
}

// newMatcher makes a matcher of a filter, which it does not change and of which it keeps slices.
func newMatcher(f *store.Filter) *matcher {
	m := &matcher{kinds: f.Kinds, prefix: f.IDPrefix}
	m.asked, m.any = newAsked(f)
	return m
}

// holds reports whether a page passes. It is not safe for concurrent use.
func (m *matcher) holds(c *catalogue, p *pageCol) bool {
	if len(m.kinds) > 0 && !slices.Contains(m.kinds, p.kind) {
		return false
	}
	if m.any && !m.holdFacts(c, p.facts) {
		return false
	}
	return m.prefix == "" || strings.HasPrefix(string(c.idBytes(p.art)), m.prefix)
}

// holdFacts compares a combination once, and remembers the answer under its number.
func (m *matcher) holdFacts(c *catalogue, n uint32) bool {
	if int(n) >= len(m.known) {
		m.known = append(m.known, make([]uint8, len(c.facts.at)+1-len(m.known))...)
	}
	if m.known[n] == 0 {
		m.known[n] = 1
		if m.asked.holds(c.facts.get(n)) {
			m.known[n] = 2
		}
	}
	return m.known[n] == 2
}

// sieves are the sets that were asked for last.
type sieves struct {
	mu   sync.Mutex // guards last among readers of the catalogue; a leaf
	last []*sieve   // newest last
}

// sievesKept bounds the memory of the sets, one bit a page each, and the work that they add to a
// commit.
const sievesKept = 16

// sieve is the set of the live pages of a chain that pass a filter without its times. n counts
// its pages.
type sieve struct {
	key   string
	f     *store.Filter
	chain []uint32
	match *matcher
	build sync.Once
	pages bits
	n     int
}

// sieve returns the set of a filter and a chain. The caller holds cat.mu for reading and must not
// change the set.
func (c *catalogue) sieve(f *store.Filter, chain []uint32) *sieve {
	timeless := *f
	timeless.Since, timeless.Until, timeless.WrittenSince, timeless.WrittenUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	key := timeless.JSON()
	s := c.sieves.take(key, chain, &timeless)
	s.build.Do(func() { s.fill(c) })
	return s
}

// take returns the set of a key and a chain and moves it to the end of the list. If there is none,
// it makes an empty one, and the set that was asked for longest ago goes.
func (l *sieves) take(key string, chain []uint32, f *store.Filter) *sieve {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.last, func(s *sieve) bool { return s.key == key && slices.Equal(s.chain, chain) })
	var s *sieve
	switch {
	case at >= 0:
		s = l.last[at]
		l.last = slices.Delete(l.last, at, at+1)
	default:
		if len(l.last) == sievesKept {
			l.last = slices.Delete(l.last, 0, 1)
		}
		s = newSieve(key, f, chain)
	}
	l.last = append(l.last, s)
	return s
}

// newSieve makes an empty set. It lives longer than the caller's filter, so it has a copy, parsed
// from the key.
func newSieve(key string, f *store.Filter, chain []uint32) *sieve {
	own, err := store.ParseFilter(key)
	if err != nil || own == nil { // it has times only
		own = f
	}
	return &sieve{key: key, f: own, chain: slices.Clone(chain), match: newMatcher(own)}
}

// stray returns a page that is on the wrong side of the set; 0: none. The caller holds cat.mu for
// reading.
func (s *sieve) stray(c *catalogue) uint64 {
	s.build.Do(func() { s.fill(c) })
	fresh := newSieve(s.key, s.f, s.chain)
	fresh.fill(c)
	for num := range c.pages.all() {
		if s.pages.has(num) != fresh.pages.has(num) {
			return num
		}
	}
	return 0
}

// fill looks at the pages of the chain: through the artefacts of small scopes, and at every column
// for large ones.
func (s *sieve) fill(c *catalogue) {
	var large []uint32
	for i, n := range s.chain {
		if slices.Contains(s.chain[:i], n) || c.scope(n) == nil { // nil: its name went, so nothing is in it
			continue
		}
		if arts := c.scope(n).byID.all(); 8*len(arts) > c.pages.len() {
			large = append(large, n)
		} else {
			for _, art := range arts {
				for _, num := range c.nums(uint64(art)) {
					s.enter(c, uint64(num))
				}
			}
		}
	}
	if len(large) == 0 {
		return
	}
	for num, p := range c.pages.all() {
		if c.current.has(num) && slices.Contains(large, p.scope) {
			s.enter(c, num)
		}
	}
}

// enter puts a live page of the chain into the set if it passes.
func (s *sieve) enter(c *catalogue, num uint64) {
	if p := c.page(num); c.current.has(num) && !s.pages.has(num) && s.match.holds(c, p) {
		s.pages.set(num, true)
		s.n++
	}
}

// all returns the sets that are kept.
func (l *sieves) all() []*sieve {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}

// enter and leave follow commits. The caller holds cat.mu for writing, so every set is complete.
func (l *sieves) enter(c *catalogue, num uint64) {
	for _, s := range l.last {
		if slices.Contains(s.chain, c.page(num).scope) {
			s.enter(c, num)
		}
	}
}

// leave takes a page that is no longer current out of all sets.
func (l *sieves) leave(num uint64) {
	for _, s := range l.last {
		if s.pages.has(num) {
			s.pages.set(num, false)
			s.n--
		}
	}
}

// period is from when to when the pages of a block are. It only widens.
type period struct{ asOf, put [2]int64 }

// blockPages is a multiple of 64, so that blocks are whole words of a set.
const blockPages = 1024

// date notes the times of a page in its block.
func (c *catalogue) date(num uint64, asOf, put int64) {
	at := int(num / blockPages)
	for len(c.periods) <= at {
		c.periods = append(c.periods, period{[2]int64{1<<63 - 1, -1 << 63}, [2]int64{1<<63 - 1, -1 << 63}})
	}
	b := &c.periods[at]
	b.asOf = [2]int64{min(b.asOf[0], asOf), max(b.asOf[1], asOf)}
	b.put = [2]int64{min(b.put[0], put), max(b.put[1], put)}
}

// narrowing is a filter as one question applies it. strict takes away the exemption of system
// pages. session is the number of the group whose members pass whatever the filter says; 0: there
// is none.
//
//	set false   a question of the past: each page that words find is matched by itself
//	set true    pass has a bit for each page that may be found: the sieve, cut by times, with what is
//	            exempt and with what is not live
type narrowing struct {
	f       *store.Filter
	strict  bool
	session uint64
	set     bool // pass is filled; otherwise match decides
	pass    bits
	n       int                    // live pages in pass, with those that are exempt
	match   *matcher               // of this question, if there is no set
	put     func(num uint64) int64 // when the newest version with a page was put, microseconds
	tx      Reader                 // the snapshot that the question has open; nil: none
	lists   []sortedList           // of a small set: by place in the chain and provenance, instead of the catalogue's lists
}

// timed reports whether a filter has a limit on times.
func timed(f *store.Filter) bool {
	return !f.Since.IsZero() || !f.Until.IsZero() || !f.WrittenSince.IsZero() || !f.WrittenUntil.IsZero()
}

// fill makes the set for a question of now, in the memory of the last one. Numbers of pages that
// are not live are set too: the index must find their words, and Resolve decides.
func (w *narrowing) fill(c *catalogue, chain []uint32) {
	s := c.sieve(w.f, chain)
	words := c.pages.len()/64 + 1
	w.pass = append(w.pass[:0], s.pages[:min(words, len(s.pages))]...)
	for len(w.pass) < words {
		w.pass = append(w.pass, 0)
	}
	if w.n = s.n; timed(w.f) {
		w.n = w.cutTimes(c)
	}
	exempt := func(num uint64) {
		if c.current.has(num) && !w.pass.has(num) {
			w.pass.set(num, true)
			w.n++
		}
	}
	for _, n := range chain {
		for _, num := range c.scope(n).unconditional {
			if !w.strict && c.exemptFromRules(c.page(num)) {
				exempt(num)
			}
		}
	}
	if w.session != 0 {
		for _, num := range c.groups[w.session-1].members {
			exempt(uint64(num))
		}
	}
	w.sortSparse(c, chain)
	for i := range w.pass {
		live := uint64(0)
		if i < len(c.current) {
			live = c.current[i]
		}
		w.pass[i] |= ^live
	}
	w.set = true
}

// cutTimes removes the pages outside the times, and counts the rest. If both ends of a block are
// within the ranges, none of its pages is looked at.
func (w *narrowing) cutTimes(c *catalogue) (n int) {
	const words = blockPages / 64
	for at := 0; at*words < len(w.pass); at++ {
		block := w.pass[at*words : min((at+1)*words, len(w.pass))]
		if at >= len(c.periods) {
			clear(block)
			continue
		}
		first, last := w.within(c.periods[at].asOf[0], c.periods[at].put[0]), w.within(c.periods[at].asOf[1], c.periods[at].put[1])
		for i, set := range block {
			for left := set; left != 0 && !(first && last); left &= left - 1 {
				bit := uint64(mathbits.TrailingZeros64(left))
				p := c.page(uint64(at)*blockPages + uint64(i)*64 + bit)
				if !w.within(p.asOf, c.newestOf(c.art(uint64(p.art))).putAt) {
					block[i] &^= 1 << bit
				}
			}
			n += mathbits.OnesCount64(block[i])
		}
	}
	return n
}

// within reports whether times are in the ranges of the filter. If both ends of a period are, all
// of it is: the ranges have no holes.
func (w *narrowing) within(asOf, put int64) bool {
	return store.Within(asOf, w.f.Since, w.f.Until) && store.Within(put, w.f.WrittenSince, w.f.WrittenUntil)
}

// passes reports whether a page that was found passes the filter.
func (w *narrowing) passes(c *catalogue, num uint64, p *pageCol) bool {
	switch {
	case w.set && !p.retired: // a superseded page is no candidate, but may be the neighbour of one
		return w.pass.has(num)
	case !w.strict && c.exemptFromRules(p), w.session != 0 && uint64(c.art(uint64(p.art)).group) == w.session:
		return true
	}
	if w.match == nil {
		w.match = newMatcher(w.f)
	}
	if !w.match.holds(c, p) {
		return false
	}
	return !timed(w.f) || w.within(p.asOf, w.put(num))
}

// sparse is the size up to which a set is sorted for one question. In a larger set enough pages are
// near the beginning of the catalogue's lists.
const sparse = 4096

// sortSparse sorts the pages of a small set. To find them in the lists of all pages would mean to
// walk those.
func (w *narrowing) sortSparse(c *catalogue, chain []uint32) {
	w.lists = w.lists[:0]
	if w.n > sparse {
		return
	}
	by := make([][]entry, len(chain)*provenances)
	for i, set := range w.pass {
		for ; set != 0; set &= set - 1 {
			num := uint64(i)*64 + uint64(mathbits.TrailingZeros64(set))
			p := c.page(num)
			if at := slices.Index(chain, p.scope); at >= 0 && !c.ownTurn(p) {
				by[at*provenances+int(p.prov)] = append(by[at*provenances+int(p.prov)], entry{p.asOf, num})
			}
		}
	}
	for _, list := range by {
		slices.SortFunc(list, compareEntries)
		w.lists = append(w.lists, sortedOf(list))
	}
}

const provenances = int(store.HumanVerified) + 1

// recent returns the list of a class by time, of the pages that pass if they are few.
func (v *corpus) recent(at, prov int) *sortedList {
	if w := v.narrow; w != nil && len(w.lists) > 0 {
		return &w.lists[at*provenances+prov]
	}
	return &v.c.scope(v.chain[at]).class(prov).recent
}

// narrowed sets up the filter of a question. The caller holds cat.mu for reading.
func (s *Engine) narrowed(f *finding) {
	v, q := &f.corpus, &f.q
	if q.Filter.IsZero() {
		return
	}
	w := &f.narrow
	*w = narrowing{f: q.Filter, strict: q.Strict, session: v.session, pass: w.pass, lists: w.lists[:0]}
	w.put = func(num uint64) int64 {
		p := s.cat.page(num)
		a := s.cat.newestOf(s.cat.art(uint64(p.art)))
		head := s.cat.numbers(p).head
		if head == a.version {
			return a.putAt
		}
		h, err := s.headWithin(w.tx, format.HeadKey{Art: uint64(p.art), Version: head})
		if err != nil { // whoever loads the page is told
			return 0
		}
		return h.PutAt.UnixMicro()
	}
	if v.narrow = w; v.past == nil {
		w.fill(s.cat, v.chain)
	}
}

// numbers returns the pages that the index may look at; nil: all.
func (v *corpus) numbers() []uint64 {
	if v.narrow == nil || !v.narrow.set {
		return nil
	}
	return v.narrow.pass
}

// filteredOut counts the live pages of the chain that are not superseded and do not pass.
func (v *corpus) filteredOut() (n int) {
	w, c := v.narrow, v.c
	if w.set {
		for i, s := range v.chain {
			for prov := range c.scope(s).classes {
				if !slices.Contains(v.chain[:i], s) {
					n += c.scope(s).class(prov).n
				}
			}
		}
		return n - w.n
	}
	for num, p := range c.pages.all() {
		if p.art != 0 && !p.gone() && slices.Contains(v.chain, p.scope) && c.resolve(num, v.q.AsOf, v.past) == num && !w.passes(c, num, p) {
			n++
		}
	}
	return n
}

// Answers from the columns: which page answers for another one, which rule keeps a page out, how
// many pages each rule keeps out, and the artefacts of a scope in order. Everything here runs under
// catalogue.mu and reads no row.
//
// The rules are decided in two ways that must agree. excluded decides for one page, with a look at
// its column. count decides for all pages of a chain, from the counts of each class, because the
// cost of a question must not grow with what it leaves out. A rule that count does not know counts
// the pages that a search came across.

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
		case p.art == 0 || asOf != 0 && c.numbers(p).lsn > asOf:
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
		if n := c.numbers(p); p.art != 0 && n.page == 1 && n.lsn <= asOf && c.end(p) > asOf {
			past[uint64(p.art)] = num
		}
	}
	return past
}

// supersededAfter reports whether a page that is superseded now was not yet superseded at an LSN.
func (c *catalogue) supersededAfter(p *pageCol, asOf uint64) bool {
	return p.retired && asOf != 0 && c.succession(uint64(p.art)).since > asOf
}

// excluded returns the rule that keeps a live page out of a context; "": none does.
func (c *catalogue) excluded(p *pageCol, q *store.CandidateQuery, session uint64) triage.Reason {
	r := format.Ruled{Expires: c.expires(p), Kind: p.kind, Provenance: p.prov, Turn: c.ownTurn(p)}
	r.Own = session != 0 && (r.Turn || p.prov < q.Floor) && uint64(c.art(uint64(p.art)).group) == session
	return format.Rule(q, &r)
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

// count returns how many live pages of the chain the rules keep out, by reason, as far as that is known without looking at
// the pages. A turn that is also expired counts as both.
func (c *catalogue) count(chain []uint32, q *store.CandidateQuery, session uint64) map[triage.Reason]int {
	now := codec.Micros(q.Now)
	var expired, floor, retired, turns int
	for _, n := range chain {
		for prov := range c.scope(n).classes {
			cl := c.scope(n).class(prov)
			dead := cl.expiry.upTo(now)
			expired += dead
			retired += int(cl.retired)
			if store.Provenance(prov) < q.Floor {
				floor += cl.n - dead
			} else {
				turns += int(cl.turns)
			}
		}
		for _, num := range c.scope(n).unconditional {
			if p := c.page(num); p.prov < q.Floor && c.exemptFromRules(p) {
				floor--
			}
		}
	}
	if session != 0 { // its own turns are let in
		g := &c.groups[session-1]
		for prov := range g.live {
			if store.Provenance(prov) < q.Floor {
				floor -= int(g.live[prov])
			} else {
				turns -= int(g.turns[prov])
			}
		}
	}
	return map[triage.Reason]int{triage.Expired: expired, triage.BelowFloor: floor, triage.Superseded: retired, triage.OtherSession: turns}
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

	aged *agedList // nil: it was never asked for
}

// agedList has artefacts by the commit of their newest version, latest first, as they were at an LSN.
type agedList struct {
	arts []uint32
	lsn  uint64
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
