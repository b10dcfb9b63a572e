package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// at is the newest version of an artefact as of an LSN, nil where there is none.
func (m *Memory) at(of name, asOf uint64) (newest *store.Head) {
	for _, h := range m.heads {
		if nameOf(h) == of && h.LSN <= asOf {
			newest = h
		}
	}
	return newest
}

// versions are those of an artefact: version n is the nth.
func (m *Memory) versions(of name) (vs []*store.Head) {
	for _, h := range m.heads {
		if nameOf(h) == of {
			vs = append(vs, h)
		}
	}
	return vs
}

// current is the newest version of every artefact, by its number.
func (m *Memory) current() []*store.Head {
	newest := make([]*store.Head, len(m.arts))
	for _, h := range m.heads {
		newest[h.Art-1] = h
	}
	return newest
}

// supersededBy is the newest version that superseded the artefact of another since that was written, as of an LSN; nil: none.
func (m *Memory) supersededBy(of *store.Head, asOf uint64) (by *store.Head) {
	for _, h := range m.heads {
		if h.Scope == of.Scope && h.Art != of.Art && h.LSN >= of.LSN && h.LSN <= asOf && slices.Contains(h.Supersedes, of.ID) {
			by = h
		}
	}
	return by
}

// answers is the page that answers for a page version as of an LSN; 0: none does. A deletion ends what was before it.
func (m *Memory) answers(num, asOf uint64) uint64 {
	for range len(m.arts) + 1 { // artefacts may supersede each other
		p := m.pages[num-1]
		h := m.at(p.of, asOf)
		if h == nil || p.LSN > asOf || slices.ContainsFunc(m.versions(p.of), func(v *store.Head) bool { return v.Deleted && v.LSN > p.LSN && v.LSN <= asOf }) {
			return 0
		}
		by := m.supersededBy(h, asOf)
		if by == nil {
			if num = h.Rows[min(p.at, len(h.Rows))-1].Num; m.pages[num-1].gone != 0 {
				return 0
			}
			return num
		}
		if by = m.at(nameOf(by), asOf); len(by.Rows) == 0 {
			return 0
		}
		num = by.Rows[0].Num
	}
	return 0
}

// headOf is the newest version that has a page.
func (m *Memory) headOf(p *page) (newest *store.Head) {
	for _, h := range m.heads {
		if has(h, p) {
			newest = h
		}
	}
	return newest
}

func has(h *store.Head, p *page) bool { return len(h.Rows) >= p.at && h.Rows[p.at-1].Num == p.Num }

func live(h *store.Head) bool { return !h.Deleted && !h.Gone }

func expired(h *store.Head, now time.Time) bool {
	return !h.ExpiresAt.IsZero() && h.ExpiresAt.UnixMicro() <= now.UnixMicro()
}

// Info: see store.Store.
func (m *Memory) Info(context.Context) (store.Info, error) { return own(m.info), nil }

// Mark: see store.Store.
func (m *Memory) Mark() store.Mark {
	defer m.locked()()
	return store.Mark{LSN: m.lsn}
}

// Refresh: see store.Store.
func (m *Memory) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	at := m.Mark()
	if err := m.usable(ctx); err != nil || at.LSN >= atLeast {
		return at, err
	}
	return at, store.Invalid("lsn", fmt.Sprint(atLeast), fmt.Sprintf("at most %d, the newest", at.LSN))
}

// Outcome: see store.Store.
func (m *Memory) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	defer m.locked()()
	known, ok := m.outcomes[id]
	switch err := m.usable(ctx); {
	case err != nil || ok:
		return own(known.Outcome), err
	case m.cfg.Now().Sub(ulid.Time(id.Time())) > outcomeDays:
		return store.Outcome{}, fmt.Errorf("%w: %s", store.ErrTxnExpired, id)
	}
	return store.Outcome{}, fmt.Errorf("%w: no batch %s", store.ErrNotFound, id)
}

// Hold: see store.Store.
func (m *Memory) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	defer m.locked()()
	m.ticket++
	m.holds[m.ticket] = at
	return m.ticket, m.usable(ctx)
}

// Release: see store.Store.
func (m *Memory) Release(t store.Ticket) {
	defer m.locked()()
	delete(m.holds, t)
}

