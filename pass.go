package ctxpage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Pass decides which turns stay whole, which become stubs and which leave the window, in one transaction. It reads
// metadata only. The same history, intent and parameters as of the pass in force give its verdicts again and write
// nothing. Where SetWindow was called and the verdicts would overfill the window, the same transaction compacts it;
// ErrHeadroom when that is not enough, and then nothing changes.
func (c *Session) Pass(ctx context.Context, q session.PassQuery) (*session.StoredPass, error) {
	if !q.DryRun {
		if err := c.s.hostOnly("Session.Pass"); err != nil {
			return nil, err
		}
	}
	conv, err := c.talk()
	if err != nil {
		return nil, err
	}
	var out *session.StoredPass
	err = conv.exclusively(ctx, func() error {
		out, err = conv.pass(ctx, c.s, q)
		return err
	})
	if err == nil && out.Number != 0 && !out.Repeated {
		conv.wake()
	}
	return out, err
}

func (c *conversation) pass(ctx context.Context, s *Scope, q session.PassQuery) (*session.StoredPass, error) {
	if q.Params == (session.Params{}) {
		q.Params = session.RecommendedParams()
	}
	r, err := c.Decide(q)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if q.DryRun {
		return &session.StoredPass{Result: r, At: c.db.opts.Clock()}, nil
	}
	if r.Repeated {
		return &session.StoredPass{Result: r, Number: c.Force.Number, At: codec.FromMicros(c.Force.At)}, nil
	}
	row := talk.PassRow{
		Kind: session.PassPager, Key: uint64(r.Key), History: r.History, Intent: r.Intent, Keywords: q.Keywords, Tokens: r.Keywords, Params: r.Params,
		Previous: c.State.InForce, Count: r.Count, Sum: r.Tokens,
	}
	if q.IR != nil {
		if row.IR, err = json.Marshal(q.IR); err != nil {
			return nil, fmt.Errorf("%w: intent: %w", ErrInvalid, err)
		}
	}
	if err := c.storePass(ctx, s, r, &row); err != nil {
		return nil, err
	}
	return &session.StoredPass{Result: r, Number: row.Number, At: codec.FromMicros(row.At)}, nil
}

// storePass puts new verdicts in force. Memory changes first, so that the window they make can be measured.
func (c *conversation) storePass(ctx context.Context, s *Scope, r session.Result, row *talk.PassRow) (err error) {
	defer func() {
		if err != nil {
			c.loaded = false
		}
	}()
	w := c.Begin()
	c.Adopt(w, r, row)
	if row.Items, err = c.relieve(ctx, w); err != nil {
		return err
	}
	c.Number(w, row, s.db.opts.Clock(), s.actor)
	return c.commit(ctx, s, w, manifest.Record{
		Type: manifest.TypePass, Reason: "vouched by the host",
		Action: fmt.Sprintf("pass %d: retain %d, page %d, evict %d", row.Number, r.Count[session.Retain], r.Count[session.Page], r.Count[session.Evict]),
	})
}

// InForce gives the pass whose verdicts hold, put together from what is stored. ErrNotFound before the first.
func (c *Session) InForce(ctx context.Context) (*session.StoredPass, error) {
	conv, err := c.talk()
	if err != nil {
		return nil, err
	}
	var out *session.StoredPass
	err = conv.exclusively(ctx, func() error {
		out, err = conv.Result()
		return err
	})
	return out, err
}

// Explain says in plain words why a turn stands in the window as it does.
func (c *Session) Explain(ctx context.Context, id string) (string, error) {
	conv, err := c.talk()
	if err != nil {
		return "", err
	}
	var out []string
	err = conv.exclusively(ctx, func() error {
		i, err := conv.Place(id)
		if err != nil {
			return err
		}
		out = conv.Explain(i)
		return nil
	})
	return strings.Join(out, "\n"), err
}

