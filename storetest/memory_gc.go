package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// operator begins a commit of the store's own.
func (v view) operator(leaf manifest.Record) (*commit, error) {
	at := v.cfg.Now()
	id, err := store.NewID(at, v.cfg.Rand)
	return v.begin(&store.Batch{ID: id, Scope: store.OperatorScope, Actor: store.OperatorScope, Now: at, Leaf: leaf}), err
}

// collect drops versions that ended and that nothing keeps, rows of state that serve only the past, and decided reviews.
func (v view) collect(job *store.GCJob, holds map[store.Ticket]store.Moment, plan bool) (rep store.GCReport, err error) {
	c, err := v.operator(manifest.Record{Type: manifest.TypeGC, By: job.By})
	if err != nil {
		return rep, err
	}
	names, dropped, kept := v.names(), format.Tallies{}, format.Tallies{}
	why := func(x *format.Version) string {
		why := names.Why(x.Head)
		for _, at := range holds {
			if why == "" && (at.LSN < x.By || x.By == 0 && at.Time.UnixMicro() <= x.Ended) {
				why = format.KeptInUse
			}
		}
		return why
	}
	var drop []*store.Head
	for _, newest := range v.artefacts() {
		if _, ours := format.KeepIn(job, newest.Scope); !ours || job.Reviews != nil {
			continue
		}
		for _, x := range format.Judge(v.versions[nameOf(newest)], job, c.batch.Now, why) {
			if x.Kept != "" {
				kept.AddKept(x)
				continue
			}
			dropped.Add(x.Why, x)
			format.Count(&rep.Dropped, x)
			drop, rep.Refs = append(drop, x.Head), append(rep.Refs, x.Ref())
		}
	}
	rep.DryRun, rep.Reasons, rep.Kept = plan, dropped.Lines(), kept.Lines()
	rows, reviews := v.past(job, &rep)
	if plan || len(drop)+len(rows)+len(reviews) == 0 {
		return rep, nil
	}
	rep.Trace = c.batch.ID.String()
	for _, h := range drop {
		if h == v.at(nameOf(h), 0) { // it expired: it is deleted first
			c.delete(format.Deletion(h, c.batch, c.out.LSN))
			c.leaf.Writes = nil
		}
		c.note(h, 0, h.Rows[0].Num).Gone = true
		c.take(h, format.Tombstone(h, rep.Trace))
	}
	c.setState(rows)
	for _, id := range reviews {
		delete(c.held, id)
	}
	return rep, c.end()
}

// names lists references that keep versions from gc: the sources of live artefacts, references in state rows, and the sources
// of batches that wait for review.
func (v view) names() format.Names {
	names := format.NewNames()
	for _, h := range v.current() {
		names.Lineage(h.Scope, &h.Artefact)
	}
	for _, k := range v.cfg.State {
		for key, row := range v.state {
			if k.Names != nil && strings.HasPrefix(key, k.Prefix) {
				_ = names.State(&k, row.Value)
			}
		}
	}
	for _, h := range v.held {
		if h.Decided == "" {
			names.Held(&h.Batch)
		}
	}
	return names
}

// past are the rows of state that serve only the past, those of journals that newer ones replaced, and decided reviews.
func (v view) past(job *store.GCJob, rep *store.GCReport) (rows []store.StateRow, reviews []ulid.ULID) {
	limit, only := v.cfg.Now().Add(-job.KeepFor).UnixMicro(), format.ScopedGC(job) || job.Reviews != nil
	for id, h := range v.held {
		if h.Decided != "" && (slices.Contains(job.Reviews, id) || !only && h.At.UnixMicro() <= limit) {
			reviews, rep.Reviews = append(reviews, id), rep.Reviews+1
		}
	}
	for _, k := range v.cfg.State {
		journals := map[string][]format.JournalRow{}
		for key, row := range v.state {
			switch {
			case only || !strings.HasPrefix(key, k.Prefix):
			case k.Past != nil && v.isPast(k.Past, key, limit):
				rows, rep.Drafts = append(rows, store.StateRow{Key: key}), rep.Drafts+1
			case k.Journal != nil:
				of, n := k.Journal.Entry(key)
				at, err := k.Journal.At(row.Value)
				if n > 0 && err == nil {
					journals[of] = append(journals[of], format.JournalRow{Key: key, Number: n, At: at})
				}
			}
		}
		for of, entries := range journals {
			old, _ := format.Replaced(k.Journal, entries, limit, job.KeepVersions, func() ([]byte, error) { return v.state[k.Journal.Head(of)].Value, nil })
			rows, rep.Journal = append(rows, old...), rep.Journal+len(old)
		}
	}
	return rows, reviews
}

func (v view) isPast(past func(string) (int64, store.Ref), key string, limit int64) bool {
	at, of := past(key)
	h := v.at(name{of.Scope, of.ID}, 0)
	return at != 0 && at <= limit || h.Deleted && h.PutAt.UnixMicro() <= limit
}

// take leaves of a version what names it. Its pages that no newer version has lose their text.
func (c *commit) take(h, rest *store.Head) {
	for _, r := range h.Rows {
		if p := c.page(r.Num); p.head == h {
			*p = page{num: p.num, head: h, at: p.at, gone: true, ended: c.out.LSN}
		}
	}
	*h = *rest
}

// erase takes all versions of artefacts, held batches, questions and rows of state. Nothing of them is anywhere else.
func (v view) erase(job *store.EraseJob) (rep store.EraseReport, err error) {
	if job != nil && (job.Names || len(job.Leaves) > 0) {
		return rep, fmt.Errorf("storetest: %w: the reference store prunes no leaves", errors.ErrUnsupported)
	}
	if err := format.CheckErase(job); err != nil {
		return rep, err
	}
	for _, r := range job.State {
		if is := v.state[r.Key].LSN; r.LSN != 0 && is != r.LSN {
			return rep, &store.ConflictError{Key: r.Key, Have: r.LSN, Now: is}
		}
	}
	c, err := v.operator(manifest.Record{Type: manifest.TypeErase, By: job.By, Reason: job.Reason, Query: format.AskedDigest(job.Asked, job.Cascade)})
	if err != nil {
		return rep, err
	}
	rep = store.EraseReport{
		Trace: c.batch.ID.String(), At: c.batch.Now, LSN: c.out.LSN, Leaf: c.out.Leaf, By: job.By, Reason: job.Reason, Asked: job.Asked, Cascade: job.Cascade,
		Held: len(job.Held), Questions: len(job.Questions), State: len(job.State),
	}
	for _, ref := range job.Refs {
		versions := c.versions[name{ref.Scope, ref.ID}]
		end, rest := format.Erase(versions, c.out.LSN, c.out.LSN, c.batch.Now, &rep)
		if end != nil {
			c.delete(end)
		}
		for _, h := range rest {
			c.take(versions[h.Version-1], h)
		}
	}
	for _, id := range job.Held {
		delete(c.held, id)
	}
	for _, leaf := range job.Questions {
		delete(c.asked, leaf)
	}
	c.setState(own(job.State))
	c.leaf.Parent, c.leaf.Note = rep.Trace, format.EraseCounts(&rep)
	return rep, c.end()
}
