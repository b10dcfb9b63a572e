package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

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

// operator is a batch of the store's own, of which a job is one commit.
func (m *Memory) operator(leaf manifest.Record) (*store.Batch, error) {
	id, err := store.NewID(m.cfg.Now(), m.cfg.Rand)
	return &store.Batch{ID: id, Scope: store.OperatorScope, Actor: store.OperatorScope, Now: m.cfg.Now(), Leaf: leaf}, err
}

// ended is a version that is not current any more, or whose time has passed.
type ended struct {
	*store.Head
	why  string // "": it is current
	at   int64  // unix µs
	by   uint64 // LSN of the commit that ended it, 0: its expiry did
	kept string // what keeps it, "": it goes
}

// collection is one run of gc.
type collection struct {
	*Memory
	job   *store.GCJob
	dry   bool
	now   time.Time
	named map[uint64]string // pages that something names, and what
	rep   store.GCReport
}

// collect drops versions that ended and that nothing names.
func (m *Memory) collect(job *store.GCJob, dry bool) (store.GCReport, error) {
	c := &collection{m, job, dry, m.cfg.Now(), m.named(), store.GCReport{DryRun: dry}}
	if job.Reviews != nil {
		c.reviews(func(id ulid.ULID, _ store.HeldBatch) bool { return slices.Contains(job.Reviews, id) })
		return c.rep, nil
	}
	b, err := m.operator(manifest.Record{Type: manifest.TypeGC, By: job.By})
	if err != nil {
		return c.rep, err
	}
	var drop []*ended
	gone, kept := map[string]*store.GCTally{}, map[string]*store.GCTally{}
	for _, h := range m.current() {
		for _, v := range c.ended(nameOf(h)) {
			if v.kept != "" {
				m.tally(kept, v.kept, v)
				continue
			}
			m.tally(gone, v.why, v)
			drop, c.rep.Refs = append(drop, v), append(c.rep.Refs, store.Ref{Scope: v.Scope, ID: v.ID, Version: v.Version})
		}
	}
	c.rep.Reasons, c.rep.Kept = tallies(gone), tallies(kept)
	for _, t := range c.rep.Reasons {
		d := &c.rep.Dropped
		d.Versions, d.Pages, d.Bytes = d.Versions+t.Versions, d.Pages+t.Pages, d.Bytes+t.Bytes
	}
	if !job.Only() {
		c.past(c.now.Add(-job.KeepFor).UnixMicro())
	}
	if dry || len(drop) == 0 {
		return c.rep, nil
	}
	m.lsn++
	leaf := leafOf(b, verdict{}, m.lsn)
	for _, v := range drop {
		m.drop(v.Head, b, leaf)
	}
	c.rep.Trace = b.ID.String()
	return c.rep, m.done(leaf)
}

// ended are the versions of an artefact that ended, oldest first, each with what keeps it.
func (c *collection) ended(of name) (vs []*ended) {
	heads := c.versions(of)
	_, ours := c.job.KeepIn(of.scope)
	for i, h := range heads {
		v := &ended{Head: h}
		switch {
		case h.Gone || len(h.Rows) == 0 || !ours:
			continue
		case i < len(heads)-1:
			after := heads[i+1]
			if v.why, v.at, v.by = store.GoneSuperseded, after.PutAt.UnixMicro(), after.LSN; after.Deleted {
				v.why = store.GoneDeleted
			}
		case h.Expired(c.now):
			v.why, v.at = store.GoneExpired, h.ExpiresAt.UnixMicro()
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		v.kept = c.keeps(v, len(vs)-1-i)
		for _, older := range vs[:i] { // a page is known by the newest version that has it: that stays with any of them
			if older.kept != "" && v.kept == "" && slices.ContainsFunc(older.Rows, func(r store.PageRow) bool { return has(v.Head, c.pages[r.Num-1]) }) {
				v.kept = store.KeptShared
			}
		}
	}
	return slices.DeleteFunc(vs, func(v *ended) bool { return v.why == "" })
}

// keeps says what keeps a version, of whose artefact so many are newer.
func (c *collection) keeps(v *ended, newer int) string {
	keep, _ := c.job.KeepIn(v.Scope)
	switch {
	case v.why == "" || newer < keep.Versions:
		return store.KeptNewest
	case v.why == store.GoneExpired && !c.job.Expired:
		return store.KeptExpired
	case v.at > c.now.Add(-keep.For).UnixMicro():
		return store.KeptYoung
	}
	for _, r := range v.Rows {
		if why := c.named[r.Num]; why != "" {
			return why
		}
	}
	for _, at := range c.holds {
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
		if h.Decided != "" {
			continue
		}
		for _, c := range h.Batch.Context {
			out[c.Num] = store.KeptHeld
		}
		for i := range h.Batch.Puts {
			refs(h.Batch.Puts[i].Artefact.DerivedFrom, store.KeptHeld)
		}
	}
	return out
}

func (m *Memory) tally(by map[string]*store.GCTally, reason string, v *ended) {
	by[reason] = cmp.Or(by[reason], &store.GCTally{Reason: reason})
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
func (m *Memory) drop(h *store.Head, b *store.Batch, leaf *manifest.Record) {
	if h == m.at(nameOf(h), now) { // it expired: it is deleted first
		m.delete(h, b, &store.Outcome{}, &manifest.Record{})
	}
	for _, r := range h.Rows {
		if p := m.pages[r.Num-1]; m.headOf(p) == h {
			m.take(p)
		}
	}
	w := written(h, 0, h.Rows[0].Num)
	w.Gone = true
	leaf.Writes = append(leaf.Writes, w)
	*h = blank(h, b.ID.String())
}

// take removes all that is kept of a page but its row.
func (m *Memory) take(p *page) {
	p.gone, p.text = m.lsn, ""
	m.index.Remove(p.Num)
	maps.DeleteFunc(m.vectors, func(k vector, _ []float32) bool { return k.num == p.Num })
}

// blank is what stays of a version that a run took.
func blank(h *store.Head, trace string) store.Head {
	return store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes},
		Scope:    h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Deleted: h.Deleted,
		Gone: true, GoneBy: trace,
	}
}

