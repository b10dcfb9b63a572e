package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// RunOptions configure a run. The zero value carries out the policies of all scopes.
type RunOptions struct {
	Scope string // this one and those below it; "": all
	By    string // recorded in the audit; "": retention
	// DryRun returns the report and changes nothing. The report lacks what gc would drop of artefacts that a real run
	// deletes first.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// RunItem counts what one rule removes in one scope.
type RunItem struct {
	Scope string   `json:"scope"`
	What  string   `json:"what"` // fact, session, held, decided, directives and so on
	From  string   `json:"from"` // scope of the policy; "": of the whole database
	Age   Age      `json:"age"`
	Count int      `json:"count"`
	First []string `json:"first"` // the first few of them
}

// RunReport says what a run removed. After an early end it covers what was done.
type RunReport struct {
	DryRun bool      `json:"dry_run,omitempty"`
	Trace  string    `json:"trace"` // the leaves of the run name it as their parent
	Items  []RunItem `json:"items"`
	// Changed counts items that were written to during the run and were left for the next run.
	Changed int `json:"changed,omitempty"`
	// GC says what gc dropped by the rules for versions; nil if no scope has such a rule.
	GC *store.GCReport `json:"gc,omitempty"`
}

// firstNames of an item are in a report.
const firstNames = 10

// partWrites bounds the writes of one commit of a run.
const partWrites = 256

// run is one run.
type run struct {
	k        *Retention
	ctx      context.Context
	o        RunOptions
	now      time.Time
	id       ulid.ULID
	policies map[string]Stored
	known    map[string]Effective
	report   RunReport
	at       map[[2]string]int // places in report.Items, by scope and what
}

// Run removes what is older than the policies allow, in commits of a few hundred items, each with a leaf that names the
// policy. Items that are written to during the run are left for the next one. After a crash or the end of ctx completed
// commits stay, and the next run continues.
//
// Errors: ErrReadOnly (except for a dry run), ErrInvalid, ErrCorrupt, and the errors of a commit. The report is never nil.
func (k *Retention) Run(ctx context.Context, o RunOptions) (*RunReport, error) {
	r := &run{k: k, ctx: ctx, o: o, now: k.Now(), known: map[string]Effective{}, at: map[[2]string]int{}}
	r.o.By = cmp.Or(o.By, "retention")
	r.report = RunReport{DryRun: o.DryRun, Items: []RunItem{}}
	if r.o.Progress == nil {
		r.o.Progress = func(string, uint64, uint64) {}
	}
	err := r.all()
	if k.Swept != nil && !o.DryRun {
		k.Swept(ctx)
	}
	return &r.report, err
}

// InBackground returns a function that calls Run once and logs what was removed. It logs failures too; the next run
// retries. ctxpage.Options.Maintain calls the function repeatedly.
func (k *Retention) InBackground(log *slog.Logger) func(ctx context.Context) {
	return func(ctx context.Context) {
		rep, err := k.Run(ctx, RunOptions{})
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
			log.Warn("background retention failed; the next run tries again", "error", err)
		}
		for _, it := range rep.Items {
			log.Info("background retention removed", "scope", it.Scope, "what", it.What, "count", it.Count, "policy", it.From, "age", it.Age)
		}
	}
}

