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

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Info: see store.Store.
func (m *Memory) Info(context.Context) (store.Info, error) {
	return store.Info{ID: m.info.ID, Secret: slices.Clone(m.info.Secret)}, nil
}

// LSN: see store.Store.
func (m *Memory) LSN() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.lsn
}

// Changes: see store.Store. Everything is remembered.
func (m *Memory) Changes(ctx context.Context, after uint64, wait time.Duration) (out store.Changes, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waited := wait <= 0; ; {
		m.mu.RLock()
		moved := m.moved
		if out.LSN = m.lsn; m.lsn > after || waited || m.closed.Load() {
			for _, p := range m.pages {
				if p.ended > after {
					out.Ended = append(out.Ended, p.num)
				}
			}
			defer m.mu.RUnlock()
			return out, m.usable(ctx)
		}
		m.mu.RUnlock()
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
func (m *Memory) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if m.closed.Load() {
		return store.Located{}, store.ErrClosed
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, scope := range scopes {
		a := m.byID[name{scope, ref.ID}]
		if a == nil || ref.Scope != "" && ref.Scope != scope {
			continue
		}
		now := a.newest()
		if now.Deleted && ref == (store.Ref{ID: ref.ID, Page: ref.Page}) {
			continue // deleted here: an ancestor's may stand
		}
		if ref.Version > now.Version {
			break
		}
		h := a.heads[cmp.Or(ref.Version, now.Version)-1]
		l := store.Located{Scope: scope, Version: h.Version, LSN: h.LSN, Deleted: h.Deleted, Current: h == now && !h.Deleted}
		if !h.ExpiresAt.IsZero() {
			l.Expires = h.ExpiresAt.UnixMicro()
		}
		if h.Gone {
			return store.Located{}, store.GoneError(h, ref.Page)
		}
		for i, r := range h.Rows {
			if ref.Page == 0 || ref.Page == i+1 {
				l.Pages = append(l.Pages, store.PageKey{Num: r.Num, Version: h.Version})
			}
		}
		if a.by != nil && l.Current {
			if l.ByID = a.by.id; len(a.by.newest().Rows) > 0 {
				l.By = a.by.newest().Rows[0].Num
			}
		}
		if len(l.Pages) == 0 {
			return l, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
		}
		return l, nil
	}
	return store.Located{}, fmt.Errorf("%w: %q", store.ErrNotFound, ref.ID)
}

// Load: see store.Store.
func (m *Memory) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]store.Loaded, len(keys))
	for i, k := range keys {
		p := m.visible(scopes, k.Num)
		if p == nil {
			out[i] = store.Loaded{Key: k, Err: fmt.Errorf("%w: page %d", store.ErrNotFound, k.Num)}
			continue
		}
		k.Version = cmp.Or(k.Version, p.head.Version)
		out[i] = store.Loaded{Key: k, Page: p.at}
		if k.Version > uint32(len(p.of.heads)) || !has(p.of.heads[k.Version-1], p) {
			out[i].Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, k.Version, k.Num)
			continue
		}
		h := p.of.heads[k.Version-1]
		out[i].Head = ownHead(h)
		if h.Gone {
			out[i].Err = store.GoneError(h, p.at)
		} else if want == store.WantText {
			out[i].Text = p.text
		}
	}
	return out, nil
}

// visible is a page of the chain; nil scopes see all.
func (m *Memory) visible(scopes store.Scopes, num uint64) *page {
	if num == 0 || num > uint64(len(m.pages)) || scopes != nil && !slices.Contains(scopes, m.pages[num-1].of.scope) {
		return nil
	}
	return m.pages[num-1]
}

func has(h *store.Head, p *page) bool { return len(h.Rows) >= p.at && h.Rows[p.at-1].Num == p.num }

// answers follows a page version to the page that answers for it as of an LSN (0: now); 0: none does.
func (m *Memory) answers(num, asOf uint64) uint64 {
	for range 1000 {
		if num == 0 {
			return 0
		}
		p := m.pages[num-1]
		switch {
		case asOf != 0 && p.lsn > asOf:
			return 0
		case p.end != 0 && (asOf == 0 || p.end <= asOf):
			num = p.next
		case p.gone:
			return 0
		case p.end != 0 || p.of.by == nil || asOf != 0 && p.of.since > asOf:
			return num
		default:
			num = m.first(p.of.by, asOf)
		}
	}
	return 0
}

