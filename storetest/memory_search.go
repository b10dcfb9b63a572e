package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// question is one question: what the index asks of the pages behind its words.
type question struct {
	*Memory
	q      *store.CandidateQuery
	asOf   uint64
	misses bool // what a rule keeps out is asked for, not the rest
}

// Shown reports whether a page may be a hit.
func (v question) Shown(num uint64) bool {
	p := v.pages[num-1]
	h := v.headOf(p)
	return slices.Contains(v.q.Scopes, p.of.scope) && !slices.Contains(v.q.Mask, store.Ref{Scope: p.of.scope, ID: p.of.id}) &&
		v.q.Passes(h) && (v.q.Excludes(h) != "") == v.misses
}

// Resolve gives the page that answers for one whose words were found.
func (v question) Resolve(num uint64) (uint64, bool) {
	is := v.answers(num, v.asOf)
	return is, is != 0 && v.Shown(is)
}

// Alone is never sure that a page has no neighbours.
func (v question) Alone(uint64) bool { return false }

// Group gives the group of a page, and its place in it.
func (v question) Group(num uint64) (uint64, int) {
	g := v.at(v.pages[num-1].of, now).GroupNum
	if at := slices.Index(v.members(g), num); at >= 0 {
		return g, at
	}
	return 0, 0
}

// At gives the page at a place of a group.
func (v question) At(group uint64, pos int) (uint64, bool) {
	if all := v.members(group); pos >= 0 && pos < len(all) {
		return all[pos], true
	}
	return 0, false
}

// Candidates: see store.Store.
func (m *Memory) Candidates(ctx context.Context, q store.CandidateQuery) (out store.Candidates, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	out.LSN = min(cmp.Or(q.AsOf, now), m.lsn)
	v, found := question{Memory: m, q: &q, asOf: out.LSN}, map[uint64]store.Candidate{}
	ask := lexical.Query{Terms: q.Terms, Dates: q.Dates, K: q.K}
	for _, s := range q.Scopes {
		if n := m.scopes[name{scope: s}]; n != 0 {
			ask.Scopes = append(ask.Scopes, uint32(n))
		}
	}
	if q.Weights != nil {
		ask.Weights = *q.Weights
	}
	if out.Stats, err = m.index.Stats(ask.Scopes, lexical.NoRows{}, q.Terms); err != nil {
		return out, err
	}
	hits, err := m.index.Search(lexical.NoRows{}, v, ask)
	for _, h := range hits {
		c := m.candidate(h.Num)
		c.Lexical = h
		found[h.Num] = c
	}
	shown := v.shown()
	v.always(shown, found)
	v.near(shown, found)
	for _, num := range slices.Sorted(maps.Keys(found)) {
		out.Hits = append(out.Hits, found[num])
	}
	v.leftOut(ask, hits, &out)
	return out, err
}

