package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/store"
)

// Proposals. One question reads one snapshot: cat.mu is held for reading from the choice of the
// scopes to the last count, and the rows of the index are read in a snapshot inside it.
//
//	words          the index returns the K best, each resolved to the page that answers for it now, or as of the LSN
//	vectors        the K nearest by a model, of the same pages (near.go)
//	unconditional  pinned, system and human-verified pages, the newest of each provenance, whatever the words
//	damaged        pages whose words, or whose row, cannot be read are named, not passed over in silence
//	left out       counted from the columns without a look at the pages; a second search names the nearest of each reason
//
// The cost of a question must not grow with what it leaves out. That is why counts are kept by
// scope and provenance (class), and why expired pages leave the lists of recent ones a minute later
// (sweep), once in their life, in the first question that meets them. Only a question about the
// past walks all columns.
//
// The memory of a question is used again (finding). Nothing in it may be given to the caller.

// The limits of a proposal.
const (
	nearestMisses = 5   // excluded pages that are named for each reason
	verifiedPages = 200 // newest human-verified pages that are always candidates
)

// corpus answers the lexical index for one query, under cat.mu. The index knows only words and page
// numbers. It asks the corpus which page answers for a number, whether the question may see it, and
// which pages are its neighbours.
//
// It is used in two modes. With misses false it shows what the question may see. With misses true
// it shows the opposite, the pages that a rule keeps out, and notes the rule of each in reasons. It
// belongs to one question, and every method runs under cat.mu for reading; the index calls Resolve
// for each page whose words could win, so shown is the hot path of a search.
type corpus struct {
	c       *catalogue
	q       *store.CandidateQuery
	chain   []uint32
	session uint64
	masked  map[uint64]bool
	past    map[uint64]uint64 // see firstAt; nil: the question is of now
	narrow  *narrowing        // the filter; nil: none
	misses  bool              // show only what is excluded
	only    string            // show only what is excluded for this reason; "": for any
	reasons map[uint64]string // by page shown, if misses
	read    uint32            // see Touch: it keeps the reads from being left out
}

// Shown reports whether the question may see a live page.
func (v *corpus) Shown(live uint64) bool {
	p := v.c.page(live)
	if !slices.Contains(v.chain, p.scope) || v.masked != nil && v.masked[uint64(p.art)] {
		return false
	}
	if v.narrow != nil && !v.narrow.passes(v.c, live, p) {
		return false
	}
	reason := v.c.excluded(p, v.q, v.session)
	if v.misses && reason != "" {
		if v.only != "" && reason != v.only {
			return false
		}
		v.reasons[live] = reason
	}
	return (reason != "") == v.misses
}

// Resolve returns the live page that answers for a page of the index, if the question may see it.
func (v *corpus) Resolve(num uint64) (uint64, bool) {
	live := v.c.resolve(num, v.q.AsOf, v.past)
	if live == 0 || !v.Shown(live) {
		return 0, false
	}
	return live, true
}

// Touch reads the row of a page.
func (v *corpus) Touch(num uint64) {
	if num-1 < uint64(v.c.pages.len()) {
		v.read += v.c.page(num).art
	}
}

// Alone reports whether a page has no group, and so no neighbours.
func (v *corpus) Alone(num uint64) bool { return !v.c.grouped.has(num) }

// Group returns the group of a live page and its place in it; 0: it has none.
func (v *corpus) Group(live uint64) (uint64, int) {
	if !v.c.grouped.has(live) {
		return 0, 0
	}
	g := v.c.art(uint64(v.c.page(live).art)).group
	if g == 0 { // a version of the past, whose artefact has left its group since
		return 0, 0
	}
	// Members mostly come in their order, so their numbers rise too. Then no column is read.
	members := v.c.groups[g-1].members
	at, found := slices.BinarySearch(members, uint32(live))
	if !found {
		at, found = slices.BinarySearchFunc(members, uint32(live), v.c.compareMembers)
	}
	if !found {
		return 0, 0
	}
	return uint64(g), at
}