// first is the first page of an artefact as of an LSN.
func (m *Memory) first(a *art, asOf uint64) uint64 {
	for i := len(a.heads) - 1; i >= 0; i-- {
		if h := a.heads[i]; asOf == 0 || h.LSN <= asOf {
			if len(h.Rows) > 0 {
				return h.Rows[0].Num
			}
			return 0
		}
	}
	return 0
}

// asked is one question: what the index asks of the pages behind its words.
type asked struct {
	*Memory
	q      *store.CandidateQuery
	misses bool
}

func (v asked) excluded(p *page) string {
	h, own := p.head, v.q.Session != "" && p.head.Group == v.q.Session && p.of.scope == v.q.Scopes[0]
	switch {
	case expired(h, v.q.Now):
		return store.ReasonExpired
	case h.Kind == store.KindSystem:
		return ""
	case h.Provenance < v.q.Floor && !own:
		return store.ReasonFloor
	case h.Kind == store.KindMessage && h.Provenance <= store.Tool && h.Group != "" && !own:
		return store.ReasonOther
	case len(v.q.Kinds) > 0 && !slices.Contains(v.q.Kinds, h.Kind):
		return store.ReasonKind
	}
	return ""
}

func (v asked) Shown(num uint64) bool {
	p := v.pages[num-1]
	return slices.Contains(v.q.Scopes, p.of.scope) && !slices.Contains(v.q.Mask, store.Ref{Scope: p.of.scope, ID: p.of.id}) &&
		(v.excluded(p) != "") == v.misses
}

func (v asked) Resolve(num uint64) (uint64, bool) {
	live := v.answers(num, v.q.AsOf)
	return live, live != 0 && v.Shown(live)
}

func (v asked) Alone(num uint64) bool { return v.pages[num-1].head.GroupNum == 0 }

func (v asked) Group(num uint64) (uint64, int) {
	g := v.pages[num-1].of.newest().GroupNum
	at := slices.Index(v.members(g), num)
	if g == 0 || at < 0 {
		return 0, 0
	}
	return g, at
}

func (v asked) At(group uint64, pos int) (uint64, bool) {
	if all := v.members(group); pos >= 0 && pos < len(all) {
		return all[pos], true
	}
	return 0, false
}

// members are the live pages of a group, in order.
func (m *Memory) members(group uint64) (nums []uint64) {
	for _, a := range m.arts {
		if h := a.newest(); group != 0 && h.GroupNum == group && !h.Gone {
			for _, r := range h.Rows {
				nums = append(nums, r.Num)
			}
		}
	}
	slices.SortStableFunc(nums, func(a, b uint64) int { return cmp.Compare(m.pages[a-1].head.Seq, m.pages[b-1].head.Seq) })
	return nums
}

// Candidates: see store.Store.
func (m *Memory) Candidates(ctx context.Context, q store.CandidateQuery) (out store.Candidates, err error) {
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if out.LSN = m.lsn; q.AsOf != 0 {
		out.LSN = min(q.AsOf, m.lsn)
	}
	if q.AsOf >= m.lsn {
		q.AsOf = 0
	}
	v := asked{Memory: m, q: &q}
	found := map[uint64]store.Candidate{}
	ask := lexical.Query{Terms: q.Terms, K: q.K}
	var nums []uint32
	for _, s := range q.Scopes {
		if m.scopes[s] != 0 {
			nums = append(nums, m.scopes[s])
		}
	}
	if ask.Scopes = nums; q.Weights != nil {
		ask.Weights = *q.Weights
	}
	if out.Stats, err = m.index.Stats(nums, noRows{}, q.Terms); err != nil {
		return out, err
	}
	hits, err := m.index.Search(noRows{}, v, ask)
	for _, h := range hits {
		c := m.candidate(h.Num)
		c.Lexical = h
		found[h.Num] = c
	}
	m.always(v, found)
	for _, num := range slices.Sorted(maps.Keys(found)) {
		out.Hits = append(out.Hits, found[num])
	}
	m.leftOut(v, ask, &out)
	return out, err
}

