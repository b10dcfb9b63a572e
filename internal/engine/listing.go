package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// Listings. Each page of a listing is one snapshot; the listing as a whole is not. A cursor names a
// place, not a moment, so a row that is written between two pages is listed if it comes after the
// cursor. Rejected: a listing as of its first LSN. It would let its caller hold versions against gc
// for as long as it takes.
//
//	artefacts        the id of the last row           by id, from the sorted list of the scope (idList)
//	history          scope and version                bound to the artefact, so that it never goes on in another scope
//	group            a place among the members        by Seq, then in the order they were written
//	held             the id of the last batch         by id, which is by time
//	state, scopes    the key, or name, of the last    by key, over both overlays and the rows; by name
//	without vector   a page number                    by number
//	members, sourced none: all at once                answered by Same where nothing changed since Known
//
// Locks: a listing takes cat.mu for reading and may open a snapshot of the rows under it. It never
// takes cat.mu inside a snapshot (see loading). Heads are decoded anew for each call, so a caller
// may change them.

// Scan implements store.Store.
func (s *Engine) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if err := s.Readable(ctx); err != nil {
		return store.ScanPage{}, err
	}
	if err := format.CheckScan(&q); err != nil {
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
		return s.scanScopes(ctx, q)
	case store.ScanUnembedded:
		return s.scanUnembedded(ctx, q)
	}
	return s.scanArtefacts(q)
}

// scanArtefacts lists the newest versions of the artefacts of one scope, by id or latest first.
// Only artefacts that a filter and the cursor let through are read.
func (s *Engine) scanArtefacts(q store.ScanQuery) (out store.ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	n := s.cat.byName[q.Scopes[0]]
	if n == 0 {
		return out, nil
	}
	arts, last, err := s.listed(n, &q)
	if err != nil {
		return out, err
	}
	if last != 0 {
		out.Next = s.cat.cursor(last, q.Newest)
	}
	out.Heads = make([]*store.Head, 0, len(arts))
	err = s.rows.View(func(tx Reader) error { // one for all: a snapshot for each was a seventh of a long listing
		for _, art := range arts {
			if q.Brief && s.cat.art(art).live() {
				out.Heads = append(out.Heads, s.cat.brief(q.Scopes[0], art))
				continue
			}
			h, err := s.headWithin(tx, format.HeadKey{Art: art, Version: s.cat.newestOf(s.cat.art(art)).version})
			if err != nil {
				return err
			}
			h.Superseded = s.cat.supersededBy(art)
			out.Heads = append(out.Heads, h)
		}
		return nil
	})
	return out, err
}

// brief is a live artefact as the catalogue knows it.
func (c *catalogue) brief(scope string, art uint64) *store.Head {
	a := c.art(art)
	n := c.newestOf(a)
	h := &struct {
		store.Head
		row [1]store.PageRow
	}{Head: store.Head{Scope: scope, Art: art, Version: n.version, LSN: n.lsn, PutAt: codec.FromMicros(n.putAt), Artefact: store.Artefact{ID: c.id(a)}}}
	h.row[0].Num, h.Rows = uint64(a.first), h.row[:]
	return &h.Head
}

