package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/folder"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/store"
)

// A refresh of one scope:
//
//	sources      probe every sourced artefact, in parts ─▶ changed ones are fetched and committed (internal/freshness)
//	directories  walk each recorded directory ─▶ new files are put, in batches; lost ones are deleted if Delete is set
//
// Each batch is a transaction of its own. A refresh may take minutes and must not lose what it did when it is
// cancelled; a single transaction was rejected for that reason, and because it would have to hold all texts in memory.
// Nothing that cannot be read is ever deleted: a directory on an unmounted disk looks empty.

// RefreshOptions say what a refresh does. The zero value probes every source of the scope and fetches what changed.
type RefreshOptions struct {
	// DryRun probes and reports. It fetches and writes nothing.
	DryRun bool
	// Delete deletes artefacts of recorded directories whose file is gone, or is no longer taken. Without it they stay
	// in the store, and those whose file is gone are left out of every context with that reason. Artefacts of a
	// directory that cannot be read are never deleted.
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
	Changed   []string         `json:"changed"`   // fetched again
	New       []string         `json:"new"`       // new files of recorded directories
	Vanished  []string         `json:"vanished"`  // the source is gone
	NotTaken  []string         `json:"not_taken"` // the file exists, but the rules of its directory exclude it
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

// refreshChunk is how many artefacts are probed between two checks of the context.
const refreshChunk = 256

// refreshing is a Refresh in flight. It belongs to the goroutine that called Refresh.
type refreshing struct {
	s     *Scope
	o     RefreshOptions
	out   RefreshReport
	have  map[string]string // id → source of the scope's live artefacts
	gone  map[string]bool   // ids whose source vanished
	known map[string]bool   // new ids of this run
}

// Refresh probes the sources of all artefacts of the scope itself, many at once, and fetches what changed. Then it
// looks for new files in the recorded directories of the scope. It writes in transactions of some hundred files. If ctx
// ends, completed transactions stay, the report says what was done, and the next run continues. Probing an unchanged
// file costs one stat. Ancestors have a Refresh of their own.
//
// The error is for a refresh that could not be finished. Sources that fail are in the report.
func (s *Scope) Refresh(ctx context.Context, o RefreshOptions) (RefreshReport, error) {
	r := &refreshing{s: s, o: o, have: map[string]string{}, gone: map[string]bool{}, known: map[string]bool{}}
	r.out = RefreshReport{Scope: s.name, DryRun: o.DryRun, Changed: []string{}, New: []string{}, Vanished: []string{}, NotTaken: []string{}, Deleted: []string{}, Failed: []RefreshFailure{}}
	if err := s.hostOnly("Refresh"); err != nil {
		return r.out, err
	}
	switch {
	case s.db.opts.ReadOnly && !o.DryRun:
		return r.out, fmt.Errorf("ctxpage: refresh of %s: %w", s.name, ErrReadOnly)
	case o.Check < 0:
		return r.out, store.Invalid("check", "CheckNever", "CheckAlways or CheckEvery")
	}
	if o.DryRun {
		dry := *s
		dry.view, r.s = s.view.Looking(), &dry
	}
	err := r.sources(ctx)
	if err == nil {
		err = r.directories(ctx)
	}
	return r.out, err
}

// progress reports to the caller of Refresh.
func (r *refreshing) progress(what string, done, total int) {
	if r.o.Progress != nil {
		r.o.Progress(what, uint64(done), uint64(total))
	}
}

// sources probes the sourced artefacts of the scope.
func (r *refreshing) sources(ctx context.Context) error {
	found, err := r.s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{r.s.name}})
	if err != nil {
		return err
	}
	done := 0
	for part := range slices.Chunk(found.Keys, refreshChunk) {
		if err := r.probe(ctx, part); err != nil {
			return err
		}
		done += len(part)
		r.progress("refresh", done, len(found.Keys))
	}
	return nil
}

