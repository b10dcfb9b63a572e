package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Settled is a record of the log up to which every commit is installed, so that a checkpoint that begins after it
// covers them all; 0 while a commit is under way.
func (s *Engine) Settled() uint64 {
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	s.Seq.flight.Lock()
	defer s.Seq.flight.Unlock()
	if len(s.Seq.arts)+len(s.Seq.ids)+len(s.Seq.queue) > 0 {
		return 0
	}
	return s.Log.Last()
}

// At tells a test that a step is reached. What the test answers is an error of that step.
func (s *Engine) At(step string) error {
	if s.opts.Hook == nil {
		return nil
	}
	return s.opts.Hook(step)
}

// DurableLeaves counts the leaves whose records are synced.
func (s *Engine) DurableLeaves() uint64 {
	size, err := s.SyncLeaves(context.Background())
	if err != nil {
		return s.Leaves.Archived()
	}
	return size
}

// SyncLeaves counts the leaves and syncs the log up to the record of the last of them. Count and record are read
// together, before the sync: leaves that other writers append meanwhile are not counted.
func (s *Engine) SyncLeaves(ctx context.Context) (uint64, error) {
	s.Seq.Mu.Lock()
	size, last := s.Leaves.Size(), s.Log.Last()
	s.Seq.Mu.Unlock()
	return size, s.Log.Sync(ctx, last)
}

// Mark writes {synced size, root, frontier} into the log when there are leaves the last mark does not cover.
func (s *Engine) Mark() error {
	if !s.appended.Swap(false) {
		return nil
	}
	size := s.DurableLeaves()
	body, err := s.Leaves.Mark(size)
	if err != nil {
		return err
	}
	s.Seq.Mu.Lock()
	_, err = s.Log.Append(KindMark, true, body)
	s.Seq.Mu.Unlock()
	if err != nil {
		return enqueueError(err)
	}
	return nil
}

// Append writes audit leaves. They are handed to the operating system before it returns.
func (s *Engine) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if s.opts.ReadOnly && !s.Closed.Load() {
		return nil // a read-only database logs nothing, and its answers say so
	}
	if err := s.Writable(); err != nil {
		return err
	}
	asked, err := s.askedRows(leaves)
	if err != nil {
		return err
	}
	last, err := s.appendLeaves(leaves, asked)
	if errors.Is(err, ErrLogFull) && len(leaves) == 1 && s.opts.Space.Relieve(ctx) == nil {
		last, err = s.appendLeaves(leaves, asked)
	}
	if err != nil {
		return err
	}
	if d != store.Synced {
		err = s.Log.Write()
	}
	if d == store.Synced || errors.Is(err, ErrLogClosed) { // Close syncs what is in the log before it closes it
		err = s.Log.Sync(ctx, last)
	}
	if err != nil {
		return s.SyncError(ctx, err)
	}
	return nil
}

func (s *Engine) appendLeaves(leaves []*manifest.Record, asked [][]byte) (last uint64, err error) {
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	if err := s.Writable(); err != nil { // again: Close waits for those who are in here, and for nobody else
		return 0, err
	}
	err = s.appendLocked(leaves, asked)
	return s.Log.Last(), err
}

// appendLocked puts leaves into the log's buffer, each with the row of its question; asked nil: none has one. The caller
// holds the sequencer.
func (s *Engine) appendLocked(leaves []*manifest.Record, asked [][]byte) error {
	first := s.Leaves.Size()
	for i, leaf := range leaves {
		body, err := manifest.Encode(leaf)
		if err != nil {
			return fmt.Errorf("ctxpage: encode leaf: %w", err)
		}
		index := first + uint64(i)
		var question []byte
		if asked != nil {
			question = asked[i]
		}
		if err := s.enqueueLeaf(index, body, question); err != nil {
			return enqueueError(err)
		}
		if err := s.Leaves.AddNew(index, body, leaf); err != nil {
			return s.Fail(err)
		}
		leaf.Index = index
		if question != nil {
			s.Catalogue.Mu.Lock()
			s.addQuestion(index, question)
			s.CountUnflushed()
			s.Catalogue.Mu.Unlock()
		}
	}
	s.appended.Store(true)
	return nil
}

// readReserve is how many bytes of leaves may go into the log's reserve on a full disk: a quarter of it, so that reads go
// on for a while and deletes and a clean end always find the rest. After that reads fail: they cannot be audited.
const readReserve = 64 << 10

func (s *Engine) enqueueLeaf(index uint64, body, question []byte) error {
	head := auditBody(index, question)
	_, err := s.Log.Append(KindLeaf, false, head, body)
	switch size := len(head) + len(body) + 64; {
	case err == nil:
		s.Seq.reserve = 0
	case errors.Is(err, ErrLogFull) && s.Seq.reserve+size <= readReserve:
		s.Seq.reserve += size
		_, err = s.Log.Append(KindLeaf, true, head, body)
	}
	return err
}