// scanHistory lists the versions of the artefact in the nearest scope that has it. The cursor names
// that scope: a nearer scope may have the id by now, and the list goes on where it began.
func (s *Engine) scanHistory(q store.ScanQuery) (out store.ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	for _, name := range q.Scopes {
		next, ours := loop.At(q.Cursor, name, q.ID)
		if q.Cursor != "" && !ours {
			continue
		}
		art := uint64(0)
		if n := s.cat.byName[name]; n != 0 {
			art = s.cat.lookup(n, q.ID)
		}
		switch from := uint32(0); {
		case art != 0:
			if from = s.cat.newestOf(s.cat.art(art)).version; ours {
				from = uint32(min(uint64(from), next))
			}
			return out, s.versionsLocked(&out, q, name, art, from)
		case ours:
			return out, nil // gc dropped the rest
		}
	}
	if q.Cursor != "" {
		return out, store.Invalid("cursor", strconv.Quote(q.Cursor), "a cursor from the page before")
	}
	return out, fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

// versionsLocked lists the versions of an artefact of scope, from one version down to the floor.
func (s *Engine) versionsLocked(out *store.ScanPage, q store.ScanQuery, scope string, art uint64, from uint32) error {
	for ; from > 0; from-- {
		if len(out.Heads) == q.Limit {
			out.Next = loop.Cursor(uint64(from), scope, q.ID)
			return nil
		}
		h, err := s.headLocked(format.HeadKey{Art: art, Version: from})
		if err != nil {
			return err
		}
		if from == s.cat.newestOf(s.cat.art(art)).version {
			h.Superseded = s.cat.supersededBy(art)
		}
		out.Heads = append(out.Heads, h)
		if h.Floor {
			break
		}
	}
	return nil
}

// scanGroup lists the heads of the members of a group, each artefact once. The cursor is a place
// among the members, so a member that comes before it during the listing shifts the rest by one.
func (s *Engine) scanGroup(q store.ScanQuery) (out store.ScanPage, err error) {
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
	last := uint32(0)
	for members := s.cat.groups[g-1].members; at < len(members); at++ {
		p := s.cat.page(uint64(members[at]))
		if p.art == last {
			continue
		}
		if len(out.Heads) == q.Limit {
			out.Next = strconv.Itoa(at)
			break
		}
		last = p.art
		h, err := s.headLocked(format.HeadKey{Art: uint64(p.art), Version: s.cat.numbers(p).head})
		if err != nil {
			return out, err
		}
		out.Heads = append(out.Heads, h)
	}
	return out, nil
}

// scanMembers reads the catalogue only. So a session of ten thousand turns is listed in less than a
// millisecond, and for a session that only got longer, only the new turns are listed.
func (s *Engine) scanMembers(q store.ScanQuery) (out store.ScanPage) {
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
		for from > 0 && s.cat.newestOf(s.cat.art(uint64(s.cat.page(uint64(members[from-1])).art))).lsn > q.Known {
			from--
		}
		members = members[from:]
	}
	out.Keys = make([]store.PageKey, 0, len(members))
	for _, num := range members {
		if p := s.cat.page(uint64(num)); !s.cat.art(uint64(p.art)).retired() {
			out.Keys = append(out.Keys, store.PageKey{Num: uint64(num), Version: s.cat.numbers(p).head})
		}
	}
	return out
}

// scanSourced reads the catalogue only. While no artefact with a source changed, it lists nothing.
func (s *Engine) scanSourced(q store.ScanQuery) (out store.ScanPage) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN, out.Same = s.cat.lsn, true
	n := s.cat.byName[q.Scopes[0]]
	if n == 0 || s.cat.scope(n).sourced <= q.Known {
		return out
	}
	out.Same = false
	for _, art := range s.cat.scope(n).byID.sorted(s.cat) {
		if a := s.cat.art(uint64(art)); a.flags&format.FlagSourced != 0 && a.live() && !a.retired() {
			out.Keys = append(out.Keys, store.PageKey{Num: uint64(a.first), Version: s.cat.newestOf(a).version})
		}
	}
	return out
}

