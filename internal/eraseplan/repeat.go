package eraseplan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// A backup that was made before an erase has what it took. A receipt says what was asked for, each name under the secret of
// the database, which the backup has as well. So the names that are in the backup are compared one by one, and those that
// the receipt stands for are erased again, by the same rules: the receipt itself tells nobody a name.

// The kinds of names that can be asked for.
const (
	askedSubject = "subject"
	askedScope   = "scope"
	askedSession = "session"
	askedRef     = "ref"
)

// askedNames stands among what was asked for if names were to go.
const askedNames = "names"

// tookNames reports whether an erase was to take names. Earlier programs wrote no askedNames: there the bodies that it took tell,
// if there were any.
func tookNames(done *store.EraseReport) bool {
	return done.Bodies > 0 || slices.Contains(done.Asked, askedNames)
}

// asked is what a request stands for in the report and, as a digest, in the leaf. Promoted copies are among it, as references:
// an export has no audit that tells of them.
func asked(secret []byte, req *ops.Request, promoted []store.Ref) (list []string) {
	switch {
	case req.Subject != "" && req.Scope != "":
		list = []string{store.AskedOf(secret, askedSubject, req.Scope+"\x00"+req.Subject)}
	case req.Subject != "":
		list = []string{store.AskedOf(secret, askedSubject, req.Subject)}
	case req.Scope != "":
		list = []string{store.AskedOf(secret, askedScope, req.Scope)}
	case req.Session != (store.Ref{}):
		list = []string{store.AskedOf(secret, askedSession, req.Session.Scope+"\x00"+req.Session.ID)}
	}
	if req.Names {
		list = append(list, askedNames)
	}
	for _, r := range slices.Concat(req.Refs, promoted) {
		list = append(list, store.AskedOf(secret, askedRef, r.Scope+"\x00"+r.ID))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Repeat erases in a store what receipts of the same database say was erased after the store's state was copied. A receipt
// whose leaf the store has is passed over: what it took is not there. The receipts must hold; ErrReceipt.
func Repeat(ctx context.Context, st store.Store, receipts []*ops.Receipt, dryRun bool, progress store.Progress) (out []*ops.Report, err error) {
	info, err := st.Info(ctx)
	if err != nil {
		return nil, err
	}
	for i, r := range receipts {
		if err := r.Verify(nil); err != nil {
			return out, fmt.Errorf("receipt %d: %w", i+1, err)
		}
		switch known, err := has(ctx, st, r); {
		case r.DB != info.ID:
			return out, fmt.Errorf("%w: receipt %d is of database %s, this is %s", ops.ErrReceipt, i+1, r.DB, info.ID)
		case err != nil:
			return out, err
		case known:
			continue
		case len(r.Done.Asked) == 0:
			return out, fmt.Errorf("%w: receipt %d does not say what was asked for, so it cannot be erased again; erase it by name after the restore", ops.ErrReceipt, i+1)
		}
		reqs, err := requests(ctx, st, info.Secret, &r.Done)
		if err != nil {
			return out, err
		}
		for i := range reqs {
			req := &reqs[i]
			req.DryRun, req.Progress = dryRun, progress
			f := newFinder(req)
			f.was = &r.Done
			rep, err := run(ctx, st, f)
			if err != nil && !errors.Is(err, store.ErrNotFound) { // one request may have taken what the next asks for
				return out, err
			}
			if rep.Empty() && nameless(req) {
				continue
			}
			out = append(out, rep)
		}
	}
	return out, nil
}

// Reports are those of all erases that a store knows and that were asked for by name, oldest first. done: only those of which
// no commit is missing.
func Reports(ctx context.Context, st store.Store, done bool) (list []store.EraseReport, err error) {
	err = walkRows(ctx, st, func(row eraseRow) {
		if len(row.Report.Asked) > 0 && (!done || len(row.Job) == 0) {
			list = append(list, row.Report)
		}
	})
	return list, err
}

// Finished are the reports of all erases after which no file of the store has the content, oldest first.
func Finished(ctx context.Context, st store.Store) (list []store.EraseReport, err error) {
	err = walkRows(ctx, st, func(row eraseRow) {
		if row.Stage == "done" {
			list = append(list, row.Report)
		}
	})
	return list, err
}

// interrupted are the traces of erases of which no commit is missing, and after which files may still have the content.
func interrupted(ctx context.Context, st store.Store) (traces map[string]bool, err error) {
	traces = map[string]bool{}
	err = walkRows(ctx, st, func(row eraseRow) {
		if row.Stage == "purge" {
			traces[row.Report.Trace] = true
		}
	})
	return traces, err
}

// eraseRow is what this package reads of the row that says how far an erase has come (engine).
type eraseRow struct {
	Stage  string            `json:"stage"`
	Report store.EraseReport `json:"report"`
	Job    json.RawMessage   `json:"job"` // while commits are missing
}

func walkRows(ctx context.Context, st store.Store, fn func(eraseRow)) error {
	return staterows.Walk(ctx, st, store.EraseRows, func(r store.StateRow) error {
		var row eraseRow
		if err := json.Unmarshal(r.Value, &row); err != nil {
			return &store.CorruptError{File: "state row " + r.Key, Err: err}
		}
		fn(row)
		return nil
	})
}

// has reports whether the audit of a store has the leaf of a receipt.
func has(ctx context.Context, st store.Store, r *ops.Receipt) (bool, error) {
	body, err := st.Audit().Body(ctx, r.Done.Leaf)
	if errors.Is(err, manifest.ErrPruned) { // a later erase of its names: the hash tells
		p, err := st.Audit().ProveInclusion(ctx, r.Done.Leaf, r.Done.Leaf+1)
		return err == nil && p.Leaf == manifest.LeafHash(r.Body), err
	}
	if errors.Is(err, manifest.ErrNoLeaf) {
		return false, nil
	}
	return err == nil && bytes.Equal(body, r.Body), err
}

// lost reports whether the key of a version was destroyed by the erase that is repeated. In an encrypted backup such a row keeps the
// id of its artefact and the numbers of its pages. Subject, lineage and salts are gone, so that what the receipt asked for may
// stand nowhere any more. The numbers alone would not do: a copy that was written to gives numbers to pages of its own. The
// receipt does not prove them, but nothing is taken by them that anybody could read.
func (f *finder) lost(h *store.Head) bool {
	return f.was != nil && len(h.Rows) > 0 && !h.Gone && h.Rows[0].Salt == [store.DigestSaltSize]byte{} && manifest.Covered(f.was.Numbers, h.Rows[0].Num)
}

// lostBatches takes the held batches whose keys the erase destroyed that is repeated.
func (f *finder) lostBatches() error {
	for _, id := range f.was.Batches {
		if slices.Contains(f.job.Held, id) {
			continue
		}
		switch h, err := f.st.Held(f.ctx, id); {
		case errors.Is(err, store.ErrErased):
			f.job.Held = append(f.job.Held, id)
			f.report.Held = append(f.report.Held, ops.HeldItem{ID: id.String(), Scope: h.Batch.Scope, Why: lostWhy})
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	return nil
}

const lostWhy = "its key was destroyed by the erase"

// nameless reports whether a request has no name. It takes what was lost.
func nameless(r *ops.Request) bool {
	return r.Subject == "" && r.Scope == "" && r.Session == (store.Ref{}) && len(r.Refs) == 0
}

// requests are those that a receipt stands for, of the names that a store has. If it has none of them, one without a name takes
// what lost its keys.
func requests(ctx context.Context, st store.Store, secret []byte, done *store.EraseReport) (reqs []ops.Request, err error) {
	n := &names{ctx: ctx, st: st, all: map[[2]string]bool{}}
	if err := n.find(); err != nil {
		return nil, err
	}
	if tookNames(done) {
		if err := n.audit(); err != nil {
			return nil, err
		}
	}
	refs := []store.Ref{}
	base := ops.Request{By: done.By, Reason: done.Reason, Cascade: ops.Cascade(done.Cascade), Names: tookNames(done)}
	keys := slices.SortedFunc(maps.Keys(n.all), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	for _, k := range keys {
		if !slices.Contains(done.Asked, store.AskedOf(secret, k[0], k[1])) {
			continue
		}
		req, name := base, k[1]
		scope, id, _ := strings.Cut(name, "\x00")
		switch k[0] {
		case askedSubject:
			if req.Subject = name; id != "" { // of a scope alone
				req.Scope, req.Subject = scope, id
			}
		case askedScope:
			req.Scope = name
		case askedSession:
			req.Session = store.Ref{Scope: scope, ID: id}
		default:
			refs = append(refs, store.Ref{Scope: scope, ID: id})
			continue
		}
		reqs = append(reqs, req)
	}
	if len(refs) > 0 || len(reqs) == 0 && len(done.Numbers)+len(done.Batches) > 0 {
		base.Refs = refs
		reqs = append(reqs, base)
	}
	return reqs, nil
}

// names are all that somebody could have asked for, by kind.
type names struct {
	ctx context.Context
	st  store.Store
	all map[[2]string]bool
}

func (n *names) find() error {
	f := &finder{ctx: n.ctx, st: n.st, req: &ops.Request{Names: true}, progress: func(string, uint64, uint64) {}, seen: n.head}
	if err := f.artefacts(); err != nil {
		return err
	}
	for prefix, look := range map[string]func(store.StateRow) error{
		"session/": n.row, directivelog.StateKind().Prefix: n.row, freshness.DirectoryRows(): n.directory, rendering.DraftsKind().Prefix: n.drafts,
	} {
		if err := staterows.Walk(n.ctx, n.st, prefix, look); err != nil {
			return err
		}
	}
	for q := (store.ScanQuery{What: store.ScanHeld, All: true, Limit: scanRows}); ; {
		page, err := n.st.Scan(n.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Held {
			n.held(&page.Held[i].Batch)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// audit notes what leaves name: an erase with Names takes it also where no row has it any more.
func (n *names) audit() error {
	a := n.st.Audit()
	size, err := a.Size(n.ctx)
	if err != nil {
		return err
	}
	return store.EachRecord(n.ctx, a, 0, size, false, func(r *manifest.Record) error {
		n.scope(r.Scope)
		if r.Session != "" {
			n.all[[2]string{askedSession, r.Scope + "\x00" + r.Session}] = true
		}
		for _, w := range r.Writes {
			if ref, err := store.ParseRef(w.Ref); err == nil {
				n.scope(ref.Scope)
				n.all[[2]string{askedRef, ref.Scope + "\x00" + ref.ID}] = true
			}
		}
		return nil
	})
}

func (n *names) scope(scope string) {
	for _, s := range store.ScopeChain(scope) {
		n.all[[2]string{askedScope, s}] = true
	}
}

func (n *names) artefact(scope string, a *store.Artefact) {
	n.all[[2]string{askedRef, scope + "\x00" + a.ID}] = true
	if a.Subject != "" {
		n.all[[2]string{askedSubject, a.Subject}] = true
		for _, s := range store.ScopeChain(scope) {
			n.all[[2]string{askedSubject, s + "\x00" + a.Subject}] = true
		}
	}
	if a.Group != "" {
		n.all[[2]string{askedSession, scope + "\x00" + a.Group}] = true
	}
}

func (n *names) head(h *store.Head) {
	n.scope(h.Scope)
	n.artefact(h.Scope, &h.Artefact)
}

func (n *names) row(r store.StateRow) error {
	if strings.HasPrefix(r.Key, "session/") {
		_, rest := cutKind(r.Key)
		if part := strings.SplitN(rest, "\x00", 3); len(part) > 1 {
			n.scope(part[0])
			n.all[[2]string{askedSession, part[0] + "\x00" + part[1]}] = true
		}
		return nil
	}
	n.scope(directivelog.ScopeOf(r.Key))
	return nil
}

func (n *names) directory(r store.StateRow) error {
	n.scope(freshness.DirectoryScope(r.Key))
	return nil
}

// drafts notes what a context showed of drafts. The batch that they were in may have lost its key, and they may not: gc drops
// their row while the batch waits, and an erase then does not find it. Their scope is that of their context; without one nobody
// can ask for them.
func (n *names) drafts(r store.StateRow) error {
	trace, puts, err := rendering.DraftsOf(r)
	if err != nil {
		return fmt.Errorf("ctxpage: erase: drafts of context %s: %w", trace, err)
	}
	leaves, err := n.st.Audit().ByTrace(n.ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return err
	}
	for _, l := range leaves {
		if l.Trace != trace || l.Scope == "" {
			continue
		}
		n.scope(l.Scope)
		for i := range puts {
			n.artefact(l.Scope, &puts[i].Artefact)
		}
	}
	return nil
}

func (n *names) held(b *store.Batch) {
	n.scope(b.Scope)
	for i := range b.Puts {
		n.artefact(b.Scope, &b.Puts[i].Artefact)
	}
}
