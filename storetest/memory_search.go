package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// search is one question, and the corpus of the index that answers it: what is behind the words. A page has the properties of
// now, also in the past.
type search struct {
	view        // of now
	then   view // of the LSN that is asked about
	q      *store.CandidateQuery
	misses bool // what a rule keeps out is asked for, not the rest
}

// mostMisses is how many pages are named that a rule keeps out.
const mostMisses = 20

// Shown reports whether a page may be a hit.
func (s search) Shown(num uint64) bool {
	h := s.page(num).head
	return slices.Contains(s.q.Scopes, h.Scope) && !slices.Contains(s.q.Mask, store.Ref{Scope: h.Scope, ID: h.ID}) &&
		passes(s.q, h) && (excludes(s.q, h) != "") == s.misses
}

// Resolve returns the page that answers for one whose words were found.
func (s search) Resolve(num uint64) (uint64, bool) {
	if is := s.then.answers(s.page(num)); is != nil {
		return is.num, s.Shown(is.num)
	}
	return 0, false
}

// Touch has nothing to read ahead.
func (s search) Touch(uint64) {}

// Alone is never sure that a page has no neighbours.
func (s search) Alone(uint64) bool { return false }

// Group returns the group of a page, and its place in it.
func (s search) Group(num uint64) (uint64, int) {
	g := s.at(nameOf(s.page(num).head), 0).GroupNum
	if at := slices.Index(s.members(g), s.page(num)); at >= 0 {
		return g, at
	}
	return 0, 0
}

// At returns the page at a place of a group.
func (s search) At(group uint64, pos int) (uint64, bool) {
	if all := s.members(group); pos >= 0 && pos < len(all) {
		return all[pos].num, true
	}
	return 0, false
}

// index has the words of all pages, those of the past among them.
func (v view) index() (*lexical.Index, error) {
	x, err := lexical.Open(lexical.NoRows{})
	for _, p := range v.pages {
		if !p.gone && err == nil {
			x.Add(lexical.Doc{
				Num: p.num, Scope: uint32(v.scopes[p.head.Scope]), Group: p.first.GroupNum,
				Analysis: format.Analyse(v.analyzer, &p.first.Artefact, p.text), Turn: format.TurnOf(&p.first.Artefact),
			})
		}
	}
	return x, err
}

func (v view) candidates(q *store.CandidateQuery) (out store.Candidates, err error) {
	out.LSN = min(cmp.Or(q.AsOf, v.lsn), v.lsn)
	x, err := v.index()
	if err != nil {
		return out, err
	}
	ask := lexical.Query{Terms: q.Terms, Dates: q.Dates, K: q.K, Weights: *cmp.Or(q.Weights, &lexical.Weights{})}
	for scope, n := range v.scopes {
		if slices.Contains(q.Scopes, scope) {
			ask.Scopes = append(ask.Scopes, uint32(n))
		}
	}
	slices.Sort(ask.Scopes)
	s := search{view: v, then: view{v.database, out.LSN}, q: q}
	if q.Words != nil {
		out.Typed.Words, ask.Typed = q.Words, &out.Typed
	}
	hits, err := x.Search(lexical.NoRows{}, s, ask)
	if err != nil {
		return out, err
	}
	if ask.Typed, out.Typed.Words = nil, nil; out.Typed.Terms != nil {
		ask.Terms = out.Typed.Terms
	}
	if out.Stats, err = x.Stats(ask.Scopes, lexical.NoRows{}, ask.Terms); err != nil {
		return out, err
	}
	out.Hits = s.hits(hits)
	s.misses, ask.K = true, mostMisses
	misses, err := x.Search(lexical.NoRows{}, s, ask)
	out.Excluded = s.leftOut(hits, misses)
	return out, err
}

// hits are the pages that words or a vector found, and those that are candidates whatever they say: pinned, system and
// verified pages, and the newest.
func (s search) hits(byWords []lexical.Hit) (hits []store.Candidate) {
	words := map[uint64]lexical.Hit{}
	for _, h := range byWords {
		words[h.Num] = h
	}
	shown := s.shown()
	near, newest := s.nearest(shown), map[string]int{}
	for i, c := range shown {
		class := fmt.Sprint(c.Ref.Scope, c.Provenance)
		newest[class]++
		c.Lexical, c.Recent, c.Near = words[c.Key.Num], i < s.q.Recent, near[c.Key.Num]
		always := c.Pinned || c.Kind == store.KindSystem || c.Provenance == store.HumanVerified || newest[class] <= s.q.Newest
		if always || c.Recent || c.Near || c.Lexical.Num != 0 {
			c.Cosine, c.Beside = s.cosine(c.Key.Num), s.beside(c.Key.Num)
			hits = append(hits, c)
		}
	}
	slices.SortFunc(hits, func(a, b store.Candidate) int { return cmp.Compare(a.Key.Num, b.Key.Num) })
	return hits
}