// probe probes one part of the sourced artefacts. Expired ones are known to have a source but are not fetched.
func (r *refreshing) probe(ctx context.Context, keys []store.PageKey) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	loaded, err := r.s.db.store.Load(ctx, store.Scopes{r.s.name}, keys, store.WantHead)
	if err != nil {
		return err
	}
	now := codec.Micros(r.s.db.opts.Clock())
	heads := make([]*store.Head, 0, len(loaded))
	for i := range loaded {
		h := loaded[i].Head
		if loaded[i].Err != nil || h == nil {
			continue // replaced meanwhile, or damaged: reading it says so
		}
		r.have[h.ID] = h.Artefact.Source
		expired := !h.ExpiresAt.IsZero() && codec.Micros(h.ExpiresAt) <= now
		if !expired && (!r.o.FilesOnly || strings.HasPrefix(h.Artefact.Source, "file:")) {
			heads = append(heads, h)
		}
	}
	states := r.s.view.Freshen(ctx, heads, time.Duration(r.o.Check))
	if err := ctx.Err(); err != nil {
		return err // what did not answer in time says nothing about the sources
	}
	for i, h := range heads {
		r.note(h.ID, &states[i])
	}
	return nil
}

// note files what the check of an artefact found.
func (r *refreshing) note(id string, f *freshness.Finding) {
	r.out.Sources++
	switch {
	case f.Refetched, f.Reason == freshness.ReasonReadOnly:
		r.out.Changed = append(r.out.Changed, id)
	case f.Reason == "":
		r.out.Unchanged++
	case f.Reason == freshness.ReasonVanished:
		r.out.Vanished = append(r.out.Vanished, id)
		r.gone[id] = true
	default:
		r.out.Failed = append(r.out.Failed, RefreshFailure{ID: id, Err: f.Err.Error()})
	}
}

// directories looks at each recorded directory, after the sources: a file that moved between directories is then new in
// one and vanished from the other.
func (r *refreshing) directories(ctx context.Context) error {
	dirs, err := r.s.Directories(ctx)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := r.directory(ctx, d); err != nil {
			return err
		}
	}
	slices.Sort(r.out.New)
	slices.Sort(r.out.NotTaken)
	slices.Sort(r.out.Deleted)
	return nil
}

// directory looks for new files of a directory, and for artefacts whose file it no longer has:
//
//	file          artefact                     result
//	taken         none                         New
//	taken         of another source            Failed: the id is in use; give the directory a prefix
//	taken         of this file                 nothing to do: its source was probed before
//	not taken     of this file                 NotTaken, deleted with Delete
//	gone          of this file                 Vanished (its probe said so), deleted with Delete
//	not readable  of this file                 kept: what cannot be read is unknown, not gone
func (r *refreshing) directory(ctx context.Context, d Directory) error {
	db := r.s.db
	w := &folder.Walker{Dir: d.Dir, MaxSize: d.MaxSize, Except: []string{db.path}}
	err := db.checker.Files.Allowed(d.Dir + "/x")
	if err == nil {
		err = w.Walk(ctx)
	}
	if err == nil && slices.Contains(w.Unread, "") {
		err = errors.New("the directory could not be read")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.out.Failed = append(r.out.Failed, RefreshFailure{Dir: d.Dir, Err: err.Error()})
		return nil
	}
	taken := make(map[string]bool, len(w.Files))
	var fresh []Artefact
	for i, f := range w.Files {
		taken[f.Rel] = true
		if a, ok := r.unknown(ctx, d, f); ok {
			fresh = append(fresh, a)
		}
		if len(fresh) == freshness.BatchFiles || i == len(w.Files)-1 {
			if err := r.take(ctx, fresh); err != nil {
				return err
			}
			fresh = nil
			r.progress("directory "+d.Dir, i+1, len(w.Files))
		}
	}
	return r.lost(ctx, d, w, taken)
}

// unknown makes an artefact of a file that the scope does not have.
func (r *refreshing) unknown(ctx context.Context, d Directory, f folder.Found) (Artefact, bool) {
	id, source := d.id(f.Rel), "file:"+f.Path
	if r.have[id] == source || r.known[id] || store.CheckID("id", id) != nil || len(source) > MaxSource || !r.s.db.checker.Files.LooksLikeText(f.Path) {
		return Artefact{}, false
	}
	if l, err := r.s.db.store.Resolve(ctx, store.Scopes{r.s.name}, Ref{ID: id}); err == nil && l.Current {
		r.out.Failed = append(r.out.Failed, RefreshFailure{ID: id, Dir: d.Dir, Err: "the id is taken by an artefact that does not come from " + f.Path + "; give the directory a prefix"})
		return Artefact{}, false
	}
	r.known[id] = true
	return Artefact{ID: id, Kind: KindChunk, Source: source, Group: id}, true
}