// Changes: see store.Store.
func (m *Memory) Changes(ctx context.Context, after uint64, wait time.Duration) (out store.Changes, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waited := wait <= 0; ; {
		unlock := m.locked()
		moved := m.moved
		if out.LSN = m.lsn; m.lsn > after || waited || m.closed.Load() {
			defer unlock()
			for _, p := range m.pages {
				next := slices.IndexFunc(m.heads, func(h *store.Head) bool { return nameOf(h) == p.of && h.LSN > p.LSN && !has(h, p) })
				if p.gone > after || next >= 0 && m.heads[next].LSN > after {
					out.Ended = append(out.Ended, p.Num)
				}
			}
			return out, m.usable(ctx)
		}
		unlock()
		select {
		case <-moved:
		case <-timer.C:
			waited = true
		case <-ctx.Done():
			return store.Changes{}, ctx.Err()
		}
	}
}

// Resolve: see store.Store.
func (m *Memory) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (l store.Located, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return l, err
	}
	for _, scope := range scopes {
		newest := m.at(name{scope, ref.ID}, now)
		if newest == nil || ref.Scope != "" && ref.Scope != scope || newest.Deleted && ref.Scope == "" && ref.Version == 0 {
			continue // deleted here: that of an ancestor may be current
		}
		if ref.Version > newest.Version {
			break
		}
		h := m.versions(name{scope, ref.ID})[cmp.Or(ref.Version, newest.Version)-1]
		if h.Gone {
			return l, store.GoneError(h, ref.Page)
		}
		l = store.Located{Scope: scope, Version: h.Version, LSN: h.LSN, Current: h == newest}
		if !h.ExpiresAt.IsZero() {
			l.Expires = h.ExpiresAt.UnixMicro()
		}
		for i, r := range h.Rows {
			if ref.Page == 0 || ref.Page == i+1 {
				l.Pages = append(l.Pages, store.PageKey{Num: r.Num, Version: h.Version})
			}
		}
		if by := m.supersededBy(h, now); by != nil && l.Current {
			if l.ByID = by.ID; len(m.at(nameOf(by), now).Rows) > 0 {
				l.By = m.at(nameOf(by), now).Rows[0].Num
			}
		}
		if len(l.Pages) > 0 {
			return l, nil
		}
		break // an ancestor is not asked
	}
	return store.Located{}, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
}

// Load: see store.Store.
func (m *Memory) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	defer m.locked()()
	out := make([]store.Loaded, len(keys))
	for i, k := range keys {
		p := m.visible(scopes, k.Num)
		if p == nil {
			out[i] = store.Loaded{Key: k, Err: fmt.Errorf("%w: page %d", store.ErrNotFound, k.Num)}
			continue
		}
		vs := m.versions(p.of)
		k.Version = cmp.Or(k.Version, m.headOf(p).Version)
		out[i] = store.Loaded{Key: k, Page: p.at}
		if k.Version > uint32(len(vs)) || !has(vs[k.Version-1], p) {
			out[i].Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, k.Version, k.Num)
			continue
		}
		if out[i].Head = own(vs[k.Version-1]); out[i].Head.Gone {
			out[i].Err = store.GoneError(out[i].Head, p.at)
		} else if want == store.WantText {
			out[i].Text = p.text
		}
	}
	return out, m.usable(ctx)
}

// visible is a page of the chain; nil scopes see all.
func (m *Memory) visible(scopes store.Scopes, num uint64) *page {
	if num == 0 || num > uint64(len(m.pages)) || scopes != nil && !slices.Contains(scopes, m.pages[num-1].of.scope) {
		return nil
	}
	return m.pages[num-1]
}

// asked is one question: what the index asks of the pages behind its words.
type asked struct {
	*Memory
	q      *store.CandidateQuery
	asOf   uint64
	misses bool // what a rule keeps out is asked for, not the rest
}

// excluded is the rule that keeps a page out, "": none.
func (v asked) excluded(p *page) string {
	h := v.headOf(p)
	ours := v.ours(h)
	switch {
	case expired(h, v.q.Now):
		return store.ReasonExpired
	case h.Kind == store.KindSystem:
		return ""
	case h.Provenance < v.q.Floor && !ours:
		return store.ReasonFloor
	case h.Kind == store.KindMessage && h.Provenance <= store.Tool && h.Group != "" && !ours:
		return store.ReasonOther
	case len(v.q.Kinds) > 0 && !slices.Contains(v.q.Kinds, h.Kind):
		return store.ReasonKind
	}
	return ""
}