// shown are the pages that answer for themselves and that no rule keeps out, newest first.
func (s search) shown() (all []store.Candidate) {
	for _, p := range s.pages {
		if s.then.answers(p) == p && s.Shown(p.num) {
			all = append(all, s.candidate(p))
		}
	}
	slices.SortFunc(all, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(b.AsOf, a.AsOf), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	return all
}

// candidate describes a page.
func (s search) candidate(p *page) store.Candidate {
	h, is := p.head, s.at(nameOf(p.head), 0)
	c := store.Candidate{
		Key: store.PageKey{Num: p.num, Version: h.Version}, Ref: store.Ref{Scope: h.Scope, ID: h.ID, Page: p.at, Version: p.row().Version},
		Kind: h.Kind, Provenance: h.Provenance, AsOf: h.CurrentAsOf.UnixMicro(), Tokens: int(p.row().Tokens), Pinned: h.Pinned, Seq: h.Seq,
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

// nearest are the pages with the vectors nearest to that of the question.
func (s search) nearest(shown []store.Candidate) map[uint64]bool {
	near := map[uint64]bool{}
	if s.q.Near == nil {
		return near
	}
	shown = slices.DeleteFunc(slices.Clone(shown), func(c store.Candidate) bool {
		cosine := s.cosine(c.Key.Num)
		return cosine == nil || *cosine < format.NearFloor
	})
	slices.SortFunc(shown, func(a, b store.Candidate) int {
		return cmp.Or(cmp.Compare(*s.cosine(b.Key.Num), *s.cosine(a.Key.Num)), cmp.Compare(b.Key.Num, a.Key.Num))
	})
	for _, c := range shown[:min(len(shown), max(s.q.Near.K, 0))] {
		near[c.Key.Num] = true
	}
	return near
}

// cosine returns the cosine of a page's vector; nil: none is asked for, it has none of this length, or one of the two points nowhere.
func (s search) cosine(num uint64) *float64 {
	if s.q.Near == nil || len(s.page(num).vecs[s.q.Near.Model]) != len(s.q.Near.Vector) {
		return nil
	}
	var ab, aa, bb float64
	for i, x := range s.page(num).vecs[s.q.Near.Model] {
		a, b := float64(x), float64(s.q.Near.Vector[i])
		ab, aa, bb = ab+a*b, aa+a*a, bb+b*b
	}
	if aa == 0 || bb == 0 {
		return nil
	}
	c := ab / math.Sqrt(aa*bb)
	return &c
}

// beside returns the share of their cosines that neighbours lend a page.
func (s search) beside(num uint64) (most float64) {
	group, pos := s.Group(num)
	for by, share := range map[int]float64{-2: format.LendAfter, -1: format.LendNext, 1: format.LendNext, 2: format.LendAfter} {
		if n, ok := s.At(group, pos+by); group != 0 && ok && s.Shown(n) && s.cosine(n) != nil {
			most = max(most, share**s.cosine(n))
		}
	}
	return most
}

// leftOut counts what each rule keeps out of the pages that are live now, and names the nearest of it: superseded pages by
// whose words their successors were found, then what a search of what the rules keep out finds.
func (s search) leftOut(found, misses []lexical.Hit) (out []store.Excluded) {
	counts, nearest := map[string]int{}, map[string][]store.Candidate{}
	for _, h := range s.current() {
		why := excludes(s.q, h)
		if s.successor(h) != nil {
			why = triage.Superseded
		}
		if why != "" && slices.Contains(s.q.Scopes, h.Scope) {
			counts[why] += len(h.Rows)
		}
	}
	for _, p := range s.pages {
		if slices.Contains(s.q.Scopes, p.head.Scope) && s.then.answers(p) == p && !passes(s.q, p.head) {
			counts[triage.Filtered]++
		}
	}
	miss := func(why string, num uint64, l lexical.Hit) {
		c := s.candidate(s.page(num))
		c.Excluded, c.Lexical = why, l
		nearest[why] = append(nearest[why], c)
	}
	for _, h := range found {
		if h.Via != 0 && s.successor(s.at(nameOf(s.page(h.Via).head), 0)) != nil {
			miss(triage.Superseded, h.Via, lexical.Hit{Own: h.Own})
		}
	}
	for _, h := range misses {
		miss(excludes(s.q, s.page(h.Num).head), h.Num, h)
	}
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		named := nearest[why][:min(len(nearest[why]), mostMisses)]
		out = append(out, store.Excluded{Reason: why, Count: counts[why], Matched: len(named), Nearest: named})
	}
	return out
}

// expired reports whether a version is no longer served at a time.
func expired(h *store.Head, now time.Time) bool {
	return !h.ExpiresAt.IsZero() && h.ExpiresAt.UnixMicro() <= now.UnixMicro()
}

// ownTurn reports whether a version is a turn of the session that asks.
func ownTurn(q *store.CandidateQuery, h *store.Head) bool {
	return q.Session != "" && h.Group == q.Session && h.Scope == q.Scopes[0]
}

// excludes returns the first rule that keeps a live version out of the candidates; "": none does. It does not apply the
// filter; see passes.
func excludes(q *store.CandidateQuery, h *store.Head) triage.Reason {
	p := format.Ruled{Kind: h.Kind, Provenance: h.Provenance, Own: ownTurn(q, h)}
	p.Turn = h.Kind == store.KindMessage && h.Provenance <= store.Tool && h.Group != ""
	if !h.ExpiresAt.IsZero() {
		p.Expires = h.ExpiresAt.UnixMicro()
	}
	return format.Rule(q, &p)
}

// passes reports whether a version passes the filter. Turns of the session pass any filter, and
// system pages one that is not Strict.
func passes(q *store.CandidateQuery, h *store.Head) bool {
	return ownTurn(q, h) || h.Kind == store.KindSystem && !q.Strict || q.Filter.Match(h)
}
