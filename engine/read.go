package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Reasons for which a page is kept out of a context before it is scored.
const ()

// Reasons found when a page's source or lineage is checked.
const ()

// Counts by which a proposal is bounded.
const (
	nearestMisses = 5   // excluded pages that are named for each reason
	verifiedPages = 200 // newest human-verified pages that are candidates whatever they say
)

// Resolve: see the Store interface.
func (s *Engine) Resolve(_ context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if s.Closed.Load() {
		return store.Located{}, store.ErrClosed
	}
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	for _, name := range scopes {
		if ref.Scope != "" && ref.Scope != name {
			continue
		}
		n := s.Catalogue.byName[name]
		if n == 0 {
			continue
		}
		art := s.Catalogue.lookup(n, ref.ID)
		if art == 0 {
			continue
		}
		a := s.Catalogue.art(art)
		if ref.Version != 0 && ref.Version != a.version {
			return s.resolveOld(name, art, ref)
		}
		if a.pages == 0 {
			if _, err := s.headLocked(HeadKey{art, a.version}); err != nil { // a row that was edited may say so, too
				return store.Located{}, err
			}
			if ref.Version == 0 && ref.Scope == "" {
				continue // deleted here: an ancestor's may stand
			}
			ref.Scope = name // for the error
			return store.Located{Scope: name, Version: a.version, LSN: a.lsn, Deleted: true}, fmt.Errorf("%w: %s was deleted", store.ErrNotFound, ref)
		}
		return s.locate(name, art, ref)
	}
	return store.Located{}, fmt.Errorf("%w: %q", store.ErrNotFound, ref.ID)
}

func (s *Engine) locate(scope string, art uint64, ref store.Ref) (store.Located, error) {
	a := s.Catalogue.art(art)
	nums := s.Catalogue.nums(art)
	if ref.Page > len(nums) {
		ref.Scope = scope // for the error
		return store.Located{}, fmt.Errorf("%w: %s has %d pages", store.ErrNotFound, ref, len(nums))
	}
	if ref.Page > 0 {
		nums = nums[ref.Page-1 : ref.Page]
	}
	l := store.Located{Scope: scope, Version: a.version, LSN: a.lsn, Current: true, Expires: s.Catalogue.page(nums[0]).expires}
	if a.by != 0 {
		l.By, l.ByID = s.Catalogue.art(a.by).first, s.Catalogue.supersededBy(a)
	}
	l.Pages = make([]store.PageKey, len(nums))
	for i, n := range nums {
		l.Pages[i] = store.PageKey{Num: n, Version: a.version}
	}
	return l, nil
}

// resolveOld finds an older version. The caller holds cat.mu; head rows are read under it, which history can afford.
func (s *Engine) resolveOld(scope string, art uint64, ref store.Ref) (store.Located, error) {
	a := s.Catalogue.art(art)
	ref.Scope = scope // for the errors
	if ref.Version > a.version {
		return store.Located{}, fmt.Errorf("%w: %s has versions up to %d", store.ErrNotFound, ref, a.version)
	}
	h, err := s.headLocked(HeadKey{art, ref.Version})
	if err != nil {
		return store.Located{}, err
	}
	if h.Gone {
		return s.locateGone(scope, h, ref)
	}
	l := store.Located{Scope: scope, Version: h.Version, LSN: h.LSN, Deleted: h.Deleted, Expires: codec.Micros(h.ExpiresAt)}
	for i := range h.Rows {
		if ref.Page == 0 || ref.Page == i+1 {
			l.Pages = append(l.Pages, store.PageKey{Num: h.Rows[i].Num, Version: h.Version})
		}
	}
	if len(l.Pages) == 0 {
		return l, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
	}
	return l, nil
}

func (s *Engine) head(k HeadKey) (*store.Head, error) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	return s.headLocked(k)
}

// headLocked reads a head: overlay first, then bbolt. The other order would miss a row applied in between.
func (s *Engine) headLocked(k HeadKey) (h *store.Head, err error) {
	row := s.Overlay.heads[k]
	if row == nil && s.Old != nil {
		row = s.Old.heads[k]
	}
	if row != nil {
		return DecodeHead(row, s.Catalogue.scopeName)
	}
	err = s.Rows.View(func(tx Reader) error {
		h, err = s.headIn(tx, k)
		return err
	})
	return h, err
}

// loading is a Load under way. Names are taken along with the catalogue's lock, because nothing may take that lock
// inside a transaction of bbolt: a reader there who waits for it, while the checkpoint waits for readers to remap the
// file, while a search holds the lock and waits for the checkpoint, would wait for ever.
type loading struct {
	s       *Engine
	want    store.Want
	out     []store.Loaded
	arts    []uint64
	newest  []uint32 // version up to which the artefact has a head row each
	rows    [][]byte // of heads, from the overlay
	missing []int    // what the overlay did not have, in whole or in part
	names   map[uint32]string
	groups  map[uint64]string
	heads   map[HeadKey]*store.Head
	later   []unnamed
}

// Load: see the Store interface. Pages outside the chain give ErrNotFound, as if they did not exist.
func (s *Engine) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if err := s.Readable(ctx); err != nil {
		return nil, err
	}
	l := &loading{
		s: s, want: want, out: make([]store.Loaded, len(keys)), arts: make([]uint64, len(keys)), newest: make([]uint32, len(keys)), rows: make([][]byte, len(keys)),
		names: map[uint32]string{}, groups: map[uint64]string{}, heads: map[HeadKey]*store.Head{},
	}
	l.look(scopes, keys)
	for i := range keys {
		if l.rows[i] == nil {
			continue
		}
		if err := l.head(i, l.rows[i]); err != nil {
			return nil, s.Corrupt("head in the log", err)
		}
	}
	if len(l.missing) > 0 {
		if err := s.Rows.View(l.fromFile); err != nil {
			return nil, err
		}
	}
	l.proveLater()
	l.texts()
	return l.out, nil
}

