package conversation

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// Passes of a session: decide, adopt, number, undo. Conversation is changed first and written with the same commit (Writes);
// a commit that fails makes the conversation be read again, so nothing here takes a change back.
//
// 	Decide ─▶ Adopt ─▶ (the window may compact more) ─▶ Number ─▶ commit
// 	                                                              │
// 	Undo ◀── only of the pass in force, or of one whose compacted turns are as it left them (Undoable)
//
// The verdicts of the newest KeptVerdicts passes are kept, so an undo can go back that far.

// history is what a pass needs of the turns.
func (c *Conversation) history() []session.Block {
	out := make([]session.Block, len(c.Blocks))
	for i := range c.Blocks {
		b := &c.Blocks[i]
		out[i] = session.Block{
			ID: b.ID, Turn: max(b.Seq, 0), Tokens: b.Row.Sizes[session.Raw], Hashes: b.Row.Hashes, Role: session.Role(b.Role), Kind: b.Kind.String(),
			Pinned: b.Row.Pinned, Source: b.Row.Hash,
		}
	}
	return out
}

// Decide makes a pass over the session as it is, and changes nothing.
func (c *Conversation) Decide(q session.PassQuery) (session.Result, error) {
	return session.Pass(session.Input{Blocks: c.history(), Intent: q.Intent(), Params: q.Params, Head: q.Head, Last: session.PassKey(c.State.Key)})
}

// Adopt puts new verdicts in force: of the pass that gets the next number. It comes before the number does, so that the
// window the verdicts make can be measured, and made smaller in the same pass.
func (c *Conversation) Adopt(w *Writes, r session.Result, row *PassRow) {
	for i := range r.Verdicts {
		v, b := &r.Verdicts[i], &c.Blocks[i]
		b.Judged, b.Verdict = true, Verdict{v.Action, v.Reason, v.Hits, v.Delta}
	}
	n := c.State.Pass + 1
	c.stored, c.State.InForce, c.State.Key = nil, n, row.Key
	c.Force = *row // which scores are computed with
	c.Changed()
	c.State.Kept = append(c.State.Kept, n)
	for len(c.State.Kept) > KeptVerdicts {
		w.Raw(c.PassKey(VerdictRowKey, c.State.Kept[0]), nil)
		c.State.Kept = c.State.Kept[1:]
	}
	w.Raw(c.PassKey(VerdictRowKey, n), encodeVerdicts(c.Blocks))
}

// Number gives a pass its number and stores its record with the state. Of a pager's pass the record is complete by now and
// in force.
func (c *Conversation) Number(w *Writes, row *PassRow, now time.Time, actor string) {
	c.note(func() { c.State.Pass++ })
	row.Number, row.At, row.Actor = c.State.Pass, codec.Micros(now), actor
	if c.State.Created == 0 {
		c.State.Created = row.At
	}
	if row.Kind == session.PassPager {
		c.Force = *row
	}
	w.Put(c.PassKey(PassRowKey, row.Number), row)
	w.Put(c.Key(SessionRowKey), &c.State)
}

// Result puts the pass in force together again.
func (c *Conversation) Result() (*session.StoredPass, error) {
	p := &c.Force
	if p.Number == 0 {
		return nil, fmt.Errorf("%w: session %s has had no pass, or all were undone", store.ErrNotFound, c.ID)
	}
	out := &session.StoredPass{Number: p.Number, At: codec.FromMicros(p.At), Result: session.Result{
		Key: session.PassKey(p.Key), History: p.History, Intent: p.Intent, Keywords: p.Tokens, Params: p.Params,
	}}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		if !b.Judged {
			continue
		}
		out.Verdicts = append(out.Verdicts, p.Verdict(b.ID, len(out.Verdicts), b.Verdict))
		out.Count[b.Verdict.Action]++
		out.Tokens[b.Verdict.Action] += b.Row.Sizes[session.Raw]
	}
	return out, nil
}

