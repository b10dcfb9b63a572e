package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// ours says that a page is of the session that asks.
func (v asked) ours(h *store.Head) bool {
	return v.q.Session != "" && h.Group == v.q.Session && h.Scope == v.q.Scopes[0]
}

// passes is the filter.
func (v asked) passes(p *page) bool {
	h := v.headOf(p)
	return v.ours(h) || h.Kind == store.KindSystem && !v.q.Strict || v.q.Filter.Match(h)
}

func (m *Memory) countFiltered(v asked, by map[string]*store.Excluded) {
	if n := m.filteredOut(v); n > 0 {
		by[store.ReasonFilter] = &store.Excluded{Reason: store.ReasonFilter, Count: n}
	}
}

// filteredOut counts the pages that answer and do not pass the filter.
func (m *Memory) filteredOut(v asked) (n int) {
	for _, p := range m.pages {
		if slices.Contains(v.q.Scopes, p.of.scope) && m.answers(p.Num, v.asOf) == p.Num && !v.passes(p) {
			n++
		}
	}
	return n
}

// newest lists artefacts by the LSN of their newest versions, latest first.
func (m *Memory) newest(heads map[string]*store.Head, q store.ScanQuery) (out []*store.Head, next string, err error) {
	at, id, ok := strings.Cut(q.Cursor, ".")
	lsn, err := strconv.ParseUint(at, 10, 64)
	if q.Cursor != "" && (!ok || err != nil) {
		return nil, "", store.Invalid("cursor", q.Cursor, "a cursor from the page before")
	}
	all := slices.SortedFunc(maps.Values(heads), func(a, b *store.Head) int { return cmp.Or(cmp.Compare(b.LSN, a.LSN), cmp.Compare(a.ID, b.ID)) })
	for _, h := range all {
		if !strings.HasPrefix(h.ID, q.Prefix) || q.Cursor != "" && (h.LSN > lsn || h.LSN == lsn && h.ID <= id) {
			continue
		}
		if len(out) == q.Limit {
			return out, next, nil
		}
		out, next = append(out, m.listed(h)), fmt.Sprintf("%d.%s", h.LSN, h.ID)
	}
	return out, "", nil
}