// texts holds what was read against the digests of the heads.
func (l *loading) texts() {
	if l.want != store.WantText {
		return
	}
	for i := range l.out {
		o := &l.out[i]
		if o.Err != nil || o.Head == nil {
			continue
		}
		if o.Err = l.s.provedText(o.Key.Num, &o.Head.Rows[o.Page-1], o.Text); o.Err != nil {
			o.Text = ""
		}
	}
}

// look finds the pages in the catalogue and takes what the overlay has of them, under one read lock.
func (l *loading) look(scopes store.Scopes, keys []store.PageKey) {
	c := l.s.Catalogue
	c.Mu.RLock()
	defer c.Mu.RUnlock()
	var chain []uint32 // nil: the operator's view of all scopes
	if scopes != nil {
		chain = c.chain(scopes)
	}
	for i, k := range keys {
		p, err := c.visible(k.Num, chain)
		if err != nil {
			l.out[i] = store.Loaded{Key: k, Err: err}
			continue
		}
		k.Version = cmp.Or(k.Version, p.head, p.version)
		l.out[i], l.arts[i], l.names[p.scope] = store.Loaded{Key: k, Page: int(p.page)}, p.art, c.scopeName(p.scope)
		l.newest[i] = c.art(p.art).version
		l.nameGroup(p)
		l.rows[i] = l.s.overlayHead(HeadKey{p.art, k.Version})
		whole := l.rows[i] != nil
		if l.want == store.WantText {
			var ok bool
			l.out[i].Text, ok = l.s.overlayText(k.Num)
			whole = whole && ok
		}
		if !whole {
			l.missing = append(l.missing, i)
		}
	}
}

// head decodes a head row for a page, once for all pages of it.
func (l *loading) head(i int, row []byte) (err error) {
	o := &l.out[i]
	k := HeadKey{l.arts[i], o.Key.Version}
	if l.heads[k] == nil {
		if l.heads[k], err = DecodeHead(row, func(n uint32) string { return l.names[n] }); err != nil {
			return err
		}
	}
	l.take(o, l.heads[k])
	return nil
}

