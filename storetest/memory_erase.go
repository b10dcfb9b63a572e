package storetest

import (
	"errors"
	"fmt"
	"maps"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// erase takes all versions of artefacts, held batches, questions and rows of state. Nothing of it is anywhere else.
func (m *Memory) erase(job *store.EraseJob) (rep store.EraseReport, err error) {
	if job != nil && (job.Names || len(job.Leaves) > 0) {
		return rep, fmt.Errorf("storetest: %w: the reference store prunes no leaves", errors.ErrUnsupported)
	}
	if err := job.Check(); err != nil {
		return rep, err
	}
	for _, r := range job.State {
		if r.LSN != 0 && m.state[r.Key].LSN != r.LSN {
			return rep, &store.ConflictError{Key: r.Key, Have: r.LSN, Now: m.state[r.Key].LSN}
		}
	}
	id, err := store.NewID(m.cfg.Now(), m.cfg.Rand)
	if err != nil {
		return rep, err
	}
	m.lsn++
	b := &store.Batch{ID: id, Scope: store.OperatorScope, Actor: "operator", Now: m.cfg.Now(), Leaf: manifest.Record{Type: manifest.TypeErase, By: job.By, Reason: job.Reason, Query: store.AskedDigest(job.Asked, job.Cascade)}}
	rep = store.EraseReport{Trace: id.String(), At: b.Now, By: job.By, Reason: job.Reason, Held: len(job.Held), Questions: len(job.Questions), State: len(job.State), LSN: m.lsn, Asked: job.Asked, Cascade: job.Cascade}
	leaf := leafOf(b, verdict{}, m.lsn)
	leaf.Parent = rep.Trace
	for _, ref := range job.Refs {
		m.eraseArtefact(name{ref.Scope, ref.ID}, job, b, leaf, &rep)
	}
	for _, id := range job.Held {
		delete(m.held, id)
	}
	for _, at := range job.Questions {
		delete(m.asked, at)
	}
	for _, r := range job.State {
		if r.LSN = m.lsn; r.Value == nil {
			delete(m.state, r.Key)
			continue
		}
		m.state[r.Key] = own(r)
	}
	leaf.Note = rep.Counts()
	rep.Leaf = m.log.Size()
	close(m.moved)
	m.moved = make(chan struct{})
	return rep, m.append(leaf)
}

func (m *Memory) eraseArtefact(of name, job *store.EraseJob, b *store.Batch, leaf *manifest.Record, rep *store.EraseReport) {
	newest := m.at(of, now)
	if newest == nil || newest.Deleted && newest.ErasedBy != "" {
		return
	}
	heads := m.versions(of)
	rep.Artefacts++
	m.delete(newest, b, &store.Outcome{}, leaf)
	end := m.heads[len(m.heads)-1]
	*end = blank(end, job.By, rep.Trace)
	end.Gone = false
	for _, h := range heads {
		if !h.Gone && !h.Deleted {
			rep.Versions++
		}
		for i, r := range h.Rows {
			p := m.pages[r.Num-1]
			if r.Version == h.Version && p.gone == 0 {
				rep.Pages, rep.Bytes = rep.Pages+1, rep.Bytes+int64(r.Bytes)
				p.gone, p.text = m.lsn, ""
				m.index.Remove(p.Num)
				maps.DeleteFunc(m.vectors, func(k vector, _ []float32) bool { return k.num == p.Num })
			}
			h.Rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN}
			p.PageRow = h.Rows[i]
		}
		*h = blank(h, job.By, rep.Trace)
	}
}

// blank is what stays of a version.
func blank(h *store.Head, by, trace string) store.Head {
	return store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Deleted: h.Deleted,
		Gone: true, GoneBy: trace, ErasedBy: by,
	}
}
