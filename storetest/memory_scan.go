package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// scan returns the rows of a listing after a cursor, which is the kind of the listing and the key of the last row that was given.
func (v view) scan(q *store.ScanQuery) (store.ScanPage, error) {
	out, kind := store.ScanPage{LSN: v.lsn}, fmt.Sprintf("%d.%t/", q.What, q.Newest)
	after, ours := strings.CutPrefix(q.Cursor, kind)
	atOnce := q.What == store.ScanMembers || q.What == store.ScanSourced
	if out.Same = atOnce && q.Known == v.lsn; out.Same {
		return out, nil
	}
	rows := v.rows(q, after)
	none := q.What == store.ScanHistory && len(rows) == 0
	switch {
	case q.Cursor != "" && (!ours || none):
		return out, store.Invalid("cursor", q.Cursor, "a cursor from the page before")
	case none:
		return out, fmt.Errorf("%w: %q in %s", store.ErrNotFound, q.ID, strings.Join(q.Scopes, ", "))
	case q.What == store.ScanUnembedded:
		out.Count = len(rows)
	}
	maps.DeleteFunc(rows, func(key string, _ store.ScanPage) bool { return key <= after && after != "" })
	last := ""
	for i, key := range slices.Sorted(maps.Keys(rows)) {
		if i == cmp.Or(q.Limit, 100) && !atOnce && q.What != store.ScanSummaries {
			out.Next = kind + last
			break
		}
		last = key
		r := rows[key]
		out.Heads, out.Held, out.Names = append(out.Heads, r.Heads...), append(out.Held, r.Held...), append(out.Names, r.Names...)
		out.Keys, out.State = append(out.Keys, r.Keys...), append(out.State, r.State...)
	}
	return out, nil
}

// rows are all rows of a listing: what each adds to the answer, by its key, in whose order they come.
func (v view) rows(q *store.ScanQuery, after string) map[string]store.ScanPage {
	rows := map[string]store.ScanPage{}
	switch q.What {
	case store.ScanHistory: // of the first scope that has it, or of the one where the list began
		for i := 0; i < len(q.Scopes) && len(rows) == 0; i++ {
			began := fmt.Sprintf("%s\x00%s\x00", q.Scopes[i], q.ID)
			for _, h := range v.versions[name{q.Scopes[i], q.ID}] {
				if strings.HasPrefix(after, began) || after == "" {
					rows[fmt.Sprintf("%s%010d", began, ^h.Version)] = v.headRow(h)
				}
			}
		}
	case store.ScanHeld:
		for id, h := range v.held {
			if (h.Decided == "" || q.All) && (len(q.Scopes) == 0 || h.Batch.Scope == q.Scopes[0]) {
				rows[id.String()] = store.ScanPage{Held: []store.HeldBatch{h}}
			}
		}
	case store.ScanState:
		for key, r := range v.state {
			if strings.HasPrefix(key, q.Prefix) {
				rows[key] = store.ScanPage{State: []store.StateRow{r}}
			}
		}
	case store.ScanScopes:
		for scope := range v.scopes {
			live := len(slices.DeleteFunc(v.current(), func(h *store.Head) bool { return h.Scope != scope }))
			if strings.HasPrefix(scope, q.Prefix) && (scope != store.OperatorScope || live > 0) {
				rows[scope] = store.ScanPage{Names: []store.ScopeInfo{{Name: scope, Artefacts: live}}}
			}
		}
	case store.ScanUnembedded:
		for _, p := range v.pages {
			h := p.head
			v1 := p.vecs[q.Model]
			lacks := v1 == nil || q.Numbers > 0 && len(v1) != q.Numbers || q.Zeros && !slices.ContainsFunc(v1, func(x float32) bool { return x != 0 })
			if lacks && v.answers(p) == p && slices.Contains(q.Scopes, h.Scope) && h.Kind != store.KindSystem && h.Provenance >= store.Tool {
				rows[fmt.Sprintf("%020d", p.num)] = pageRow(p)
			}
		}
	case store.ScanGroup, store.ScanMembers:
		for i, p := range v.members(v.groups[name{q.Scopes[0], q.Group}]) {
			key := fmt.Sprintf("%010d", i)
			switch {
			case q.What == store.ScanGroup && p.at == 1:
				rows[key] = v.headRow(p.head)
			case q.What == store.ScanMembers && v.successor(p.head) == nil:
				rows[key] = pageRow(p)
			}
		}
	default:
		v.artefactRows(q, rows)
	}
	return rows
}

// artefactRows adds artefacts, by id or newest first; those that have a source, by id; or those that summarise another,
// newest first.
func (v view) artefactRows(q *store.ScanQuery, rows map[string]store.ScanPage) {
	for _, h := range v.artefacts() {
		newestFirst := fmt.Sprintf("%020d.%s", ^h.LSN, h.ID)
		current := format.Live(h) && v.successor(h) == nil
		switch {
		case q.What == store.ScanArtefacts && h.Scope == q.Scopes[0] && (format.Live(h) || q.Deleted) && strings.HasPrefix(h.ID, q.Prefix) && q.Filter.Match(h):
			key := h.ID
			if q.Newest {
				key = newestFirst
			}
			rows[key] = v.headRow(h)
		case q.What == store.ScanSourced && current && h.Scope == q.Scopes[0] && h.Artefact.Source != "":
			rows[h.ID] = pageRow(v.page(h.Rows[0].Num))
		case q.What == store.ScanSummaries && current && slices.Contains(q.Scopes, h.Scope) && h.Kind == store.KindSummary && len(h.Rows) == 1 &&
			len(h.DerivedFrom) == 1 && h.DerivedFrom[0].Scope == q.Of.Scope && h.DerivedFrom[0].ID == q.Of.ID:
			rows[newestFirst] = v.headRow(h)
		}
	}
}

// headRow lists a version: the newest of its artefact with the artefact that superseded it.
func (v view) headRow(h *store.Head) store.ScanPage {
	listed := *h
	if by := v.successor(h); by != nil && h == v.at(nameOf(h), 0) {
		listed.Superseded = by.ID
	}
	return store.ScanPage{Heads: []*store.Head{&listed}}
}

func pageRow(p *page) store.ScanPage {
	return store.ScanPage{Keys: []store.PageKey{{Num: p.num, Version: p.head.Version}}}
}

// members are the live pages of a group, in order.
func (v view) members(group uint64) (all []*page) {
	heads := slices.DeleteFunc(v.current(), func(h *store.Head) bool { return group == 0 || h.GroupNum != group })
	slices.SortFunc(heads, func(a, b *store.Head) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Art, b.Art)) })
	for _, h := range heads {
		for _, r := range h.Rows {
			all = append(all, v.page(r.Num))
		}
	}
	return all
}
