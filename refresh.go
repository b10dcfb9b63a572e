package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/store"
)

// RefreshOptions say what a refresh does. The zero value probes every source of the scope and fetches what changed.
type RefreshOptions struct {
	// DryRun probes and reports. It fetches and writes nothing.
	DryRun bool
	// Delete deletes artefacts of recorded directories whose file is gone, or is no longer taken. Without it they stay
	// in the store, and those whose file is gone are left out of every context with that reason. Before it deletes, it
	// looks a second time, 250 ms later. Artefacts of a directory that cannot be read are never deleted.
	Delete bool
	// FilesOnly skips sources other than file:, which may be a network.
	FilesOnly bool
	// Check skips sources that were probed more recently than CheckEvery says. CheckNever is an *InvalidError.
	Check CheckPolicy
	// Progress, if not nil, is called from the calling goroutine. It must not call the database.
	Progress func(what string, done, total uint64)
}

// RefreshReport says what a refresh found. Its lists of ids are sorted.
type RefreshReport struct {
	Scope     string           `json:"scope"`
	Sources   int              `json:"sources"` // artefacts whose source was probed
	Unchanged int              `json:"unchanged"`
	Elsewhere int              `json:"elsewhere,omitempty"` // file: sources of other hosts, which were not probed
	Changed   []string         `json:"changed"`             // fetched again
	New       []string         `json:"new"`                 // new files of recorded directories
	Vanished  []string         `json:"vanished"`            // the source is gone
	NotTaken  []string         `json:"not_taken"`           // the file exists, but the rules of its directory exclude it
	Deleted   []string         `json:"deleted"`
	Failed    []RefreshFailure `json:"failed"`
	DryRun    bool             `json:"dry_run,omitempty"`
}

// RefreshFailure is a source, or a recorded directory, that could not be read.
type RefreshFailure struct {
	ID  string `json:"id,omitempty"`  // artefact; "": a directory
	Dir string `json:"dir,omitempty"` // recorded directory
	Err string `json:"error"`
}

// Refresh probes the sources of all artefacts of the scope itself, many at once, and fetches what changed. Then it
// looks for new files in the recorded directories of the scope. It writes in transactions of some hundred files. If ctx
// ends, completed transactions stay, the report says what was done, and the next run continues. Probing an unchanged
// file costs one stat. Ancestors have a Refresh of their own.
//
// The error is for a refresh that could not be finished, or, matching ErrFileRoot, for a recorded directory that this
// process may not read: the rest was refreshed then. Sources that fail are in the report.
func (s *Scope) Refresh(ctx context.Context, o RefreshOptions) (RefreshReport, error) {
	out := RefreshReport{Scope: s.name, DryRun: o.DryRun}
	if err := s.hostOnly("Refresh"); err != nil {
		return out.whole(), err
	}
	switch {
	case s.db.opts.ReadOnly && !o.DryRun:
		return out.whole(), fmt.Errorf("ctxpage: refresh of %s: %w", s.name, store.ErrReadOnly)
	case o.Check < 0:
		return out.whole(), store.Invalid("check", "CheckNever", "CheckAlways or CheckEvery")
	}
	h := freshness.RefreshHost{Scope: s.name, Store: s.db.store, View: s.view, Clock: s.db.opts.Clock, File: s.db.path, Put: s.putFiles, Delete: s.deleteFiles}
	if o.DryRun {
		h.View = s.view.Looking()
	}
	r, err := freshness.Refresh(ctx, h, freshness.RefreshRules{DryRun: o.DryRun, Delete: o.Delete, FilesOnly: o.FilesOnly, Check: time.Duration(o.Check), Progress: o.Progress})
	out.Sources, out.Unchanged, out.Elsewhere, out.Changed, out.New, out.Vanished, out.NotTaken, out.Deleted = r.Sources, r.Unchanged, r.Elsewhere, r.Changed, r.New, r.Vanished, r.NotTaken, r.Deleted
	for _, f := range r.Failed {
		out.Failed = append(out.Failed, RefreshFailure(f))
	}
	return out.whole(), err
}

// whole returns the report with empty lists in the place of nil ones, so that JSON has the same shape for every run.
func (r RefreshReport) whole() RefreshReport {
	for _, list := range []*[]string{&r.Changed, &r.New, &r.Vanished, &r.NotTaken, &r.Deleted} {
		if *list == nil {
			*list = []string{}
		}
	}
	if r.Failed == nil {
		r.Failed = []RefreshFailure{}
	}
	return r
}

