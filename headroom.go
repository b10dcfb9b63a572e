package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
)

// The size of a window is state of the session: every process keeps it. SetWindow changes the limit, Observe the
// estimate of what turns cost. Both may leave the window above its limit, so both compact it in the same transaction.
// Observe keeps an observation even when that is not enough, because it is true.

// SetWindow sets the window of the session in tokens, and how it is kept, for every handle and process from now on: no
// commit leaves more than its usable part in the window. A zero Total removes the limit. If the window is above the new
// limit, the same transaction compacts it; ErrHeadroom when that is not enough, and then nothing changes.
func (c *Session) SetWindow(ctx context.Context, cfg session.Config) error {
	conv, err := c.hostConversation("SetWindow")
	if err != nil {
		return err
	}
	if cfg.Total != 0 {
		if err := cfg.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	leaf := manifest.Record{Type: manifest.TypeCommit, Action: "window", Note: fmt.Sprintf("total %d", cfg.Total), Reason: "vouched by the host"}
	return conv.Change(ctx, c.s.actor, leaf, func(w *conversation.Writes, _ *manifest.Record) error {
		if conv.State.Config = &cfg; cfg.Total == 0 {
			conv.State.Config = nil
		}
		conv.Changed()
		if conv.State.Created == 0 {
			conv.State.Created = codec.Micros(c.s.db.opts.Clock())
		}
		w.Put(conv.Key(conversation.SessionRowKey), &conv.State)
		return nil
	})
}

// Observe tells the session what a provider counted where the database had estimated. Turns are then budgeted by it,
// never below the estimate. ErrHeadroom when the turns exceed the window by the new count; the observation is kept all
// the same.
func (c *Session) Observe(ctx context.Context, estimated, actual int) error {
	conv, err := c.hostConversation("Observe")
	if err != nil {
		return err
	}
	return conv.Exclusively(ctx, func() error {
		conv.Cal = conv.Cal.Observe(estimated, actual)
		conv.State.Ratio = int64(conv.Cal.Ratio())
		conv.Changed()
		w := conv.Begin()
		items, tooFull := conv.Relieve(ctx, w)
		if tooFull != nil && !errors.Is(tooFull, ErrHeadroom) {
			conv.Discard()
			return tooFull
		}
		if len(items) > 0 {
			conv.Number(w, &conversation.PassRow{Kind: session.PassBackstop, Items: items}, c.s.db.opts.Clock(), c.s.actor)
		}
		w.Put(conv.Key(conversation.SessionRowKey), &conv.State)
		leaf := manifest.Record{Type: manifest.TypeCommit, Action: "calibrate", Note: fmt.Sprintf("estimated %d, actual %d", estimated, actual), Reason: "vouched by the host"}
		return errors.Join(conv.Commit(ctx, c.s.actor, w, leaf), tooFull)
	})
}