// take says what a decoded head has of a page.
func (*loading) take(o *store.Loaded, h *store.Head) {
	if o.Page > len(h.Rows) || h.Rows[o.Page-1].Num != o.Key.Num {
		o.Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if o.Head = h; h.Gone {
		o.Err = store.GoneError(h, o.Page)
	}
}

// fromFile reads from bbolt what the overlay did not have.
func (l *loading) fromFile(tx Reader) error {
	for _, i := range l.missing {
		o := &l.out[i]
		if o.Head == nil && o.Err == nil {
			l.headIn(tx, i)
		}
		if l.want == store.WantText && o.Err == nil && o.Text == "" {
			o.Text, o.Err = l.s.textIn(tx, o.Key.Num) // an empty text has a row, too
		}
	}
	return nil
}

func (l *loading) headIn(tx Reader, i int) {
	o := &l.out[i]
	k := HeadKey{l.arts[i], o.Key.Version}
	if h := l.heads[k]; h != nil { // its checksum was looked at with the first of its pages
		l.take(o, h)
		return
	}
	key := headRowKey(k)
	v := tx.Get(TableMeta, key)
	if v == nil && o.Key.Version > l.newest[i] {
		o.Err = fmt.Errorf("%w: version %d of page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if v == nil {
		if row, err := floorOf(tx, k); row != nil && err == nil {
			h, err := DecodeHead(row, func(n uint32) string { return l.names[n] })
			if err == nil {
				err = l.prove(HeadKey{k.Art, h.Version}, row)
			}
			if err == nil {
				o.Head = h.Below(k.Version)
				o.Err = store.GoneError(o.Head, o.Page)
				return
			}
		}
	}
	row, err := codec.Unseal('m', key, v)
	if err == nil {
		err = l.prove(k, row)
	}
	if err == nil {
		err = l.head(i, row)
	}
	if err != nil {
		o.Err = l.s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
}

// prove compares a row with its digest. An older version may have been in another group than its artefact is now: its
// name is asked for when the transaction of bbolt is over.
func (l *loading) prove(k HeadKey, row []byte) error {
	t := DecodeHot(&codec.Decoder{B: row})
	if _, known := l.groups[t.group]; t.group != 0 && !known {
		l.later = append(l.later, unnamed{k, slices.Clone(row)})
		return nil
	}
	return l.s.provedHead(k, row, func(t *hot) (scope, group string) { return l.names[t.Scope], l.groups[t.group] })
}

// unnamed is a row of a group whose name is not known yet.
type unnamed struct {
	k   HeadKey
	row []byte
}

// proveLater compares the rows that prove put off.
func (l *loading) proveLater() {
	if len(l.later) == 0 {
		return
	}
	l.s.Catalogue.Mu.RLock()
	defer l.s.Catalogue.Mu.RUnlock()
	for _, u := range l.later {
		err := l.s.provedHead(u.k, u.row, l.s.Catalogue.names)
		if err == nil {
			continue
		}
		for i := range l.out {
			if l.arts[i] == u.k.Art && l.out[i].Key.Version == u.k.Version {
				l.out[i] = store.Loaded{Key: l.out[i].Key, Page: l.out[i].Page, Err: l.s.Corrupt(fmt.Sprintf("head row %x", headRowKey(u.k)), err)}
			}
		}
	}
}

// withoutLost is a head without what would make a page pass for one of its own whose text can no longer be read: putting
// the text again must bring it back.
func (s *Engine) withoutLost(h *store.Head, pages []store.NewPage) (*store.Head, error) {
	if h == nil {
		return nil, nil
	}
	var same []int
	s.Catalogue.Mu.RLock()
	for i := range min(len(h.Rows), len(pages)) {
		if _, ok := s.overlayText(h.Rows[i].Num); !ok && h.Rows[i].Hash == pages[i].Hash {
			same = append(same, i)
		}
	}
	s.Catalogue.Mu.RUnlock()
	if len(same) == 0 {
		return h, nil
	}
	out := *h
	out.Rows = slices.Clone(h.Rows)
	err := s.Rows.View(func(tx Reader) error {
		for _, i := range same {
			text, err := s.textIn(tx, h.Rows[i].Num)
			if err == nil {
				err = s.provedText(h.Rows[i].Num, &h.Rows[i], text)
			}
			if err != nil {
				out.Rows[i].Digest = [32]byte{} // of no text
			}
		}
		return nil
	})
	return &out, err
}

// nameGroup notes what the group of a page is called. The caller holds cat.mu.
func (l *loading) nameGroup(p *pageCol) {
	if g := l.s.Catalogue.art(p.art).group; g != 0 {
		l.groups[g] = l.s.Catalogue.groups[g-1].name
	}
}

func (s *Engine) scopeName(n uint32) string {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	return s.Catalogue.scopeName(n)
}

// visible refuses pages outside the chain.
func (c *catalogue) visible(num uint64, chain []uint32) (*pageCol, error) {
	if num == 0 || num > uint64(len(c.pages)) {
		return nil, fmt.Errorf("%w: page %d", store.ErrNotFound, num)
	}
	p := c.page(num)
	if p.art == 0 {
		return nil, fmt.Errorf("%w: page %d", store.ErrGone, num)
	}
	if chain != nil && !slices.Contains(chain, p.scope) {
		return nil, fmt.Errorf("%w: page %d", store.ErrNotFound, num)
	}
	return p, nil
}

func (s *Engine) overlayHead(k HeadKey) []byte {
	if row := s.Overlay.heads[k]; row != nil {
		return row
	}
	if s.Old != nil {
		return s.Old.heads[k]
	}
	return nil
}

func (s *Engine) overlayText(num uint64) (string, bool) {
	if t, ok := s.Overlay.texts[num]; ok {
		return t, true
	}
	if s.Old != nil {
		t, ok := s.Old.texts[num]
		return t, ok
	}
	return "", false
}

// corpus answers the lexical index for one query, under cat.mu.
type corpus struct {
	c       *catalogue
	q       *store.CandidateQuery
	chain   []uint32
	session uint64
	masked  map[uint64]bool
	past    map[uint64]uint64 // see firstAt; nil: the question is of now
	misses  bool              // show what is excluded, and only that
	only    string            // of that, what is excluded for this reason; "": for any
	reasons map[uint64]string
}

func (v *corpus) shown(live uint64) bool {
	p := v.c.page(live)
	if !slices.Contains(v.chain, p.scope) || v.masked != nil && v.masked[p.art] {
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

func (v *corpus) Resolve(num uint64) (uint64, bool) {
	live := v.c.resolve(num, v.q.AsOf, v.past)
	if live == 0 || !v.shown(live) {
		return 0, false
	}
	return live, true
}

func (v *corpus) Alone(num uint64) bool { return !v.c.grouped.has(num) }

func (v *corpus) Group(live uint64) (uint64, int) {
	if !v.c.grouped.has(live) {
		return 0, 0
	}
	g := v.c.art(v.c.page(live).art).group
	if g == 0 { // a version of the past, whose artefact has left its group since
		return 0, 0
	}
	// Mostly the members came in their order, and so are in the order of their numbers, too. Then none is looked at.
	members := v.c.groups[g-1].members
	at, found := slices.BinarySearch(members, live)
	if !found {
		at, found = slices.BinarySearchFunc(members, live, v.c.compareMembers)
	}
	if !found {
		return 0, 0
	}
	return g, at
}

func (v *corpus) At(group uint64, pos int) (uint64, bool) {
	m := v.c.groups[group-1].members
	if pos < 0 || pos >= len(m) {
		return 0, false
	}
	return m[pos], true
}

func (v *corpus) Shown(live uint64) bool { return v.shown(live) }

// Candidates: see the Store interface. All of it is read under one read lock, so that it is one snapshot.
func (s *Engine) Candidates(ctx context.Context, q store.CandidateQuery) (out store.Candidates, err error) {
	if err := s.Readable(ctx); err != nil {
		return out, err
	}
	f, _ := s.findings.Get().(*finding)
	if f == nil {
		f = new(finding)
	}
	defer s.findings.Put(f)
	f.q = q
	f.chain = s.readSwept(f.chain, &f.q)
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	if q.AsOf != 0 {
		out.LSN = min(q.AsOf, s.Catalogue.LSN)
	}
	f.corpus = corpus{c: s.Catalogue, q: &f.q, chain: f.chain}
	v := &f.corpus
	if len(v.chain) == 0 {
		return out, nil
	}
	if q.Session != "" {
		v.session = s.Catalogue.named[artKey{s.Catalogue.byName[q.Scopes[0]], q.Session}]
	}
	if out.LSN < s.Catalogue.LSN {
		v.past = s.Catalogue.firstAt(q.AsOf)
	}
	if len(q.Mask) > 0 {
		v.masked = map[uint64]bool{}
	}
	for _, r := range q.Mask {
		if art := s.Catalogue.lookup(s.Catalogue.byName[r.Scope], r.ID); art != 0 {
			v.masked[art] = true
		}
	}
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
	s.standing(f)
	s.nameUnread(v, &f.q, f.found, &out)
	s.nameGone(v, &f.q, &out)
	out.Hits = s.Catalogue.candidates(f.found)
	s.countExcluded(v, &f.q, &out)
	return out, nil
}

// search proposes by words, and names the nearest misses among what the exclusions keep out.
func (s *Engine) search(v *corpus, q *store.CandidateQuery, out *store.Candidates) (hits []lexical.Hit, err error) {
	var weights lexical.Weights
	if q.Weights != nil {
		weights = *q.Weights
	}
	err = s.Rows.View(func(tx Reader) error {
		rows := SegRows{tx}
		if hits, err = s.Index.Search(rows, v, lexical.Query{Scopes: v.chain, Terms: q.Terms, K: q.K, Weights: weights}); err != nil {
			return s.BadIndex(err)
		}
		s.nameSuperseded(hits, out)
		if len(q.Mask) > 0 {
			if out.Stats, err = s.Index.Stats(v.chain, rows, q.Terms); err != nil {
				return s.BadIndex(err)
			}
		}
		return s.searchMisses(v, q, rows, weights, out)
	})
	return hits, err
}

// proposal is a page that was found: by its words, or because it is a candidate whatever it says.
type proposal struct {
	num    uint64
	hit    *lexical.Hit // nil: not by its words
	recent bool
}

// finding is the memory of one Candidates, which the next one uses again.
type finding struct {
	q      store.CandidateQuery
	corpus corpus
	chain  []uint32
	found  []proposal
	lists  merge
}

// candidates describes the pages that were found, each once, in the order of their numbers.
func (c *catalogue) candidates(found []proposal) []store.Candidate {
	var out []store.Candidate
	slices.SortFunc(found, func(a, b proposal) int { return cmp.Compare(a.num, b.num) })
	out = slices.Grow(out, len(found))
	var ids strings.Builder // of all, for one string: hundreds of small ones are what a proposal costs
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
		last.Recent = last.Recent || p.recent
	}
	all := ids.String()
	for i := range out {
		n := c.art(c.page(out[i].Key.Num).art).keyLen
		out[i].Ref.ID, all = all[:n], all[n:]
	}
	return out
}

// BadIndex is the error of a question that met damage in the index. It is made again from the pages by the next open.
func (s *Engine) BadIndex(err error) error {
	s.Reindex.Store(true)
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("bucket seg: %w", err), Hint: "close it, and open it for writing: the index is made again from the pages"}
}

// searchMisses names the nearest of what each exclusion keeps out. One search for all of them mostly finds some of each;
// a reason that others crowded out is asked for by itself.
func (s *Engine) searchMisses(v *corpus, q *store.CandidateQuery, rows SegRows, weights lexical.Weights, out *store.Candidates) error {
	e := s.Catalogue.count(v.chain, q, v.session)
	if e.expired+e.floor+e.turns == 0 && len(q.Kinds) == 0 {
		return nil
	}
	look := func(only string, k int) (int, error) {
		miss := *v
		miss.misses, miss.only, miss.reasons = true, only, map[uint64]string{}
		hits, err := s.Index.Search(rows, &miss, lexical.Query{Scopes: v.chain, Terms: q.Terms, K: k, Weights: weights})
		if err != nil {
			return 0, s.BadIndex(err)
		}
		for _, h := range hits {
			c := s.Catalogue.candidate(h.Num)
			c.Lexical, c.Excluded = h, miss.reasons[h.Num]
			addMiss(out, c)
		}
		return len(hits), nil
	}
	n, err := look("", 4*nearestMisses)
	if err != nil || n < 4*nearestMisses {
		return err
	}
	for _, r := range []struct {
		reason string
		n      int
	}{{store.ReasonExpired, e.expired}, {store.ReasonFloor, e.floor}, {store.ReasonOther, e.turns}, {store.ReasonKind, len(q.Kinds)}} {
		if r.n > 0 && !slices.ContainsFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == r.reason }) {
			if _, err := look(r.reason, nearestMisses); err != nil {
				return err
			}
		}
	}
	return nil
}

// nameSuperseded names the artefacts whose words were found and for which the one that replaced them answers.
func (s *Engine) nameSuperseded(hits []lexical.Hit, out *store.Candidates) {
	left := nearestMisses
	for _, h := range hits {
		if h.Via == 0 || left == 0 || s.Catalogue.art(s.Catalogue.page(h.Via).art).by == 0 {
			continue
		}
		left--
		c := s.Catalogue.candidate(h.Via)
		c.Excluded = store.ReasonSuperseded
		c.Lexical.Own = h.Own
		addMiss(out, c)
	}
}

// nameUnread says of which pages the question could not be asked: their words cannot be read. One that is a candidate
// all the same is found damaged when it is loaded.
func (s *Engine) nameUnread(v *corpus, q *store.CandidateQuery, found []proposal, out *store.Candidates) {
	n := 0
	for _, num := range s.unread {
		if slices.ContainsFunc(found, func(p proposal) bool { return p.num == num }) || s.Catalogue.resolve(num, q.AsOf, nil) != num || !v.shown(num) {
			continue
		}
		n++
		c := s.Catalogue.candidate(num)
		c.Excluded = store.ReasonDamaged
		addMiss(out, c)
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == store.ReasonDamaged })
		out.Excluded[i].Count = n
	}
}