// shown are the pages that answer for themselves and that no rule keeps out, newest first.
func (v question) shown() (all []store.Candidate) {
	for _, p := range v.pages {
		if v.answers(p.Num, v.asOf) == p.Num && v.Shown(p.Num) {
			all = append(all, v.candidate(p.Num))
		}
	}
	slices.SortFunc(all, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(b.AsOf, a.AsOf), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	return all
}

// always adds what is a candidate whatever it says: pinned, system and verified pages, and the newest.
func (v question) always(shown []store.Candidate, found map[uint64]store.Candidate) {
	newest := map[string]int{}
	for i, c := range shown {
		hit, ok := found[c.Key.Num]
		class := fmt.Sprint(c.Ref.Scope, c.Provenance)
		newest[class]++
		c.Lexical, c.Recent = hit.Lexical, i < v.q.Recent
		if ok || c.Recent || c.Pinned || c.Kind == store.KindSystem || c.Provenance == store.HumanVerified || newest[class] <= v.q.Newest {
			found[c.Key.Num] = c
		}
	}
}

// near adds the pages with the nearest vectors, and gives all candidates their cosines and what neighbours lend them.
func (v question) near(shown []store.Candidate, found map[uint64]store.Candidate) {
	if v.q.Near == nil {
		return
	}
	shown = slices.DeleteFunc(shown, func(c store.Candidate) bool { return v.cosine(c.Key.Num) == nil })
	slices.SortFunc(shown, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(*v.cosine(b.Key.Num), *v.cosine(a.Key.Num)), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	for _, c := range shown[:min(len(shown), max(v.q.Near.K, 0))] {
		if known, ok := found[c.Key.Num]; ok {
			c = known
		}
		c.Near = true
		found[c.Key.Num] = c
	}
	for num, c := range found {
		c.Cosine = v.cosine(num)
		group, pos := v.Group(num)
		for by, share := range map[int]float64{-2: store.LendAfter, -1: store.LendNext, 1: store.LendNext, 2: store.LendAfter} {
			if n, ok := v.At(group, pos+by); group != 0 && ok && v.Shown(n) && v.cosine(n) != nil {
				c.Beside = max(c.Beside, share**v.cosine(n))
			}
		}
		found[num] = c
	}
}

// cosine is that of a page's vector; nil: it has none of this length, or one of the two points nowhere.
func (v question) cosine(num uint64) *float64 {
	x := v.vectors[vector{v.q.Near.Model, num}]
	if len(x) != len(v.q.Near.Vector) {
		return nil
	}
	var ab, aa, bb float64
	for i := range x {
		a, b := float64(x[i]), float64(v.q.Near.Vector[i])
		ab, aa, bb = ab+a*b, aa+a*a, bb+b*b
	}
	if aa == 0 || bb == 0 {
		return nil
	}
	c := ab / math.Sqrt(aa*bb)
	return &c
}

// leftOut counts what each rule keeps out of the pages that are live now, and names the nearest of it: superseded pages by
// whose words their successors were found, then what a search of what the rules keep out finds.
func (v question) leftOut(ask lexical.Query, found []lexical.Hit, out *store.Candidates) {
	by := map[string]*store.Excluded{}
	count := func(why string, n int) {
		by[why] = cmp.Or(by[why], &store.Excluded{Reason: why})
		by[why].Count += n
	}
	for _, h := range v.current() {
		why := v.q.Excludes(h)
		if v.supersededBy(h, now) != nil {
			why = store.ReasonSuperseded
		}
		if why != "" && h.Live() && slices.Contains(v.q.Scopes, h.Scope) {
			count(why, len(h.Rows))
		}
	}
	for _, p := range v.pages {
		if slices.Contains(v.q.Scopes, p.of.scope) && v.answers(p.Num, v.asOf) == p.Num && !v.q.Passes(v.headOf(p)) {
			count(store.ReasonFilter, 1)
		}
	}
	miss := func(why string, num uint64, l lexical.Hit) {
		if e := by[why]; e != nil && e.Matched < 20 {
			c := v.candidate(num)
			c.Excluded, c.Lexical = why, l
			e.Matched, e.Nearest = e.Matched+1, append(e.Nearest, c)
		}
	}
	for _, h := range found {
		if h.Via != 0 && v.supersededBy(v.at(v.pages[h.Via-1].of, now), now) != nil {
			miss(store.ReasonSuperseded, h.Via, lexical.Hit{Own: h.Own})
		}
	}
	v.misses, ask.K = true, 20
	hits, _ := v.index.Search(lexical.NoRows{}, v, ask)
	for _, h := range hits {
		miss(v.q.Excludes(v.headOf(v.pages[h.Num-1])), h.Num, h)
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		out.Excluded = append(out.Excluded, *by[why])
	}
}

// candidate describes a page.
func (m *Memory) candidate(num uint64) store.Candidate {
	p := m.pages[num-1]
	h, is := m.headOf(p), m.at(p.of, now)
	c := store.Candidate{
		Key: store.PageKey{Num: num, Version: h.Version}, Ref: store.Ref{Scope: h.Scope, ID: h.ID, Page: p.at, Version: p.Version},
		Kind: h.Kind, Provenance: h.Provenance, AsOf: h.CurrentAsOf.UnixMicro(), Tokens: int(h.Rows[p.at-1].Tokens), Pinned: h.Pinned, Seq: h.Seq,
		Pages: len(is.Rows), Group: is.GroupNum,
	}
	if h.CurrentAsOf.IsZero() {
		c.AsOf = h.PutAt.UnixMicro()
	}
	if is.GroupNum != 0 {
		c.GroupName = groupOf(is)
	}
	return c
}
