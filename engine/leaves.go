package engine

import (
	"context"
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
