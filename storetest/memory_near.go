package storetest

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/ctxpage/ctxpage/store"
)

// near gives the pages with the nearest vectors, of those that may be shown and answer for themselves, and the cosines of
// all candidates.
func (m *Memory) near(v asked, found map[uint64]store.Candidate) {
	if v.q.Near == nil {
		return
	}
	var all []store.Candidate
	for _, p := range m.pages {
		if c := m.cosine(v.q.Near, p.Num); c != nil && m.answers(p.Num, v.asOf) == p.Num && v.Shown(p.Num) {
			near := m.candidate(p.Num)
			near.Cosine = c
			all = append(all, near)
		}
	}
	slices.SortFunc(all, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(*b.Cosine, *a.Cosine), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	for _, c := range all[:min(len(all), max(v.q.Near.K, 0))] {
		if known, ok := found[c.Key.Num]; ok {
			c = known
		}
		c.Near = true
		found[c.Key.Num] = c
	}
	for num, c := range found {
		c.Cosine = m.cosine(v.q.Near, num)
		c.Beside = m.beside(v, num)
		found[num] = c
	}
}

// beside is what the neighbours of a page lend it of their cosines.
func (m *Memory) beside(v asked, num uint64) (lent float64) {
	group, pos := v.Group(num)
	for by, share := range map[int]float64{-2: store.LendAfter, -1: store.LendNext, 1: store.LendNext, 2: store.LendAfter} {
		if n, ok := v.At(group, pos+by); group != 0 && ok && v.Shown(n) {
			if c := m.cosine(v.q.Near, n); c != nil {
				lent = max(lent, share**c)
			}
		}
	}
	return lent
}

// cosine is that of a page's vector; nil: it has none of this length, or one of the two points nowhere.
func (m *Memory) cosine(q *store.Near, num uint64) *float64 {
	x := m.vectors[vector{q.Model, num}]
	if len(x) != len(q.Vector) {
		return nil
	}
	var ab, aa, bb float64
	for i := range x {
		a, b := float64(x[i]), float64(q.Vector[i])
		ab, aa, bb = ab+a*b, aa+a*a, bb+b*b
	}
	if aa == 0 || bb == 0 {
		return nil
	}
	c := ab / math.Sqrt(aa*bb)
	return &c
}

// unembedded lists the live pages of a chain without a vector.
func (m *Memory) unembedded(q store.ScanQuery, out *store.ScanPage) error {
	after := uint64(0)
	if q.Cursor != "" {
		var err error
		if after, err = strconv.ParseUint(q.Cursor, 10, 64); err != nil {
			return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
		}
	}
	for _, p := range m.pages {
		h := m.headOf(p)
		if m.vectors[vector{q.Model, p.Num}] != nil || m.answers(p.Num, now) != p.Num || !slices.Contains(q.Scopes, p.of.scope) ||
			h.Kind == store.KindSystem || h.Provenance < store.Tool {
			continue
		}
		out.Count++
		switch {
		case p.Num <= after:
		case len(out.Keys) < q.Limit:
			out.Keys = append(out.Keys, store.PageKey{Num: p.Num, Version: h.Version})
		default:
			out.Next = strconv.FormatUint(out.Keys[len(out.Keys)-1].Num, 10)
		}
	}
	return nil
}
