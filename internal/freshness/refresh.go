package freshness

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// A refresh brings a scope up to date with the world outside: the sources of its artefacts, and the files of its recorded
// directories.
//
//	sources      probe every sourced artefact, in parts ─▶ changed ones are fetched and committed
//	directories  walk each recorded directory ─▶ new files are put, in batches; lost ones are deleted if Delete is set
//
// Each batch is a transaction of its own. A refresh may take minutes and must not lose what it did when it is
// cancelled; a single transaction was rejected for that reason, and because it would have to hold all texts in memory.
// Nothing that cannot be read is ever deleted: a directory on an unmounted disk looks empty.

// RefreshHost has the functions that a refresh needs of the database that runs it.
type RefreshHost struct {
	Scope string
	Store store.Store
	View  View // of the scope; one that only looks (Looking) for a dry run
	Clock func() time.Time
	File  string // of the database: a directory that contains it does not import it
	// Put writes new artefacts in one transaction: all, or none when some of them failed. It returns the errors of
	// those by id. The other error ends the refresh.
	Put func(ctx context.Context, list []store.Artefact) (failed map[string]error, err error)
	// Delete deletes artefacts in one transaction. One that is gone already is no error.
	Delete func(ctx context.Context, ids []string) error
}

// chunk is how many artefacts are probed between two checks of the context.
const chunk = 256

// run is a refresh in flight. It belongs to the goroutine that called Refresh.
type run struct {
	RefreshHost
	ops.RefreshOptions
	out   ops.RefreshReport
	have  map[string]string // id → source of the scope's live artefacts
	gone  map[string]bool   // ids whose source vanished
	far   map[string]bool   // ids whose file is on another host
	known map[string]bool   // new ids of this run

	refused []error // by directory that no root allows
}

// NewReport returns a report of nothing. Its lists are not nil, so that JSON has the same shape for every run.
func NewReport(scope string, dryRun bool) ops.RefreshReport {
	return ops.RefreshReport{Scope: scope, DryRun: dryRun, Changed: []string{}, New: []string{}, Vanished: []string{}, NotTaken: []string{}, Deleted: []string{}, Failed: []ops.RefreshFailure{}}
}

// Refresh refreshes the scope of the host. It may be used for different scopes at the same time. The report says what was
// done, also beside an error; its lists are never nil. After an error that matches store.ErrFileRoot everything was
// done but for the directories that the error names.
func Refresh(ctx context.Context, h RefreshHost, o ops.RefreshOptions) (ops.RefreshReport, error) {
	r := &run{RefreshHost: h, RefreshOptions: o, have: map[string]string{}, gone: map[string]bool{}, far: map[string]bool{}, known: map[string]bool{}}
	r.out = NewReport(h.Scope, o.DryRun)
	err := r.sources(ctx)
	if err == nil {
		err = r.directories(ctx)
	}
	if err == nil {
		err = errors.Join(r.refused...)
	}
	return r.out, err
}

// progress reports to the caller of Refresh.
func (r *run) progress(what string, done, total int) {
	if r.Progress != nil {
		r.Progress(what, uint64(done), uint64(total))
	}
}

// sources probes the sourced artefacts of the scope.
func (r *run) sources(ctx context.Context) error {
	found, err := r.Store.Scan(ctx, store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{r.Scope}})
	if err != nil {
		return err
	}
	done := 0
	for part := range slices.Chunk(found.Keys, chunk) {
		if err := r.probe(ctx, part); err != nil {
			return err
		}
		done += len(part)
		r.progress("refresh", done, len(found.Keys))
	}
	return nil
}

// probe probes one part of the sourced artefacts. Expired ones are known to have a source but are not fetched.
func (r *run) probe(ctx context.Context, keys []store.PageKey) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	loaded, err := r.Store.Load(ctx, store.Scopes{r.Scope}, keys, store.WantHead)
	if err != nil {
		return err
	}
	now := codec.Micros(r.Clock())
	heads := make([]*store.Head, 0, len(loaded))
	for i := range loaded {
		h := loaded[i].Head
		if loaded[i].Err != nil || h == nil {
			continue // replaced meanwhile, or damaged: reading it says so
		}
		r.have[h.ID] = h.Artefact.Source
		expired := !h.ExpiresAt.IsZero() && codec.Micros(h.ExpiresAt) <= now
		if !expired && (!r.FilesOnly || strings.HasPrefix(h.Artefact.Source, "file:")) {
			heads = append(heads, h)
		}
	}
	states := r.View.Freshen(ctx, heads, r.Check)
	if err := ctx.Err(); err != nil {
		return err // what did not answer in time says nothing about the sources
	}
	for i, h := range heads {
		r.note(h.ID, &states[i])
	}
	return nil
}

// note files what the check of an artefact found.
func (r *run) note(id string, f *Finding) {
	if f.Elsewhere != "" {
		r.out.Elsewhere++
		r.far[id] = true
		return
	}
	r.out.Sources++
	switch {
	case f.Refetched, f.Reason == triage.ReadOnly:
		r.out.Changed = append(r.out.Changed, id)
	case f.Reason == "":
		r.out.Unchanged++
	case f.Reason == triage.Vanished:
		r.out.Vanished = append(r.out.Vanished, id)
		r.gone[id] = true
	default:
		r.out.Failed = append(r.out.Failed, ops.RefreshFailure{ID: id, Err: f.Err.Error()})
	}
}

