package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// How a read set is found again from a trace alone:
//
//	trace ─▶ leaves of the trace ─▶ pages of the assembly, in the versions served ─▶ saw, expect
//	            │ a page without a number: the assembly showed a draft
//	            └─▶ Parent: the context that the draft was written from, and so on
//
// A resumed transaction must be no weaker than one that stayed in memory. So the pages count in the version that the
// model saw, also those that gc dropped since: they are stale, not forgotten. Only reads that the same scope recorded
// count; traces of other scopes are not found. Reading the current versions instead was rejected: a change between
// assembly and commit would pass unnoticed.

// Resume starts a speculative transaction whose read set is a recorded assembly of this scope. So a process or tool can
// commit an answer to a context that another one assembled. Only pages that the assembly served count, in the version
// that it served. Later reads under its trace neither join nor update the read set: after a change, assemble again.
//
// ErrNotFound when the scope recorded no assembly under the trace.
func (s *Scope) Resume(ctx context.Context, trace string, opts ...TxnOption) (*Txn, error) {
	tx, err := s.newTxn(opts)
	if err != nil {
		return nil, err
	}
	leaves, err := s.readSet(ctx, trace)
	if err != nil {
		return nil, err
	}
	if len(leaves) == 0 {
		return nil, fmt.Errorf("%w: no assembly %q of scope %s in the manifest", store.ErrNotFound, trace, s.name)
	}
	if err := s.mayResume(trace, leaves); err != nil {
		return nil, err
	}
	if tx.reader, err = s.db.store.Hold(ctx, readAt(leaves)); err != nil {
		return nil, err
	}
	for _, leaf := range leaves {
		if err := tx.sawLeaf(ctx, leaf); err != nil {
			s.db.store.Release(tx.reader)
			return nil, err
		}
	}
	tx.trace, tx.first = trace, false
	return tx, nil
}

// readAt returns the earliest moment at which these leaves were read. A get has the LSN of what it served, which is at
// most its own.
func readAt(leaves []*manifest.Record) store.Moment {
	lsn, at := leaves[0].LSN, leaves[0].Time
	for _, l := range leaves {
		lsn, at = min(lsn, l.LSN), min(at, l.Time)
	}
	return store.Moment{LSN: lsn, Time: codec.FromMicros(at)}
}

// sawLeaf adds the pages of a recorded read to the read set, also the summaries that stood in for pages.
func (tx *Txn) sawLeaf(ctx context.Context, leaf *manifest.Record) error {
	if leaf.Pruned != nil { // what was read is not known any more
		return fmt.Errorf("%w: read %s: its leaf was %s; assemble again", manifest.ErrPruned, leaf.Trace, leaf.Pruned)
	}
	keys := make([]store.PageKey, 0, len(leaf.Pages))
	for _, p := range leaf.Pages {
		if p.Num != 0 { // a draft had no version that could have changed
			keys = append(keys, store.PageKey{Num: p.Num, Version: p.Version})
		}
		if p.Form == manifest.FormSummary {
			keys = append(keys, store.PageKey{Num: p.Via})
		}
	}
	loaded, err := tx.s.db.store.Load(ctx, tx.s.chain, keys, store.WantHead)
	if err != nil {
		return err
	}
	for i := range loaded {
		if l := &loaded[i]; l.Err == nil || errors.Is(l.Err, store.ErrGone) && l.Head != nil { // replaced and dropped since: stale
			tx.see(l.Head, l.Page, l.Key.Num)
		} else if !errors.Is(l.Err, store.ErrGone) {
			return l.Err
		} else { // gc has forgotten it: stale, too
			tx.sawForgotten(ctx, leaf.Scope, l.Key)
		}
	}
	return nil
}

// sawForgotten records a page of which the store knows only that it existed. The manifest may know its name.
func (tx *Txn) sawForgotten(ctx context.Context, scope string, k store.PageKey) {
	ref := Ref{Scope: scope, ID: fmt.Sprintf("page-%d", k.Num)}
	if _, w, err := tx.s.db.store.Audit().Written(ctx, k.Num, k.Version); err == nil {
		if named, err := store.ParseRef(w.Ref); err == nil {
			ref = named
		}
	}
	tx.see(&store.Head{Artefact: Artefact{ID: ref.ID}, Scope: ref.Scope}, ref.Page, k.Num)
}
