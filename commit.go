package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The steps of Commit. The transaction stays open up to the last one, so a caller may mend what was refused and try again.
//
//	whole        a Put or Delete failed earlier: no part of what was meant is committed
//	checkVerdict sizes and form of the verdict
//	mayCommit    what a gated handle may write
//	evaluate     only if no verdict was given and there is an Evaluator
//	gateReason   decides between apply and hold; NaN passes no gate
//	Bind         the id is bound to what the caller asked for, before echoes are taken out: a retry must bind the same
//	touches      drafts that repeat a served page become touches of it
//	finish       the store judges conflicts and staleness and numbers the batch in one step
//
// Conflict and staleness are not judged here: between a check here and the commit another writer could come in. So the
// store finds a conflict first, even if the gate would hold the draft.

// Verdict is the judgement of a draft by somebody other than its writer. The library computes no confidence, because a
// model that judges itself is badly calibrated.
type Verdict struct {
	Confidence float64 // 0 to 1; above 1: ErrInvalid
	By         string  // who judged: an evaluator, a rule, a person; not the actor or the scope, in any spelling
	Note       string
}

// Commit ends the transaction. It decides in this order:
//
//  1. An artefact that it overwrites has a newer version: ErrConflict, and nothing is applied.
//  2. A page that it saw was replaced, expired or deleted: the draft is held as stale, or as WithOnStale says.
//  3. There is no verdict, the writer judged itself, or the confidence is below the gate: the draft is held.
//  4. Otherwise the writes are durable and visible. A new page of nothing but a text that a page of its context has word
//     for word is not stored again: Repeats of the Outcome names that page.
//
// Held drafts are durable, invisible, and listed by DB.Review; Commit then returns a *HeldError, which matches ErrHeld.
func (tx *Txn) Commit(ctx context.Context, v Verdict) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done || tx.managed {
		return store.ErrTxnDone
	}
	if err := tx.whole(); err != nil {
		return err
	}
	if err := checkVerdict(v.By, v.Note); err != nil {
		return err
	}
	if err := tx.mayCommit(ctx, v); err != nil {
		return err
	}
	evaluator := ""
	if v == (Verdict{}) && tx.s.evaluator() != nil {
		var err error
		if v, err = tx.evaluate(ctx); err != nil {
			return err
		}
		evaluator = v.By
		if err := checkVerdict(v.By, v.Note); err != nil {
			return fmt.Errorf("ctxpage: evaluator: %w", err)
		}
	}
	if v.Confidence > 1 { // on another scale, say percent, a bad draft would pass; below 0 and NaN pass no gate
		return store.Invalid("confidence", fmt.Sprintf("%v by %s", v.Confidence, v.By), "a number from 0 to 1; the transaction is still open")
	}
	b := tx.batch()
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, Confidence: format.ClampUnit(v.Confidence), By: v.By, Note: v.Note, Evaluator: evaluator, Gate: max(tx.s.gate, 0)}
	if b.Reason = tx.s.gateReason(v); b.Reason != "" {
		b.Action = store.ActHold
	}
	format.Bind(&b) // before what was served takes drafts out of it
	if err := tx.touches(ctx, &b); err != nil {
		return err
	}
	return tx.finish(ctx, b)
}

// Judge returns the reason for which the gate of the handle would hold a verdict, "" if it would let it pass. It
// commits nothing. Only Commit finds conflicts and a stale context.
func (tx *Txn) Judge(v Verdict) string { return tx.s.gateReason(v) }

// evaluate asks the evaluator for a verdict. The transaction stays locked meanwhile: what is judged must be what is
// committed.
func (tx *Txn) evaluate(ctx context.Context) (Verdict, error) {
	e := tx.s.evaluator()
	d := Draft{Scope: tx.s.name, Actor: tx.s.actor, Trace: tx.trace, Deletes: sortedKeys(tx.drop)}
	for _, id := range tx.putOrder {
		d.Writes = append(d.Writes, tx.own(tx.writes[id]).Artefact)
	}
	var err error
	if d.Context, err = tx.s.shown(ctx, tx.trace); err != nil {
		return Verdict{}, err
	}
	confidence, note, err := e.Evaluate(ctx, d)
	if err != nil {
		return Verdict{}, fmt.Errorf("ctxpage: evaluator %s: %w", e.Name(), err)
	}
	return Verdict{Confidence: confidence, By: e.Name(), Note: note}, nil
}

// gateReason is the gate. It returns the reason to hold, "" to let pass. Nobody certifies their own draft under another
// spelling of their name, or a name that looks like it.
func (s *Scope) gateReason(v Verdict) string {
	switch {
	case rendering.FoldName(v.By) == "":
		return ReasonNoVerdict
	case rendering.IsWriter(v.By, s.actor, s.name):
		return ReasonSelfCertified
	case s.gate != GateOff && !(v.Confidence >= s.gate): // NaN is below every gate
		return ReasonLowConfidence
	}
	return ""
}

