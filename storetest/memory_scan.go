package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// row is a row of a listing: its key, in whose order the rows come, and what it adds to the answer.
type row struct {
	key  string
	give func(*store.ScanPage)
}

func headRow(key string, h *store.Head) row {
	return row{key, func(out *store.ScanPage) { out.Heads = append(out.Heads, h) }}
}

func pageRow(key string, num uint64, version uint32) row {
	return row{key, func(out *store.ScanPage) { out.Keys = append(out.Keys, store.PageKey{Num: num, Version: version}) }}
}

// Scan: see store.Store. A cursor is the kind of the listing, and the key of the last row that was given.
func (m *Memory) Scan(ctx context.Context, q store.ScanQuery) (out store.ScanPage, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return out, err
	}
	out.LSN = m.lsn
	if out.Same = q.Known == m.lsn && (q.What == store.ScanMembers || q.What == store.ScanSourced); out.Same {
		return out, nil
	}
	kind := fmt.Sprintf("%d.%t/", q.What, q.Newest)
	after, ours := strings.CutPrefix(q.Cursor, kind)
	if q.Cursor != "" && !ours {
		return out, errCursor(&q)
	}
	rows, whole, err := m.rows(&q, after)
	if q.What == store.ScanUnembedded {
		out.Count = len(rows)
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.key, b.key) })
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.key <= after && after != "" })
	for i, r := range rows {
		if i == cmp.Or(q.Limit, 100) && !whole {
			out.Next = kind + rows[i-1].key
			break
		}
		r.give(&out)
	}
	return out, err
}

func errCursor(q *store.ScanQuery) error {
	return store.Invalid("cursor", q.Cursor, "a cursor from the page before")
}

// rows are all rows of a listing, in any order. whole says that they are given at once, whatever the limit.
func (m *Memory) rows(q *store.ScanQuery, after string) (rows []row, whole bool, err error) {
	switch q.What {
	case store.ScanArtefacts:
		rows = m.artefactRows(q)
	case store.ScanHistory:
		rows, err = m.historyRows(q, after)
	case store.ScanGroup, store.ScanMembers:
		return m.groupRows(q), q.What == store.ScanMembers, nil
	case store.ScanSummaries, store.ScanSourced:
		return m.derivedRows(q), true, nil
	case store.ScanHeld:
		for id, h := range m.held {
			if (h.Decided == "" || q.All) && (len(q.Scopes) == 0 || h.Batch.Scope == q.Scopes[0]) {
				rows = append(rows, row{id.String(), func(out *store.ScanPage) { out.Held = append(out.Held, own(h)) }})
			}
		}
	case store.ScanState:
		for key, r := range m.state {
			if strings.HasPrefix(key, q.Prefix) {
				rows = append(rows, row{key, func(out *store.ScanPage) { out.State = append(out.State, own(r)) }})
			}
		}
	case store.ScanScopes:
		for n := range m.scopes {
			info := store.ScopeInfo{Name: n.scope}
			for _, h := range m.current() {
				if h.Scope == n.scope && h.Live() {
					info.Artefacts++
				}
			}
			if strings.HasPrefix(n.scope, q.Prefix) && (n.scope != store.OperatorScope || info.Artefacts > 0) {
				rows = append(rows, row{n.scope, func(out *store.ScanPage) { out.Names = append(out.Names, info) }})
			}
		}
	case store.ScanUnembedded:
		for _, p := range m.pages {
			h := m.headOf(p)
			if m.vectors[vector{q.Model, p.Num}] == nil && m.answers(p.Num, now) == p.Num && slices.Contains(q.Scopes, p.of.scope) &&
				h.Kind != store.KindSystem && h.Provenance >= store.Tool {
				rows = append(rows, pageRow(fmt.Sprintf("%020d", p.Num), p.Num, h.Version))
			}
		}
	}
	return rows, false, err
}

func (m *Memory) artefactRows(q *store.ScanQuery) (rows []row) {
	for _, h := range m.current() {
		if h.Scope == q.Scopes[0] && (h.Live() || q.Deleted) && strings.HasPrefix(h.ID, q.Prefix) && q.Filter.Match(h) {
			key := h.ID
			if q.Newest {
				key = fmt.Sprintf("%020d.%s", now-h.LSN, h.ID)
			}
			rows = append(rows, headRow(key, m.listed(h)))
		}
	}
	return rows
}

// listed is a version as listings show it: with the artefact that superseded its own, if it is current.
func (m *Memory) listed(h *store.Head) *store.Head {
	c := own(h)
	if by := m.supersededBy(h, now); by != nil && h == m.at(nameOf(h), now) {
		c.Superseded = by.ID
	}
	return c
}

// historyRows are the versions of an artefact of the first scope that has it, or of the one where the list began.
func (m *Memory) historyRows(q *store.ScanQuery, after string) (rows []row, err error) {
	for _, scope := range q.Scopes {
		of := name{scope, q.ID}
		began := fmt.Sprintf("%s\x00%s\x00", scope, q.ID)
		if !strings.HasPrefix(after, began) && after != "" {
			continue
		}
		for _, h := range m.versions(of) {
			rows = append(rows, headRow(fmt.Sprintf("%s%010d", began, ^h.Version), m.listed(h)))
		}
		if len(rows) > 0 {
			return rows, nil
		}
	}
	if after != "" {
		return nil, errCursor(q)
	}
	return nil, fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
}

// groupRows are the live artefacts of a group, or the pages of those that nothing superseded.
func (m *Memory) groupRows(q *store.ScanQuery) (rows []row) {
	var last *store.Head
	for i, num := range m.members(m.groups[name{q.Scopes[0], q.Group}]) {
		h, key := m.at(m.pages[num-1].of, now), fmt.Sprintf("%010d", i)
		switch {
		case q.What == store.ScanGroup && h != last:
			rows = append(rows, headRow(key, own(h)))
		case q.What == store.ScanMembers && m.supersededBy(h, now) == nil:
			rows = append(rows, pageRow(key, num, h.Version))
		}
		last = h
	}
	return rows
}

// derivedRows are the live artefacts that nothing superseded and that have a source, by id, or summarise one artefact, newest
// first.
func (m *Memory) derivedRows(q *store.ScanQuery) (rows []row) {
	for _, h := range m.current() {
		switch {
		case !h.Live() || m.supersededBy(h, now) != nil:
		case q.What == store.ScanSourced && h.Scope == q.Scopes[0] && h.Artefact.Source != "":
			rows = append(rows, pageRow(h.ID, h.Rows[0].Num, h.Version))
		case q.What == store.ScanSummaries && slices.Contains(q.Scopes, h.Scope) && h.Kind == store.KindSummary && len(h.Rows) == 1 &&
			len(h.DerivedFrom) == 1 && h.DerivedFrom[0].Scope == q.Of.Scope && h.DerivedFrom[0].ID == q.Of.ID:
			rows = append(rows, headRow(fmt.Sprintf("%020d", now-h.Art), own(h)))
		}
	}
	return rows
}
