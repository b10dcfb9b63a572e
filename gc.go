package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
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
// that and approved or rejected, and what sessions kept of turns deleted before that. What earlier runs left of dropped versions and deleted artefacts is bounded by KeepRecords
// and KeepNames. So the file stays as large as what is live and what KeepFor spares; the manifest alone grows.
//
// The work is done in commits of some hundred versions, each with its leaf in the manifest: an end of ctx, or a crash,
// leaves whole ones of them, and another run does the rest; the report says how far this one came. Readers and writers
// go on meanwhile. The file does not shrink: what is free in it is used again by what is written next.
//
// Errors: ErrReadOnly (but for a dry run), ErrInvalid, ErrCorrupt where damage hides what is named, and those of a commit.
func (db *DB) GC(ctx context.Context, o GCOptions) (GCReport, error) {
	if err := o.check(); err != nil {
		return GCReport{}, err
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
		KeepNames: max(0, cmp.Or(o.KeepNames, store.DefaultKeepNames)), Expired: o.Expired, Scope: o.Scope, By: o.By, InUse: db.inUse,
	}}
	if o.DryRun {
		job.Kind = store.JobGCPlan
	}
	rep, err := db.store.Maintain(ctx, job, o.Progress)
	db.table.dropEnded(ctx) // what was dropped is in no memory either
	if rep.GC.Turns > 0 && !o.DryRun {
		db.talks.gcs.Add(1)
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

// inUse says whether something in flight may read a version that a commit ended, or that expired (lsn 0): it began before
// that, or reads one of its pages just now.
func (db *DB) inUse(lsn uint64, expired int64, nums []uint64) bool {
	if db.readers.before(lsn, expired) {
		return true
	}
	for _, num := range nums {
		if db.table.inUse(num) {
			return true
		}
	}
	return false
}

// inUse says whether the frame of a page is pinned.
func (t *pageTable) inUse(num uint64) bool {
	s := t.slot(num)
	if s == nil {
		return false
	}
	f := s.Load()
	return f != nil && f.state.Load() > 0
}

// readers are the transactions and assemblies in flight. A transaction that is never ended stays among them.
type readers struct {
	mu   sync.Mutex
	last uint64
	in   map[uint64]reader
}

// reader is from when on it reads what was current: the LSN of then, because a commit is made some time before it is
// seen, and for what expires the time.
type reader struct {
	lsn uint64
	at  int64
}

func (r *readers) enter(x reader) (id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in == nil {
		r.in = map[uint64]reader{}
	}
	r.last++
	r.in[r.last] = x
	return r.last
}

// leave may be called more than once.
func (r *readers) leave(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.in, id)
}

// before says whether one began before a commit or, without one, by a time.
func (r *readers) before(lsn uint64, at int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.in {
		if x.lsn < lsn || lsn == 0 && x.at <= at {
			return true
		}
	}
	return false
}

// reader is one that begins now.
func (db *DB) reader() reader { return reader{db.store.LSN(), codec.Micros(db.opts.Clock())} }

// reader is the assembly, of now or of the past.
func (a *assembling) reader() reader {
	r := reader{a.s.db.store.LSN(), codec.Micros(a.now)}
	if a.q.AsOf != 0 && a.q.AsOf < r.lsn {
		return reader{lsn: a.q.AsOf}
	}
	return r
}

// goneText is what an ErrGone says beside that.
func goneText(err error) string {
	if !errors.Is(err, ErrGone) {
		return err.Error()
	}
	return strings.TrimPrefix(err.Error(), ErrGone.Error()+": ")
}