// At returns the member at a place of a group.
func (v *corpus) At(group uint64, pos int) (uint64, bool) {
	m := v.c.groups[group-1].members
	if pos < 0 || pos >= len(m) {
		return 0, false
	}
	return uint64(m[pos]), true
}

// Candidates implements store.Store. All of it is read under one read lock, so it is one snapshot.
// The vectors of a model are waited for before cat.mu is taken: they may have to be read, and no
// commit must wait for that.
func (s *Engine) Candidates(ctx context.Context, q store.CandidateQuery) (out store.Candidates, err error) {
	if err := s.Readable(ctx); err != nil {
		return out, err
	}
	var known *nearModel
	if q.Near != nil {
		if known, err = s.nearModel(ctx, q.Near.Model); err != nil {
			return out, err
		}
	}
	f, _ := s.findings.Get().(*finding)
	if f == nil {
		f = new(finding)
	}
	defer s.findings.Put(f)
	f.q = q
	f.chain = s.readSwept(f.chain, &f.q)
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	if q.AsOf != 0 {
		out.LSN = min(q.AsOf, s.cat.lsn)
	}
	f.corpus = corpus{c: s.cat, q: &f.q, chain: f.chain}
	v := &f.corpus
	if len(v.chain) == 0 {
		return out, nil
	}
	s.understand(v, out.LSN)
	s.narrowed(f)
	f.found = f.found[:0]
	if len(q.Terms) > 0 && q.K > 0 {
		var hits []lexical.Hit
		if hits, err = s.search(v, &f.q, &out); err != nil {
			return out, err
		}
		for i := range hits {
			f.found = append(f.found, proposal{num: hits[i].Num, hit: &hits[i]})
		}
	}
	s.addUnconditional(f)
	if known != nil {
		f.addNear(known)
	}
	if len(s.unread) > 0 {
		s.nameUnread(v, &f.q, f.found, &out)
	}
	if v.past != nil && s.cat.dropped > 0 {
		s.nameGone(v, &f.q, &out)
	}
	f.sort()
	if room := format.RoomOf(ctx); room != nil {
		*room = s.cat.candidates(f.found, (*room)[:0])
		out.Hits = *room
	} else {
		out.Hits = s.cat.candidates(f.found, nil)
	}
	if known != nil {
		f.compare(out.Hits)
	}
	s.countExcluded(v, &f.q, &out)
	return out, nil
}

// understand fills in what a question names: its session, its moment in the past, what its
// transaction replaces.
func (s *Engine) understand(v *corpus, lsn uint64) {
	q := v.q
	if q.Session != "" {
		v.session = s.cat.named[artKey{s.cat.byName[q.Scopes[0]], q.Session}]
	}
	if lsn < s.cat.lsn {
		v.past = s.cat.firstAt(q.AsOf)
	}
	if len(q.Mask) > 0 {
		v.masked = map[uint64]bool{}
	}
	for _, r := range q.Mask {
		if art := s.cat.lookup(s.cat.byName[r.Scope], r.ID); art != 0 {
			v.masked[art] = true
		}
	}
}

// search proposes by words, and names the nearest misses among what the exclusions keep out.
func (s *Engine) search(v *corpus, q *store.CandidateQuery, out *store.Candidates) (hits []lexical.Hit, err error) {
	var weights lexical.Weights
	if q.Weights != nil {
		weights = *q.Weights
	}
	err = s.rows.View(func(tx Reader) error {
		rows := SegRows{tx}
		if v.narrow != nil {
			v.narrow.tx = tx
			defer func() { v.narrow.tx = nil }()
		}
		ask := lexical.Query{Scopes: v.chain, Terms: q.Terms, Dates: q.Dates, K: q.K, Weights: weights, Only: v.numbers()}
		if q.Words != nil {
			out.Typed.Words, ask.Typed = q.Words, &out.Typed
		}
		if hits, err = s.index.Search(rows, v, ask); err != nil {
			return s.badIndex(err)
		}
		if out.Typed.Words = nil; out.Typed.Terms != nil {
			q.Terms = out.Typed.Terms
		}
		s.nameSuperseded(hits, out)
		if len(q.Mask) > 0 {
			if out.Stats, err = s.index.Stats(v.chain, rows, q.Terms); err != nil {
				return s.badIndex(err)
			}
		}
		return s.searchMisses(v, q, rows, weights, out)
	})
	return hits, err
}