func addMiss(o *store.Candidates, c store.Candidate) {
	i := slices.IndexFunc(o.Excluded, func(e store.Excluded) bool { return e.Reason == c.Excluded })
	if i < 0 {
		i = len(o.Excluded)
		o.Excluded = append(o.Excluded, store.Excluded{Reason: c.Excluded})
	}
	o.Excluded[i].Matched++
	if len(o.Excluded[i].Nearest) < nearestMisses {
		o.Excluded[i].Nearest = append(o.Excluded[i].Nearest, c)
	}
}

// standing adds what is a candidate whatever it says: pinned pages, human-verified ones, and the newest.
func (s *Engine) standing(f *finding) {
	v, q := &f.corpus, &f.q
	add := func(num uint64, recent bool) bool {
		live := s.Catalogue.resolve(num, q.AsOf, nil)
		if live != num || !v.shown(num) {
			return false
		}
		f.found = append(f.found, proposal{num: num, recent: recent})
		return true
	}
	if q.AsOf != 0 && q.AsOf < s.Catalogue.LSN {
		s.Catalogue.stood(v.chain, q.AsOf, func(num uint64) { add(num, false) })
	}
	f.lists.reset()
	for _, n := range v.chain {
		sc := &s.Catalogue.Scopes[n-1]
		for _, num := range sc.standing {
			add(num, false)
		}
		left := verifiedPages
		sc.classes[store.HumanVerified].recent.descend(func(e entry) bool {
			if add(e.num, false) {
				left--
			}
			return left > 0
		})
		for prov := range sc.classes {
			if store.Provenance(prov) < q.Floor {
				continue // but for those of the session
			}
			s.firstOf(&sc.classes[prov].recent, q, add)
			f.lists.add(&sc.classes[prov].recent)
		}
	}
	if v.session != 0 {
		for _, own := range s.Catalogue.ofSession(v.session, q.Floor) {
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

// firstOf adds the newest pages of a list that hold the best of it: within a provenance the younger page is always ahead
// by recency and trust, so that a first pass over them is one over the whole scope.
func (s *Engine) firstOf(list *order, q *store.CandidateQuery, add func(num uint64, recent bool) bool) {
	left := q.Newest
	if left <= 0 {
		return
	}
	list.descend(func(e entry) bool {
		if add(e.num, false) && !s.Catalogue.page(e.num).stands() {
			left--
		}
		return left > 0
	})
}

// readSwept takes the catalogue's lock for reading, with the lists of recent pages as a question of this time needs them,
// and gives the numbers of its scopes, in the memory of chain.
func (s *Engine) readSwept(chain []uint32, q *store.CandidateQuery) []uint32 {
	now := codec.Micros(q.Now)
	s.Catalogue.Mu.RLock()
	for {
		if chain = s.Catalogue.appendChain(chain[:0], q.Scopes); !s.Catalogue.unswept(chain, now) {
			return chain
		}
		s.Catalogue.Mu.RUnlock()
		s.Catalogue.Mu.Lock()
		s.Catalogue.sweep(chain, now)
		s.Catalogue.Mu.Unlock()
		s.Catalogue.Mu.RLock()
	}
}

// stood gives the pinned and system pages of a chain that were current as of an LSN and are not any more: the lists of
// the catalogue know those of now only. It looks at every column, which a look into the past can afford.
func (c *catalogue) stood(chain []uint32, asOf uint64, fn func(num uint64)) {
	for i := range c.pages {
		if p := &c.pages[i]; p.art != 0 && (p.end > asOf || c.stoodUntil(p, asOf)) && p.lsn <= asOf && p.stands() && slices.Contains(chain, p.scope) {
			fn(uint64(i + 1))
		}
	}
}

func (c *catalogue) candidate(num uint64) store.Candidate {
	var out store.Candidate
	out.Ref.ID = string(c.describe(&out, num))
	return out
}

// describe fills in all of a candidate but its id, which it gives. It sets field by field: a candidate is large, and
// making one to copy it takes as long as choosing the page.
func (c *catalogue) describe(out *store.Candidate, num uint64) (id []byte) {
	p := c.page(num)
	a := c.art(p.art)
	*out = store.Candidate{}
	out.Key = store.PageKey{Num: num, Version: p.head}
	out.Ref.Scope, out.Ref.Page, out.Ref.Version = c.scopeName(p.scope), int(p.page), p.version
	out.Kind, out.Provenance, out.AsOf, out.Tokens = p.kind, p.prov, p.asOf, int(p.tokens)
	out.Pinned, out.Group, out.Seq = p.flags&flagPinned != 0, a.group, p.seq
	if a.group != 0 {
		out.GroupName = c.groups[a.group-1].name
	}
	return c.keys[a.keyAt : a.keyAt+uint64(a.keyLen)]
}

// countExcluded adds the counts, which need no look at the pages, and puts the reasons in a fixed order.
func (s *Engine) countExcluded(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	e := s.Catalogue.count(v.chain, q, v.session)
	for _, r := range []struct {
		reason string
		n      int
	}{{store.ReasonExpired, e.expired}, {store.ReasonFloor, e.floor}, {store.ReasonSuperseded, e.retired}, {store.ReasonOther, e.turns}, {store.ReasonKind, 0}} {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == r.reason })
		switch {
		case i >= 0:
			out.Excluded[i].Count = max(r.n, len(out.Excluded[i].Nearest))
		case r.n > 0:
			out.Excluded = append(out.Excluded, store.Excluded{Reason: r.reason, Count: r.n})
		}
	}
	slices.SortFunc(out.Excluded, func(a, b store.Excluded) int { return cmp.Compare(a.Reason, b.Reason) })
}

// LSN: see the Store interface.
func (s *Engine) LSN() uint64 {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	return s.Catalogue.LSN
}

// Readable is asked first by what reads.
func (s *Engine) Readable(ctx context.Context) error {
	if s.Closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Scan: see the Store interface.
func (s *Engine) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if err := s.Readable(ctx); err != nil {
		return store.ScanPage{}, err
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1<<30)
	switch q.What {
	case store.ScanHistory:
		return s.scanHistory(q)
	case store.ScanGroup:
		return s.scanGroup(q)
	case store.ScanHeld:
		return s.scanHeld(q)
	case store.ScanSummaries:
		return s.scanSummaries(q)
	case store.ScanMembers:
		return s.scanMembers(q), nil
	case store.ScanState:
		return s.scanState(q)
	case store.ScanSourced:
		return s.scanSourced(q), nil
	case store.ScanScopes:
		return s.scanScopes(q), nil
	}
	return s.scanArtefacts(q)
}

func (s *Engine) scanArtefacts(q store.ScanQuery) (out store.ScanPage, err error) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	n := s.Catalogue.byName[q.Scopes[0]]
	if n == 0 {
		return out, nil
	}
	arts := s.Catalogue.list(n, q.Prefix, q.Cursor, q.Deleted, q.Limit+1)
	if len(arts) > q.Limit {
		arts = arts[:q.Limit]
		out.Next = s.Catalogue.id(s.Catalogue.art(arts[q.Limit-1]))
	}
	for _, art := range arts {
		h, err := s.headLocked(HeadKey{art, s.Catalogue.art(art).version})
		if err != nil {
			return out, err
		}
		h.Superseded = s.Catalogue.supersededBy(s.Catalogue.art(art))
		out.Heads = append(out.Heads, h)
	}
	return out, nil
}

