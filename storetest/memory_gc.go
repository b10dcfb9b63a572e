package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// ErrNoFile is the answer to a backup: there is no file to copy.
var ErrNoFile = errors.New("storetest: the reference store has no file to copy")

// Maintain: see store.Store. A checkpoint has nothing to do.
func (m *Memory) Maintain(ctx context.Context, job store.Job, _ store.Progress) (rep store.JobReport, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return rep, err
	}
	switch job.Kind {
	case store.JobBackup:
		return rep, ErrNoFile
	case store.JobGC, store.JobGCPlan:
		rep.GC, err = m.collect(job.GC, job.Kind == store.JobGCPlan)
	case store.JobErase:
		rep.Erase, err = m.erase(job.Erase)
	case store.JobCompactPlan, store.JobCompact: // there is no file
		rep.Compact.DryRun = job.Kind == store.JobCompactPlan
	}
	rep.Applied = m.lsn
	return rep, err
}

// ended is a version that is not current any more, or whose time has passed.
type ended struct {
	*store.Head
	why  string // "": it is current
	at   int64  // unix µs
	by   uint64 // LSN of the commit that ended it, 0: its expiry did
	kept string // what keeps it, "": it goes
}

// collect drops versions that ended and that nothing names.
func (m *Memory) collect(job *store.GCJob, dry bool) (rep store.GCReport, err error) {
	id, err := store.NewID(m.cfg.Now(), m.cfg.Rand)
	if err != nil {
		return rep, err
	}
	rep.DryRun = dry
	if job.Reviews != nil {
		for _, id := range job.Reviews {
			if h, ok := m.held[id]; ok && h.Decided != "" {
				if rep.Reviews++; !dry {
					delete(m.held, id)
				}
			}
		}
		return rep, nil
	}
	b := &store.Batch{ID: id, Scope: store.OperatorScope, Actor: store.OperatorScope, Now: m.cfg.Now(), Leaf: manifest.Record{Type: manifest.TypeGC, By: job.By}}
	leaf := leafOf(b, verdict{}, m.lsn+1)
	gone, kept, named := map[string]*store.GCTally{}, map[string]*store.GCTally{}, m.named()
	var drop []*ended
	for _, h := range m.current() {
		for _, v := range m.ended(nameOf(h), job, named) {
			tally, reason := gone, v.why
			if v.kept != "" {
				tally, reason = kept, v.kept
			} else {
				drop, rep.Refs = append(drop, v), append(rep.Refs, store.Ref{Scope: v.Scope, ID: v.ID, Version: v.Version})
			}
			m.count(tally, reason, v)
		}
	}
	rep.Reasons, rep.Kept = tallies(gone), tallies(kept)
	for _, t := range rep.Reasons {
		rep.Dropped.Versions, rep.Dropped.Pages, rep.Dropped.Bytes = rep.Dropped.Versions+t.Versions, rep.Dropped.Pages+t.Pages, rep.Dropped.Bytes+t.Bytes
	}
	m.past(job, m.cfg.Now().UnixMicro()-job.KeepFor.Microseconds(), dry, &rep)
	if dry || len(drop) == 0 {
		return rep, nil
	}
	m.lsn++
	for _, v := range drop {
		m.drop(v, b, leaf)
	}
	rep.Trace = id.String()
	close(m.moved)
	m.moved = make(chan struct{})
	return rep, m.append(leaf)
}

