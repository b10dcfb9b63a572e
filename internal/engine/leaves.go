package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Audit leaves of reads. A read is answered when its leaf is with the operating system, and waits
// for the disk only if it was told to (store.Synced). So a killed process loses no leaf, and a
// power cut the leaves of the last 100 ms.
//
// The Log gives leaves their places among the commits in flight. A leaf of a read may enter the
// tree before the leaf of a commit that began earlier, but always in the order of the log.
//
// A leaf that the log refused is not in the audit, and then the read fails: an answer that cannot
// be audited is not given.

// At tells a test that a step is reached. The test's answer becomes the error of that step.
func (s *Engine) At(step string) error {
	if s.opts.Hook == nil {
		return nil
	}
	return s.opts.Hook(step)
}

// Append implements store.Store: it writes the leaves that a caller may write.
func (s *Engine) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if err := store.CheckLeaves(leaves); err != nil {
		return err
	}
	return s.Note(ctx, leaves, d)
}

// Note writes audit leaves, also those of the database itself. They are with the operating system when it
// returns. They enter the tree when they are durable; readers of the audit wait for the leaves they
// ask for (audit.go).
func (s *Engine) Note(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
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
	own, last, err := s.leave(ctx, leaves, asked)
	if errors.Is(err, ErrLogFull) && len(leaves) == 1 && s.opts.Space.Relieve(ctx) == nil {
		own, last, err = s.leave(ctx, leaves, asked)
	}
	if err != nil {
		return s.opts.Space.NoSpace(err, 0)
	}
	if d != store.Synced {
		err = s.log.Write()
	}
	if d == store.Synced || errors.Is(err, ErrLogClosed) { // Close syncs the log before it closes it
		err = s.log.Sync(ctx, last, nil)
	}
	if err != nil {
		return s.syncError(ctx, err)
	}
	if !s.opts.Repeat { // a log on a server numbers them later
		for i, l := range own {
			leaves[i].Index = l.Index
		}
	}
	return nil
}

// leave puts leaves into the log, each with the row of its question; asked nil: none has one. They
// are encoded before the log is asked for their places, so that no other caller waits for that, and
// hashed when they enter the tree.
func (s *Engine) leave(ctx context.Context, leaves []*manifest.Record, asked [][]byte) (own []*Leaf, last uint64, err error) {
	own = newLeaves(len(leaves))
	for i, leaf := range leaves {
		if own[i].leaf, err = manifest.EncodeLeaf(leaf); err != nil {
			return nil, 0, fmt.Errorf("ctxpage: encode leaf: %w", err)
		}
		if asked != nil {
			own[i].question = asked[i]
		}
	}
	s.seq.inFlight(own, 1)
	last, err = s.log.Leave(ctx, own)
	for i, l := range own {
		if l.Seq == 0 { // it is not in the log
			s.seq.inFlight(own[i:], -1)
			break
		}
	}
	if err != nil {
		err = enqueueError(err)
	}
	return own, last, err
}

// newLeaves makes leaves. One alone, as a read has, takes one piece of memory with its list.
func newLeaves(n int) []*Leaf {
	if n == 1 {
		one := new(struct {
			leaf Leaf
			list [1]*Leaf
		})
		one.list[0] = &one.leaf
		return one.list[:]
	}
	own := make([]*Leaf, n)
	for i := range own {
		own[i] = new(Leaf)
	}
	return own
}
