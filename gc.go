package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// GCOptions say what gc may drop. The zero value drops versions that were replaced or deleted more than 30 days ago and
// that nothing names.
type GCOptions struct {
	// KeepVersions keeps at least this many of the newest versions of each artefact, whatever their age, even of
	// deleted artefacts. The newest version of a live artefact always stays.
	KeepVersions int
	// KeepFor keeps a version for this time after it was replaced or deleted or, with Expired, after it expired; 0:
	// 30 days, negative: no time.
	KeepFor time.Duration
	// KeepRecords bounds the dropped versions of an artefact that stay known one by one: History lists them, each with its
	// digest. Of older ones only the number is known. Reading a dropped version is ErrGone in both cases. 0: four,
	// negative: one.
	KeepRecords int
	// KeepNames bounds the artefacts, the newest first, that stay known after they were deleted and all their versions
	// dropped. The others are forgotten: reading one is ErrNotFound, and an artefact put under its id begins with
	// version 1. The manifest still names it. 0: 1024, negative: none.
	KeepNames int
	// Expired also takes artefacts that expired longer than KeepFor ago: gc deletes them, then drops them. Without it
	// they stay.
	Expired bool
	// Scope restricts gc to one scope; "": all.
	Scope string
	// Models, if not nil, also drops the vectors of all models but these: what a change of Options.Embedder leaves behind.
	// A model that is still asked for gets its vectors made again. It cannot be joined with Scope.
	Models []string
	// DryRun makes the same report and changes nothing.
	DryRun bool
	// By is recorded in the manifest as who asked; "": operator.
	By string
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// GC drops versions that nothing names any more. Only the operator can call it.
//
// A version is dropped if it was replaced or deleted (or expired, with Expired) longer ago than KeepFor, is not among
// the KeepVersions newest, and is not named: by a held batch, as the parent or the source of a live artefact, or by the
// verdicts of a session. Versions that a transaction or an assembly in flight may read stay too.
//
// The texts and vectors of a dropped version are deleted, and its words no longer find anything, not even the artefact
// that superseded it. Its name, number, dates and salted digest stay, and the digest can still prove that a copy of the
// text is genuine. So gc is no substitute for Erase. Reading the version, or replaying a context that had it, is
// ErrGone with the trace of the gc run. History lists it, manifests stay, and Why answers from them.
//
// A run over all scopes also drops, when older than KeepFor: drafts that contexts showed, held batches that were
// approved or rejected, the state of deleted turns, and the names of scopes in which nothing is left. KeepRecords and
// KeepNames bound what earlier runs left. So the file stays as large as the live content and what KeepFor protects; only
// the manifest grows.
//
// GC works in commits of some hundred versions, each with its leaf in the manifest. If it crashes or is cancelled,
// completed commits stay and the next run continues; the report says how far this one came. Readers and writers go on
// meanwhile. The file does not shrink: later writes use the free space in it, and Compact returns it to the disk.
//
// Errors: ErrReadOnly (except for a dry run), ErrInvalid, ErrCorrupt when damage hides what is named, and the errors of a
// commit.
func (ad *Admin) GC(ctx context.Context, o GCOptions) (store.GCReport, error) {
	if err := o.validate(); err != nil {
		return store.GCReport{}, err
	}
	keep := o.KeepFor
	if keep == 0 {
		keep = defaultKeepFor
	}
	if o.By == "" {
		o.By = "operator"
	}
	job := store.Job{Kind: store.JobGC, GC: &store.GCJob{
		KeepVersions: o.KeepVersions, KeepFor: max(keep, 0), KeepRecords: cmp.Or(o.KeepRecords, format.DefaultKeepRecords),
		KeepNames: max(0, cmp.Or(o.KeepNames, format.DefaultKeepNames)), Expired: o.Expired, Scope: o.Scope, Models: o.Models, By: o.By,
	}}
	if o.DryRun {
		job.Kind = store.JobGCPlan
	}
	rep, err := ad.db.store.Maintain(ctx, job, o.Progress)
	_ = ad.db.table.dropEnded(ctx) // dropped versions leave memory too; else with the next fault
	if rep.GC.Turns > 0 && !o.DryRun {
		ad.db.sessions.Swept()
	}
	return rep.GC, err
}

// validate returns the rule that the options break.
func (o *GCOptions) validate() error {
	if o.KeepVersions < 0 {
		return store.Invalid("GCOptions.KeepVersions", fmt.Sprint(o.KeepVersions), "zero or more")
	}
	if o.By != "" {
		if err := store.CheckID("by", o.By); err != nil {
			return err
		}
	}
	if o.Scope != "" && o.Models != nil {
		return store.Invalid("GCOptions.Models", fmt.Sprint(o.Models), "none together with a scope: vectors are dropped in all scopes")
	}
	if o.Scope != "" {
		return store.CheckScope(o.Scope)
	}
	return nil
}
