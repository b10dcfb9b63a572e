package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/store"
)

// The writes of a transaction. A put goes through these checks, in this order; the first error marks the transaction as
// failed:
//
//	checkPut, checkReserved    the rules of an artefact; ids that the database keeps for itself
//	provenance                 human-verified only through Admin.PutVerified or an approval
//	mayDraft                   what a gated handle must not claim or replace
//	supersedable               unknown names are collected; Commit refuses them (supersedesNothing)
//	derive                     parents are visible here; their versions are fixed; the lowest trust among them is taken
//	content                    the source is fetched now
//	makePut, asDraft, add      pages, digests; limits of the transaction; the version that it replaces
//
// Invariant: a transaction with a failed write commits nothing (whole). The caller meant all of its writes, and a part
// alone can be wrong: an answer without its correction, a link without its target.

// whole refuses to commit a part of what was meant.
func (tx *Txn) whole() error {
	if tx.failed != nil {
		return fmt.Errorf("%w: %w; roll back and begin again, without this write or with what it needs", store.ErrTxnFailed, tx.failed)
	}
	return tx.supersedesNothing()
}

// fails records the first failed write and returns the error.
func (tx *Txn) fails(err error) error {
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// Put writes an artefact; only this transaction sees it until Commit. With a Source, Put fetches the text now; a given
// text must equal what the source holds. After an error of Put, or of Delete except ErrNotFound, Commit returns
// ErrTxnFailed: roll back and begin again.
//
// A version has the fields of its put alone: what the version before had and this put does not give, such as expiry,
// subject, tags, metadata or pin, the new version does not have.
//
// In a speculative transaction the provenance is at most Validated, and a system artefact is refused: instructions for
// the model come from the host.
func (tx *Txn) Put(ctx context.Context, a Artefact) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return store.ErrTxnDone
	}
	put, err := tx.makePut(ctx, a)
	if err != nil {
		return tx.fails(err)
	}
	if tx.s.gated { // scratch, until the gate lets it pass
		set(&tx.worth, put.Artefact.ID, put.Artefact.Provenance)
		put.Artefact.Provenance = store.Scratch
	}
	return tx.fails(tx.add(ctx, put))
}

// makePut carries out the checks in the order of the table above and returns the put with its pages. It changes nothing
// of the transaction except the superseded names that the scope does not know.
func (tx *Txn) makePut(ctx context.Context, a Artefact) (store.Put, error) {
	if err := checkPut(&a); err != nil {
		return store.Put{}, err
	}
	if err := checkReserved("id", a.ID); err != nil {
		return store.Put{}, err
	}
	if a.Provenance == store.HumanVerified && !tx.s.gated { // of a gated handle mayClaim refuses it
		return store.Put{}, fmt.Errorf("%w: %s: human-verified comes from Admin.PutVerified or an approval, not from a scope", store.ErrProvenance, a.ID)
	}
	claimed := a.Provenance
	a.KindDefaults()
	if !tx.managed {
		if err := tx.s.mayDraft(ctx, &a, claimed); err != nil {
			return store.Put{}, err
		}
		if a.Kind == store.KindSystem || a.Role == "system" || a.Role == store.RoleDeveloper {
			return store.Put{}, fmt.Errorf("%w: %s: a speculative write cannot be of kind or role system", store.ErrProvenance, a.ID)
		}
		a.Provenance = min(a.Provenance, store.Validated)
	}
	if err := tx.supersedable(ctx, &a); err != nil {
		return store.Put{}, err
	}
	if a.TTL > 0 {
		a.ExpiresAt, a.TTL = tx.s.db.opts.Clock().Add(a.TTL), 0
		if y := a.ExpiresAt.UTC().Year(); y < 1 || y > 9999 {
			return store.Put{}, store.Invalid("ttl", fmt.Sprintf("an expiry in the year %d", y), "one up to the year 9999")
		}
	}
	if err := tx.derive(ctx, &a); err != nil {
		return store.Put{}, err
	}
	v, err := content(ctx, tx.s.view, &a)
	if err != nil {
		return store.Put{}, err
	}
	return tx.s.db.makePut(a, v)
}