// always adds what is a candidate whatever it says: pinned, system and verified pages, and the newest.
func (m *Memory) always(v asked, found map[uint64]store.Candidate) {
	var all []uint64
	for _, p := range m.pages {
		if m.answers(p.num, v.q.AsOf) == p.num && v.Shown(p.num) {
			all = append(all, p.num)
		}
	}
	slices.SortFunc(all, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(m.candidate(b).AsOf, m.candidate(a).AsOf), cmp.Compare(b, a))
	})
	type class struct {
		scope string
		prov  store.Provenance
	}
	newest := map[class]int{}
	for i, num := range all {
		c, known := found[num]
		if !known {
			c = m.candidate(num)
		}
		k := class{c.Ref.Scope, c.Provenance}
		newest[k]++
		if c.Recent = i < v.q.Recent; c.Recent || c.Pinned || c.Kind == store.KindSystem || c.Provenance == store.HumanVerified || newest[k] <= v.q.Newest || known {
			found[num] = c
		}
	}
}

// leftOut counts what each rule keeps out, and names the nearest of it.
func (m *Memory) leftOut(v asked, ask lexical.Query, out *store.Candidates) {
	by := map[string]*store.Excluded{}
	for _, a := range m.arts {
		for _, r := range a.newest().Rows {
			why := v.excluded(m.pages[r.Num-1])
			if a.by != nil {
				why = store.ReasonSuperseded
			}
			if why == "" || a.newest().Gone || !slices.Contains(v.q.Scopes, a.scope) {
				continue
			}
			if by[why] == nil {
				by[why] = &store.Excluded{Reason: why}
			}
			by[why].Count++
		}
	}
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
	h := p.head
	c := store.Candidate{
		Key: store.PageKey{Num: num, Version: h.Version}, Ref: store.Ref{Scope: h.Scope, ID: h.ID, Page: p.at, Version: p.version()},
		Kind: h.Kind, Provenance: h.Provenance, AsOf: h.CurrentAsOf.UnixMicro(), Tokens: int(h.Rows[p.at-1].Tokens), Pinned: h.Pinned, Seq: h.Seq,
	}
	if h.CurrentAsOf.IsZero() {
		c.AsOf = h.PutAt.UnixMicro()
	}
	if now := p.of.newest(); now.GroupNum != 0 {
		c.Group, c.GroupName = now.GroupNum, cmp.Or(now.Group, "\x00"+now.ID)
	}
	return c
}

// Scan: see store.Store. Cursors are the key of the last row that was given.
func (m *Memory) Scan(ctx context.Context, q store.ScanQuery) (out store.ScanPage, err error) {
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if out.LSN = m.lsn; q.Limit <= 0 {
		q.Limit = 100
	}
	switch q.What {
	case store.ScanArtefacts, store.ScanSourced:
		m.scanArtefacts(q, &out)
	case store.ScanHistory:
		err = m.scanHistory(q, &out)
	case store.ScanGroup, store.ScanMembers:
		m.scanGroup(q, &out)
	case store.ScanSummaries:
		m.scanSummaries(q, &out)
	case store.ScanHeld:
		err = m.scanHeld(q, &out)
	case store.ScanState:
		out.State, out.Next = paged(m.state, q, func(k string, v []byte) (store.StateRow, bool) {
			return store.StateRow{Key: k, Value: slices.Clone(v)}, true
		})
	case store.ScanScopes:
		out.Names, out.Next = paged(m.scopes, q, func(scope string, _ uint32) (store.ScopeInfo, bool) {
			info := store.ScopeInfo{Name: scope}
			for _, a := range m.arts {
				if a.scope == scope && len(a.newest().Rows) > 0 && !a.newest().Gone {
					info.Artefacts++
				}
			}
			return info, scope != store.OperatorScope || info.Artefacts > 0
		})
	}
	return out, err
}

// paged gives the rows of a map that a query asks for, by key.
func paged[V, R any](rows map[string]V, q store.ScanQuery, row func(string, V) (R, bool)) (out []R, next string) {
	last := ""
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if k <= q.Cursor || !strings.HasPrefix(k, q.Prefix) {
			continue
		}
		r, ok := row(k, rows[k])
		switch {
		case !ok:
			continue
		case len(out) == q.Limit:
			return out, last
		}
		out, last = append(out, r), k
	}
	return out, ""
}

func (m *Memory) scanArtefacts(q store.ScanQuery, out *store.ScanPage) {
	arts := map[string]*art{}
	for k, a := range m.byID {
		if live := !a.newest().Deleted && !a.newest().Gone; k.scope == q.Scopes[0] && (live || q.Deleted && q.What == store.ScanArtefacts) {
			arts[k.id] = a
		}
	}
	if q.What == store.ScanArtefacts {
		out.Heads, out.Next = paged(arts, q, func(_ string, a *art) (*store.Head, bool) { return a.listed(), true })
		return
	}
	if out.Same = q.Known == m.lsn; out.Same {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(arts)) {
		if h := arts[id].newest(); h.Artefact.Source != "" && arts[id].by == nil {
			out.Keys = append(out.Keys, store.PageKey{Num: h.Rows[0].Num, Version: h.Version})
		}
	}
}

