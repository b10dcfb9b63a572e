package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Audit leaves of reads. A read is answered after its leaf is with the operating system, and does not wait for the disk
// unless it was told to (store.Synced): a killed process loses none, a power cut the last 100 ms. The Log gives leaves
// their places among the commits in flight, so a leaf of a read may be in the tree before that of a commit that began
// earlier, never in another order than that of the log.

// At tells a test that a step is reached. What the test answers is an error of that step.
func (s *Engine) At(step string) error {
	if s.opts.Hook == nil {
		return nil
	}
	return s.opts.Hook(step)
}

// Append writes audit leaves. They are handed to the operating system before it returns. They enter the tree when they
// are durable; the audit's readers wait for those that they ask for (audit.go).
func (s *Engine) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if s.opts.ReadOnly && !s.closed.Load() {
		return nil // a read-only database logs nothing, and its answers say so
	}
	if err := s.Writable(); err != nil {
		return err
	}
	asked, err := s.askedRows(leaves)
	if err != nil {
		return err
	}
	last, err := s.leave(ctx, leaves, asked)
	if errors.Is(err, ErrLogFull) && len(leaves) == 1 && s.opts.Space.Relieve(ctx) == nil {
		last, err = s.leave(ctx, leaves, asked)
	}
	if err != nil {
		return err
	}
	if d != store.Synced {
		err = s.log.Write()
	}
	if d == store.Synced || errors.Is(err, ErrLogClosed) { // Close syncs what is in the log before it closes it
		err = s.log.Sync(ctx, last, nil)
	}
	if err != nil {
		return s.syncError(ctx, err)
	}
	return nil
}

// leave puts leaves into the log, each with the row of its question; asked nil: none has one. They are encoded and hashed
// before anybody waits for their places.
func (s *Engine) leave(ctx context.Context, leaves []*manifest.Record, asked [][]byte) (last uint64, err error) {
	own := make([]*Leaf, len(leaves))
	for i, leaf := range leaves {
		made, err := manifest.NewLeaf(leaf)
		if err != nil {
			return 0, fmt.Errorf("ctxpage: encode leaf: %w", err)
		}
		own[i] = &Leaf{leaf: made, trace: leaf.Trace, parent: leaf.Parent}
		if asked != nil {
			own[i].question = asked[i]
		}
	}
	s.seq.inFlight(own, 1)
	last, err = s.log.Leave(ctx, own)
	for i, l := range own {
		if l.Seq == 0 { // the log has it not
			s.seq.inFlight(own[i:], -1)
			break
		}
		leaves[i].Index = l.Index
	}
	if err != nil {
		err = enqueueError(err)
	}
	return last, err
}