// putFiles puts artefacts in one transaction: all, or none and the errors of those that failed.
func (s *Scope) putFiles(ctx context.Context, list []Artefact) (failed map[string]error, err error) {
	errFailed := errors.New("some files cannot be read")
	err = s.Update(ctx, func(tx *Txn) error {
		failed = map[string]error{}
		for _, a := range list {
			if err := tx.Put(ctx, a); err != nil && ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				failed[a.ID] = err
			}
		}
		if len(failed) > 0 {
			return errFailed
		}
		return nil
	})
	if errors.Is(err, errFailed) {
		err = nil
	}
	return failed, err
}

// deleteFiles deletes artefacts in one transaction. One that somebody deleted meanwhile is no error.
func (s *Scope) deleteFiles(ctx context.Context, ids []string) error {
	return s.Update(ctx, func(tx *Txn) error {
		for _, id := range ids {
			if err := tx.Delete(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
}

// Refresh refreshes every scope that has sources or recorded directories, by name. The first error ends it, except
// ErrFileRoot, which is returned at the end.
func (db *DB) Refresh(ctx context.Context, o RefreshOptions) ([]RefreshReport, error) {
	names, err := db.refreshable(ctx)
	if err != nil {
		return nil, err
	}
	var out []RefreshReport
	var refused []error
	for _, name := range names {
		r, err := db.Scope(name, WithActor("refresh")).Refresh(ctx, o)
		out = append(out, r)
		if errors.Is(err, store.ErrFileRoot) {
			refused = append(refused, err)
		} else if err != nil {
			return out, err
		}
	}
	return out, errors.Join(refused...)
}

// refreshable lists the scopes that have something to refresh.
func (db *DB) refreshable(ctx context.Context) ([]string, error) {
	names := map[string]bool{}
	for s, err := range db.Scopes(ctx, "") {
		if err != nil {
			return nil, err
		}
		found, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{s.Name}})
		if err != nil {
			return nil, err
		}
		if len(found.Keys) > 0 {
			names[s.Name] = true
		}
	}
	err := staterows.Walk(ctx, db.store, freshness.DirectoryRows(), func(row store.StateRow) error {
		names[freshness.DirectoryScope(row.Key)] = true
		return nil
	})
	return slices.Sorted(maps.Keys(names)), err
}

// startRefresh begins the background refresh that Options.RefreshEvery asks for.
func (db *DB) startRefresh() {
	if db.opts.RefreshEvery > 0 && !db.opts.ReadOnly {
		db.refresher = freshness.Every(db.opts.RefreshEvery, db.refreshOnce)
	}
}

// refreshOnce is one run in the background. Failures are logged, and the next run tries again.
func (db *DB) refreshOnce(ctx context.Context) {
	reports, err := db.Refresh(ctx, RefreshOptions{FilesOnly: true})
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
		db.opts.Logger.Warn("background refresh failed", "error", err)
	}
	for i := range reports {
		if r := &reports[i]; len(r.Failed) > 0 {
			db.opts.Logger.Warn("background refresh could not read sources", "scope", r.Scope, "failed", len(r.Failed), "first", cmp.Or(r.Failed[0].ID, r.Failed[0].Dir), "error", r.Failed[0].Err)
		}
	}
}

// AddFolder makes the text files below a directory artefacts of a scope: it allows file: sources to read the directory
// (AddFileRoot), records it (AddDirectory with an empty prefix) and imports what is new, changed or gone (Refresh, of
// files only). Call it again at any time. Later processes see the folder if they open with Options.RecordedRoots. The
// actor in the manifest is "operator".
//
// A file that cannot be read is in the report; a directory that does not exist or cannot be allowed is an error.
func (db *DB) AddFolder(ctx context.Context, scope, dir string) (RefreshReport, error) {
	s := db.Scope(scope, WithActor(store.OperatorScope))
	err := s.err
	if err == nil {
		err = db.Admin().AddFileRoot(ctx, dir)
	}
	if err == nil {
		err = s.AddDirectory(ctx, Directory{Dir: dir})
	}
	if err != nil {
		return RefreshReport{Scope: scope}.whole(), err
	}
	return s.Refresh(ctx, RefreshOptions{FilesOnly: true})
}
