package ctxpage

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
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"
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
func (s *fileStore) Resolve(_ context.Context, scopes Scopes, ref Ref) (Located, error) {
	if s.closed.Load() {
		return Located{}, ErrClosed
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, name := range scopes {
		if ref.Scope != "" && ref.Scope != name {
			continue
		}
		n := s.cat.byName[name]
		if n == 0 {
			continue
		}
		art := s.cat.lookup(n, ref.ID)
		if art == 0 {
			continue
		}
		a := s.cat.art(art)
		if ref.Version != 0 && ref.Version != a.version {
			return s.resolveOld(name, art, ref)
		}
		if a.pages == 0 {
			if _, err := s.headLocked(headKey{art, a.version}); err != nil { // a row that was edited may say so, too
				return Located{}, err
			}
			if ref.Version == 0 && ref.Scope == "" {
				continue // deleted here: an ancestor's may stand
			}
			ref.Scope = name // for the error
			return Located{Scope: name, Version: a.version, LSN: a.lsn, Deleted: true}, fmt.Errorf("%w: %s was deleted", ErrNotFound, ref)
		}
		return s.locate(name, art, ref)
	}
	return Located{}, fmt.Errorf("%w: %q", ErrNotFound, ref.ID)
}

func (s *fileStore) locate(scope string, art uint64, ref Ref) (Located, error) {
	a := s.cat.art(art)
	nums := s.cat.nums(art)
	if ref.Page > len(nums) {
		ref.Scope = scope // for the error
		return Located{}, fmt.Errorf("%w: %s has %d pages", ErrNotFound, ref, len(nums))
	}
	if ref.Page > 0 {
		nums = nums[ref.Page-1 : ref.Page]
	}
	l := Located{Scope: scope, Version: a.version, LSN: a.lsn, Current: true, Expires: s.cat.page(nums[0]).expires}
	if a.by != 0 {
		l.By, l.ByID = s.cat.art(a.by).first, s.cat.supersededBy(a)
	}
	l.Pages = make([]PageKey, len(nums))
	for i, n := range nums {
		l.Pages[i] = PageKey{Num: n, Version: a.version}
	}
	return l, nil
}

// resolveOld finds an older version. The caller holds cat.mu; head rows are read under it, which history can afford.
func (s *fileStore) resolveOld(scope string, art uint64, ref Ref) (Located, error) {
	a := s.cat.art(art)
	ref.Scope = scope // for the errors
	if ref.Version > a.version {
		return Located{}, fmt.Errorf("%w: %s has versions up to %d", ErrNotFound, ref, a.version)
	}
	h, err := s.headLocked(headKey{art, ref.Version})
	if err != nil {
		return Located{}, err
	}
	if h.Gone {
		return s.locateGone(scope, h, ref)
	}
	l := Located{Scope: scope, Version: h.Version, LSN: h.LSN, Deleted: h.Deleted, Expires: codec.Micros(h.ExpiresAt)}
	for i := range h.Rows {
		if ref.Page == 0 || ref.Page == i+1 {
			l.Pages = append(l.Pages, PageKey{Num: h.Rows[i].Num, Version: h.Version})
		}
	}
	if len(l.Pages) == 0 {
		return l, fmt.Errorf("%w: %s", ErrNotFound, ref)
	}
	return l, nil
}

func (s *fileStore) head(k headKey) (*Head, error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.headLocked(k)
}

// headLocked reads a head: overlay first, then bbolt. The other order would miss a row applied in between.
func (s *fileStore) headLocked(k headKey) (h *Head, err error) {
	row := s.over.heads[k]
	if row == nil && s.old != nil {
		row = s.old.heads[k]
	}
	if row != nil {
		return decodeHead(row, s.cat.scopeName)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		h, err = s.headIn(tx, k)
		return err
	})
	return h, err
}

// loading is a Load under way. Names are taken along with the catalogue's lock, because nothing may take that lock
// inside a transaction of bbolt: a reader there who waits for it, while the checkpoint waits for readers to remap the
// file, while a search holds the lock and waits for the checkpoint, would wait for ever.
type loading struct {
	s       *fileStore
	want    Want
	out     []Loaded
	arts    []uint64
	newest  []uint32 // version up to which the artefact has a head row each
	rows    [][]byte // of heads, from the overlay
	missing []int    // what the overlay did not have, in whole or in part
	names   map[uint32]string
	groups  map[uint64]string
	heads   map[headKey]*Head
	later   []unnamed
}