// ended are the versions of an artefact that ended, oldest first, each with what keeps it.
func (m *Memory) ended(of name, job *store.GCJob, named map[uint64]string) (vs []*ended) {
	heads := m.versions(of)
	_, ours := job.KeepIn(of.scope)
	for i, h := range heads {
		v := &ended{Head: h}
		switch {
		case h.Gone || len(h.Rows) == 0 || !ours:
			continue
		case i < len(heads)-1:
			next := heads[i+1]
			if v.why, v.at, v.by = store.GoneSuperseded, next.PutAt.UnixMicro(), next.LSN; next.Deleted {
				v.why = store.GoneDeleted
			}
		case expired(h, m.cfg.Now()):
			v.why, v.at = store.GoneExpired, h.ExpiresAt.UnixMicro()
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		v.kept = m.keeps(v, len(vs)-1-i, job, named)
		for _, older := range vs[:i] { // a page is known by the newest version that has it: that stays with any of them
			if older.kept != "" && v.kept == "" && slices.ContainsFunc(older.Rows, func(r store.PageRow) bool { return has(v.Head, m.pages[r.Num-1]) }) {
				v.kept = store.KeptShared
			}
		}
	}
	return slices.DeleteFunc(vs, func(v *ended) bool { return v.why == "" })
}

// keeps says what keeps a version, of whose artefact so many are newer.
func (m *Memory) keeps(v *ended, newer int, job *store.GCJob, named map[uint64]string) string {
	keep, _ := job.KeepIn(v.Scope)
	switch {
	case v.why == "" || newer < keep.Versions:
		return store.KeptNewest
	case v.why == store.GoneExpired && !job.Expired:
		return store.KeptExpired
	case v.at > m.cfg.Now().Add(-keep.For).UnixMicro():
		return store.KeptYoung
	}
	for _, r := range v.Rows {
		if why := named[r.Num]; why != "" {
			return why
		}
	}
	for _, at := range m.holds {
		if at.LSN < v.by || v.by == 0 && at.Time.UnixMicro() <= v.at {
			return store.KeptInUse
		}
	}
	return ""
}

// named is the pages that something still names: a held batch, a state row, what a live artefact was made from.
func (m *Memory) named() map[uint64]string {
	out := map[uint64]string{}
	refs := func(refs []store.Ref, why string) {
		for _, r := range refs {
			if vs := m.versions(name{r.Scope, r.ID}); r.Version > 0 && r.Version <= uint32(len(vs)) {
				for _, row := range vs[r.Version-1].Rows {
					out[row.Num] = why
				}
			}
		}
	}
	for _, h := range m.current() {
		if !h.Deleted {
			refs(h.DerivedFrom, store.KeptParent)
		}
	}
	for key, row := range m.state {
		for _, k := range m.cfg.State {
			if k.Names != nil && strings.HasPrefix(key, k.Prefix) {
				nums, _ := k.Names(row.Value)
				for _, n := range nums {
					out[n] = store.KeptSession
				}
			}
		}
	}
	for _, h := range m.held {
		for _, c := range h.Batch.Context {
			if h.Decided == "" {
				out[c.Num] = store.KeptHeld
			}
		}
		for i := range h.Batch.Puts {
			if h.Decided == "" {
				refs(h.Batch.Puts[i].Artefact.DerivedFrom, store.KeptHeld)
			}
		}
	}
	return out
}

func (m *Memory) count(by map[string]*store.GCTally, reason string, v *ended) {
	if by[reason] == nil {
		by[reason] = &store.GCTally{Reason: reason}
	}
	t := by[reason]
	t.Versions, t.Nearest = t.Versions+1, append(t.Nearest, store.Ref{Scope: v.Scope, ID: v.ID, Version: v.Version})
	for _, r := range v.Rows {
		if m.headOf(m.pages[r.Num-1]) == v.Head {
			t.Pages, t.Bytes = t.Pages+1, t.Bytes+int64(r.Bytes)
		}
	}
}

func tallies(by map[string]*store.GCTally) (out []store.GCTally) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[reason])
	}
	return out
}

// drop leaves of a version what names it. Pages that no newer version has lose their text, their words and vectors.
func (m *Memory) drop(v *ended, b *store.Batch, leaf *manifest.Record) {
	h := v.Head
	if h == m.at(nameOf(h), now) { // it expired: it is deleted first
		m.delete(h, b, &store.Outcome{}, &manifest.Record{})
	}
	for _, r := range h.Rows {
		if p := m.pages[r.Num-1]; m.headOf(p) == h {
			p.gone, p.text = m.lsn, ""
			m.index.Remove(p.Num)
			maps.DeleteFunc(m.vectors, func(k vector, _ []float32) bool { return k.num == p.Num })
		}
	}
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version, Gone: true})
	*h = store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: b.ID.String(),
	}
}

// past drops decided reviews, and state rows that serve only the past.
func (m *Memory) past(job *store.GCJob, limit int64, dry bool, rep *store.GCReport) {
	if job.Only() {
		return
	}
	for id, h := range m.held {
		if h.Decided != "" && h.At.UnixMicro() <= limit {
			if rep.Reviews++; !dry {
				delete(m.held, id)
			}
		}
	}
	for key := range m.state {
		for _, k := range m.cfg.State {
			if k.Past == nil || !strings.HasPrefix(key, k.Prefix) {
				continue
			}
			at, of := k.Past(key)
			h := m.at(name{of.Scope, of.ID}, now)
			if at != 0 && at <= limit || h != nil && h.Deleted && h.PutAt.UnixMicro() <= limit {
				if rep.Drafts++; !dry {
					delete(m.state, key)
				}
			}
		}
	}
	for _, k := range m.cfg.State {
		if k.Journal != nil {
			m.replaced(&k, job, limit, dry, rep)
		}
	}
}

// replaced drops the rows of journals that newer ones replaced, oldest first.
func (m *Memory) replaced(k *store.StateKind, job *store.GCJob, limit int64, dry bool, rep *store.GCReport) {
	journals := map[string]map[uint64]string{} // keys by number
	for key := range m.state {
		if name, n := k.Journal.Entry(key); strings.HasPrefix(key, k.Prefix) && n != 0 {
			if journals[name] == nil {
				journals[name] = map[uint64]string{}
			}
			journals[name][n] = key
		}
	}
	for name, rows := range journals {
		var needs []uint64
		if head := m.state[k.Journal.Head(name)].Value; head != nil && k.Journal.Needs != nil {
			needs, _ = k.Journal.Needs(head)
		}
		numbers := slices.Sorted(maps.Keys(rows))
		for i := range max(0, len(numbers)-max(1, k.Journal.Keep, job.KeepVersions)) {
			if at, err := k.Journal.At(m.state[rows[numbers[i+1]]].Value); err != nil || at > limit {
				break
			}
			if slices.Contains(needs, numbers[i]) {
				continue
			}
			if rep.Journal++; !dry {
				delete(m.state, rows[numbers[i]])
			}
		}
	}
}