func (v asked) Shown(num uint64) bool {
	p := v.pages[num-1]
	return slices.Contains(v.q.Scopes, p.of.scope) && !slices.Contains(v.q.Mask, store.Ref{Scope: p.of.scope, ID: p.of.id}) && v.passes(p) && (v.excluded(p) != "") == v.misses
}

func (v asked) Resolve(num uint64) (uint64, bool) {
	is := v.answers(num, v.asOf)
	return is, is != 0 && v.Shown(is)
}

func (v asked) Alone(uint64) bool { return false }

func (v asked) Group(num uint64) (uint64, int) {
	g := v.at(v.pages[num-1].of, now).GroupNum
	if at := slices.Index(v.members(g), num); at >= 0 {
		return g, at
	}
	return 0, 0
}

func (v asked) At(group uint64, pos int) (uint64, bool) {
	if all := v.members(group); pos >= 0 && pos < len(all) {
		return all[pos], true
	}
	return 0, false
}

// members are the live pages of a group, in order.
func (m *Memory) members(group uint64) (nums []uint64) {
	for _, h := range m.current() {
		if group != 0 && h.GroupNum == group && live(h) {
			for _, r := range h.Rows {
				nums = append(nums, r.Num)
			}
		}
	}
	slices.SortStableFunc(nums, func(a, b uint64) int { return cmp.Compare(m.headOf(m.pages[a-1]).Seq, m.headOf(m.pages[b-1]).Seq) })
	return nums
}

// Candidates: see store.Store.
func (m *Memory) Candidates(ctx context.Context, q store.CandidateQuery) (out store.Candidates, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	out.LSN = min(cmp.Or(q.AsOf, now), m.lsn)
	v, found := asked{Memory: m, q: &q, asOf: out.LSN}, map[uint64]store.Candidate{}
	ask := lexical.Query{Terms: q.Terms, Dates: q.Dates, K: q.K}
	for _, s := range q.Scopes {
		if n := m.scopes[name{scope: s}]; n != 0 {
			ask.Scopes = append(ask.Scopes, uint32(n))
		}
	}
	if q.Weights != nil {
		ask.Weights = *q.Weights
	}
	if out.Stats, err = m.index.Stats(ask.Scopes, noRows{}, q.Terms); err != nil {
		return out, err
	}
	hits, err := m.index.Search(noRows{}, v, ask)
	for _, h := range hits {
		c := m.candidate(h.Num)
		c.Lexical = h
		found[h.Num] = c
	}
	m.always(v, found)
	m.near(v, found)
	for _, num := range slices.Sorted(maps.Keys(found)) {
		out.Hits = append(out.Hits, found[num])
	}
	m.leftOut(v, ask, hits, &out)
	return out, err
}