// Recall reads a turn in full, whatever the window shows of it: what left the window is one call away. The read is in
// the manifest under the session. It does not bring the turn back into the window; Pin does.
func (c *Session) Recall(ctx context.Context, id string) (*Version, error) {
	conv, err := c.talk()
	if err != nil {
		return nil, err
	}
	compacted := false
	err = conv.exclusively(ctx, func() error {
		i, err := conv.Place(id)
		if err != nil {
			return err
		}
		l := conv.Shown(i)
		compacted = l != session.Raw
		if conv.Reads[id] = conv.Turn(); l != session.Cold {
			conv.Recount(conv.Blocks[i].Unit, func() {}) // when it was read is part of its section
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v, leaf, err := c.s.read(ctx, Ref{Scope: c.s.name, ID: id}, readOptions{})
	if err != nil {
		return nil, err
	}
	leaf.Type, leaf.Session = manifest.TypeRecall, c.id
	if w := conv.watch.Load(); w != nil && compacted {
		w.expanded(ctx)
	}
	return v, c.s.emit(ctx, leaf)
}

// Pin shows a turn whole, with the calls and results it goes with, whatever a pass or the watcher says, until it is
// unpinned. ErrHeadroom when the window cannot take it. A pin gives way to a newest turn that has no room beside it, and
// comes back (Append); session.WindowTurn.Why says so meanwhile.
func (c *Session) Pin(ctx context.Context, id string) error { return c.pin(ctx, id, true) }

// Unpin takes a pin back.
func (c *Session) Unpin(ctx context.Context, id string) error { return c.pin(ctx, id, false) }

func (c *Session) pin(ctx context.Context, id string, on bool) error {
	conv, err := c.hostTalk("Pin")
	if err != nil {
		return err
	}
	action := map[bool]string{true: "pin", false: "unpin"}[on]
	return conv.change(ctx, c.s, manifest.Record{Type: manifest.TypeCommit, Action: action, Reason: "vouched by the host"}, func(w *talk.Writes, leaf *manifest.Record) error {
		i, err := conv.Place(id)
		if err != nil {
			return err
		}
		if row := conv.Blocks[i].Row; row.Pinned == on && !row.Yielded {
			return nil
		}
		leaf.Note = Ref{Scope: conv.Scope, ID: id}.String()
		conv.SetRow(w, i, func(r *talk.TurnRow) { r.Pinned, r.Yielded = on, false })
		return nil
	})
}

// change carries out a change that may make the window larger: what it adds is made room for in the same transaction.
// Without a row to write nothing is committed.
func (c *conversation) change(ctx context.Context, s *Scope, leaf manifest.Record, fn func(*talk.Writes, *manifest.Record) error) error {
	err := c.exclusively(ctx, func() (err error) {
		w := c.Begin()
		before := w.Sets
		defer func() {
			if err != nil {
				c.loaded = false
			}
		}()
		if err := fn(w, &leaf); err != nil || w.Sets == before {
			return err
		}
		items, err := c.relieve(ctx, w)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			row := talk.PassRow{Kind: session.PassBackstop, Items: items}
			c.Number(w, &row, s.db.opts.Clock(), s.actor)
		}
		return c.commit(ctx, s, w, leaf)
	})
	if err == nil {
		c.wake()
	}
	return err
}

// Passes lists the passes of the session of all kinds, oldest first.
func (c *Session) Passes(ctx context.Context) ([]session.PassInfo, error) {
	conv, err := c.talk()
	if err != nil {
		return nil, err
	}
	out := []session.PassInfo{}
	err = c.s.db.scanState(ctx, conv.Key(talk.PassRowKey)+"\x00", func(r store.StateRow) error {
		var p talk.PassRow
		if err := codec.Unpack(r.Value, &p); err != nil {
			return fmt.Errorf("ctxpage: pass of session %s: %w", c.id, err)
		}
		out = append(out, p.Info())
		return nil
	})
	return out, err
}

// Undo takes a pass back, 0: the newest that was not undone. The window shows again what it showed before, byte for
// byte and in order. A pager's pass can be undone while its verdicts are in force, and the verdicts of the one before
// are then; a watcher's while nothing changed what it compacted: else session.ErrUndo. ErrGone when the verdicts of
// the pass before are not kept any more, ErrHeadroom when the window has no room for what would come back.
func (c *Session) Undo(ctx context.Context, pass uint64) (session.PassInfo, error) {
	conv, err := c.hostTalk("Undo")
	if err != nil {
		return session.PassInfo{}, err
	}
	var info session.PassInfo
	err = conv.exclusively(ctx, func() error {
		if pass == 0 { // another attempt must not take back another pass
			p, err := conv.undoable(ctx, 0)
			if err != nil {
				return err
			}
			pass = p.Number
		}
		info, err = conv.undo(ctx, c.s, pass)
		return err
	})
	if w := conv.watch.Load(); w != nil && err == nil {
		err = w.undone(context.WithoutCancel(ctx), info.Number) // it is undone, also when the context has ended
	}
	return info, err
}

func (c *conversation) undo(ctx context.Context, s *Scope, n uint64) (info session.PassInfo, err error) {
	p, err := c.undoable(ctx, n)
	if err != nil { // before anything is changed: a refusal costs nothing
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
		c.loaded = c.loaded && p.Kind != session.PassPager // else what is in memory is what is stored
		return info, err
	}
	leaf := manifest.Record{Type: manifest.TypePass, Action: fmt.Sprintf("undo pass %d", p.Number), Reason: "vouched by the host"}
	return p.Info(), c.commit(ctx, s, w, leaf)
}

// undoable finds the pass to undo, 0: the newest that was not undone.
func (c *conversation) undoable(ctx context.Context, n uint64) (p talk.PassRow, err error) {
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
		return p, fmt.Errorf("%w: session %s has no pass to undo", ErrNotFound, c.ID)
	}
	return p, c.Undoable(&p)
}
