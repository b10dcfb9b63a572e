package filestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// startJob takes ckptMu for a job on the whole file that somebody asked for. It waits no longer
// than ctx, and not when Close has begun (ErrClosed): Close would have to wait for all that were
// asked for before it.
func (s *Store) startJob(ctx context.Context) error {
	if err := s.ckptMu.Take(ctx); err != nil {
		return err
	}
	if s.ending.Load() || s.eng.Closed() {
		s.ckptMu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// mustJob takes ckptMu for what has to be done whoever waits: the end of an erase, relief of a full
// disk. ErrClosed: the store is shut; Close makes the last checkpoint, and after that there is no
// log.
func (s *Store) mustJob() error {
	s.ckptMu.Lock()
	if s.eng.Closed() {
		s.ckptMu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Head returns the head over the leaves that are on the disk when it returns.
func (s *Store) Head(ctx context.Context) (manifest.Head, error) {
	size, err := s.headSize(ctx)
	if err != nil {
		return manifest.Head{}, err
	}
	now := s.opts.Now()
	if err := store.CheckClock(now); err != nil { // a head with such a time could not be read back
		return manifest.Head{}, err
	}
	root, err := s.eng.Leaves.Root(size)
	return manifest.Head{DB: s.eng.Leaves.DB(), Size: size, Root: root, Time: codec.Micros(now)}, LogError(err)
}

// headSize returns how many leaves are durable. A writer syncs what is in flight; a reader syncs
// the log that it found, because the writer may have been killed before its sync.
func (s *Store) headSize(ctx context.Context) (uint64, error) {
	if s.eng.Closed() {
		return 0, store.ErrClosed
	}
	if s.opts.ReadOnly {
		return s.eng.Leaves.Size(), s.syncRead()
	}
	if err := s.eng.Writable(); err != nil {
		return 0, err
	}
	if err := s.syncLog(ctx); err != nil {
		return 0, err
	}
	return s.eng.Leaves.Size(), nil
}

// syncLog makes the records in flight durable and installs them.
func (s *Store) syncLog(ctx context.Context) error {
	err := s.log.Sync(ctx, s.log.Last(), nil)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return s.eng.Fail(err)
}

// Maintain implements store.Store.
func (s *Store) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if s.eng.Closed() {
		return store.JobReport{}, store.ErrClosed
	}
	if err := format.CheckJob(&job); err != nil {
		return store.JobReport{}, err
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	rep, err := s.maintain(ctx, job, progress)
	s.wake() // rows of vectors that gc takes away are in no record
	return rep, noSpaceError(s.opts.Path, err, checkpointSpace)
}

func (s *Store) maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	switch job.Kind {
	case store.JobCheckpoint:
		return s.checkpoint(ctx)
	case store.JobBackup:
		return s.backup(ctx, job.Path, progress)
	case store.JobCheck:
		return s.check(ctx, progress)
	case store.JobGCPlan, store.JobGC:
		return s.eng.Collect(ctx, job, progress)
	case store.JobErase:
		return s.erase(ctx, job.Erase, progress)
	case store.JobCompactPlan, store.JobCompact:
		return s.shrink(ctx, job.Kind == store.JobCompactPlan, progress)
	}
	return store.JobReport{}, store.Invalid("job", fmt.Sprint(job.Kind), "checkpoint, backup, check, gc, erase or compaction")
}

// PutVectors implements store.Store. Vectors are in no record of the log.
func (s *Store) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	defer s.wake()
	return s.served.PutVectors(ctx, model, nums, vecs)
}

// Stat implements store.Store: a snapshot of sizes and counters.
func (s *Store) Stat(ctx context.Context) (store.StoreStats, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return store.StoreStats{}, err
	}
	var st store.StoreStats
	s.eng.Count(&st, func() { // a checkpoint replaces the whole row under the lock
		st.ID, st.Format, st.Created, st.Applied = s.sys.ID, s.sys.Format, codec.FromMicros(s.sys.Created), s.sys.Applied
	})
	st.Leaves, st.Archived, st.LogBytes = s.eng.Leaves.Size(), s.eng.Leaves.Archived(), s.log.Size()
	if fi, err := s.file.Load().Stat(); err == nil {
		st.FileBytes = fi.Size()
	}
	if c := s.columns.state.Load(); c != nil {
		st.ColumnBytes, st.ColumnsRead = c.bytes, c.read
	}
	var err error
	st.Held, err = s.eng.Undecided()
	return st, err
}