func (s *Engine) scanHistory(q store.ScanQuery) (out store.ScanPage, err error) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	for _, name := range q.Scopes {
		art := uint64(0)
		if n := s.Catalogue.byName[name]; n != 0 {
			art = s.Catalogue.lookup(n, q.ID)
		}
		if art == 0 {
			continue
		}
		from := s.Catalogue.art(art).version
		if q.Cursor != "" {
			v, err := strconv.ParseUint(q.Cursor, 10, 32)
			if err != nil {
				return out, store.Invalid("cursor", q.Cursor, "a cursor from the page before")
			}
			from = min(from, uint32(v))
		}
		for ; from > 0; from-- {
			if len(out.Heads) == q.Limit {
				out.Next = strconv.FormatUint(uint64(from), 10)
				return out, nil
			}
			h, err := s.headLocked(HeadKey{art, from})
			if err != nil {
				return out, err
			}
			if from == s.Catalogue.art(art).version {
				h.Superseded = s.Catalogue.supersededBy(s.Catalogue.art(art))
			}
			out.Heads = append(out.Heads, h)
			if h.Floor {
				break
			}
		}
		return out, nil
	}
	return out, fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

func (s *Engine) scanGroup(q store.ScanQuery) (out store.ScanPage, err error) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	g := s.Catalogue.named[artKey{s.Catalogue.byName[q.Scopes[0]], q.Group}]
	if g == 0 {
		return out, nil
	}
	at := 0
	if q.Cursor != "" {
		if at, err = strconv.Atoi(q.Cursor); err != nil || at < 0 {
			return out, store.Invalid("cursor", q.Cursor, "a cursor from the page before")
		}
	}
	last := uint64(0)
	for members := s.Catalogue.groups[g-1].members; at < len(members); at++ {
		p := s.Catalogue.page(members[at])
		if p.art == last {
			continue
		}
		if len(out.Heads) == q.Limit {
			out.Next = strconv.Itoa(at)
			break
		}
		last = p.art
		h, err := s.headLocked(HeadKey{p.art, p.head})
		if err != nil {
			return out, err
		}
		out.Heads = append(out.Heads, h)
	}
	return out, nil
}

