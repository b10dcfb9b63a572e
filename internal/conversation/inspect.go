package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// What a host asks of a conversation and changes in it besides its turns. Each method takes the lock.

const vouched = "vouched by the host"

// Inspect describes the session as it stands, and explains the turns that are named.
func (c *Conversation) Inspect(ctx context.Context, ids ...string) (*session.Inspection, error) {
	out := &session.Inspection{Window: session.Window{Session: c.ID, Turns: []session.WindowTurn{}}}
	err := c.Exclusively(ctx, func() (err error) {
		w := &out.Window
		w.LSN, w.Pass, w.InForce, w.Tokens, w.Stored, w.Limits = c.LSN, c.State.Pass, c.State.InForce, 0, 0, nil
		if c.State.limited() {
			t := c.State.Config.Thresholds()
			w.Limits = &t
		}
		w.Turns = make([]session.WindowTurn, 0, len(c.Blocks))
		for i := range c.Blocks {
			t := c.WindowTurn(i)
			w.Turns = append(w.Turns, t)
			w.Tokens += t.Tokens
			w.Stored += t.Stored
		}
		out.Turn = make(map[string]string, len(ids))
		for _, id := range ids {
			i, err := c.Place(id)
			if err != nil {
				return err
			}
			out.Turn[id] = strings.Join(c.Explain(i), "\n")
		}
		out.Force = c.InForce()
		out.Notes, err = c.Notes(ctx)
		return err
	})
	return out, err
}

// Notes reads the notes that were recorded last. It needs no lock.
func (c *Conversation) Notes(ctx context.Context) (n session.Notes, err error) {
	row, err := c.host.Store.State(ctx, c.Key(NoteRowKey))
	if err != nil || row.Value == nil {
		return n, err
	}
	return n, json.Unmarshal(row.Value, &n)
}

// Record replaces the notes.
func (c *Conversation) Record(ctx context.Context, actor string, n session.Notes) error {
	raw, err := json.Marshal(&n)
	if err != nil {
		return fmt.Errorf("%w: notes: %w", store.ErrInvalid, err)
	}
	if len(raw) > store.MaxMeta {
		return store.Invalid("notes", fmt.Sprintf("%d bytes", len(raw)), fmt.Sprintf("at most %d", store.MaxMeta))
	}
	return c.Exclusively(ctx, func() error {
		w := c.Begin()
		w.Raw(c.Key(NoteRowKey), raw)
		return c.Commit(ctx, actor, w, manifest.Record{Type: manifest.TypeCommit, Action: "notes", Reason: vouched})
	})
}

// SetWindow changes the limits of the window, and compacts it if it is above them; a zero Total removes them. On an error
// nothing changes.
func (c *Conversation) SetWindow(ctx context.Context, actor string, cfg session.Config) error {
	if cfg.Total != 0 {
		if err := cfg.Validate(); err != nil {
			return fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
	}
	leaf := manifest.Record{Type: manifest.TypeCommit, Action: "window", Note: fmt.Sprintf("total %d", cfg.Total), Reason: vouched}
	return c.change(ctx, actor, leaf, func(w *Writes, _ *manifest.Record) error {
		if c.State.Config = cfg; cfg.Total == 0 {
			c.State.Config = session.Config{}
		}
		c.Changed()
		if c.State.Created == 0 {
			c.State.Created = codec.Micros(c.host.Clock())
		}
		c.StoreState(w)
		return nil
	})
}

// Observe corrects the estimates of token counts. It keeps an observation even if the window stays above its limit, because
// it is true; the error then matches ErrHeadroom.
func (c *Conversation) Observe(ctx context.Context, actor string, estimated, actual int) error {
	return c.Exclusively(ctx, func() error {
		c.Cal = c.Cal.Observe(estimated, actual)
		c.State.Ratio = int64(c.Cal.Ratio())
		c.Changed()
		w := c.Begin()
		items, tooFull := c.Relieve(ctx, w)
		if tooFull != nil && !errors.Is(tooFull, session.ErrHeadroom) {
			c.Discard()
			return tooFull
		}
		c.Number(w, &PassRow{Kind: session.PassBackstop, Items: items}, actor)
		c.StoreState(w)
		leaf := manifest.Record{Type: manifest.TypeCommit, Action: "calibrate", Note: fmt.Sprintf("estimated %d, actual %d", estimated, actual), Reason: vouched}
		return errors.Join(c.Commit(ctx, actor, w, leaf), tooFull)
	})
}

// Pin sets or clears the pin of a turn. A pin that gave way (Yielded) counts as unset, so pinning again brings it back.
func (c *Conversation) Pin(ctx context.Context, actor, id string, on bool) error {
	leaf := manifest.Record{Type: manifest.TypeCommit, Action: map[bool]string{true: "pin", false: "unpin"}[on], Reason: vouched}
	return c.change(ctx, actor, leaf, func(w *Writes, leaf *manifest.Record) error {
		i, err := c.Place(id)
		if err != nil {
			return err
		}
		if row := c.Blocks[i].Row; row.Pinned == on && !row.Yielded {
			return nil
		}
		leaf.Note = store.Ref{Scope: c.Scope, ID: c.Blocks[i].ID}.String()
		c.SetRow(w, i, func(r *TurnRow) { r.Pinned, r.Yielded = on, false })
		return nil
	})
}

// Recalled notes that a turn is read. It reports whether the window shows less than all of it.
func (c *Conversation) Recalled(ctx context.Context, id string) (compacted bool, err error) {
	err = c.Exclusively(ctx, func() error {
		i, err := c.Place(id)
		if err != nil {
			return err
		}
		l := c.Shown(i)
		compacted = l != session.Raw
		if c.Reads[c.Blocks[i].ID] = c.Turn(); l != session.Cold {
			c.Recount(c.Blocks[i].Unit, func() {}) // when it was read is part of its section
		}
		return nil
	})
	return compacted, err
}

// Undo undoes pass n; 0: the newest that was not undone.
func (c *Conversation) Undo(ctx context.Context, actor string, n uint64) (info session.PassInfo, err error) {
	err = c.Exclusively(ctx, func() error {
		if n == 0 { // a second attempt must not undo another pass
			p, err := c.toUndo(ctx, 0)
			if err != nil {
				return err
			}
			n = p.Number
		}
		info, err = c.undo(ctx, actor, n)
		return err
	})
	return info, err
}

// Located returns at most limit turns from a sequence number on, without those that expired before now (microseconds).
func (c *Conversation) Located(ctx context.Context, from int64, limit int, now int64) (list []store.Located, err error) {
	err = c.Exclusively(ctx, func() error {
		list = nil
		for i := range c.Blocks {
			b := &c.Blocks[i]
			if b.Seq < from || len(list) == limit || b.Expired(now) {
				continue
			}
			l := store.Located{Scope: c.Scope, Version: b.Version}
			for _, n := range b.Nums {
				l.Pages = append(l.Pages, store.PageKey{Num: n, Version: b.Version})
			}
			list = append(list, l)
		}
		return nil
	})
	return list, err
}