// proposal is a page that was found by its words, or that is always a candidate.
//
// The same page may be proposed several times, by its words, by its vector and as recent;
// candidates joins the proposals of a page.
type proposal struct {
	num    uint64
	hit    *lexical.Hit // nil: its words did not find it
	recent bool
	near   bool
	cosine float64 // if near
}

// finding is the memory of one Candidates call; the next call uses it again.
type finding struct {
	q      store.CandidateQuery
	corpus corpus
	chain  []uint32
	found  []proposal
	sorted []proposal // see sort
	order  []uint64
	lists  merge
	narrow narrowing
	finder vector.Finder
	sets   []*vector.Set
	asks   *vector.Question
	others []uint64 // candidates that were not found by their vector
}

// sort puts what was found in the order of its numbers. Proposals are large, so numbers and places are sorted instead of them: both
// have 32 bits.
func (f *finding) sort() {
	f.order = f.order[:0]
	for at := range f.found {
		f.order = append(f.order, f.found[at].num<<32|uint64(at))
	}
	slices.Sort(f.order)
	f.sorted = f.sorted[:0]
	for _, o := range f.order {
		f.sorted = append(f.sorted, f.found[uint32(o)])
	}
	f.found, f.sorted = f.sorted, f.found
}

// candidates describes the pages that were found, which are in the order of their numbers, each once, behind out.
func (c *catalogue) candidates(found []proposal, out []store.Candidate) []store.Candidate {
	out = slices.Grow(out, len(found))
	var ids strings.Builder // one string for all ids: hundreds of small ones would be most of the cost
	ids.Grow(16 * len(found))
	for i := range found {
		p := &found[i]
		if n := len(out); n == 0 || out[n-1].Key.Num != p.num {
			out = out[:n+1]
			ids.Write(c.describe(&out[n], p.num))
		}
		last := &out[len(out)-1]
		if p.hit != nil {
			last.Lexical = *p.hit
		}
		last.Recent, last.Near = last.Recent || p.recent, last.Near || p.near
	}
	all := ids.String()
	for i := range out {
		n := c.art(uint64(c.page(out[i].Key.Num).art)).idLen()
		out[i].Ref.ID, all = all[:n], all[n:]
	}
	return out
}

// badIndex returns the error of a question that met damage in the index, and notes it: the next
// open for writing makes the index again from the pages.
func (s *Engine) badIndex(err error) error {
	s.reindex.Store(true)
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("bucket seg: %w", err), Hint: "close it, and open it for writing: the index is made again from the pages"}
}

// searchMisses names the nearest of what each rule keeps out. One search for all rules mostly finds
// some of each; a rule that others crowded out gets a search of its own. It costs one more search,
// or a few, and only where a rule keeps something out (count).
func (s *Engine) searchMisses(v *corpus, q *store.CandidateQuery, rows SegRows, weights lexical.Weights, out *store.Candidates) error {
	counts := s.cat.count(v.chain, q, v.session)
	delete(counts, triage.Superseded) // nameSuperseded names those
	if len(q.Kinds) > 0 {
		counts[triage.OtherKind] = 1
	}
	maps.DeleteFunc(counts, func(_ triage.Reason, n int) bool { return n <= 0 })
	if len(counts) == 0 {
		return nil
	}
	look := func(only string, k int) (int, error) {
		miss := *v
		miss.misses, miss.only, miss.reasons = true, only, map[uint64]string{}
		hits, err := s.index.Search(rows, &miss, lexical.Query{Scopes: v.chain, Terms: q.Terms, Dates: q.Dates, K: k, Weights: weights, Only: v.numbers()})
		if err != nil {
			return 0, s.badIndex(err)
		}
		for _, h := range hits {
			c := s.cat.candidate(h.Num)
			c.Lexical, c.Excluded = h, miss.reasons[h.Num]
			addMiss(out, c)
		}
		return len(hits), nil
	}
	n, err := look("", 4*nearestMisses)
	if err != nil || n < 4*nearestMisses {
		return err
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if !slices.ContainsFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == reason }) {
			if _, err := look(reason, nearestMisses); err != nil {
				return err
			}
		}
	}
	return nil
}