// scanMembers reads the catalogue only, so that a session of ten thousand turns is listed in less than a millisecond, and
// of one that only got longer what came.
func (s *Engine) scanMembers(q store.ScanQuery) (out store.ScanPage) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	g := s.Catalogue.named[artKey{s.Catalogue.byName[q.Scopes[0]], q.Group}]
	if g == 0 {
		return out
	}
	members := s.Catalogue.groups[g-1].members
	if out.Same = s.Catalogue.groups[g-1].moved <= q.Known; out.Same {
		from := len(members)
		for from > 0 && s.Catalogue.art(s.Catalogue.page(members[from-1]).art).lsn > q.Known {
			from--
		}
		members = members[from:]
	}
	out.Keys = make([]store.PageKey, 0, len(members))
	for _, num := range members {
		if p := s.Catalogue.page(num); s.Catalogue.art(p.art).by == 0 {
			out.Keys = append(out.Keys, store.PageKey{Num: num, Version: p.head})
		}
	}
	return out
}

// scanSourced reads the catalogue only: nothing, while no artefact with a source changed.
func (s *Engine) scanSourced(q store.ScanQuery) (out store.ScanPage) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN, out.Same = s.Catalogue.LSN, true
	n := s.Catalogue.byName[q.Scopes[0]]
	if n == 0 || s.Catalogue.Scopes[n-1].sourced <= q.Known {
		return out
	}
	out.Same = false
	for _, art := range s.Catalogue.Scopes[n-1].byID.sorted(s.Catalogue) {
		if a := s.Catalogue.art(uint64(art)); a.flags&flagSourced != 0 && a.pages > 0 && a.by == 0 {
			out.Keys = append(out.Keys, store.PageKey{Num: a.first, Version: a.version})
		}
	}
	return out
}