// Undoable reports whether a pass can be taken back: nothing may have changed what it compacted.
func (c *Conversation) Undoable(p *PassRow) error {
	switch {
	case p.Undone:
		return fmt.Errorf("%w: pass %d was undone before", session.ErrUndo, p.Number)
	case p.Kind == session.PassPager && c.State.InForce != p.Number:
		return fmt.Errorf("%w: pass %d is not in force, pass %d is", session.ErrUndo, p.Number, c.State.InForce)
	}
	for _, it := range p.Items {
		if i := c.Find(it.ID); i < 0 || c.Blocks[i].Row.Level != it.To || c.Blocks[i].Row.Because != it.Because {
			return fmt.Errorf("%w: pass %d, turn %q", session.ErrUndo, p.Number, it.ID)
		}
	}
	return nil
}

// Undo takes a pass back that is undoable. Where the window has no room for what comes back the error is a
// *session.HeadroomError, and the units that the pass compacted are as they were; verdicts are not (Reinstate).
func (c *Conversation) Undo(w *Writes, p *PassRow) error {
	was := c.rowsOf(p.Items)
	for _, it := range p.Items {
		i := c.Find(it.ID)
		c.SetRow(w, i, func(r *TurnRow) { r.Level, r.Because = it.From, it.FromBecause })
		if it.Unpinned {
			c.yield(w, c.Blocks[i].Unit, false)
		}
	}
	if err := c.Fits(); err != nil {
		c.putBack(was)
		return err
	}
	p.Undone = true
	w.Put(c.PassKey(PassRowKey, p.Number), p)
	w.Put(c.Key(SessionRowKey), &c.State)
	return nil
}

// rowsOf returns the rows of all turns of the units that a pass compacted, by place.
func (c *Conversation) rowsOf(items []PassItem) map[int]*TurnRow {
	out := map[int]*TurnRow{}
	for _, it := range items {
		for _, i := range c.Units[c.Blocks[c.Find(it.ID)].Unit].Members {
			out[i] = c.Blocks[i].Row
		}
	}
	return out
}

// putBack takes changes of rows back that are in no batch.
func (c *Conversation) putBack(rows map[int]*TurnRow) {
	for _, i := range slices.Sorted(maps.Keys(rows)) {
		b := &c.Blocks[i]
		c.Recount(b.Unit, func() { b.Row = rows[i] })
		c.Rows[b.ID] = b.Row
	}
}

// Reinstate puts the verdicts of an older pass in force in place of those of p, by first page number.
func (c *Conversation) Reinstate(w *Writes, p *PassRow, force PassRow, verdicts map[uint64]Verdict) {
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.Verdict, b.Judged = verdicts[b.Nums[0]]
	}
	c.stored, c.Force = nil, force
	c.State.InForce, c.State.Key = p.Previous, force.Key
	c.Changed()
	w.Raw(c.PassKey(VerdictRowKey, p.Number), nil) // nobody comes back to them: they must not push out those of others
	c.State.Kept = slices.DeleteFunc(slices.Clone(c.State.Kept), func(n uint64) bool { return n == p.Number })
}

// Intent is what the pass in force was about.
func (c *Conversation) Intent() (ir session.IntentIR, err error) {
	if len(c.Force.IR) > 0 {
		return session.ParseIntentIR(c.Force.IR)
	}
	if len(c.Force.Keywords) > 0 {
		words := make([]any, len(c.Force.Keywords))
		for i, w := range c.Force.Keywords {
			words[i] = w
		}
		ir.Slots = map[string]any{"keywords": words}
	}
	return ir, nil
}

// WindowItem describes a turn to a handoff, but for its title, which its text has.
func (c *Conversation) WindowItem(i int) session.WindowItem {
	b := &c.Blocks[i]
	actions := [session.Levels]session.Action{session.Stub: session.Page, session.Cold: session.Evict}
	return session.WindowItem{
		Ref: store.Ref{Scope: c.Scope, ID: b.ID, Version: b.Version}.String(), Digest: hex.EncodeToString(b.digest[:6]), Tokens: b.Row.Sizes[session.Raw],
		Action: actions[c.Shown(i)], Pinned: b.Row.Pinned, Why: c.Why(i),
	}
}

// WithoutIntent returns the record of a pass without the words that it was made for: they are those of a turn.
func WithoutIntent(row []byte) ([]byte, error) {
	var p PassRow
	if err := codec.Unpack(row, &p); err != nil {
		return nil, err
	}
	p.Keywords, p.IR = nil, nil
	return msgpack.Marshal(&p)
}