// nameSuperseded names the artefacts whose words were found but which another artefact has
// replaced, and answers for.
func (s *Engine) nameSuperseded(hits []lexical.Hit, out *store.Candidates) {
	left := nearestMisses
	for _, h := range hits {
		if h.Via == 0 || left == 0 || !s.cat.art(uint64(s.cat.page(h.Via).art)).retired() {
			continue
		}
		left--
		c := s.cat.candidate(h.Via)
		c.Excluded = triage.Superseded
		c.Lexical.Own = h.Own
		addMiss(out, c)
	}
}

// nameUnread names the pages whose words could not be read at open, so that the question could not
// find them. A candidate with a damaged row is reported when it is loaded.
func (s *Engine) nameUnread(v *corpus, q *store.CandidateQuery, found []proposal, out *store.Candidates) {
	n := 0
	for _, num := range s.unread {
		if slices.ContainsFunc(found, func(p proposal) bool { return p.num == num }) || s.cat.resolve(num, q.AsOf, nil) != num || !v.Shown(num) {
			continue
		}
		n++
		c := s.cat.candidate(num)
		c.Excluded = triage.Damaged
		addMiss(out, c)
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == triage.Damaged })
		out.Excluded[i].Count = n
	}
}

// addMiss notes a page under the rule that keeps it out: always in the number matched, by name only
// if fewer than nearestMisses are named.
func addMiss(o *store.Candidates, c store.Candidate) {
	e := excludedFor(o, c.Excluded)
	if e.Matched++; len(e.Nearest) < nearestMisses {
		e.Nearest = append(e.Nearest, c)
	}
}

// excludedFor returns the entry of a reason. The pointer is valid until another entry is made.
func excludedFor(o *store.Candidates, reason string) *store.Excluded {
	i := slices.IndexFunc(o.Excluded, func(e store.Excluded) bool { return e.Reason == reason })
	if i < 0 {
		i = len(o.Excluded)
		o.Excluded = append(o.Excluded, store.Excluded{Reason: reason})
	}
	return &o.Excluded[i]
}

// addUnconditional adds what is always a candidate: pinned pages, human-verified pages, and the
// newest pages.
func (s *Engine) addUnconditional(f *finding) {
	v, q := &f.corpus, &f.q
	add := func(num uint64, recent bool) bool {
		live := s.cat.resolve(num, q.AsOf, nil)
		if live != num || !v.Shown(num) {
			return false
		}
		f.found = append(f.found, proposal{num: num, recent: recent})
		return true
	}
	if q.AsOf != 0 && q.AsOf < s.cat.lsn {
		s.cat.unconditionalAsOf(v.chain, q.AsOf, func(num uint64) { add(num, false) })
	}
	f.lists = f.lists[:0]
	for at, n := range v.chain {
		sc := s.cat.scope(n)
		for _, num := range sc.unconditional {
			add(num, false)
		}
		left := verifiedPages
		v.recent(at, int(store.HumanVerified)).descend(func(e entry) bool {
			if add(e.num, false) {
				left--
			}
			return left > 0
		})
		for prov := range sc.classes {
			if store.Provenance(prov) < q.Floor {
				continue // the session's own are added below
			}
			s.firstOf(v.recent(at, prov), q, add)
			f.lists.add(v.recent(at, prov))
		}
	}
	if v.session != 0 {
		for _, own := range s.cat.ofSession(v.session, q.Floor) {
			s.firstOf(own, q, add)
			f.lists.add(own)
		}
	}
	for left := q.Recent; left > 0; {
		e, ok := f.lists.take()
		if !ok {
			break
		}
		if add(e.num, true) {
			left--
		}
	}
}

