package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// Refresh probes the sources of all artefacts of the scope itself, many at once, and fetches what changed. Then it
// looks for new files in the recorded directories of the scope. It writes in transactions of some hundred files. If ctx
// ends, completed transactions stay, the report says what was done, and the next run continues. Probing an unchanged
// file costs one stat. Ancestors have a Refresh of their own.
//
// The error is for a refresh that could not be finished, or, matching ErrFileRoot, for a recorded directory that this
// process may not read: the rest was refreshed then. Sources that fail are in the report.
func (s *Scope) Refresh(ctx context.Context, o ops.RefreshOptions) (ops.RefreshReport, error) {
	if err := s.hostOnly("Refresh"); err != nil {
		return freshness.NewReport(s.name, o.DryRun), err
	}
	switch {
	case s.db.opts.ReadOnly && !o.DryRun:
		return freshness.NewReport(s.name, o.DryRun), fmt.Errorf("ctxpage: refresh of %s: %w", s.name, store.ErrReadOnly)
	case o.Check < 0:
		return freshness.NewReport(s.name, o.DryRun), store.Invalid("check", o.Check.String(), "0, or the age of a probe")
	}
	h := freshness.RefreshHost{Scope: s.name, Store: s.db.store, View: s.view, Clock: s.db.opts.Clock, File: s.db.path, Put: s.putFiles, Delete: s.deleteFiles}
	if o.DryRun {
		h.View = s.view.Looking()
	}
	return freshness.Refresh(ctx, h, o)
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
func (db *DB) Refresh(ctx context.Context, o ops.RefreshOptions) ([]ops.RefreshReport, error) {
	names, err := db.refreshable(ctx)
	if err != nil {
		return nil, err
	}
	var out []ops.RefreshReport
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
	err := format.Walk(ctx, db.store, freshness.DirectoryRows(), func(row store.StateRow) error {
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
	reports, err := db.Refresh(ctx, ops.RefreshOptions{FilesOnly: true})
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
		db.opts.Logger.Warn("background refresh failed; the next run tries again", "error", err)
	}
	for i := range reports {
		if r := &reports[i]; len(r.Failed) > 0 {
			db.opts.Logger.Warn("background refresh: sources cannot be read", "scope", r.Scope, "failed", len(r.Failed), "first", cmp.Or(r.Failed[0].ID, r.Failed[0].Dir), "error", r.Failed[0].Err)
		}
	}
}

// AddFolder makes the text files below a directory artefacts of a scope: it allows file: sources to read the directory
// (AddFileRoot), records it (AddDirectory with an empty prefix) and imports what is new, changed or gone (Refresh, of
// files only). Call it again at any time. Later processes see the folder if they open with Options.RecordedRoots. The
// actor in the manifest is "operator".
//
// A file that cannot be read is in the report; a directory that does not exist or cannot be allowed is an error.
func (db *DB) AddFolder(ctx context.Context, scope, dir string) (ops.RefreshReport, error) {
	s := db.Scope(scope, WithActor(store.OperatorScope))
	err := s.err
	if err == nil {
		err = db.Admin().AddFileRoot(ctx, dir)
	}
	if err == nil {
		err = s.AddDirectory(ctx, Directory{Dir: dir})
	}
	if err != nil {
		return freshness.NewReport(scope, false), err
	}
	return s.Refresh(ctx, ops.RefreshOptions{FilesOnly: true})
}