// touches removes drafts that merely repeat a page which the model was served: an echo is not a new fact.
func (tx *Txn) touches(ctx context.Context, b *store.Batch) error {
	if len(tx.saw) == 0 {
		return nil
	}
	keys := make([]store.PageKey, 0, len(tx.saw))
	for _, c := range tx.context() {
		keys = append(keys, store.PageKey{Num: c.Num})
	}
	loaded, err := tx.s.db.store.Load(ctx, tx.s.chain, keys, store.WantHead)
	if err != nil {
		return err
	}
	b.Puts = slices.DeleteFunc(b.Puts, func(p store.Put) bool {
		l := tx.repeats(ctx, &p, loaded)
		if l == nil {
			return false
		}
		ref := Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Rows[l.Page-1].Version}
		b.Leaf.Writes = append(b.Leaf.Writes, manifest.Write{Num: l.Key.Num, Ref: ref.String(), Version: ref.Version, Touch: true})
		tx.echoes = append(tx.echoes, ref)
		return true
	})
	return nil
}

// repeats finds the live served page that a draft repeats word for word. Only a plain new note can be an echo: a turn
// is a turn whatever it says, and an update must happen.
func (tx *Txn) repeats(ctx context.Context, p *store.Put, loaded []store.Loaded) *store.Loaded {
	a := &p.Artefact
	if len(p.Pages) != 1 || p.Pages[0].Text == "" || tx.expect[a.ID] != 0 || !format.PlainNote(a) {
		return nil
	}
	for i := range loaded {
		l := &loaded[i]
		if l.Err != nil || l.Head.Scope == "" {
			continue
		}
		r := &l.Head.Rows[l.Page-1]
		if r.Hash == p.Pages[0].Hash && store.SaltedDigest(r.Salt[:], p.Pages[0].Text) == r.Digest && tx.live(ctx, l) {
			return l
		}
	}
	return nil
}

// live reports whether a loaded page is still part of the current version of its artefact.
func (tx *Txn) live(ctx context.Context, l *store.Loaded) bool {
	now, err := tx.s.db.store.Resolve(ctx, tx.s.chain, Ref{Scope: l.Head.Scope, ID: l.Head.ID})
	return err == nil && now.By == 0 && (now.Expires == 0 || now.Expires > codec.Micros(tx.s.db.opts.Clock())) &&
		slices.ContainsFunc(now.Pages, func(k store.PageKey) bool { return k.Num == l.Key.Num })
}

// finish hands the batch to the store. The transaction ends unless the store says that nothing happened and a second
// try may succeed.
func (tx *Txn) finish(ctx context.Context, b store.Batch) error {
	out, err := tx.s.db.store.Commit(ctx, b)
	if err != nil {
		tx.maybe = tx.maybe || errors.Is(err, store.ErrOutcomeUnknown)
		if !errors.Is(err, store.ErrOutcomeUnknown) && ctx.Err() == nil {
			tx.end()
		}
		return err
	}
	out.Repeats = append(out.Repeats, tx.echoes...)
	tx.out = out
	tx.end()
	if out.Status == store.StatusHeld {
		return &store.HeldError{Batch: tx.id.String(), Trace: tx.trace, Reason: out.Reason, Note: b.Leaf.Note, Stale: out.Stale}
	}
	return nil
}

// Rollback drops the writes and records that in the manifest. After Commit it is harmless and returns ErrTxnDone, also
// after a Commit that returned ErrOutcomeUnknown and turned out to be applied. While the outcome is unknown Rollback
// drops nothing and returns ErrOutcomeUnknown; a later Commit under the same id, or the manifest, tells the outcome.
func (tx *Txn) Rollback() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done || tx.managed {
		return store.ErrTxnDone
	}
	tx.end()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if tx.maybe {
		switch _, err := tx.s.db.store.Outcome(ctx, tx.id); {
		case err == nil:
			return fmt.Errorf("%w: batch %s was committed, though Commit could not tell", store.ErrTxnDone, tx.id)
		case !errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("%w: batch %s may be committed", store.ErrOutcomeUnknown, tx.id)
		}
	}
	leaf := &manifest.Record{Type: manifest.TypeRollback, Trace: tx.id.String(), Parent: tx.trace, Batch: tx.id.String(), Status: "rolled back"}
	return tx.s.emit(ctx, leaf)
}