// supersedable collects the superseded artefacts that the scope has never had. Deleted artefacts count as known, and so
// do those that the current version supersedes already. The transaction may put unknown ones later.
func (tx *Txn) supersedable(ctx context.Context, a *Artefact) error {
	for _, id := range a.Supersedes {
		_, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
		if errors.Is(err, store.ErrNotFound) {
			_, err = tx.s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: tx.s.chain[:1], ID: id, Limit: 1})
		}
		if errors.Is(err, store.ErrNotFound) && !tx.s.supersededBefore(ctx, a.ID, id) {
			set(&tx.unknown, id, true)
		} else if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrGone) {
			return err
		}
	}
	return nil
}

// supersedesNothing refuses a Supersedes that names what the scope has never had and the transaction does not put. A
// wrong name would leave the old text in place beside the new one.
func (tx *Txn) supersedesNothing() error {
	if len(tx.unknown) == 0 {
		return nil
	}
	for _, by := range tx.putOrder {
		for _, id := range tx.writes[by].Artefact.Supersedes {
			if tx.unknown[id] && tx.writes[id] == nil {
				return store.InvalidMissing(store.ErrNotFound, "supersedes", strconv.Quote(id)+", which scope "+tx.s.name+" has never had",
					"ids of artefacts of the scope itself; put them first, or leave them out of "+strconv.Quote(by))
			}
		}
	}
	return nil
}

// supersededBefore reports whether the current version of an artefact supersedes the other one already: the artefact
// may then be put again.
func (s *Scope) supersededBefore(ctx context.Context, id, other string) bool {
	page, err := s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: s.chain[:1], ID: id, Limit: 1})
	return err == nil && len(page.Heads) > 0 && slices.Contains(page.Heads[0].Supersedes, other)
}

// derive fixes the versions of the parents and takes the lowest provenance among them. Parents must be visible here, so
// the artefact's scope is the narrowest of all. Trust is never raised on the way: what is derived from a draft is worth
// no more than the draft.
func (tx *Txn) derive(ctx context.Context, a *Artefact) error {
	if len(a.DerivedFrom) == 0 {
		return nil
	}
	a.DerivedFrom = slices.Clone(a.DerivedFrom)
	for i := range a.DerivedFrom {
		r := &a.DerivedFrom[i]
		h, l, err := tx.s.db.headOf(ctx, tx.s.chain, *r)
		if err != nil {
			return fmt.Errorf("derived_from %s: %w", strings.TrimPrefix(r.String(), ":"), err)
		}
		r.Scope, r.Version = l.Scope, l.Version
		a.Provenance = min(a.Provenance, h.Provenance)
	}
	return nil
}

// add enters a put into the transaction within its limits. A second put of an id replaces the first, so only the last
// one counts for limits and successions.
func (tx *Txn) add(ctx context.Context, put store.Put) error {
	id := put.Artefact.ID
	bytes := tx.bytes + putBytes(&put) - putBytes(tx.writes[id])
	if bytes > store.MaxTxnBytes {
		return store.Invalid("transaction", fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("at most %d; split it into several transactions", store.MaxTxnBytes))
	}
	if tx.writes[id] == nil && !tx.drop[id] && len(tx.writes)+len(tx.drop) >= store.MaxTxnWrites {
		return store.Invalid("transaction", fmt.Sprintf("more than %d artefacts", store.MaxTxnWrites), "fewer; split it into several transactions")
	}
	if tx.replaced.Leads(put.Artefact.Supersedes, id, tx.writes) {
		return store.Invalid("supersedes", fmt.Sprintf("%q and another artefact of this transaction, each superseding the other", id), "at most one of them to supersede the other")
	}
	if err := tx.expecting(ctx, id); err != nil {
		return err
	}
	if err := tx.seeReplaced(ctx, &put.Artefact); err != nil {
		return err
	}
	if tx.writes[id] == nil {
		tx.putOrder = append(tx.putOrder, id)
	}
	delete(tx.drop, id)
	tx.replaced.Forget(tx.writes[id])
	tx.replaced.Note(&put)
	tx.writes[id], tx.bytes = &put, bytes
	return nil
}