// eachState calls fn with the state rows of a prefix, by key. Each page of rows is one snapshot.
func (s *Engine) eachState(ctx context.Context, prefix string, fn func(store.StateRow) error) error {
	for q := (store.ScanQuery{What: store.ScanState, Prefix: prefix, Limit: 1000}); ; {
		page, err := s.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.State {
			if err := fn(r); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// scanState lists state rows: overlays first, then the rows, because a checkpoint may move rows
// there in between.
func (s *Engine) scanState(q store.ScanQuery) (out store.ScanPage, err error) {
	rows := map[string]store.StateRow{}
	s.cat.mu.RLock()
	out.LSN = s.cat.lsn
	for _, o := range []*overlay{s.frozen, s.overlay} {
		if o == nil {
			continue
		}
		for key, v := range o.state {
			if strings.HasPrefix(key, q.Prefix) && key > q.Cursor {
				rows[key] = format.StateRow(key, v)
			}
		}
	}
	s.cat.mu.RUnlock()
	left := q.Limit + 1
	err = s.rows.View(func(tx Reader) error {
		for k, v := range tx.From(TableState, []byte(max(q.Prefix, q.Cursor))) {
			if left == 0 || !bytes.HasPrefix(k, []byte(q.Prefix)) {
				break
			}
			if _, known := rows[string(k)]; known || string(k) <= q.Cursor || codec.IsDestroyed(v) {
				continue
			}
			row, err := s.readState(k, v)
			if err != nil {
				return err
			}
			rows[string(k)] = row
			left--
		}
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if rows[key].LSN == 0 {
			continue // deleted
		}
		if len(out.State) == q.Limit {
			out.Next = out.State[q.Limit-1].Key
			break
		}
		out.State = append(out.State, rows[key])
	}
	return out, err
}

// scanSummaries returns the live summaries of one artefact that the chain can see. An artefact has
// few, so they are not paged.
func (s *Engine) scanSummaries(q store.ScanQuery) (out store.ScanPage, err error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	if len(s.cat.sums) == 0 {
		return out, nil
	}
	chain := s.cat.chain(q.Scopes)
	for _, art := range s.cat.sums[artKey{s.cat.byName[q.Of.Scope], q.Of.ID}] {
		a := s.cat.art(art)
		if s.cat.pageCount(art) != 1 || a.retired() || !slices.Contains(chain, a.scope) || s.cat.page(uint64(a.first)).kind != store.KindSummary {
			continue
		}
		h, err := s.headLocked(format.HeadKey{Art: art, Version: s.cat.newestOf(a).version})
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

// scanScopes lists scopes. With Space it also lists scopes that were never written to but have
// reads in the audit.
func (s *Engine) scanScopes(ctx context.Context, q store.ScanQuery) (out store.ScanPage, err error) {
	var bodies map[string]int64
	if q.Space {
		if bodies, err = s.bodiesByScope(ctx, q.Prefix); err != nil {
			return out, err
		}
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	artefacts := func(name string) int {
		if num, ok := s.cat.byName[name]; ok {
			live, _ := s.cat.counts(num)
			return live
		}
		return 0
	}
	all := func(yield func(string) bool) {
		for name := range s.cat.byName {
			if !yield(name) {
				return
			}
		}
		for name := range bodies {
			if _, ok := s.cat.byName[name]; !ok && !yield(name) {
				return
			}
		}
	}
	names := leastOf(q.Limit+1, func(yield func(string) bool) {
		for name := range all {
			listed := name > q.Cursor && strings.HasPrefix(name, q.Prefix) && (name != store.OperatorScope || artefacts(name) > 0)
			if listed && !yield(name) {
				return
			}
		}
	})
	if len(names) > q.Limit {
		names = names[:q.Limit]
		out.Next = names[q.Limit-1]
	}
	for _, name := range names {
		out.Names = append(out.Names, store.ScopeInfo{Name: name, Artefacts: artefacts(name)})
	}
	if q.Space {
		s.cat.addSpace(out.Names, bodies)
	}
	return out, nil
}

// leastOf returns the n least names of names in any order, sorted. It sorts 2n at a time and not all: a database may have a
// hundred thousand scopes, of which a listing shows a part.
func leastOf(n int, names iter.Seq[string]) (least []string) {
	cut := func() {
		slices.Sort(least)
		least = least[:min(len(least), n)]
	}
	full := false
	for name := range names {
		if full && name > least[n-1] {
			continue
		}
		if least = append(least, name); len(least) == 2*n {
			cut()
			full = true
		}
	}
	cut()
	return least
}

// The order of listings: by id, or by the commit of the newest version, latest first. Both orders
// are kept as slices by idList, which is sorted only when a listing asks.
//
// A cursor names a place in an order, not a row: the artefact it was made at may be gone when the
// next page is asked for.

// listed returns the artefacts of a scope that a query lists, and the one behind which the next
// page begins; 0: there is none. The caller holds cat.mu for reading.
//
// By id, the walk ends at the first id without the prefix; by age, ids with the prefix are anywhere,
// so it goes on to the end. With Ever it ends after historyAtOnce artefacts, because few may pass.
func (s *Engine) listed(scope uint32, q *store.ScanQuery) (out []uint64, last uint64, err error) {
	c := s.cat
	prefix := q.Prefix
	if q.Filter != nil && strings.HasPrefix(q.Filter.IDPrefix, prefix) {
		prefix = q.Filter.IDPrefix
	}
	var match *matcher
	if !q.Filter.IsZero() {
		match = newMatcher(q.Filter)
	}
	ever := c.newHistoryMatch(scope, q.Ever)
	rows, err := c.after(scope, prefix, q)
	if err != nil {
		return nil, 0, err
	}
	for i, num := range rows {
		art := uint64(num)
		if ever != nil && i == historyAtOnce {
			return out, uint64(rows[i-1]), nil
		}
		if !strings.HasPrefix(string(c.idBytes(num)), prefix) {
			if q.Newest {
				continue
			}
			break
		}
		if !q.Deleted && !c.art(art).live() {
			continue
		}
		if ever != nil && !ever.holds(c, art) {
			continue
		}
		ok := match == nil
		if !ok {
			if ok, err = s.artPasses(art, q.Filter, match); err != nil {
				return nil, 0, err
			}
		}
		if !ok {
			continue
		}
		if len(out) == q.Limit {
			return out, out[q.Limit-1], nil
		}
		out = append(out, art)
	}
	return out, 0, nil
}

// artPasses reports whether an artefact passes a filter, by the columns of its first page. A
// deleted artefact has no page, so its head is read.
func (s *Engine) artPasses(art uint64, f *store.Filter, match *matcher) (bool, error) {
	a := s.cat.art(art)
	if !a.live() {
		h, err := s.headLocked(format.HeadKey{Art: art, Version: s.cat.newestOf(a).version})
		return err == nil && f.Match(h), err
	}
	p := s.cat.page(uint64(a.first))
	w := narrowing{f: f}
	return match.holds(s.cat, p) && (!timed(f) || w.within(p.asOf, s.cat.newestOf(a).putAt)), nil
}

// after returns the artefacts behind a cursor.
func (c *catalogue) after(scope uint32, prefix string, q *store.ScanQuery) ([]uint32, error) {
	if !q.Newest {
		arts := c.scope(scope).byID.sorted(c)
		from := sort.Search(len(arts), func(i int) bool {
			id := c.idBytes(arts[i])
			return string(id) >= prefix && (q.Cursor == "" || string(id) > q.Cursor)
		})
		return arts[from:], nil
	}
	arts := c.scope(scope).byID.newest(c)
	if q.Cursor == "" {
		return arts, nil
	}
	at, id, ok := strings.Cut(q.Cursor, ".")
	lsn, err := strconv.ParseUint(at, 10, 64)
	if !ok || err != nil {
		return nil, store.Invalid("cursor", strconv.Quote(q.Cursor), "a cursor from the page before of a listing by the newest")
	}
	from := sort.Search(len(arts), func(i int) bool {
		of := c.newestOf(c.art(uint64(arts[i]))).lsn
		return of < lsn || of == lsn && string(c.idBytes(arts[i])) > id
	})
	return arts[from:], nil
}

// cursor returns the cursor behind an artefact.
func (c *catalogue) cursor(art uint64, newest bool) string {
	a := c.art(art)
	if !newest {
		return c.id(a)
	}
	return strconv.FormatUint(c.newestOf(a).lsn, 10) + "." + c.id(a)
}

// newest returns the artefacts by the commit of their newest version, latest first; within a commit
// by id. The first listing after a commit makes the order anew. The slice must not be changed.
func (l *idList) newest(c *catalogue) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aged != nil && l.aged.lsn == c.lsn {
		return l.aged.arts
	}
	byAge := slices.Clone(l.arts)
	slices.SortFunc(byAge, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(c.newestOf(c.art(uint64(b))).lsn, c.newestOf(c.art(uint64(a))).lsn), bytes.Compare(c.idBytes(a), c.idBytes(b)))
	})
	l.aged = &agedList{byAge, c.lsn}
	return byAge
}