// scanState lists state rows: the overlay first, then bbolt, which may have taken rows over in between.
func (s *Engine) scanState(q store.ScanQuery) (out store.ScanPage, err error) {
	rows := map[string][]byte{}
	s.Catalogue.Mu.RLock()
	out.LSN = s.Catalogue.LSN
	for _, o := range []*Overlay{s.Old, s.Overlay} {
		if o == nil {
			continue
		}
		for key, v := range o.state {
			if strings.HasPrefix(key, q.Prefix) && key > q.Cursor {
				rows[key] = v
			}
		}
	}
	s.Catalogue.Mu.RUnlock()
	left := q.Limit + 1
	err = s.Rows.View(func(tx Reader) error {
		for k, v := range tx.From(TableState, []byte(max(q.Prefix, q.Cursor))) {
			if left == 0 || !bytes.HasPrefix(k, []byte(q.Prefix)) {
				break
			}
			if _, known := rows[string(k)]; known || string(k) <= q.Cursor {
				continue
			}
			row, err := codec.Unseal('s', k, v)
			if err != nil {
				return s.Corrupt(fmt.Sprintf("state row %q", k), err)
			}
			rows[string(k)] = slices.Clone(row)
			left--
		}
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if rows[key] == nil {
			continue // deleted
		}
		if len(out.State) == q.Limit {
			out.Next = out.State[q.Limit-1].Key
			break
		}
		out.State = append(out.State, store.StateRow{Key: key, Value: rows[key]})
	}
	return out, err
}

// scanSummaries gives the live summaries of one page that the chain can see. There are few of one artefact.
func (s *Engine) scanSummaries(q store.ScanQuery) (out store.ScanPage, err error) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	if len(s.Catalogue.sums) == 0 {
		return out, nil
	}
	chain := s.Catalogue.chain(q.Scopes)
	for _, art := range s.Catalogue.sums[artKey{s.Catalogue.byName[q.Of.Scope], q.Of.ID}] {
		a := s.Catalogue.art(art)
		if a.pages != 1 || a.by != 0 || !slices.Contains(chain, a.scope) || s.Catalogue.page(a.first).kind != store.KindSummary {
			continue
		}
		h, err := s.headLocked(HeadKey{art, a.version})
		if err != nil {
			return out, err
		}
		if len(h.DerivedFrom) == 1 && h.DerivedFrom[0].Scope == q.Of.Scope && h.DerivedFrom[0].ID == q.Of.ID {
			out.Heads = append(out.Heads, h)
		}
	}
	slices.SortFunc(out.Heads, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(y.LSN, x.LSN), cmp.Compare(y.Art, x.Art)) })
	return out, nil
}

// scanHeld lists held batches by id, which is by time. Rows are read from the cursor on, up to the limit. Damaged rows
// are told in the error, beside a list of the others.
func (s *Engine) scanHeld(q store.ScanQuery) (out store.ScanPage, err error) {
	var after ulid.ULID
	if q.Cursor != "" {
		if after, err = ulid.ParseStrict(q.Cursor); err != nil {
			return out, store.Invalid("cursor", q.Cursor, "a cursor from the page before")
		}
	}
	var damage error
	add := func(id ulid.ULID, row []byte, err error) (more bool) {
		var st heldState
		if err == nil {
			err = UnpackHeld(row, &st)
		}
		if err == nil {
			err = s.provedHeld(id[:], row)
		}
		if err == nil && (st.Decided != "" && !q.All || len(q.Scopes) > 0 && st.Batch.Scope != q.Scopes[0]) {
			return true
		}
		if len(out.Held) == q.Limit {
			out.Next = out.Held[q.Limit-1].Batch.ID.String()
			return false
		}
		var h store.HeldBatch
		if err == nil {
			err = UnpackHeld(row, &h)
		}
		if err != nil {
			damage = errors.Join(damage, s.Corrupt("held batch "+id.String(), err))
			return true
		}
		out.Held = append(out.Held, h)
		return true
	}
	if out.LSN, err = s.eachHeld(after, add); err != nil {
		return out, err
	}
	return out, damage
}

// heldState is what a list needs to know of a held batch that it may not show: reading the drafts takes much longer.
type heldState struct {
	Batch   struct{ Scope string }
	Decided string
}