// putBytes counts the bytes of text of a put; 0 for nil.
func putBytes(p *store.Put) (n int) {
	if p != nil {
		for i := range p.Pages {
			n += len(p.Pages[i].Text)
		}
	}
	return n
}

// expecting records the version that a speculative write replaces, unless a read recorded it before. A managed put
// expects nothing: the last writer wins, and each put makes a version.
func (tx *Txn) expecting(ctx context.Context, id string) error {
	if _, ok := tx.expect[id]; ok || tx.managed {
		return nil
	}
	l, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err != nil {
		l.LSN = 0
	}
	set(&tx.expect, id, l.LSN)
	return nil
}

// seeReplaced counts what a speculative write supersedes as seen: if another writer puts it again, verifies it or supersedes it
// before the commit, or before a held draft is approved, the draft replaces something else than its writer meant. What was
// superseded already, perhaps by an older version of this draft, is passed over.
func (tx *Txn) seeReplaced(ctx context.Context, a *Artefact) error {
	if tx.managed {
		return nil
	}
	for _, id := range a.Supersedes {
		l, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) || err == nil && l.By != 0 {
			continue
		}
		if err != nil {
			return err
		}
		for n, k := range l.Pages {
			tx.see(&store.Head{Artefact: Artefact{ID: id}, Scope: tx.s.name, LSN: l.LSN}, n+1, k.Num)
		}
	}
	return nil
}

// Delete writes a tombstone for an artefact of the scope. ErrNotFound when there is none; the transaction stays usable.
func (tx *Txn) Delete(ctx context.Context, id string) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return store.ErrTxnDone
	}
	err := tx.remove(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return err
	}
	return tx.fails(err)
}

// remove enters a delete. Deleting what only the transaction itself has put takes the put out again.
func (tx *Txn) remove(ctx context.Context, id string) error {
	if err := store.CheckID("id", id); err != nil {
		return err
	}
	id = store.Canonical(id)
	if err := checkReserved("id", id); err != nil {
		return err
	}
	_, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
	if err != nil && (tx.writes[id] == nil || !errors.Is(err, store.ErrNotFound)) {
		return err
	}
	if err := tx.s.mayReplace(ctx, id); err != nil {
		return err
	}
	if err := tx.expecting(ctx, id); err != nil {
		return err
	}
	if tx.writes[id] == nil && !tx.drop[id] && len(tx.writes)+len(tx.drop) >= store.MaxTxnWrites {
		return store.Invalid("transaction", fmt.Sprintf("more than %d artefacts", store.MaxTxnWrites), "fewer; split it into several transactions")
	}
	if tx.writes[id] != nil {
		tx.bytes -= putBytes(tx.writes[id])
		tx.replaced.Forget(tx.writes[id])
		delete(tx.writes, id)
		tx.putOrder = slices.DeleteFunc(tx.putOrder, func(x string) bool { return x == id })
	}
	if err == nil {
		set(&tx.drop, id, true)
	}
	return nil
}

// checkPut refuses an artefact that breaks a rule or a limit, or that supersedes a page of the database's own.
func checkPut(a *Artefact) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Text == "" && len(a.Parts) == 0 && a.Source == "" && len(a.ToolCalls) == 0 && a.Role != "tool" {
		return store.Invalid("text", "none", "a text, parts, or a source to read it from: an artefact without words is never found")
	}
	for _, id := range a.Supersedes {
		if err := checkReserved("supersedes", id); err != nil {
			return err
		}
	}
	return nil
}

// checkReserved refuses ids that the database keeps for its own pages.
func checkReserved(field, id string) error {
	if !strings.HasPrefix(id, store.ReservedPrefix) {
		return nil
	}
	expected := "an id that does not begin with " + store.ReservedPrefix + ", which the database keeps for its own pages"
	if id == directivelog.PageID {
		expected += "; directives change through Scope.Directives"
	}
	return store.Invalid(field, strconv.Quote(id), expected)
}
