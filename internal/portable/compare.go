package portable

import (
	"context"
	"errors"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// An import compares each version of the file with the database and writes only those that continue it. An artefact is
// imported, skipped as the same, or left alone as another one under the same name; it is never mixed from both.

// missing returns the versions of a line that are not here yet. Versions are the same if they were put at the same moment with the same
// salts, which are random, and digests. If any version differs, the artefact is not changed.
func (m *importer) missing(ref store.Ref, all []store.Carried) ([]store.Carried, error) {
	if m.others[ref] {
		m.rep.Versions.Other += uint64(len(all))
		return nil, nil
	}
	newest, err := m.newest(ref)
	if err != nil {
		return nil, err
	}
	last := &all[len(all)-1].Head
	if last.ErasedBy != "" && last.Deleted {
		m.erased[ref] = true
	}
	if newest == nil {
		m.stays[ref.Scope] = true
		if first := &all[0].Head; first.Version != 1 && !first.Floor {
			return nil, fieldError("version", store.Invalid("version", "a version whose predecessors are neither in the file nor here", "the versions before it first"))
		}
		return all, nil
	}
	if newest.ErasedBy != "" && newest.Deleted && !m.erased[ref] && last.ErasedBy == "" {
		m.rep.Erased += uint64(len(all))
		m.lost[ref.Scope] = true
		if g := last.Group; g != "" {
			m.sessions[ref.Scope+"\x00"+g] = true
		}
		return nil, nil
	}
	m.stays[ref.Scope] = true
	n := 0
	for n < len(all) && all[n].Head.Version <= newest.Version {
		same, err := m.sameVersion(newest, &all[n].Head)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, m.differs(ref, all)
		}
		n++
	}
	m.rep.Versions.Same += uint64(n)
	if all = all[n:]; len(all) > 0 && all[0].Head.Version != newest.Version+1 {
		return nil, m.differs(ref, all)
	}
	return all, nil
}

func (m *importer) differs(ref store.Ref, all []store.Carried) error {
	m.others[ref] = true
	m.other(&m.rep.Versions, uint64(len(all)), ref.String())
	return nil
}

func (m *importer) newest(ref store.Ref) (*store.Head, error) {
	if v := m.dry[ref]; v != 0 {
		return &store.Head{Artefact: store.Artefact{ID: ref.ID}, Scope: ref.Scope, Version: v}, nil
	}
	return newestHead(m.ctx, m.st, ref)
}

func newestHead(ctx context.Context, st store.Store, ref store.Ref) (*store.Head, error) {
	page, err := st.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{ref.Scope}, ID: ref.ID, Limit: 1})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil || len(page.Heads) == 0 {
		return nil, err
	}
	return page.Heads[0], nil
}

// lsnOf returns the LSN of an artefact for preconditions; 0: there is none, or it is deleted.
func lsnOf(ctx context.Context, st store.Store, ref store.Ref) (uint64, error) {
	h, err := newestHead(ctx, st, store.Ref{Scope: ref.Scope, ID: ref.ID})
	if err != nil || h == nil || h.Deleted {
		return 0, err
	}
	return h.LSN, nil
}

// sameVersion compares a version of the file with the one in the database. If either has lost its content, the two count as
// the same.
func (m *importer) sameVersion(newest *store.Head, h *store.Head) (bool, error) {
	if m.opts.DryRun && m.dry[store.Ref{Scope: h.Scope, ID: h.ID}] != 0 {
		return true, nil
	}
	if newest.Version == h.Version {
		return sameHead(newest, h), nil
	}
	l, err := m.st.Resolve(m.ctx, store.Scopes{h.Scope}, store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	switch {
	case errors.Is(err, store.ErrGone):
		return true, nil
	case errors.Is(err, store.ErrNotFound):
		return h.Deleted, nil
	case err != nil:
		return false, err
	}
	if h.Gone {
		return true, nil
	}
	got, err := m.st.Load(m.ctx, nil, l.Pages[:1], store.WantHead)
	if err != nil {
		return false, err
	}
	if errors.Is(got[0].Err, store.ErrGone) {
		return true, nil
	}
	return got[0].Err == nil && sameHead(got[0].Head, h), got[0].Err
}

func sameHead(a, b *store.Head) bool {
	if a.ErasedBy != "" || b.ErasedBy != "" {
		return true
	}
	if !a.PutAt.Equal(b.PutAt) || a.Deleted != b.Deleted || len(a.Rows) != len(b.Rows) {
		return false
	}
	for i := range a.Rows {
		if !format.SameRow(&a.Rows[i], &b.Rows[i]) {
			return false
		}
	}
	return true
}