// past drops decided reviews, state rows that serve only the past, and rows of journals that newer ones replaced.
func (c *collection) past(limit int64) {
	c.reviews(func(_ ulid.ULID, h store.HeldBatch) bool { return h.At.UnixMicro() <= limit })
	for _, k := range c.cfg.State {
		journals := map[string]map[uint64]string{} // keys by number
		for key := range c.state {
			if !strings.HasPrefix(key, k.Prefix) {
				continue
			}
			if k.Past != nil {
				at, of := k.Past(key)
				h := c.at(name{of.Scope, of.ID}, now)
				if at != 0 && at <= limit || h != nil && h.Deleted && h.PutAt.UnixMicro() <= limit {
					c.dropState(&c.rep.Drafts, key)
				}
			}
			if k.Journal != nil {
				if of, n := k.Journal.Entry(key); n != 0 {
					if journals[of] == nil {
						journals[of] = map[uint64]string{}
					}
					journals[of][n] = key
				}
			}
		}
		for of, rows := range journals {
			c.replaced(k.Journal, k.Journal.Head(of), rows, limit)
		}
	}
}

// replaced drops the rows of a journal that newer ones replaced, oldest first.
func (c *collection) replaced(j *store.StateJournal, headKey string, rows map[uint64]string, limit int64) {
	var needs []uint64
	if head := c.state[headKey].Value; head != nil && j.Needs != nil {
		needs, _ = j.Needs(head)
	}
	numbers := slices.Sorted(maps.Keys(rows))
	for i := range max(0, len(numbers)-max(1, j.Keep, c.job.KeepVersions)) {
		if at, err := j.At(c.state[rows[numbers[i+1]]].Value); err != nil || at > limit {
			break
		}
		if !slices.Contains(needs, numbers[i]) {
			c.dropState(&c.rep.Journal, rows[numbers[i]])
		}
	}
}

func (c *collection) dropState(count *int, key string) {
	if *count++; !c.dry {
		delete(c.state, key)
	}
}

func (c *collection) reviews(goes func(ulid.ULID, store.HeldBatch) bool) {
	for id, h := range c.held {
		if h.Decided != "" && goes(id, h) {
			if c.rep.Reviews++; !c.dry {
				delete(c.held, id)
			}
		}
	}
}

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
	b, err := m.operator(manifest.Record{Type: manifest.TypeErase, By: job.By, Reason: job.Reason, Query: store.AskedDigest(job.Asked, job.Cascade)})
	if err != nil {
		return rep, err
	}
	m.lsn++
	rep = store.EraseReport{Trace: b.ID.String(), At: b.Now, By: job.By, Reason: job.Reason, Held: len(job.Held), Questions: len(job.Questions), State: len(job.State), LSN: m.lsn, Asked: job.Asked, Cascade: job.Cascade}
	leaf := leafOf(b, verdict{}, m.lsn)
	leaf.Parent = rep.Trace
	for _, ref := range job.Refs {
		m.eraseArtefact(name{ref.Scope, ref.ID}, b, leaf, &rep)
	}
	for _, id := range job.Held {
		delete(m.held, id)
	}
	for _, at := range job.Questions {
		delete(m.asked, at)
	}
	m.setState(job.State)
	leaf.Note, rep.Leaf = rep.Counts(), m.log.Size()
	return rep, m.done(leaf)
}

func (m *Memory) eraseArtefact(of name, b *store.Batch, leaf *manifest.Record, rep *store.EraseReport) {
	newest := m.at(of, now)
	if newest == nil || newest.Deleted && newest.ErasedBy != "" {
		return
	}
	rep.Artefacts++
	m.delete(newest, b, &store.Outcome{}, leaf)
	for _, h := range m.versions(of) {
		if h.Live() {
			rep.Versions++
		}
		for i, r := range h.Rows {
			p := m.pages[r.Num-1]
			if r.Version == h.Version && p.gone == 0 {
				rep.Pages, rep.Bytes = rep.Pages+1, rep.Bytes+int64(r.Bytes)
				m.take(p)
			}
			h.Rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN}
			p.PageRow = h.Rows[i]
		}
		*h = blank(h, rep.Trace)
		h.ErasedBy = rep.By
	}
	m.at(of, now).Gone = false // the deletion
}