// directories looks at each recorded directory, after the sources: a file that moved between directories is then new in
// one and vanished from the other.
func (r *run) directories(ctx context.Context) error {
	dirs, err := Directories(ctx, r.Store, r.Scope)
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
//	any           of this path on another host nothing to do: that host refreshes it
func (r *run) directory(ctx context.Context, d Recorded) error {
	w := &Walker{Dir: d.Dir, MaxSize: d.MaxSize, Except: []string{r.File}}
	err := r.View.Files.AllowedDir(d.Dir)
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
		r.out.Failed = append(r.out.Failed, ops.RefreshFailure{Dir: d.Dir, Err: err.Error()})
		if errors.Is(err, store.ErrFileRoot) {
			r.refused = append(r.refused, err)
		}
		return nil
	}
	taken := make(map[string]bool, len(w.Files))
	var fresh []store.Artefact
	for i, f := range w.Files {
		taken[f.Rel] = true
		if a, ok := r.unknown(ctx, d, f); ok {
			fresh = append(fresh, a)
		}
		if len(fresh) == BatchFiles || i == len(w.Files)-1 {
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
func (r *run) unknown(ctx context.Context, d Recorded, f Found) (store.Artefact, bool) {
	id, source := store.Canonical(d.ID(f.Rel)), "file:"+f.Path
	if r.have[id] == source || r.known[id] || store.CheckID("id", id) != nil || strings.HasPrefix(id, directivelog.Reserved) || len(source) > store.MaxSource || !r.View.Files.LooksLikeText(f.Path) {
		return store.Artefact{}, false
	}
	if l, err := r.Store.Resolve(ctx, store.Scopes{r.Scope}, store.Ref{ID: id}); err == nil && l.Current {
		r.out.Failed = append(r.out.Failed, ops.RefreshFailure{ID: id, Dir: d.Dir, Err: "the id is taken by an artefact that does not come from " + f.Path + "; give the directory a prefix"})
		return store.Artefact{}, false
	}
	r.known[id] = true
	return store.Artefact{ID: id, Kind: store.KindChunk, Source: source, Group: id}, true
}

// take writes new files. A transaction cannot continue after a failed Put, so it is made again without the files that
// failed; each of them goes into the report.
func (r *run) take(ctx context.Context, fresh []store.Artefact) error {
	if err := ctx.Err(); err != nil || len(fresh) == 0 {
		return err
	}
	for !r.DryRun && len(fresh) > 0 {
		failed, err := r.Put(ctx, fresh)
		if err != nil {
			return err
		}
		if len(failed) == 0 {
			break
		}
		fresh = slices.DeleteFunc(fresh, func(a store.Artefact) bool {
			err := failed[a.ID]
			if err != nil {
				r.out.Failed = append(r.out.Failed, ops.RefreshFailure{ID: a.ID, Err: err.Error()})
			}
			return err != nil
		})
	}
	for i := range fresh {
		r.out.New = append(r.out.New, fresh[i].ID)
	}
	return nil
}

// lost finds artefacts whose file a directory no longer has, and deletes them with RefreshOptions.Delete.
func (r *run) lost(ctx context.Context, d Recorded, w *Walker, taken map[string]bool) error {
	var drop, left []string
	for _, id := range slices.Sorted(maps.Keys(r.have)) {
		rel, ok := d.Holds(id, r.have[id])
		if !ok || taken[rel] || w.Unknown(rel) || r.far[id] {
			continue
		}
		drop, left = append(drop, id), append(left, rel)
	}
	back, err := r.backAgain(ctx, d, left)
	if err != nil {
		return err
	}
	for i := len(drop) - 1; i >= 0; i-- {
		switch id := drop[i]; {
		case back[left[i]]:
			drop = slices.Delete(drop, i, i+1)
		case !r.gone[id]:
			r.out.NotTaken = append(r.out.NotTaken, id)
		}
	}
	if !r.RefreshOptions.Delete {
		return nil
	}
	for part := range slices.Chunk(drop, BatchFiles) {
		if !r.DryRun {
			if err := r.RefreshHost.Delete(ctx, part); err != nil {
				return err
			}
		}
		r.out.Deleted = append(r.out.Deleted, part...)
	}
	return nil
}

// backAgain looks a second time at a directory from which files are to be deleted. An editor that saves a file may move it away,
// or empty it, for a moment.
func (r *run) backAgain(ctx context.Context, d Recorded, left []string) (back map[string]bool, err error) {
	if !r.RefreshOptions.Delete || len(left) == 0 {
		return nil, nil
	}
	if err := r.View.Files.Settle(ctx); err != nil {
		return nil, err
	}
	w := &Walker{Dir: d.Dir, MaxSize: d.MaxSize, Except: []string{r.File}}
	err = w.Walk(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	back = map[string]bool{}
	for _, f := range w.Files {
		back[f.Rel] = true
	}
	for _, rel := range left {
		if err != nil || w.Unknown(rel) {
			back[rel] = true
		}
	}
	return back, nil
}

// Background is work that is done at once and then now and then.
type Background struct {
	stop context.CancelFunc
	done chan struct{}
}

// Every begins it. One run ends before the next begins.
func Every(pause time.Duration, run func(context.Context)) *Background {
	ctx, stop := context.WithCancel(context.Background())
	b := &Background{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			run(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return b
}

// Stop ends it, the context of a run under way as well, and waits for it. Of nil, or called again, it does nothing.
func (b *Background) Stop() {
	if b != nil {
		b.stop()
		<-b.done
	}
}