// Load: see the Store interface. Pages outside the chain give ErrNotFound, as if they did not exist.
func (s *fileStore) Load(ctx context.Context, scopes Scopes, keys []PageKey, want Want) ([]Loaded, error) {
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	l := &loading{
		s: s, want: want, out: make([]Loaded, len(keys)), arts: make([]uint64, len(keys)), newest: make([]uint32, len(keys)), rows: make([][]byte, len(keys)),
		names: map[uint32]string{}, groups: map[uint64]string{}, heads: map[headKey]*Head{},
	}
	l.look(scopes, keys)
	for i := range keys {
		if l.rows[i] == nil {
			continue
		}
		if err := l.head(i, l.rows[i]); err != nil {
			return nil, s.corrupt("head in the log", err)
		}
	}
	if len(l.missing) > 0 {
		if err := s.view(l.fromFile); err != nil {
			return nil, err
		}
	}
	l.proveLater()
	l.texts()
	return l.out, nil
}

// texts holds what was read against the digests of the heads.
func (l *loading) texts() {
	if l.want != WantText {
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
func (l *loading) look(scopes Scopes, keys []PageKey) {
	c := l.s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	var chain []uint32 // nil: the operator's view of all scopes
	if scopes != nil {
		chain = c.chain(scopes)
	}
	for i, k := range keys {
		p, err := c.visible(k.Num, chain)
		if err != nil {
			l.out[i] = Loaded{Key: k, Err: err}
			continue
		}
		k.Version = cmp.Or(k.Version, p.head, p.version)
		l.out[i], l.arts[i], l.names[p.scope] = Loaded{Key: k, Page: int(p.page)}, p.art, c.scopeName(p.scope)
		l.newest[i] = c.art(p.art).version
		l.nameGroup(p)
		l.rows[i] = l.s.overlayHead(headKey{p.art, k.Version})
		whole := l.rows[i] != nil
		if l.want == WantText {
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
	k := headKey{l.arts[i], o.Key.Version}
	if l.heads[k] == nil {
		if l.heads[k], err = decodeHead(row, func(n uint32) string { return l.names[n] }); err != nil {
			return err
		}
	}
	l.take(o, l.heads[k])
	return nil
}

// take says what a decoded head has of a page.
func (*loading) take(o *Loaded, h *Head) {
	if o.Page > len(h.Rows) || h.Rows[o.Page-1].Num != o.Key.Num {
		o.Err = fmt.Errorf("%w: version %d has no page %d", ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if o.Head = h; h.Gone {
		o.Err = store.GoneError(h, o.Page)
	}
}

// fromFile reads from bbolt what the overlay did not have.
func (l *loading) fromFile(tx *bbolt.Tx) error {
	meta, content := tx.Bucket(bucketMeta), tx.Bucket(bucketContent)
	for _, i := range l.missing {
		o := &l.out[i]
		if o.Head == nil && o.Err == nil {
			l.headIn(meta, i)
		}
		if l.want == WantText && o.Err == nil && o.Text == "" {
			o.Text, o.Err = l.s.textIn(content, o.Key.Num) // an empty text has a row, too
		}
	}
	return nil
}

func (l *loading) headIn(meta *bbolt.Bucket, i int) {
	o := &l.out[i]
	k := headKey{l.arts[i], o.Key.Version}
	if h := l.heads[k]; h != nil { // its checksum was looked at with the first of its pages
		l.take(o, h)
		return
	}
	key := headRowKey(k)
	v := meta.Get(key)
	if v == nil && o.Key.Version > l.newest[i] {
		o.Err = fmt.Errorf("%w: version %d of page %d", ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if v == nil {
		if row, err := floorOf(meta, k); row != nil && err == nil {
			h, err := decodeHead(row, func(n uint32) string { return l.names[n] })
			if err == nil {
				err = l.prove(headKey{k.art, h.Version}, row)
			}
			if err == nil {
				o.Head = h.Below(k.version)
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
		o.Err = l.s.corrupt(fmt.Sprintf("head row %x", key), err)
	}
}

// prove compares a row with its digest. An older version may have been in another group than its artefact is now: its
// name is asked for when the transaction of bbolt is over.
func (l *loading) prove(k headKey, row []byte) error {
	t := decodeHot(&codec.Decoder{B: row})
	if _, known := l.groups[t.group]; t.group != 0 && !known {
		l.later = append(l.later, unnamed{k, slices.Clone(row)})
		return nil
	}
	return l.s.provedHead(k, row, func(t *hot) (scope, group string) { return l.names[t.scope], l.groups[t.group] })
}

// unnamed is a row of a group whose name is not known yet.
type unnamed struct {
	k   headKey
	row []byte
}

// proveLater compares the rows that prove put off.
func (l *loading) proveLater() {
	if len(l.later) == 0 {
		return
	}
	l.s.cat.mu.RLock()
	defer l.s.cat.mu.RUnlock()
	for _, u := range l.later {
		err := l.s.provedHead(u.k, u.row, l.s.cat.names)
		if err == nil {
			continue
		}
		for i := range l.out {
			if l.arts[i] == u.k.art && l.out[i].Key.Version == u.k.version {
				l.out[i] = Loaded{Key: l.out[i].Key, Page: l.out[i].Page, Err: l.s.corrupt(fmt.Sprintf("head row %x", headRowKey(u.k)), err)}
			}
		}
	}
}

// withoutLost is a head without what would make a page pass for one of its own whose text can no longer be read: putting
// the text again must bring it back.
func (s *fileStore) withoutLost(h *Head, pages []NewPage) (*Head, error) {
	if h == nil {
		return nil, nil
	}
	var same []int
	s.cat.mu.RLock()
	for i := range min(len(h.Rows), len(pages)) {
		if _, ok := s.overlayText(h.Rows[i].Num); !ok && h.Rows[i].Hash == pages[i].Hash {
			same = append(same, i)
		}
	}
	s.cat.mu.RUnlock()
	if len(same) == 0 {
		return h, nil
	}
	out := *h
	out.Rows = slices.Clone(h.Rows)
	err := s.view(func(tx *bbolt.Tx) error {
		for _, i := range same {
			text, err := s.textIn(tx.Bucket(bucketContent), h.Rows[i].Num)
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
	if g := l.s.cat.art(p.art).group; g != 0 {
		l.groups[g] = l.s.cat.groups[g-1].name
	}
}

func (s *fileStore) scopeName(n uint32) string {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.scopeName(n)
}

// visible refuses pages outside the chain.
func (c *catalogue) visible(num uint64, chain []uint32) (*pageCol, error) {
	if num == 0 || num > uint64(len(c.pages)) {
		return nil, fmt.Errorf("%w: page %d", ErrNotFound, num)
	}
	p := c.page(num)
	if p.art == 0 {
		return nil, fmt.Errorf("%w: page %d", ErrGone, num)
	}
	if chain != nil && !slices.Contains(chain, p.scope) {
		return nil, fmt.Errorf("%w: page %d", ErrNotFound, num)
	}
	return p, nil
}

func (s *fileStore) overlayHead(k headKey) []byte {
	if row := s.over.heads[k]; row != nil {
		return row
	}
	if s.old != nil {
		return s.old.heads[k]
	}
	return nil
}

func (s *fileStore) overlayText(num uint64) (string, bool) {
	if t, ok := s.over.texts[num]; ok {
		return t, true
	}
	if s.old != nil {
		t, ok := s.old.texts[num]
		return t, ok
	}
	return "", false
}

// boltRows lets the lexical index read its segments.
type boltRows struct{ b *bbolt.Bucket }

func (r boltRows) Get(key []byte) []byte { return r.b.Get(key) }

func (r boltRows) Scan(prefix []byte, fn func(k, v []byte) bool) {
	c := r.b.Cursor()
	for k, v := c.Seek(prefix); k != nil && len(k) >= len(prefix) && string(k[:len(prefix)]) == string(prefix); k, v = c.Next() {
		if !fn(k, v) {
			return
		}
	}
}

func (r boltRows) Put(k, v []byte) error { return r.b.Put(k, v) }
func (r boltRows) Delete(k []byte) error { return r.b.Delete(k) }

// corpus answers the lexical index for one query, under cat.mu.
type corpus struct {
	c       *catalogue
	q       *CandidateQuery
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
func (s *fileStore) Candidates(ctx context.Context, q CandidateQuery) (out Candidates, err error) {
	if err := s.readable(ctx); err != nil {
		return out, err
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
	if q.Session != "" {
		v.session = s.cat.named[artKey{s.cat.byName[q.Scopes[0]], q.Session}]
	}
	if out.LSN < s.cat.lsn {
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
	out.Hits = s.cat.candidates(f.found)
	s.countExcluded(v, &f.q, &out)
	return out, nil
}

// search proposes by words, and names the nearest misses among what the exclusions keep out.
func (s *fileStore) search(v *corpus, q *CandidateQuery, out *Candidates) (hits []lexical.Hit, err error) {
	var weights lexical.Weights
	if q.Weights != nil {
		weights = *q.Weights
	}
	err = s.view(func(tx *bbolt.Tx) error {
		rows := boltRows{tx.Bucket(bucketSeg)}
		if hits, err = s.idx.Search(rows, v, lexical.Query{Scopes: v.chain, Terms: q.Terms, K: q.K, Weights: weights}); err != nil {
			return s.badIndex(err)
		}
		s.nameSuperseded(hits, out)
		if len(q.Mask) > 0 {
			if out.Stats, err = s.idx.Stats(v.chain, rows, q.Terms); err != nil {
				return s.badIndex(err)
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
	q      CandidateQuery
	corpus corpus
	chain  []uint32
	found  []proposal
	lists  merge
}

// candidates describes the pages that were found, each once, in the order of their numbers.
func (c *catalogue) candidates(found []proposal) []Candidate {
	var out []Candidate
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

// badIndex is the error of a question that met damage in the index. It is made again from the pages by the next open.
func (s *fileStore) badIndex(err error) error {
	s.reindex.Store(true)
	return &CorruptError{File: s.opts.path, Err: fmt.Errorf("bucket seg: %w", err), Hint: "close it, and open it for writing: the index is made again from the pages"}
}

// searchMisses names the nearest of what each exclusion keeps out. One search for all of them mostly finds some of each;
// a reason that others crowded out is asked for by itself.
func (s *fileStore) searchMisses(v *corpus, q *CandidateQuery, rows boltRows, weights lexical.Weights, out *Candidates) error {
	e := s.cat.count(v.chain, q, v.session)
	if e.expired+e.floor+e.turns == 0 && len(q.Kinds) == 0 {
		return nil
	}
	look := func(only string, k int) (int, error) {
		miss := *v
		miss.misses, miss.only, miss.reasons = true, only, map[uint64]string{}
		hits, err := s.idx.Search(rows, &miss, lexical.Query{Scopes: v.chain, Terms: q.Terms, K: k, Weights: weights})
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
	for _, r := range []struct {
		reason string
		n      int
	}{{store.ReasonExpired, e.expired}, {store.ReasonFloor, e.floor}, {store.ReasonOther, e.turns}, {store.ReasonKind, len(q.Kinds)}} {
		if r.n > 0 && !slices.ContainsFunc(out.Excluded, func(e Excluded) bool { return e.Reason == r.reason }) {
			if _, err := look(r.reason, nearestMisses); err != nil {
				return err
			}
		}
	}
	return nil
}

// nameSuperseded names the artefacts whose words were found and for which the one that replaced them answers.
func (s *fileStore) nameSuperseded(hits []lexical.Hit, out *Candidates) {
	left := nearestMisses
	for _, h := range hits {
		if h.Via == 0 || left == 0 || s.cat.art(s.cat.page(h.Via).art).by == 0 {
			continue
		}
		left--
		c := s.cat.candidate(h.Via)
		c.Excluded = store.ReasonSuperseded
		c.Lexical.Own = h.Own
		addMiss(out, c)
	}
}

// nameUnread says of which pages the question could not be asked: their words cannot be read. One that is a candidate
// all the same is found damaged when it is loaded.
func (s *fileStore) nameUnread(v *corpus, q *CandidateQuery, found []proposal, out *Candidates) {
	n := 0
	for _, num := range s.unread {
		if slices.ContainsFunc(found, func(p proposal) bool { return p.num == num }) || s.cat.resolve(num, q.AsOf, nil) != num || !v.shown(num) {
			continue
		}
		n++
		c := s.cat.candidate(num)
		c.Excluded = store.ReasonDamaged
		addMiss(out, c)
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e Excluded) bool { return e.Reason == store.ReasonDamaged })
		out.Excluded[i].Count = n
	}
}

func addMiss(o *Candidates, c Candidate) {
	i := slices.IndexFunc(o.Excluded, func(e Excluded) bool { return e.Reason == c.Excluded })
	if i < 0 {
		i = len(o.Excluded)
		o.Excluded = append(o.Excluded, Excluded{Reason: c.Excluded})
	}
	o.Excluded[i].Matched++
	if len(o.Excluded[i].Nearest) < nearestMisses {
		o.Excluded[i].Nearest = append(o.Excluded[i].Nearest, c)
	}
}

// standing adds what is a candidate whatever it says: pinned pages, human-verified ones, and the newest.
func (s *fileStore) standing(f *finding) {
	v, q := &f.corpus, &f.q
	add := func(num uint64, recent bool) bool {
		live := s.cat.resolve(num, q.AsOf, nil)
		if live != num || !v.shown(num) {
			return false
		}
		f.found = append(f.found, proposal{num: num, recent: recent})
		return true
	}
	if q.AsOf != 0 && q.AsOf < s.cat.lsn {
		s.cat.stood(v.chain, q.AsOf, func(num uint64) { add(num, false) })
	}
	f.lists.reset()
	for _, n := range v.chain {
		sc := &s.cat.scopes[n-1]
		for _, num := range sc.standing {
			add(num, false)
		}
		left := verifiedPages
		sc.classes[HumanVerified].recent.descend(func(e entry) bool {
			if add(e.num, false) {
				left--
			}
			return left > 0
		})
		for prov := range sc.classes {
			if Provenance(prov) < q.Floor {
				continue // but for those of the session
			}
			s.firstOf(&sc.classes[prov].recent, q, add)
			f.lists.add(&sc.classes[prov].recent)
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

// firstOf adds the newest pages of a list that hold the best of it: within a provenance the younger page is always ahead
// by recency and trust, so that a first pass over them is one over the whole scope.
func (s *fileStore) firstOf(list *order, q *CandidateQuery, add func(num uint64, recent bool) bool) {
	left := q.Newest
	if left <= 0 {
		return
	}
	list.descend(func(e entry) bool {
		if add(e.num, false) && !s.cat.page(e.num).stands() {
			left--
		}
		return left > 0
	})
}

// readSwept takes the catalogue's lock for reading, with the lists of recent pages as a question of this time needs them,
// and gives the numbers of its scopes, in the memory of chain.
func (s *fileStore) readSwept(chain []uint32, q *CandidateQuery) []uint32 {
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

// stood gives the pinned and system pages of a chain that were current as of an LSN and are not any more: the lists of
// the catalogue know those of now only. It looks at every column, which a look into the past can afford.
func (c *catalogue) stood(chain []uint32, asOf uint64, fn func(num uint64)) {
	for i := range c.pages {
		if p := &c.pages[i]; p.art != 0 && (p.end > asOf || c.stoodUntil(p, asOf)) && p.lsn <= asOf && p.stands() && slices.Contains(chain, p.scope) {
			fn(uint64(i + 1))
		}
	}
}

func (c *catalogue) candidate(num uint64) Candidate {
	var out Candidate
	out.Ref.ID = string(c.describe(&out, num))
	return out
}

// describe fills in all of a candidate but its id, which it gives. It sets field by field: a candidate is large, and
// making one to copy it takes as long as choosing the page.
func (c *catalogue) describe(out *Candidate, num uint64) (id []byte) {
	p := c.page(num)
	a := c.art(p.art)
	*out = Candidate{}
	out.Key = PageKey{Num: num, Version: p.head}
	out.Ref.Scope, out.Ref.Page, out.Ref.Version = c.scopeName(p.scope), int(p.page), p.version
	out.Kind, out.Provenance, out.AsOf, out.Tokens = p.kind, p.prov, p.asOf, int(p.tokens)
	out.Pinned, out.Group, out.Seq = p.flags&flagPinned != 0, a.group, p.seq
	if a.group != 0 {
		out.GroupName = c.groups[a.group-1].name
	}
	return c.keys[a.keyAt : a.keyAt+uint64(a.keyLen)]
}

// countExcluded adds the counts, which need no look at the pages, and puts the reasons in a fixed order.
func (s *fileStore) countExcluded(v *corpus, q *CandidateQuery, out *Candidates) {
	e := s.cat.count(v.chain, q, v.session)
	for _, r := range []struct {
		reason string
		n      int
	}{{store.ReasonExpired, e.expired}, {store.ReasonFloor, e.floor}, {store.ReasonSuperseded, e.retired}, {store.ReasonOther, e.turns}, {store.ReasonKind, 0}} {
		i := slices.IndexFunc(out.Excluded, func(e Excluded) bool { return e.Reason == r.reason })
		switch {
		case i >= 0:
			out.Excluded[i].Count = max(r.n, len(out.Excluded[i].Nearest))
		case r.n > 0:
			out.Excluded = append(out.Excluded, Excluded{Reason: r.reason, Count: r.n})
		}
	}
	slices.SortFunc(out.Excluded, func(a, b Excluded) int { return cmp.Compare(a.Reason, b.Reason) })
}

// LSN: see the Store interface.
func (s *fileStore) LSN() uint64 {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.lsn
}

// readable is asked first by what reads.
func (s *fileStore) readable(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Scan: see the Store interface.
func (s *fileStore) Scan(ctx context.Context, q ScanQuery) (ScanPage, error) {
	if err := s.readable(ctx); err != nil {
		return ScanPage{}, err
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1<<30)
	switch q.What {
	case ScanHistory:
		return s.scanHistory(q)
	case ScanGroup:
		return s.scanGroup(q)
	case ScanHeld:
		return s.scanHeld(q)
	case ScanSummaries:
		return s.scanSummaries(q)
	case ScanMembers:
		return s.scanMembers(q), nil
	case ScanState:
		return s.scanState(q)
	case ScanSourced:
		return s.scanSourced(q), nil
	case ScanScopes:
		return s.scanScopes(q), nil
	}
	return s.scanArtefacts(q)
}

func (s *fileStore) scanArtefacts(q ScanQuery) (out ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	n := s.cat.byName[q.Scopes[0]]
	if n == 0 {
		return out, nil
	}
	arts := s.cat.list(n, q.Prefix, q.Cursor, q.Deleted, q.Limit+1)
	if len(arts) > q.Limit {
		arts = arts[:q.Limit]
		out.Next = s.cat.id(s.cat.art(arts[q.Limit-1]))
	}
	for _, art := range arts {
		h, err := s.headLocked(headKey{art, s.cat.art(art).version})
		if err != nil {
			return out, err
		}
		h.Superseded = s.cat.supersededBy(s.cat.art(art))
		out.Heads = append(out.Heads, h)
	}
	return out, nil
}

func (s *fileStore) scanHistory(q ScanQuery) (out ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	for _, name := range q.Scopes {
		art := uint64(0)
		if n := s.cat.byName[name]; n != 0 {
			art = s.cat.lookup(n, q.ID)
		}
		if art == 0 {
			continue
		}
		from := s.cat.art(art).version
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
			h, err := s.headLocked(headKey{art, from})
			if err != nil {
				return out, err
			}
			if from == s.cat.art(art).version {
				h.Superseded = s.cat.supersededBy(s.cat.art(art))
			}
			out.Heads = append(out.Heads, h)
			if h.Floor {
				break
			}
		}
		return out, nil
	}
	return out, fmt.Errorf("%w: %q in %s", ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

func (s *fileStore) scanGroup(q ScanQuery) (out ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	g := s.cat.named[artKey{s.cat.byName[q.Scopes[0]], q.Group}]
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
	for members := s.cat.groups[g-1].members; at < len(members); at++ {
		p := s.cat.page(members[at])
		if p.art == last {
			continue
		}
		if len(out.Heads) == q.Limit {
			out.Next = strconv.Itoa(at)
			break
		}
		last = p.art
		h, err := s.headLocked(headKey{p.art, p.head})
		if err != nil {
			return out, err
		}
		out.Heads = append(out.Heads, h)
	}
	return out, nil
}

// scanMembers reads the catalogue only, so that a session of ten thousand turns is listed in less than a millisecond, and
// of one that only got longer what came.
func (s *fileStore) scanMembers(q ScanQuery) (out ScanPage) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	g := s.cat.named[artKey{s.cat.byName[q.Scopes[0]], q.Group}]
	if g == 0 {
		return out
	}
	members := s.cat.groups[g-1].members
	if out.Same = s.cat.groups[g-1].moved <= q.Known; out.Same {
		from := len(members)
		for from > 0 && s.cat.art(s.cat.page(members[from-1]).art).lsn > q.Known {
			from--
		}
		members = members[from:]
	}
	out.Keys = make([]PageKey, 0, len(members))
	for _, num := range members {
		if p := s.cat.page(num); s.cat.art(p.art).by == 0 {
			out.Keys = append(out.Keys, PageKey{Num: num, Version: p.head})
		}
	}
	return out
}

// scanSourced reads the catalogue only: nothing, while no artefact with a source changed.
func (s *fileStore) scanSourced(q ScanQuery) (out ScanPage) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN, out.Same = s.cat.lsn, true
	n := s.cat.byName[q.Scopes[0]]
	if n == 0 || s.cat.scopes[n-1].sourced <= q.Known {
		return out
	}
	out.Same = false
	for _, art := range s.cat.scopes[n-1].byID.sorted(s.cat) {
		if a := s.cat.art(uint64(art)); a.flags&flagSourced != 0 && a.pages > 0 && a.by == 0 {
			out.Keys = append(out.Keys, PageKey{Num: a.first, Version: a.version})
		}
	}
	return out
}

// scanState lists state rows: the overlay first, then bbolt, which may have taken rows over in between.
func (s *fileStore) scanState(q ScanQuery) (out ScanPage, err error) {
	rows := map[string][]byte{}
	s.cat.mu.RLock()
	out.LSN = s.cat.lsn
	for _, o := range []*overlay{s.old, s.over} {
		if o == nil {
			continue
		}
		for key, v := range o.state {
			if strings.HasPrefix(key, q.Prefix) && key > q.Cursor {
				rows[key] = v
			}
		}
	}
	s.cat.mu.RUnlock()
	left := q.Limit + 1
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketState).Cursor()
		for k, v := c.Seek([]byte(max(q.Prefix, q.Cursor))); left > 0 && bytes.HasPrefix(k, []byte(q.Prefix)); k, v = c.Next() {
			if _, known := rows[string(k)]; known || string(k) <= q.Cursor {
				continue
			}
			row, err := codec.Unseal('s', k, v)
			if err != nil {
				return s.corrupt(fmt.Sprintf("state row %q", k), err)
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
		out.State = append(out.State, StateRow{Key: key, Value: rows[key]})
	}
	return out, err
}

// scanSummaries gives the live summaries of one page that the chain can see. There are few of one artefact.
func (s *fileStore) scanSummaries(q ScanQuery) (out ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	if len(s.cat.sums) == 0 {
		return out, nil
	}
	chain := s.cat.chain(q.Scopes)
	for _, art := range s.cat.sums[artKey{s.cat.byName[q.Of.Scope], q.Of.ID}] {
		a := s.cat.art(art)
		if a.pages != 1 || a.by != 0 || !slices.Contains(chain, a.scope) || s.cat.page(a.first).kind != KindSummary {
			continue
		}
		h, err := s.headLocked(headKey{art, a.version})
		if err != nil {
			return out, err
		}
		if len(h.DerivedFrom) == 1 && h.DerivedFrom[0].Scope == q.Of.Scope && h.DerivedFrom[0].ID == q.Of.ID {
			out.Heads = append(out.Heads, h)
		}
	}
	slices.SortFunc(out.Heads, func(x, y *Head) int { return cmp.Or(cmp.Compare(y.LSN, x.LSN), cmp.Compare(y.Art, x.Art)) })
	return out, nil
}

// scanHeld lists held batches by id, which is by time. Rows are read from the cursor on, up to the limit. Damaged rows
// are told in the error, beside a list of the others.
func (s *fileStore) scanHeld(q ScanQuery) (out ScanPage, err error) {
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
			err = unpackHeld(row, &st)
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
		var h HeldBatch
		if err == nil {
			err = unpackHeld(row, &h)
		}
		if err != nil {
			damage = errors.Join(damage, s.corrupt("held batch "+id.String(), err))
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
func (s *fileStore) eachHeld(after ulid.ULID, fn func(id ulid.ULID, row []byte, err error) bool) (lsn uint64, err error) {
	newer := map[ulid.ULID][]byte{}
	var ids []ulid.ULID
	s.cat.mu.RLock()
	lsn = s.cat.lsn
	for _, o := range []*overlay{s.old, s.over} {
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
	s.cat.mu.RUnlock()
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
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketHeld).Cursor()
		for k, v := c.Seek(after[:]); more && k != nil; k, v = c.Next() {
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

// undecided counts the held batches that wait for review. They are counted once; install keeps the count.
func (s *fileStore) undecided() (n int, err error) {
	s.cat.mu.RLock()
	n, known, changes := s.heldOpen, s.heldKnown, s.heldChanges
	s.cat.mu.RUnlock()
	if known {
		return n, nil
	}
	n = 0
	var damage error
	_, err = s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var st heldState
		if err == nil {
			err = unpackHeld(row, &st)
		}
		if err != nil {
			damage = errors.Join(damage, s.corrupt("held batch "+id.String(), err))
		} else if st.Decided == "" {
			n++
		}
		return true
	})
	if err == nil && damage == nil {
		s.cat.mu.Lock()
		if s.heldChanges == changes {
			s.heldOpen, s.heldKnown = n, true
		}
		s.cat.mu.Unlock()
	}
	return n, errors.Join(err, damage)
}

func (s *fileStore) scanScopes(q ScanQuery) (out ScanPage) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	for _, name := range slices.Sorted(maps.Keys(s.cat.byName)) {
		info := ScopeInfo{Name: name, Artefacts: s.cat.scopes[s.cat.byName[name]-1].arts}
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
func (s *fileStore) Held(ctx context.Context, id ulid.ULID) (h HeldBatch, err error) {
	if err := s.readable(ctx); err != nil {
		return h, err
	}
	row := s.overlayRow(func(o *overlay) ([]byte, bool) { r, ok := o.held[id]; return r, ok })
	if row == nil {
		if row, err = s.row(bucketHeld, 'd', id[:]); err != nil {
			return h, err
		}
	}
	if len(row) == 0 {
		return h, fmt.Errorf("%w: no held batch %s", ErrNotFound, id)
	}
	if err = unpackHeld(row, &h); err == nil {
		err = s.provedHeld(id[:], row)
	}
	if err == nil && row[0] != heldMark {
		err = s.heldBy(ctx, id, &h)
	}
	if err != nil {
		return HeldBatch{}, s.corrupt("held batch "+id.String(), err)
	}
	return h, nil
}

// State reads a state row; nil when there is none.
func (s *fileStore) State(ctx context.Context, key string) ([]byte, error) {
	if err := s.readable(ctx); err != nil {
		return nil, err
	}
	deleted := false
	row := s.overlayRow(func(o *overlay) ([]byte, bool) {
		r, ok := o.state[key]
		deleted = deleted || ok && r == nil
		return r, ok
	})
	if row != nil || deleted {
		return slices.Clone(row), nil
	}
	return s.row(bucketState, 's', []byte(key))
}

// overlayRow looks a row up in the newer, then in the older overlay; the first that has the key answers.
func (s *fileStore) overlayRow(get func(*overlay) ([]byte, bool)) []byte {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if row, ok := get(s.over); ok || s.old == nil {
		return row
	}
	row, _ := get(s.old)
	return row
}

// row reads and checks a row of bbolt; nil when there is none. The result is a copy.
func (s *fileStore) row(bucket []byte, tag byte, key []byte) (out []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucket).Get(key)
		if v == nil {
			return nil
		}
		row, err := codec.Unseal(tag, key, v)
		if err != nil {
			return s.corrupt(fmt.Sprintf("row %x of bucket %s", key, bucket), err)
		}
		out = append([]byte{}, row...)
		return nil
	})
	return out, err
}

// Info: see the Store interface.
func (s *fileStore) Info(context.Context) (Info, error) {
	return Info{ID: s.sys.ID, Secret: slices.Clone(s.sys.Secret)}, nil
}

// Manifests is the audit log.
func (s *fileStore) Manifests() *manifest.Log { return s.man }