func (r *run) all() (err error) {
	if err := store.CheckID("by", r.o.By); err != nil {
		return err
	}
	if r.id, err = r.k.NewID(); err != nil {
		return err
	}
	all, err := r.k.All(r.ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	r.policies, r.report.Trace = byScope(all), r.id.String()
	scopes, err := r.k.scopes(r.ctx, r.o.Scope)
	if err != nil {
		return err
	}
	for i, scope := range scopes {
		r.o.Progress("scopes", uint64(i), uint64(len(scopes)))
		if err := r.artefacts(scope); err != nil {
			return err
		}
	}
	r.o.Progress("scopes", uint64(len(scopes)), uint64(len(scopes)))
	var unsupported error // a store that cannot prune drops versions all the same
	for _, step := range []func() error{r.held, r.directives, r.prune, func() error { return r.versions(scopes) }} {
		if err := step(); errors.Is(err, errors.ErrUnsupported) {
			unsupported = err
		} else if err != nil {
			return err
		}
	}
	return unsupported
}

// rules are the rules of a scope.
func (r *run) rules(scope string) *Effective {
	e, ok := r.known[scope]
	if !ok {
		e = effective(r.policies, scope)
		r.known[scope] = e
	}
	return &e
}

// took notes what a rule takes. names are those that count; nil: nothing.
func (r *run) took(scope, what string, rule Rule, names []string) {
	if len(names) == 0 {
		return
	}
	key := [2]string{scope, what}
	at, ok := r.at[key]
	if !ok {
		at = len(r.report.Items)
		r.at[key] = at
		r.report.Items = append(r.report.Items, RunItem{Scope: scope, What: what, From: rule.From, Age: rule.Age, First: []string{}})
	}
	it := &r.report.Items[at]
	it.Count += len(names)
	it.First = append(it.First, names[:min(len(names), firstNames-len(it.First))]...)
}

// commit is one of the run. An end of ctx comes before it or after it.
func (r *run) commit(b store.Batch) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	id, err := r.k.NewID()
	if err != nil {
		return err
	}
	b.ID, b.Trace, b.Actor, b.Now = id, r.id.String(), "operator", r.k.Now()
	b.Leaf.Type, b.Leaf.By = cmp.Or(b.Leaf.Type, manifest.TypeCommit), r.o.By
	_, err = r.k.Store.Commit(context.WithoutCancel(r.ctx), b)
	return err
}

