package ctxpage

import (
	"context"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Passes, pins and recalls of a session. A pass decides which turns stay whole, become stubs or leave the window; a pin
// overrides it for one turn; a recall reads a turn without changing the window. Each is one transaction under the lock
// of the session (internal/live), and every decision can be undone: a level is a view, and the texts stay stored.

// Pass decides which turns stay whole, which become stubs and which leave the window, in one transaction. It reads
// metadata only. With the history, intent and parameters of the pass in force it returns that pass's verdicts and
// writes nothing. If SetWindow was called and the verdicts would overfill the window, the same transaction compacts it;
// ErrHeadroom when that is not enough, and then nothing changes.
func (c *Session) Pass(ctx context.Context, q session.PassQuery) (*session.StoredPass, error) {
	if !q.DryRun {
		if err := c.s.hostOnly("Session.Pass"); err != nil {
			return nil, err
		}
	}
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	var out *session.StoredPass
	err = conv.Exclusively(ctx, func() error {
		out, err = conv.Pass(ctx, c.s.actor, q)
		return err
	})
	return out, err
}

// InForce returns the pass whose verdicts hold, built from what is stored. ErrNotFound before the first pass.
func (c *Session) InForce(ctx context.Context) (*session.StoredPass, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	var out *session.StoredPass
	err = conv.Exclusively(ctx, func() error {
		out, err = conv.Result()
		return err
	})
	return out, err
}

// Explain says in plain words why the window shows a turn as it does.
func (c *Session) Explain(ctx context.Context, id string) (string, error) {
	conv, err := c.conversation()
	if err != nil {
		return "", err
	}
	var out []string
	err = conv.Exclusively(ctx, func() error {
		i, err := conv.Place(id)
		if err != nil {
			return err
		}
		out = conv.Explain(i)
		return nil
	})
	return strings.Join(out, "\n"), err
}

// Recall reads a turn in full, whatever the window shows of it. The manifest records the read under the session. It
// does not bring the turn back into the window; Pin does.
func (c *Session) Recall(ctx context.Context, id string) (*Version, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	compacted := false
	err = conv.Exclusively(ctx, func() error {
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
	if w := conv.Watcher(); w != nil && compacted {
		w.Expanded()
	}
	return v, c.s.emitRead(ctx, leaf)
}

// Pin shows a turn whole, with its calls and results, whatever a pass or the watcher decides, until Unpin. ErrHeadroom
// when the window cannot take it. A pin gives way to a newest turn that has no room beside it, and comes back later
// (Append); session.WindowTurn.Why says so meanwhile.
func (c *Session) Pin(ctx context.Context, id string) error { return c.pin(ctx, id, true) }

// Unpin removes a pin.
func (c *Session) Unpin(ctx context.Context, id string) error { return c.pin(ctx, id, false) }

// pin sets or clears the pin of a turn. A pin that gave way (Yielded) counts as unset, so pinning again brings it back.
func (c *Session) pin(ctx context.Context, id string, on bool) error {
	conv, err := c.hostConversation("Pin")
	if err != nil {
		return err
	}
	action := map[bool]string{true: "pin", false: "unpin"}[on]
	return conv.Change(ctx, c.s.actor, manifest.Record{Type: manifest.TypeCommit, Action: action, Reason: "vouched by the host"}, func(w *conversation.Writes, leaf *manifest.Record) error {
		i, err := conv.Place(id)
		if err != nil {
			return err
		}
		if row := conv.Blocks[i].Row; row.Pinned == on && !row.Yielded {
			return nil
		}
		leaf.Note = Ref{Scope: conv.Scope, ID: id}.String()
		conv.SetRow(w, i, func(r *conversation.TurnRow) { r.Pinned, r.Yielded = on, false })
		return nil
	})
}

// Passes lists all passes of the session, oldest first: those of the pager, the watcher and the backstop.
func (c *Session) Passes(ctx context.Context) ([]session.PassInfo, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	out := []session.PassInfo{}
	err = staterows.Walk(ctx, c.s.db.store, conv.Key(conversation.PassRowKey)+"\x00", func(r store.StateRow) error {
		var p conversation.PassRow
		if err := codec.Unpack(r.Value, &p); err != nil {
			return fmt.Errorf("ctxpage: pass of session %s: %w", c.id, err)
		}
		out = append(out, p.Info())
		return nil
	})
	return out, err
}

// Undo undoes a pass; 0: the newest that was not undone. The window then shows what it showed before, byte for byte and
// in order. A pager's pass can be undone while its verdicts are in force; the verdicts of the pass before it are then
// in force again. A watcher's pass can be undone while nothing has changed what it compacted. Otherwise the error is
// session.ErrUndo.
//
// ErrGone when the verdicts of the pass before are no longer kept; ErrHeadroom when the window has no room for what
// would come back.
func (c *Session) Undo(ctx context.Context, pass uint64) (session.PassInfo, error) {
	conv, err := c.hostConversation("Undo")
	if err != nil {
		return session.PassInfo{}, err
	}
	var info session.PassInfo
	err = conv.Exclusively(ctx, func() error {
		if pass == 0 { // a second attempt must not undo another pass
			p, err := conv.ToUndo(ctx, 0)
			if err != nil {
				return err
			}
			pass = p.Number
		}
		info, err = conv.UndoPass(ctx, c.s.actor, pass)
		return err
	})
	return info, err
}