// firstOf adds the newest pages of a list that has the best of it. Within a provenance the younger
// page is ahead by recency and equal by trust, so the first pages of each list hold the best pages
// of the scope by these two.
func (s *Engine) firstOf(list *sortedList, q *store.CandidateQuery, add func(num uint64, recent bool) bool) {
	left := q.Newest
	if left <= 0 {
		return
	}
	list.descend(func(e entry) bool {
		if add(e.num, false) && !s.cat.page(e.num).unconditional() {
			left--
		}
		return left > 0
	})
}

// readSwept takes cat.mu for reading, with lists of recent pages that suit a question at this time.
// It returns the numbers of the question's scopes, in the memory of chain. The loop is needed
// because the lock cannot be changed from writing to reading without letting it go.
func (s *Engine) readSwept(chain []uint32, q *store.CandidateQuery) []uint32 {
	now := codec.Micros(q.Now)
	s.cat.mu.RLock()
	for {
		if chain = s.cat.appendChain(chain[:0], q.Scopes); !s.cat.unswept(chain, now) {
			return chain
		}
		s.cat.mu.RUnlock()
		s.cat.mu.Lock()
		s.cat.sweep(chain, now)
		s.cat.mu.Unlock()
		s.cat.mu.RLock()
	}
}

// unconditionalAsOf returns the pinned and system pages of a chain that were current as of an LSN and no longer
// are; the catalogue's lists have only today's. It looks at every column; questions about the past
// are rare enough for that.
func (c *catalogue) unconditionalAsOf(chain []uint32, asOf uint64, fn func(num uint64)) {
	for num, p := range c.pages.all() {
		if p.art != 0 && (c.end(p) > asOf || c.supersededAfter(p, asOf)) && c.numbers(p).lsn <= asOf && p.unconditional() && slices.Contains(chain, p.scope) {
			fn(num)
		}
	}
}

// candidate describes one page, with an id of its own.
func (c *catalogue) candidate(num uint64) store.Candidate {
	var out store.Candidate
	out.Ref.ID = string(c.describe(&out, num))
	return out
}

// describe fills in a candidate except its id, which it returns. It sets field by field: a
// candidate is large, and making one to copy it takes as long as choosing the page.
func (c *catalogue) describe(out *store.Candidate, num uint64) (id []byte) {
	p := c.page(num)
	a := c.art(uint64(p.art))
	*out = store.Candidate{}
	n := c.numbers(p)
	out.Key = store.PageKey{Num: num, Version: n.head}
	out.Ref.Scope, out.Ref.Page, out.Ref.Version = c.scopeName(p.scope), int(n.page), n.version
	out.Kind, out.Provenance, out.AsOf, out.Tokens = p.kind, p.prov, p.asOf, int(n.tokens)
	out.Pages = c.pagesOf(uint64(p.art), a)
	out.Pinned, out.Group, out.Seq = p.flags&format.FlagPinned != 0, uint64(a.group), n.seq
	if a.group != 0 {
		out.GroupName = c.groups[a.group-1].name
	}
	return c.idOf(a)
}

// countExcluded adds the counts, which need no look at the pages, and puts the reasons in a fixed
// order.
func (s *Engine) countExcluded(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	counts := s.cat.count(v.chain, q, v.session)
	if v.narrow != nil {
		counts[triage.Filtered] = v.filteredOut()
	}
	for i := range out.Excluded {
		e := &out.Excluded[i]
		e.Count = max(e.Count, counts[e.Reason], len(e.Nearest))
		delete(counts, e.Reason)
	}
	for reason, n := range counts {
		if n > 0 {
			out.Excluded = append(out.Excluded, store.Excluded{Reason: reason, Count: n})
		}
	}
	sort.Slice(out.Excluded, func(i, j int) bool { return out.Excluded[i].Reason < out.Excluded[j].Reason })
}