// eachHeld gives the rows of held batches above an id, rising, until fn returns false. A row that does not check comes
// with its error.
func (s *Engine) eachHeld(after ulid.ULID, fn func(id ulid.ULID, row []byte, err error) bool) (lsn uint64, err error) {
	newer := map[ulid.ULID][]byte{}
	var ids []ulid.ULID
	s.Catalogue.Mu.RLock()
	lsn = s.Catalogue.LSN
	for _, o := range []*Overlay{s.Old, s.Overlay} {
		if o == nil {
			continue
		}
		for id, row := range o.held {
			if newer[id] == nil && id.Compare(after) > 0 {
				ids = append(ids, id)
			}
			newer[id] = row
		}
	}
	s.Catalogue.Mu.RUnlock()
	slices.SortFunc(ids, ulid.ULID.Compare)
	more := true
	upTo := func(k []byte) { // those of the overlay below k
		for more && len(ids) > 0 && (k == nil || bytes.Compare(ids[0][:], k) <= 0) {
			if row := newer[ids[0]]; len(row) > 0 { // else gc took it
				more = fn(ids[0], row, nil)
			}
			ids = ids[1:]
		}
	}
	err = s.Rows.View(func(tx Reader) error {
		for k, v := range tx.From(TableHeld, after[:]) {
			if !more {
				break
			}
			upTo(k)
			id := ulid.ULID(k)
			if !more || newer[id] != nil || id.Compare(after) <= 0 {
				continue
			}
			row, err := codec.Unseal('d', k, v)
			more = fn(id, row, err)
		}
		return nil
	})
	upTo(nil)
	return lsn, err
}

// Undecided counts the held batches that wait for review. They are counted once; install keeps the count.
func (s *Engine) Undecided() (n int, err error) {
	s.Catalogue.Mu.RLock()
	n, known, changes := s.heldOpen, s.heldKnown, s.heldChanges
	s.Catalogue.Mu.RUnlock()
	if known {
		return n, nil
	}
	n = 0
	var damage error
	_, err = s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var st heldState
		if err == nil {
			err = UnpackHeld(row, &st)
		}
		if err != nil {
			damage = errors.Join(damage, s.Corrupt("held batch "+id.String(), err))
		} else if st.Decided == "" {
			n++
		}
		return true
	})
	if err == nil && damage == nil {
		s.Catalogue.Mu.Lock()
		if s.heldChanges == changes {
			s.heldOpen, s.heldKnown = n, true
		}
		s.Catalogue.Mu.Unlock()
	}
	return n, errors.Join(err, damage)
}

func (s *Engine) scanScopes(q store.ScanQuery) (out store.ScanPage) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	out.LSN = s.Catalogue.LSN
	for _, name := range slices.Sorted(maps.Keys(s.Catalogue.byName)) {
		info := store.ScopeInfo{Name: name, Artefacts: s.Catalogue.Scopes[s.Catalogue.byName[name]-1].arts}
		if name <= q.Cursor || !strings.HasPrefix(name, q.Prefix) || name == store.OperatorScope && info.Artefacts == 0 {
			continue
		}
		if len(out.Names) == q.Limit {
			out.Next = out.Names[q.Limit-1].Name
			break
		}
		out.Names = append(out.Names, info)
	}
	return out
}

// Held reads one held batch.
func (s *Engine) Held(ctx context.Context, id ulid.ULID) (h store.HeldBatch, err error) {
	if err := s.Readable(ctx); err != nil {
		return h, err
	}
	row := s.overlayRow(func(o *Overlay) ([]byte, bool) { r, ok := o.held[id]; return r, ok })
	if row == nil {
		if row, err = s.row(TableHeld, 'd', id[:]); err != nil {
			return h, err
		}
	}
	if len(row) == 0 {
		return h, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id)
	}
	if err = UnpackHeld(row, &h); err == nil {
		err = s.provedHeld(id[:], row)
	}
	if err == nil && row[0] != heldMark {
		err = s.heldBy(ctx, id, &h)
	}
	if err != nil {
		return store.HeldBatch{}, s.Corrupt("held batch "+id.String(), err)
	}
	return h, nil
}

// State reads a state row; nil when there is none.
func (s *Engine) State(ctx context.Context, key string) ([]byte, error) {
	if err := s.Readable(ctx); err != nil {
		return nil, err
	}
	deleted := false
	row := s.overlayRow(func(o *Overlay) ([]byte, bool) {
		r, ok := o.state[key]
		deleted = deleted || ok && r == nil
		return r, ok
	})
	if row != nil || deleted {
		return slices.Clone(row), nil
	}
	return s.row(TableState, 's', []byte(key))
}

// overlayRow looks a row up in the newer, then in the older overlay; the first that has the key answers.
func (s *Engine) overlayRow(get func(*Overlay) ([]byte, bool)) []byte {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	if row, ok := get(s.Overlay); ok || s.Old == nil {
		return row
	}
	row, _ := get(s.Old)
	return row
}

// row reads and checks a row of bbolt; nil when there is none. The result is a copy.
func (s *Engine) row(t Table, tag byte, key []byte) (out []byte, err error) {
	err = s.Rows.View(func(tx Reader) error {
		v := tx.Get(t, key)
		if v == nil {
			return nil
		}
		row, err := codec.Unseal(tag, key, v)
		if err != nil {
			return s.Corrupt(fmt.Sprintf("row %x of %s", key, t), err)
		}
		out = append([]byte{}, row...)
		return nil
	})
	return out, err
}

// Info: see the Store interface.
func (s *Engine) Info(context.Context) (store.Info, error) {
	return store.Info{ID: s.info.ID, Secret: slices.Clone(s.info.Secret)}, nil
}

// Audit reads the audit log.
func (s *Engine) Audit() store.Audit { return s.Leaves.Reader(s.Question) }