// always adds what is a candidate whatever it says: pinned, system and verified pages, and the newest.
func (m *Memory) always(v asked, found map[uint64]store.Candidate) {
	var all []store.Candidate
	for _, p := range m.pages {
		if m.answers(p.Num, v.asOf) == p.Num && v.Shown(p.Num) {
			all = append(all, m.candidate(p.Num))
		}
	}
	slices.SortFunc(all, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(b.AsOf, a.AsOf), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	newest := map[string]int{}
	for i, c := range all {
		known, hit := found[c.Key.Num]
		class := fmt.Sprint(c.Ref.Scope, c.Provenance)
		newest[class]++
		c.Lexical, c.Recent = known.Lexical, i < v.q.Recent
		if hit || c.Recent || c.Pinned || c.Kind == store.KindSystem || c.Provenance == store.HumanVerified || newest[class] <= v.q.Newest {
			found[c.Key.Num] = c
		}
	}
}

// leftOut counts what each rule keeps out of the pages that are live now, and names the nearest of it: superseded pages by
// whose words their successors were found, then what a search of what the rules keep out finds.
func (m *Memory) leftOut(v asked, ask lexical.Query, found []lexical.Hit, out *store.Candidates) {
	by := map[string]*store.Excluded{}
	for _, h := range m.current() {
		for _, r := range h.Rows {
			why := v.excluded(m.pages[r.Num-1])
			if m.supersededBy(h, now) != nil {
				why = store.ReasonSuperseded
			}
			if why != "" && live(h) && slices.Contains(v.q.Scopes, h.Scope) {
				by[why] = cmp.Or(by[why], &store.Excluded{Reason: why})
				by[why].Count++
			}
		}
	}
	for _, h := range found {
		if e := by[store.ReasonSuperseded]; h.Via != 0 && e != nil && e.Matched < 20 && m.supersededBy(m.at(m.pages[h.Via-1].of, now), now) != nil {
			c := m.candidate(h.Via)
			c.Excluded, c.Lexical.Own = store.ReasonSuperseded, h.Own
			e.Matched, e.Nearest = e.Matched+1, append(e.Nearest, c)
		}
	}
	m.countFiltered(v, by)
	v.misses, ask.K = true, 20
	hits, _ := m.index.Search(noRows{}, v, ask)
	for _, h := range hits {
		c := m.candidate(h.Num)
		c.Excluded, c.Lexical = v.excluded(m.pages[h.Num-1]), h
		if e := by[c.Excluded]; e != nil {
			e.Matched, e.Nearest = e.Matched+1, append(e.Nearest, c)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		out.Excluded = append(out.Excluded, *by[why])
	}
}

func (m *Memory) candidate(num uint64) store.Candidate {
	p := m.pages[num-1]
	h := m.headOf(p)
	c := store.Candidate{
		Key: store.PageKey{Num: num, Version: h.Version}, Ref: store.Ref{Scope: h.Scope, ID: h.ID, Page: p.at, Version: p.Version},
		Kind: h.Kind, Provenance: h.Provenance, AsOf: h.CurrentAsOf.UnixMicro(), Tokens: int(h.Rows[p.at-1].Tokens), Pinned: h.Pinned, Seq: h.Seq,
	}
	if h.CurrentAsOf.IsZero() {
		c.AsOf = h.PutAt.UnixMicro()
	}
	is := m.at(p.of, now)
	c.Pages = len(is.Rows)
	if is.GroupNum != 0 {
		c.Group, c.GroupName = is.GroupNum, cmp.Or(is.Group, "\x00"+is.ID)
	}
	return c
}

// Scan: see store.Store. A cursor is the key of the last row that was given.
func (m *Memory) Scan(ctx context.Context, q store.ScanQuery) (out store.ScanPage, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	out.LSN, q.Limit = m.lsn, cmp.Or(q.Limit, 100)
	out.Same = q.Known == m.lsn && (q.What == store.ScanMembers || q.What == store.ScanSourced)
	heads, scopes := map[string]*store.Head{}, map[string]store.ScopeInfo{}
	for _, h := range m.current() {
		if q.What == store.ScanScopes {
			info := store.ScopeInfo{Name: h.Scope, Artefacts: scopes[h.Scope].Artefacts}
			if live(h) {
				info.Artefacts++
			}
			if scopes[h.Scope] = info; h.Scope == store.OperatorScope && info.Artefacts == 0 {
				delete(scopes, h.Scope)
			}
		} else if (live(h) || q.Deleted && q.What == store.ScanArtefacts) && slices.Contains(q.Scopes, h.Scope) && (q.What != store.ScanArtefacts || q.Filter.Match(h)) {
			if h.Scope == q.Scopes[0] {
				heads[h.ID] = h
			}
			if of := (store.Ref{Scope: q.Of.Scope, ID: q.Of.ID}); q.What == store.ScanSummaries && h.Kind == store.KindSummary && len(h.Rows) == 1 && m.supersededBy(h, now) == nil &&
				len(h.DerivedFrom) == 1 && of == (store.Ref{Scope: h.DerivedFrom[0].Scope, ID: h.DerivedFrom[0].ID}) {
				out.Heads = append([]*store.Head{own(h)}, out.Heads...) // newest first
			}
		}
	}
	switch q.What {
	case store.ScanArtefacts:
		if !q.Newest {
			out.Heads, out.Next = paged(heads, q, m.listed)
			break
		}
		out.Heads, out.Next, err = m.newest(heads, q)
	case store.ScanHistory:
		err = m.scanHistory(q, &out)
	case store.ScanGroup, store.ScanMembers:
		m.scanGroup(q, &out)
	case store.ScanHeld:
		err = m.scanHeld(q, &out)
	case store.ScanState:
		out.State, out.Next = paged(m.state, q, own[store.StateRow])
	case store.ScanScopes:
		out.Names, out.Next = paged(scopes, q, own[store.ScopeInfo])
	case store.ScanUnembedded:
		err = m.unembedded(q, &out)
	case store.ScanSourced:
		for _, id := range slices.Sorted(maps.Keys(heads)) {
			if h := heads[id]; !out.Same && h.Artefact.Source != "" && m.supersededBy(h, now) == nil {
				out.Keys = append(out.Keys, store.PageKey{Num: h.Rows[0].Num, Version: h.Version})
			}
		}
	}
	return out, err
}

// paged gives the rows of a map that a query asks for, by key.
func paged[V, R any](rows map[string]V, q store.ScanQuery, row func(V) R) (out []R, next string) {
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if k <= q.Cursor || !strings.HasPrefix(k, q.Prefix) {
			continue
		}
		if len(out) == q.Limit {
			return out, next
		}
		out, next = append(out, row(rows[k])), k
	}
	return out, ""
}

// listed is a version as listings show it: with the artefact that superseded its own, if it is current.
func (m *Memory) listed(h *store.Head) *store.Head {
	c := own(h)
	if by := m.supersededBy(h, now); by != nil && h == m.at(nameOf(h), now) {
		c.Superseded = by.ID
	}
	return c
}

func (m *Memory) scanHistory(q store.ScanQuery, out *store.ScanPage) error {
	for _, scope := range q.Scopes {
		vs := m.versions(name{scope, q.ID})
		next, ours := listing.At(q.Cursor, scope, q.ID)
		if q.Cursor != "" && !ours || q.Cursor == "" && len(vs) == 0 {
			continue
		}
		from := len(vs)
		if ours {
			from = int(min(next, uint64(from)))
		}
		for ; from > 0 && len(out.Heads) < q.Limit; from-- {
			out.Heads = append(out.Heads, m.listed(vs[from-1]))
		}
		if from > 0 {
			out.Next = listing.Cursor(uint64(from), scope, q.ID)
		}
		return nil
	}
	if q.Cursor != "" {
		return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
	}
	return fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

func (m *Memory) scanGroup(q store.ScanQuery, out *store.ScanPage) {
	at, _ := strconv.Atoi(q.Cursor)
	last := name{}
	for i, num := range m.members(m.groups[name{q.Scopes[0], q.Group}]) {
		switch h := m.at(m.pages[num-1].of, now); {
		case q.What == store.ScanMembers:
			if !out.Same && m.supersededBy(h, now) == nil {
				out.Keys = append(out.Keys, store.PageKey{Num: num, Version: h.Version})
			}
		case i < at || nameOf(h) == last:
		case len(out.Heads) == q.Limit:
			out.Next = strconv.Itoa(i)
			return
		default:
			out.Heads, last = append(out.Heads, own(h)), nameOf(h)
		}
	}
}

func (m *Memory) scanHeld(q store.ScanQuery, out *store.ScanPage) error {
	if _, err := ulid.ParseStrict(q.Cursor); q.Cursor != "" && err != nil {
		return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
	}
	rows := map[string]store.HeldBatch{}
	for id, h := range m.held {
		if (h.Decided == "" || q.All) && (len(q.Scopes) == 0 || h.Batch.Scope == q.Scopes[0]) {
			rows[id.String()] = h
		}
	}
	q.Prefix = ""
	out.Held, out.Next = paged(rows, q, own[store.HeldBatch])
	return nil
}

// Held: see store.Store.
func (m *Memory) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	defer m.locked()()
	if h, ok := m.held[id]; ok {
		return own(h), m.usable(ctx)
	}
	return store.HeldBatch{}, cmp.Or(m.usable(ctx), fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id))
}

// State: see store.Store.
func (m *Memory) State(ctx context.Context, key string) (store.StateRow, error) {
	defer m.locked()()
	row := own(m.state[key])
	row.Key = key
	return row, m.usable(ctx)
}

// Stat: see store.Store.
func (m *Memory) Stat(ctx context.Context) (store.StoreStats, error) {
	defer m.locked()()
	st := store.StoreStats{ID: m.info.ID, LSN: m.lsn, Applied: m.lsn, Scopes: len(m.scopes), Leaves: m.log.Size()}
	for _, h := range m.current() {
		if live(h) {
			st.Artefacts, st.Pages = st.Artefacts+1, st.Pages+len(h.Rows)
		}
	}
	for _, p := range m.pages {
		if p.gone == 0 {
			st.PageVersions++
		}
	}
	for _, h := range m.held {
		if h.Decided == "" {
			st.Held++
		}
	}
	return st, m.usable(ctx)
}
