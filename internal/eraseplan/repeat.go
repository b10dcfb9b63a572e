package eraseplan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// A backup that was made before an erase has what it took. A receipt says what was asked for, each name under the secret of
// the database, which the backup has as well. So the names that are in the backup are compared one by one, and those that
// the receipt stands for are erased again, by the same rules: the receipt itself tells nobody a name.

// tookNames reports whether an erase was to take names. Earlier programs wrote no askedNames: there the bodies that it took tell,
// if there were any.
func tookNames(done *store.EraseReport) bool {
	return done.Bodies > 0 || slices.Contains(done.Asked, askedNames)
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
		req := &ops.Request{By: r.Done.By, Reason: r.Done.Reason, Cascade: ops.Cascade(r.Done.Cascade), Names: tookNames(&r.Done), DryRun: dryRun, Progress: progress}
		f := newFinder(req)
		f.was = &r.Done
		switch rep, err := run(ctx, st, f); {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return out, err
		case !rep.Empty():
			out = append(out, rep)
		}
	}
	return out, nil
}

// Reports returns the reports of all erases that a store knows and that were asked for by name, oldest first. done: only those of which
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

// eraseRow has the fields that this package reads of the row of an erase under way (engine).
type eraseRow struct {
	Stage  string            `json:"stage"`
	Report store.EraseReport `json:"report"`
	Job    json.RawMessage   `json:"job"` // while commits are missing
}

func walkRows(ctx context.Context, st store.Store, fn func(eraseRow)) error {
	return format.Walk(ctx, st, format.EraseRows, func(r store.StateRow) error {
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
		return err == nil && p.Leaf == archive.LeafHash(r.Body), err
	}
	if errors.Is(err, manifest.ErrNoLeaf) {
		return false, nil
	}
	return err == nil && bytes.Equal(body, r.Body), err
}

// lost reports whether the key of a version was destroyed by the erase that is repeated. In an encrypted backup such a row keeps the
// id of its artefact and the numbers of its pages. Subject, lineage and salts are gone, so that what the receipt asked for may
// stand nowhere any more. The numbers alone would not do: a copy that was written to assigns numbers to pages of its own. The
// receipt does not prove them, but nothing is taken by them that anybody could read.
func (f *finder) lost(h *store.Head) bool {
	return f.was != nil && len(h.Rows) > 0 && !h.Gone && h.Rows[0].Salt == [store.DigestSaltSize]byte{} && archive.Covered(f.was.Numbers, h.Rows[0].Num)
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

// An import that was given receipts remembers what they stand for: a later import of the same old export leaves that out, too,
// whoever forgets the receipts then. The rows are of this database alone. What was asked for stands in them under the secret of
// the database that erased, as in the receipt.

// ReceiptKind says what a store must know of these rows.
func ReceiptKind() store.StateKind { return store.StateKind{Prefix: format.ReceiptRows, Stays: true} }

// ReceiptRow is the row that remembers an erase of a database.
func ReceiptRow(db string, done *store.EraseReport) (store.StateRow, error) {
	row := *done
	row.Numbers, row.Batches = nil, nil // of rows of a backup; an export has none whose key is destroyed
	value, err := json.Marshal(row)
	if err != nil {
		return store.StateRow{}, fmt.Errorf("ctxpage: encode the row of a receipt: %w", err)
	}
	return store.StateRow{Key: format.ReceiptRows + db + "/" + done.Trace, Value: value}, nil
}

// Remembered are the erases of a database whose receipts were given to imports into a store, by trace; "": of any database.
func Remembered(ctx context.Context, st store.Store, db string) (list []store.EraseReport, err error) {
	prefix := format.ReceiptRows
	if db != "" {
		prefix += db + "/"
	}
	err = format.Walk(ctx, st, prefix, func(r store.StateRow) error {
		var done store.EraseReport
		if err := json.Unmarshal(r.Value, &done); err != nil || !strings.HasSuffix(r.Key, "/"+done.Trace) {
			return &store.CorruptError{File: "state row " + r.Key, Err: fmt.Errorf("no row of a receipt: %w", err)}
		}
		list = append(list, done)
		return nil
	})
	return list, err
}
