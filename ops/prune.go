package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
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

// StateKinds describes the state rows of policies and quotas to a store.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: rowPrefix, Copy: true, Policy: true, Check: func(key string, value []byte) error {
			_, err := decode(store.StateRow{Key: key, Value: value})
			return err
		}},
		{Prefix: format.QuotaRows, Copy: true, Policy: true, Check: func(key string, value []byte) error {
			_, err := format.DecodeQuota(store.StateRow{Key: key, Value: value})
			return err
		}, Paths: opened},
	}
}

// opened takes Closed from the row of a quota: it is about the database that the row comes from.
func opened(key string, value []byte, _ func(dir string) bool) (kept []byte, left []string, err error) {
	q, err := format.DecodeQuota(store.StateRow{Key: key, Value: value})
	if err != nil || q.Closed == "" {
		return value, nil, nil // Check refuses what cannot be read
	}
	left = []string{q.Scope + ", closed: " + q.Closed}
	if q.Closed = ""; q.Quota == (store.Quota{}) {
		return nil, left, nil
	}
	kept, err = json.Marshal(q)
	return kept, left, err
}

// operator makes the operator's commits.
type operator struct {
	store store.Store
	now   func() time.Time
	newID func() (ulid.ULID, error)
}

// batch begins a commit. A scope "" stands for the whole database.
func (o operator) batch(scope string, leaf manifest.Record) (store.Batch, error) {
	id, err := o.newID()
	return store.Batch{ID: id, Scope: cmp.Or(scope, store.OperatorScope), Actor: "operator", Now: o.now(), Leaf: leaf}, err
}

// changeRow replaces the row of a scope by what next makes of it; nil removes the row. It calls next again if the row was
// changed concurrently. The leaf has the new value.
func (o operator) changeRow(ctx context.Context, prefix, scope, action, by string, next func(row store.StateRow) (any, error)) error {
	return format.Retry(ctx, func() error {
		row, err := o.store.State(ctx, prefix+scope)
		if err != nil {
			return err
		}
		v, err := next(row)
		if err != nil || v == nil && row.Value == nil {
			return err
		}
		changed, note := store.StateRow{Key: row.Key}, "removed"
		if v != nil {
			if changed.Value, err = json.Marshal(v); err != nil {
				return fmt.Errorf("ctxpage: encode a row of %s: %w", action, err)
			}
			note = string(changed.Value)
		}
		b, err := o.batch(scope, manifest.Record{Type: manifest.TypeCommit, Action: action, By: by, Note: note})
		if err != nil {
			return err
		}
		b.State, b.ExpectState = []store.StateRow{changed}, []store.StatePre{{Key: row.Key, LSN: row.LSN}}
		_, err = o.store.Commit(ctx, b)
		return err
	})
}
