package ops

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// aged has the leaves that one rule prunes.
type aged struct {
	job  store.EraseJob
	list []uint64
	took []agedIn
}

type agedIn struct {
	scope, trace string
	rule         Rule
}

// errYoung ends the walk: leaves are in the order of time, but for a clock that was set back, and those are left to a later
// run.
var errYoung = errors.New("the leaf is younger than every rule")

// prune removes the bodies of old leaves, the leaves of one rule together. It cuts the log, so that they are not in it either, and
// writes the segments of the archive that had them anew. Leaves of batches that wait for review stay, and so do leaves of
// promotions: only they tell an erase which copies of an artefact there are.
func (r *run) prune() error {
	least, ok := r.youngest()
	if !ok {
		return nil
	}
	waits, err := r.waiting()
	if err != nil {
		return err
	}
	a := r.k.Store.Audit()
	size, err := a.Size(r.ctx)
	if err != nil {
		return err
	}
	rules := map[string]*aged{}
	var order []string
	err = store.EachRecord(r.ctx, a, 0, size, false, func(leaf *manifest.Record) error {
		at := time.UnixMicro(leaf.Time)
		if at.After(least) {
			return errYoung
		}
		if leaf.Pruned != nil || !archive.Prunable(leaf.Type) || leaf.Type == manifest.TypePromote || !below(leaf.Scope, r.o.Scope) || waits[leaf.Batch] {
			return nil
		}
		rule := r.rules(leaf.Scope).Prune
		if end, ok := rule.before(r.now); !ok || at.After(end) {
			return nil
		}
		why := fmt.Sprintf("retention: manifest bodies older than %s", rule.Age) // no scope: a prune leaf stays forever, and an erase with Names could not take it
		x := rules[why]
		if x == nil {
			x = &aged{job: store.EraseJob{By: r.o.By, Reason: why}}
			rules[why], order = x, append(order, why)
		}
		x.list, x.took = append(x.list, leaf.Index), append(x.took, agedIn{leaf.Scope, leaf.Trace, rule})
		if _, err := a.Question(r.ctx, leaf); leaf.QuestionKept && err == nil {
			x.job.Questions = append(x.job.Questions, leaf.Index)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errYoung) {
		return err
	}
	for _, why := range order {
		x := rules[why]
		if x.job.Leaves = archive.SpansOf(x.list); !r.o.DryRun {
			if _, err := r.k.Store.Maintain(r.ctx, store.Job{Kind: store.JobErase, Erase: &x.job}, r.o.Progress); err != nil {
				return err
			}
		}
		for _, t := range x.took {
			r.took(t.scope, "body", t.rule, []string{t.trace})
		}
	}
	return nil
}

// youngest is the time up to which any policy prunes.
func (r *run) youngest() (at time.Time, ok bool) {
	for _, p := range r.policies {
		if p.Prune > 0 {
			if end := r.now.Add(-time.Duration(p.Prune)); !ok || end.After(at) {
				at, ok = end, true
			}
		}
	}
	return at, ok
}

// waiting are the ids of batches that wait for review.
func (r *run) waiting() (map[string]bool, error) {
	ids := map[string]bool{}
	for page, err := range format.Pages(r.ctx, r.k.Store, store.ScanQuery{What: store.ScanHeld, Limit: scanRows}) {
		if err != nil {
			return nil, err
		}
		for i := range page.Held {
			ids[page.Held[i].Batch.ID.String()] = true
		}
	}
	return ids, nil
}