// listed is the newest head, with the artefact that superseded it.
func (a *art) listed() *store.Head {
	h := ownHead(a.newest())
	if a.by != nil {
		h.Superseded = a.by.id
	}
	return h
}

func (m *Memory) scanHistory(q store.ScanQuery, out *store.ScanPage) error {
	for _, scope := range q.Scopes {
		a := m.byID[name{scope, q.ID}]
		if a == nil {
			continue
		}
		from := len(a.heads)
		if q.Cursor != "" {
			n, err := strconv.Atoi(q.Cursor)
			if err != nil || n < 1 {
				return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
			}
			from = min(from, n)
		}
		for ; from > 0; from-- {
			if len(out.Heads) == q.Limit {
				out.Next = strconv.Itoa(from)
				return nil
			}
			if h := a.heads[from-1]; h == a.newest() {
				out.Heads = append(out.Heads, a.listed())
			} else {
				out.Heads = append(out.Heads, ownHead(h))
			}
		}
		return nil
	}
	return fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

func (m *Memory) scanGroup(q store.ScanQuery, out *store.ScanPage) {
	if out.Same = q.What == store.ScanMembers && q.Known == m.lsn; out.Same {
		return
	}
	var last *art
	at, _ := strconv.Atoi(q.Cursor)
	for i, num := range m.members(m.groups[name{q.Scopes[0], q.Group}]) {
		switch a := m.pages[num-1].of; {
		case q.What == store.ScanMembers:
			if a.by == nil {
				out.Keys = append(out.Keys, store.PageKey{Num: num, Version: a.newest().Version})
			}
		case i < at || a == last:
		case len(out.Heads) == q.Limit:
			out.Next = strconv.Itoa(i)
			return
		default:
			out.Heads, last = append(out.Heads, ownHead(a.newest())), a
		}
	}
}

func (m *Memory) scanSummaries(q store.ScanQuery, out *store.ScanPage) {
	for _, a := range m.arts {
		h := a.newest()
		if h.Kind == store.KindSummary && a.by == nil && len(h.Rows) == 1 && !h.Gone && slices.Contains(q.Scopes, a.scope) && len(h.DerivedFrom) == 1 &&
			h.DerivedFrom[0].Scope == q.Of.Scope && h.DerivedFrom[0].ID == q.Of.ID {
			out.Heads = append(out.Heads, ownHead(h))
		}
	}
	slices.SortFunc(out.Heads, func(a, b *store.Head) int { return cmp.Or(cmp.Compare(b.LSN, a.LSN), cmp.Compare(b.Art, a.Art)) })
}

func (m *Memory) scanHeld(q store.ScanQuery, out *store.ScanPage) error {
	if _, err := ulid.ParseStrict(q.Cursor); q.Cursor != "" && err != nil {
		return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
	}
	rows := map[string]*store.HeldBatch{}
	for id, h := range m.held {
		if (h.Decided == "" || q.All) && (len(q.Scopes) == 0 || h.Batch.Scope == q.Scopes[0]) {
			rows[id.String()] = h
		}
	}
	q.Prefix = ""
	out.Held, out.Next = paged(rows, q, func(_ string, h *store.HeldBatch) (store.HeldBatch, bool) { return *clone(h), true })
	return nil
}

// Held: see store.Store.
func (m *Memory) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if h := m.held[id]; h != nil && !m.closed.Load() {
		return *clone(h), ctx.Err()
	}
	return store.HeldBatch{}, cmp.Or(m.usable(ctx), fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id))
}

// State: see store.Store.
func (m *Memory) State(ctx context.Context, key string) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.state[key]), m.usable(ctx)
}

// Vectors: see store.Store.
func (m *Memory) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([][]float32, len(nums))
	for i, num := range nums {
		if m.visible(scopes, num) != nil {
			out[i] = slices.Clone(m.vectors[vector{model, num}])
		}
	}
	return out, m.usable(ctx)
}

// PutVectors: see store.Store.
func (m *Memory) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return err
	}
	for i, num := range nums {
		if p := m.visible(nil, num); p != nil && !p.gone {
			m.vectors[vector{model, num}] = slices.Clone(vecs[i])
		}
	}
	return nil
}