// mayCommit refuses a verdict from a gated handle that has an evaluator, and drafts that have come to replace what they
// must not.
func (tx *Txn) mayCommit(ctx context.Context, v Verdict) error {
	if !tx.s.gated {
		return nil
	}
	if e := tx.s.evaluator(); e != nil && v != (Verdict{}) {
		return gatedError("Commit with a verdict by "+v.By, "evaluator "+e.Name()+" judges: commit with Verdict{}")
	}
	for _, id := range tx.putOrder {
		if err := tx.s.mayReplace(ctx, tx.writes[id].Artefact.Supersedes...); err != nil {
			return err
		}
	}
	return nil
}

// Writes that the host vouches for. They pass no gate, and their leaf says "vouched by the host". Update runs a managed
// transaction: it commits when its function returns nil, and runs the function again after a conflict. Put and Delete
// are updates of one artefact.

// Put writes one artefact. It is the trusted path: the host vouches for the artefact, and the commit gate does not
// apply. A gated handle returns ErrGated. For what a model says use Begin or Resume, and Commit.
//
// Putting an ID again makes its next version, with the fields of this put alone: an expiry, subject, tags, metadata or pin
// of the version before are kept only if they are given again. Putting the same content again is a touch and writes nothing, unless it
// supersedes an artefact that was put again since: that artefact is then superseded again. The returned reference names
// the current version.
func (s *Scope) Put(ctx context.Context, a Artefact) (Ref, error) {
	var last *Txn
	reads := a.Source != "" || len(a.DerivedFrom)+len(a.Supersedes) > 0
	err := s.update(ctx, reads, func(tx *Txn) error {
		last = tx
		return tx.Put(ctx, a)
	})
	if err != nil {
		return Ref{}, err
	}
	return last.Outcome().Refs[0], nil
}

// Delete writes a tombstone. It is the host's, like Put. The artefact is not served any more; its older versions stay
// readable by reference until gc drops them.
//
// ErrNotFound when the scope itself has no such artefact: an ancestor's artefact cannot be deleted from below.
func (s *Scope) Delete(ctx context.Context, id string) error {
	var last *Txn
	err := s.Update(ctx, func(tx *Txn) error {
		last = tx
		return tx.Delete(ctx, id)
	})
	if err == nil && len(last.Outcome().Refs) == 0 { // another caller deleted it first
		return fmt.Errorf("%w: %s was deleted meanwhile", store.ErrNotFound, Ref{Scope: s.name, ID: id})
	}
	return err
}

// Update runs fn in a transaction that the host vouches for, and commits it without a gate. If an artefact that fn read
// and wrote has changed meanwhile, Update runs fn again on the new state, up to 10 times, so fn must have no effects
// elsewhere. An error or a panic of fn rolls back.
func (s *Scope) Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error {
	return s.update(ctx, true, fn, opts...)
}

// update is Update. What reads nothing of the store needs no ticket of it, which a client would have to ask for.
func (s *Scope) update(ctx context.Context, reads bool, fn func(tx *Txn) error, opts ...TxnOption) error {
	if err := s.hostOnly("a write without a verdict"); err != nil {
		return err
	}
	for try := 1; ; try++ {
		tx, err := s.vouched(opts...)
		if err != nil {
			return err
		}
		err = tx.run(ctx, reads, fn)
		if !errors.Is(err, store.ErrConflict) || try == updateTries || ctx.Err() != nil {
			return err
		}
	}
}

// updateTries bounds how often Update runs its function while other writers win.
const updateTries = 10

// run calls fn and commits. The ticket is released also when fn panics.
func (tx *Txn) run(ctx context.Context, reads bool, fn func(tx *Txn) error) (err error) {
	if reads {
		if tx.reader, err = tx.s.db.hold(ctx); err != nil {
			return err
		}
	}
	defer tx.end() // also when fn panics
	if err := fn(tx); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.whole(); err != nil {
		return err
	}
	b := tx.batch()
	b.OnStale = store.AllowStale
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, By: tx.by, Note: tx.why, Reason: "vouched by the host"}
	if err := tx.beginSessions(ctx, &b); err != nil {
		return err
	}
	return tx.finish(ctx, b)
}

// beginSessions lists the sessions that begin with turns of this transaction: a message in a group is a turn of the session of that
// name. Whoever lists the session first wins; the other writer's commit conflicts, and Update runs it again.
func (tx *Txn) beginSessions(ctx context.Context, b *store.Batch) error {
	begun := map[string]bool{}
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		if a.Kind != store.KindMessage || a.Role == "" || a.Group == "" || begun[a.Group] {
			continue
		}
		begun[a.Group] = true
		row := conversation.NewSession(tx.s.name, a.Group, tx.s.db.opts.Clock())
		have, err := tx.s.db.store.State(ctx, row.Key)
		if err != nil {
			return err
		}
		if have.Value == nil {
			b.State = append(b.State, row)
			b.ExpectState = append(b.ExpectState, store.StatePre{Key: row.Key, LSN: have.LSN})
		}
	}
	return nil
}