// artefacts applies the rules of kinds and of sessions to a scope.
func (r *run) artefacts(scope string) error {
	e := r.rules(scope)
	ends := map[string]time.Time{} // by kind
	for kind, rule := range e.Kinds {
		if at, ok := rule.before(r.now); ok {
			ends[kind] = at
		}
	}
	sessionEnd, sessions := e.Sessions.before(r.now)
	if len(ends) == 0 && !sessions {
		return nil
	}
	old, newest := map[string][]*store.Head{}, map[string]time.Time{}
	for page, err := range format.Pages(r.ctx, r.k.Store, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Limit: scanRows}) {
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			if h.Kind == store.KindMessage && h.Group != "" && h.PutAt.After(newest[h.Group]) {
				newest[h.Group] = h.PutAt
			}
			if end, ok := ends[h.Kind.String()]; ok && !h.PutAt.After(end) && !strings.HasPrefix(h.ID, directivelog.Reserved) {
				old[h.Kind.String()] = append(old[h.Kind.String()], h)
			}
		}
	}
	if sessions {
		if err := r.sessions(scope, newest, sessionEnd); err != nil {
			return err
		}
	}
	for _, kind := range store.KindNames {
		for part := range slices.Chunk(old[kind], partWrites) {
			if err := r.deletes(scope, kind, e.Kinds[kind], part); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletes takes artefacts as they are. One that somebody writes meanwhile stays.
func (r *run) deletes(scope, kind string, rule Rule, heads []*store.Head) error {
	for len(heads) > 0 {
		b := store.Batch{Scope: scope, Leaf: manifest.Record{Action: "retention", Reason: rule.told(kind)}}
		for _, h := range heads {
			b.Deletes = append(b.Deletes, h.ID)
			b.Expect = append(b.Expect, store.Precondition{Ref: store.Ref{Scope: scope, ID: h.ID}, LSN: h.LSN})
		}
		if !r.o.DryRun {
			err := r.commit(b)
			var conflict *store.ConflictError
			if errors.As(err, &conflict) {
				r.report.Changed++
				heads = slices.DeleteFunc(slices.Clone(heads), func(h *store.Head) bool { return h.ID == conflict.Ref.ID })
				continue
			}
			if err != nil {
				return err
			}
		}
		r.took(scope, kind, rule, b.Deletes)
		return nil
	}
	return nil
}

// sessions removes those whose newest turn is old.
func (r *run) sessions(scope string, newest map[string]time.Time, end time.Time) error {
	rule := r.rules(scope).Sessions
	var old []string
	for id, at := range newest {
		if !at.After(end) {
			old = append(old, id)
		}
	}
	slices.Sort(old)
	for _, id := range old {
		_, err := r.k.removeSession(r.ctx, scope, id, r.o.DryRun, func(b store.Batch) error {
			b.Leaf = manifest.Record{Action: "retention", Session: id, Reason: rule.told("sessions")}
			return r.commit(b)
		})
		switch {
		case errors.Is(err, store.ErrConflict):
			r.report.Changed++
		case err != nil:
			return err
		default:
			r.took(scope, "session", rule, []string{id})
		}
	}
	return nil
}

// held applies the rules of batches that wait, and of those that were decided.
func (r *run) held() error {
	var wait, decided []*store.HeldBatch
	for page, err := range format.Pages(r.ctx, r.k.Store, store.ScanQuery{What: store.ScanHeld, All: true, Limit: scanRows}) {
		if err != nil {
			return err
		}
		for i := range page.Held {
			h := &page.Held[i]
			if !below(h.Batch.Scope, r.o.Scope) {
				continue
			}
			e := r.rules(h.Batch.Scope)
			if end, ok := e.Held.before(r.now); ok && h.Decided == "" && !h.At.After(end) {
				wait = append(wait, h)
			}
			if end, ok := e.Decided.before(r.now); ok && h.Decided != "" && !h.At.After(end) {
				decided = append(decided, h)
			}
		}
	}
	for _, h := range wait {
		rule := r.rules(h.Batch.Scope).Held
		if !r.o.DryRun {
			if err := r.reject(h, rule.told("held batches")); errors.Is(err, store.ErrReviewed) || errors.Is(err, store.ErrQuota) { // its scope is closed
				r.report.Changed++
				continue
			} else if err != nil {
				return err
			}
		}
		r.took(h.Batch.Scope, "held", rule, []string{h.Batch.ID.String()})
	}
	return r.decided(decided)
}

// reject decides a batch that waited too long.
func (r *run) reject(h *store.HeldBatch, why string) error {
	return r.commit(store.Batch{Scope: h.Batch.Scope, From: h.Batch.ID, Action: store.ActReject, Leaf: manifest.Record{Note: why}})
}

// decided drops batches, the batches of one rule together.
func (r *run) decided(list []*store.HeldBatch) error {
	byRule := map[string][]*store.HeldBatch{}
	var order []string
	for _, h := range list {
		why := r.rules(h.Batch.Scope).Decided.told("decided batches")
		if byRule[why] == nil {
			order = append(order, why)
		}
		byRule[why] = append(byRule[why], h)
	}
	for _, why := range order {
		job := store.GCJob{By: r.o.By, Why: why, Reviews: []ulid.ULID{}}
		for _, h := range byRule[why] {
			job.Reviews = append(job.Reviews, h.Batch.ID)
		}
		if !r.o.DryRun {
			if _, err := r.k.Store.Maintain(r.ctx, store.Job{Kind: store.JobGC, GC: &job}, r.o.Progress); err != nil {
				return err
			}
		}
		for _, h := range byRule[why] {
			r.took(h.Batch.Scope, "decided", r.rules(h.Batch.Scope).Decided, []string{h.Batch.ID.String()})
		}
	}
	return nil
}

// versions lets gc drop old versions, in one walk over all scopes that have a rule.
func (r *run) versions(scopes []string) error {
	job := store.GCJob{KeepRecords: format.DefaultKeepRecords, KeepNames: format.DefaultKeepNames, By: r.o.By, Scopes: map[string]store.GCKeep{}, Why: "retention of versions"}
	for _, scope := range scopes {
		if e := r.rules(scope); e.Versions.Age > 0 {
			job.Scopes[scope] = store.GCKeep{For: time.Duration(e.Versions.Age), Versions: e.KeepVersions}
		}
	}
	if len(job.Scopes) == 0 {
		return nil
	}
	kind := store.JobGC
	if r.o.DryRun {
		kind = store.JobGCPlan
	}
	rep, err := r.k.Store.Maintain(r.ctx, store.Job{Kind: kind, GC: &job}, r.o.Progress)
	r.report.GC = &rep.GC
	if err != nil {
		return fmt.Errorf("ctxpage: retention of versions: %w", err)
	}
	return nil
}
