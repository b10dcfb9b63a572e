package live

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A pass of the pager, from decision to store:
//
//	Decide ─▶ repeated: the pass in force decides the same; nothing is written
//	   └────▶ new verdicts ─▶ Adopt (memory) ─▶ Relieve (backstop) ─▶ Number ─▶ Commit
//
// Invariant: State.InForce names the pass whose verdicts hold, 0 before the first. Every row of a pass names the pass that
// was in force before it, so undoing a pass puts that one back in force. Verdicts of old passes are dropped
// (talk.KeptVerdicts); undoing a pass that followed one of them gives ErrGone.

// Pass decides on the turns of the session and puts the verdicts in force. The caller holds the lock.
func (c *Conversation) Pass(ctx context.Context, actor string, q session.PassQuery) (*session.StoredPass, error) {
	if q.Params == (session.Params{}) {
		q.Params = session.RecommendedParams()
	}
	r, err := c.Decide(q)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if q.DryRun {
		return &session.StoredPass{Result: r, At: c.host.Clock()}, nil
	}
	if r.Repeated {
		return &session.StoredPass{Result: r, Number: c.Force.Number, At: codec.FromMicros(c.Force.At)}, nil
	}
	row := conversation.PassRow{
		Kind: session.PassPager, Key: uint64(r.Key), History: r.History, Intent: r.Intent, Keywords: q.Keywords, Tokens: r.Keywords, Params: r.Params,
		Previous: c.State.InForce, Count: r.Count, Sum: r.Tokens,
	}
	if q.IR != nil {
		if row.IR, err = json.Marshal(q.IR); err != nil {
			return nil, fmt.Errorf("%w: intent: %w", store.ErrInvalid, err)
		}
	}
	if err := c.storePass(ctx, actor, r, &row); err != nil {
		return nil, err
	}
	return &session.StoredPass{Result: r, Number: row.Number, At: codec.FromMicros(row.At)}, nil
}

// storePass puts new verdicts in force. Memory changes first, so that the resulting window can be measured.
func (c *Conversation) storePass(ctx context.Context, actor string, r session.Result, row *conversation.PassRow) (err error) {
	defer func() {
		if err != nil {
			c.loaded = false
		}
	}()
	w := c.Begin()
	c.Adopt(w, r, row)
	if row.Items, err = c.Relieve(ctx, w); err != nil {
		return err
	}
	c.Number(w, row, c.host.Clock(), actor)
	return c.Commit(ctx, actor, w, manifest.Record{
		Type: manifest.TypePass, Reason: "vouched by the host",
		Action: fmt.Sprintf("pass %d: retain %d, page %d, evict %d", row.Number, r.Count[session.Retain], r.Count[session.Page], r.Count[session.Evict]),
	})
}

// UndoPass undoes pass n. The caller holds the lock.
func (c *Conversation) UndoPass(ctx context.Context, actor string, n uint64) (info session.PassInfo, err error) {
	p, err := c.ToUndo(ctx, n)
	if err != nil { // memory is unchanged: a refusal costs nothing
		return info, err
	}
	w := c.Begin()
	if p.Kind == session.PassPager {
		force, verdicts, err := c.loadForce(ctx, p.Previous)
		if err != nil {
			return info, err
		}
		c.Reinstate(w, &p, force, verdicts)
	}
	if err := c.Undo(w, &p); err != nil {
		c.loaded = c.loaded && p.Kind != session.PassPager // only Reinstate has changed memory so far
		return info, err
	}
	if err := c.undone(ctx, w, p.Number); err != nil {
		c.loaded = false
		return info, err
	}
	leaf := manifest.Record{Type: manifest.TypePass, Action: fmt.Sprintf("undo pass %d", p.Number), Reason: "vouched by the host"}
	return p.Info(), c.Commit(ctx, actor, w, leaf)
}

// ToUndo loads pass n if it can be undone; 0: the newest that was not undone.
func (c *Conversation) ToUndo(ctx context.Context, n uint64) (p conversation.PassRow, err error) {
	newest := n == 0
	if newest {
		n = c.State.Pass
	}
	for ; n > 0; n-- {
		if p, err = c.loadPass(ctx, n); err != nil || !newest || !p.Undone {
			break
		}
	}
	switch {
	case err != nil:
		return p, err
	case n == 0:
		return p, fmt.Errorf("%w: session %s has no pass to undo", store.ErrNotFound, c.ID)
	}
	return p, c.Undoable(&p)
}

// loadForce reads a pass that is to be in force, and its verdicts; 0: none.
func (c *Conversation) loadForce(ctx context.Context, n uint64) (p conversation.PassRow, verdicts map[uint64]conversation.Verdict, err error) {
	if verdicts, err = c.loadVerdicts(ctx, n); err == nil && n != 0 {
		p, err = c.loadPass(ctx, n)
	}
	return p, verdicts, err
}

func (c *Conversation) loadVerdicts(ctx context.Context, pass uint64) (map[uint64]conversation.Verdict, error) {
	if pass == 0 {
		return map[uint64]conversation.Verdict{}, nil
	}
	row, err := c.host.Store.State(ctx, c.PassKey(conversation.VerdictRowKey, pass))
	if err != nil {
		return nil, err
	}
	if row.Value == nil {
		return nil, fmt.Errorf("%w: verdicts of pass %d of session %s", store.ErrGone, pass, c.ID)
	}
	out, err := conversation.DecodeVerdicts(row.Value)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: verdicts of pass %d of session %s: %w", pass, c.ID, err)
	}
	return out, nil
}

func (c *Conversation) loadPass(ctx context.Context, n uint64) (p conversation.PassRow, err error) {
	row, err := c.host.Store.State(ctx, c.PassKey(conversation.PassRowKey, n))
	if err != nil {
		return p, err
	}
	if row.Value == nil {
		if n <= c.State.Pass {
			return p, fmt.Errorf("%w: gc dropped pass %d of session %s", store.ErrGone, n, c.ID)
		}
		return p, fmt.Errorf("%w: session %s has no pass %d", store.ErrNotFound, c.ID, n)
	}
	return p, codec.Unpack(row.Value, &p)
}