// take writes new files. A transaction cannot continue after a failed Put, so it is made again without the files that
// failed; each of them goes into the report.
func (r *refreshing) take(ctx context.Context, fresh []Artefact) error {
	if err := ctx.Err(); err != nil || len(fresh) == 0 {
		return err
	}
	if r.o.DryRun {
		for i := range fresh {
			r.out.New = append(r.out.New, fresh[i].ID)
		}
		return nil
	}
	var taken []string
	var failed []RefreshFailure
	unread := map[string]bool{} // a transaction does not outlive a write that failed: it is made again without those
	errUnread := errors.New("files that cannot be read")
	for {
		err := r.s.Update(ctx, func(tx *Txn) error {
			taken = nil
			before := len(failed)
			for _, a := range fresh {
				if unread[a.ID] {
					continue
				}
				switch err := tx.Put(ctx, a); {
				case err == nil:
					taken = append(taken, a.ID)
				case ctx.Err() != nil:
					return ctx.Err()
				default:
					unread[a.ID] = true
					failed = append(failed, RefreshFailure{ID: a.ID, Err: err.Error()})
				}
			}
			if len(failed) > before {
				return errUnread
			}
			return nil
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errUnread) {
			return err
		}
	}
	r.out.New, r.out.Failed = append(r.out.New, taken...), append(r.out.Failed, failed...)
	return nil
}

// lost finds artefacts whose file a directory no longer has, and deletes them with RefreshOptions.Delete.
func (r *refreshing) lost(ctx context.Context, d Directory, w *folder.Walker, taken map[string]bool) error {
	var drop []string
	for _, id := range slices.Sorted(maps.Keys(r.have)) {
		rel, ok := d.rel(id, r.have[id])
		switch {
		case !ok || taken[rel] || w.Unknown(rel):
			continue
		case !r.gone[id]:
			r.out.NotTaken = append(r.out.NotTaken, id)
		}
		drop = append(drop, id)
	}
	if !r.o.Delete {
		return nil
	}
	for part := range slices.Chunk(drop, freshness.BatchFiles) {
		if err := r.remove(ctx, part); err != nil {
			return err
		}
		r.out.Deleted = append(r.out.Deleted, part...)
	}
	return nil
}

// remove deletes artefacts in one transaction. One that somebody deleted meanwhile is no error.
func (r *refreshing) remove(ctx context.Context, ids []string) error {
	if r.o.DryRun {
		return nil
	}
	return r.s.Update(ctx, func(tx *Txn) error {
		for _, id := range ids {
			if err := tx.Delete(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		return nil
	})
}

// Refresh refreshes every scope that has sources or recorded directories, by name. The first error ends it.
func (db *DB) Refresh(ctx context.Context, o RefreshOptions) ([]RefreshReport, error) {
	names, err := db.refreshable(ctx)
	if err != nil {
		return nil, err
	}
	var out []RefreshReport
	for _, name := range names {
		r, err := db.Scope(name, WithActor("refresh")).Refresh(ctx, o)
		if out = append(out, r); err != nil {
			return out, err
		}
	}
	return out, nil
}

// refreshable lists the scopes that have something to refresh.
func (db *DB) refreshable(ctx context.Context) ([]string, error) {
	names := map[string]bool{}
	for s, err := range db.AllScopes(ctx, "") {
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
	err := staterows.Walk(ctx, db.store, folder.Rows(), func(row store.StateRow) error {
		names[folder.ScopeOf(row.Key)] = true
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
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		db.opts.Logger.Warn("background refresh failed", "error", err)
	}
	for i := range reports {
		if r := &reports[i]; len(r.Failed) > 0 {
			db.opts.Logger.Warn("background refresh could not read sources", "scope", r.Scope, "failed", len(r.Failed), "first", cmp.Or(r.Failed[0].ID, r.Failed[0].Dir), "error", r.Failed[0].Err)
		}
	}
}
