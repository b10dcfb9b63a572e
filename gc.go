package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// DefaultKeepFor is how long a version stays after it was replaced or deleted, unless GCOptions say otherwise.
const DefaultKeepFor = 30 * 24 * time.Hour

// GCOptions say what gc may drop. The zero value drops what was replaced or deleted 30 days ago and nobody names.
type GCOptions struct {
	// KeepVersions is how many of the newest versions of an artefact stay whatever their age, also of one that was deleted.
	// The newest of a live artefact stays in any case.
	KeepVersions int
	// KeepFor is how long a version stays after it was replaced, deleted or, with Expired, expired; 0: DefaultKeepFor,
	// negative: not at all.
	KeepFor time.Duration
	// KeepRecords is how many dropped versions of an artefact stay known one by one: listed by history, each with its digest.
	// Of older ones only the number is known: reading one is ErrGone as well. 0: DefaultKeepRecords, negative: one.
	KeepRecords int
	// KeepNames is how many artefacts stay known after they were deleted and all their versions dropped, the newest of them.
	// The others are forgotten: reading one is ErrNotFound, and an artefact put under its id begins with version 1. The
	// manifest still names it. 0: DefaultKeepNames, negative: none.
	KeepNames int
	// Expired also takes artefacts whose expiry has passed for as long: they are deleted, then dropped. Without it they stay.
	Expired bool
	// Scope is the one scope that is looked at; "": all.
	Scope string
	// DryRun makes the same report and changes nothing.
	DryRun bool
	// By says in the manifest who asked; "": operator.
	By string
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// Why versions go.
const ()

// Why versions that have ended stay.
const ()

// GC drops versions that nobody can name any more. It is the operator's: no scope can do it.
//
// What goes was replaced or deleted (or expired, when asked for) longer ago than KeepFor, is not among the KeepVersions
// newest, and is not named: by a held batch, as the parent or the source of a live artefact, by the verdicts of a
// session. What a transaction or an assembly in flight may read stays as well. Its texts and vectors go, and its words
// find nothing any more, not even what came after. What is left is its name and number, when it stood, and the salted
// digest that proves a copy of its text against the manifest: gc is not erase. Reading it, and replaying a context that
// had it, is ErrGone with the trace of the run; history lists it, manifests stay, and Why answers from them.
//
// A run over all scopes also drops what contexts older than KeepFor showed of drafts, batches that were held before
// that and approved or rejected, what sessions kept of turns deleted before that, and records of passes and directives that
// newer ones replaced before that, but for the newest 32 of a session or scope and what an undo may come back to. What
// earlier runs left of dropped versions and deleted artefacts is bounded by KeepRecords and KeepNames. So the file stays as large as what is live and what KeepFor spares; the manifest alone grows.
//
// The work is done in commits of some hundred versions, each with its leaf in the manifest: an end of ctx, or a crash,
// leaves whole ones of them, and another run does the rest; the report says how far this one came. Readers and writers
// go on meanwhile. The file does not shrink: what is free in it is used again by what is written next.
//
// Errors: ErrReadOnly (but for a dry run), ErrInvalid, ErrCorrupt where damage hides what is named, and those of a commit.
func (db *DB) GC(ctx context.Context, o GCOptions) (store.GCReport, error) {
	if err := o.check(); err != nil {
		return store.GCReport{}, err
	}
	keep := o.KeepFor
	if keep == 0 {
		keep = DefaultKeepFor
	}
	if o.By == "" {
		o.By = "operator"
	}
	job := store.Job{Kind: store.JobGC, GC: &store.GCJob{
		KeepVersions: o.KeepVersions, KeepFor: max(keep, 0), KeepRecords: cmp.Or(o.KeepRecords, store.DefaultKeepRecords),
		KeepNames: max(0, cmp.Or(o.KeepNames, store.DefaultKeepNames)), Expired: o.Expired, Scope: o.Scope, By: o.By,
	}}
	if o.DryRun {
		job.Kind = store.JobGCPlan
	}
	rep, err := db.store.Maintain(ctx, job, o.Progress)
	db.table.dropEnded(ctx) // what was dropped is in no memory either
	if rep.GC.Turns > 0 && !o.DryRun {
		db.sessions.Swept()
	}
	return rep.GC, err
}

func (o *GCOptions) check() error {
	if o.KeepVersions < 0 {
		return store.Invalid("GCOptions.KeepVersions", fmt.Sprint(o.KeepVersions), "zero or more")
	}
	if o.By != "" {
		if err := store.CheckID("by", o.By); err != nil {
			return err
		}
	}
	if o.Scope != "" {
		return store.CheckScope(o.Scope)
	}
	return nil
}
