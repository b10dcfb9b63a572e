package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"
)

// When the background work acts (background.go).
const (
	syncEvery       = 50 * time.Millisecond // audit leaves are synced within 100 ms
	checkpointBytes = 16 << 20              // this many unflushed bytes start a checkpoint
	redoneBytes     = 16 << 10              // this many that an open had to redo start one at once, see worker

	markEvery        = 1024      // leaves
	archiveLeaves    = 16 << 10  // this many unarchived leaves start one: they are in memory
	rotateAfterBytes = 8 << 20   // a log larger than this starts a new segment at a checkpoint
	rotateAfterRedo  = 256 << 10 // and one larger than this at that of an open that had to redo, see worker
)

// checkpointAge is the age of an unflushed row that starts a checkpoint. Tests change it.
var checkpointAge = 10 * time.Second

// checkpointDue makes a checkpoint, unless the one that it had to wait for has done what was due.
func (s *Store) checkpointDue(ctx context.Context) error {
	if err := s.startJob(ctx); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	if !s.due() {
		return nil
	}
	_, err := s.checkpointLocked(ctx)
	return err
}

// due reports whether a checkpoint should be made now.
func (s *Store) due() bool {
	if s.redone.Load() || s.eng.Leaves.Size()-s.eng.Leaves.Archived() > archiveLeaves {
		return true
	}
	w := s.eng.Waiting()
	return w.Bytes > checkpointBytes || w.Rows > 0 && time.Since(w.Since) > checkpointAge && !s.columnsHold(w)
}

// checkpoint writes the log's effect into bbolt and cuts the front of the log:
//
//	freeze    the overlay becomes the old one; new commits fill a new one        cat.mu, briefly
//	archive   audit leaves up to there go to the archive, synced                 no lock of the store
//	steps     segments of the index, while many are due, each in a bbolt transaction    no lock of the store
//	apply     rows, segments and the applied LSN in one bbolt transaction        no lock of the store
//	release   the old overlay goes, the index takes its new segments             cat.mu, briefly
//	cut       segments of the log below the checkpoint before this one go
//
// ckptMu is held throughout; "no lock" means that commits and reads go on.
//
// A crash after each step leaves:
//
//	freeze    nothing on disk changed
//	archive   leaves are in archive and log; redo compares them
//	steps     the index has pages that the rows do not have yet; redo leaves those out of its part in memory
//	apply     the log repeats commits that the rows have; redo skips them by LSN
//	cut       nothing is missing: the log still has everything above the LSN that bbolt names, and one checkpoint more,
//	          because bbolt falls back in silence to its older meta page when the newest is damaged
//
// The archive comes before the cut, because the log is the only other place of those leaves. The
// cut comes last, because until then the log is the only other copy.
func (s *Store) checkpoint(ctx context.Context) (store.JobReport, error) {
	if err := s.startJob(ctx); err != nil {
		return store.JobReport{}, err
	}
	defer s.ckptMu.Unlock()
	return s.checkpointLocked(ctx)
}

// checkpointOnce makes one checkpoint. The caller holds ckptMu. If the engine still has the overlay
// of a failed checkpoint, only that one is written; the next checkpoint writes the newer rows.
//
// What is covered. The rows of the frozen overlay are written, so the new Applied,
// Seq and Leaves are the overlay's. covered is the last record that was installed before the
// freeze; it may be later than the overlay's Seq, because leaves of reads have records without
// rows. A log that only reads made long is cut by moving Seq on to covered, with the LSN where it
// was.
func (s *Store) checkpointOnce(ctx context.Context) (rep store.JobReport, err error) {
	if s.opts.ReadOnly {
		return rep, store.ErrReadOnly
	}
	if err := s.eng.Failure(); err != nil {
		return rep, err
	}
	if err := s.sameFile(); err != nil { // before anything is written under the path
		return rep, err
	}
	synced := s.line.Sync(context.Background(), 0, nil) == nil
	covered := s.line.installedTo()
	c := s.eng.Checkpoint()
	if c.Retry { // its rows were frozen before some of the log was written
		covered = 0
	}
	leaves := s.eng.Leaves.Size()
	if err := s.eng.Leaves.Archive(ctx, leaves); err != nil {
		return rep, LogError(err)
	}
	if err := s.eng.At("archived"); err != nil {
		return rep, err
	}
	// Without new rows the file is written only so that a log that reads alone made long can be
	// cut.
	long := synced && (covered > s.sys.Seq && s.log.Size() > cmp.Or(s.opts.Rotate, rotateAfterBytes) || s.squeeze > squeezeAnew && covered > s.sys.PrevSeq)
	if c.Rows == 0 && !long {
		c.Done(nil)
		return rep, s.cutLog(&rep)
	}
	if c.Rows > 0 || s.purging { // without rows only the log is cut: a snapshot of the columns is of the index as it is
		s.columnsPass()
		if err := s.indexSteps(ctx, c); err != nil {
			return rep, s.unsure(err)
		}
	}
	next := s.sys
	switch { // vectors alone change neither: they are in no record of the log
	case c.LSN > s.sys.Applied:
		next.PrevSeq, next.Applied, next.Seq, next.Leaves = s.sys.Seq, c.LSN, c.Seq, c.Leaves
	case long:
		next.PrevSeq, next.Seq, next.Leaves = s.sys.Seq, covered, leaves
	}
	if err := s.eng.At("before bbolt"); err != nil {
		return rep, err
	}
	err = s.update(func(tx *bbolt.Tx) (err error) {
		if next.High, err = c.Write(s.rows(tx), &next.Rows, s.purging); err != nil {
			return err
		}
		return putSys(tx, s.ring.Load(), next)
	})
	if err != nil {
		return rep, s.unsure(fmt.Errorf("ctxpage: checkpoint: %w", err))
	}
	c.Done(func(newest ulid.ULID) {
		s.sys = next
		s.line.file(newest)
	})
	if err := s.eng.At("after bbolt"); err != nil {
		return rep, err
	}
	rep.Applied, rep.Rows, rep.Bytes = next.Applied, c.Rows, int64(c.Bytes)
	if err := s.cutLog(&rep); err != nil {
		return rep, err
	}
	return rep, s.eng.At("after cut")
}

// unsure ends the store after a commit of the file that may or may not be on the disk: the memory
// counts rows from the commit before. The log has everything, and the next open reads what the file
// has.
func (s *Store) unsure(err error) error {
	var e *unsureError
	if errors.As(err, &e) {
		return s.eng.Fail(err)
	}
	return err
}

// indexSteps writes much of the index into bbolt before the checkpoint itself, in transactions of
// bounded size, because a transaction keeps every row it writes in memory. Each leaves the file
// whole: the system row is still from the last checkpoint, and redo leaves out what the index
// has already.
func (s *Store) indexSteps(ctx context.Context, c *engine.Checkpoint) error {
	update := func(fn func(engine.Writer) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.update(func(tx *bbolt.Tx) error { return fn(s.rows(tx)) })
	}
	if err := c.Steps(update, func() error { return s.eng.At("after a step") }); err != nil {
		return fmt.Errorf("ctxpage: checkpoint: %w", err)
	}
	return nil
}

// syncRead syncs the records that a reader found in the log: the process that wrote it may have
// been killed before its sync. A disk that is mounted read-only has nothing to sync.
func (s *Store) syncRead() error {
	dir := s.opts.Path + "-wal"
	names, err := s.opts.FS.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: head: %w", err)
	}
	for _, name := range names {
		f, err := s.opts.FS.OpenFile(filepath.Join(dir, name), system.ToSync, 0)
		if !system.ReadSyncs && errors.Is(err, os.ErrPermission) { // this user writes nothing here
			continue
		}
		if err != nil {
			return fmt.Errorf("ctxpage: head: %w", err)
		}
		err = f.Sync()
		f.Close()
		if err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("ctxpage: head: sync %s: %w", name, err)
		}
	}
	return nil
}

// sameFile returns an error if the path no longer leads to the open file. Another database may be at
// the path now, with an owner of its own: nothing may be written, renamed or removed there.
func (s *Store) sameFile() error {
	open, err := s.file.Load().Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: stat: %w", err)
	}
	now, err := os.Lstat(s.opts.Path)
	if err != nil || !os.SameFile(open, now) {
		return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("the file was replaced or removed while it was open"),
			Hint: "close, put the right file in place, and open again; the log still has what is missing"}
	}
	return nil
}

// cutLog removes the segments that neither redo nor the archive needs. A mark is written first. It
// vouches for the synced size, so that a later cut below it is not taken for a torn end.
func (s *Store) cutLog(rep *store.JobReport) error {
	if err := s.line.mark(s.eng.Leaves); err != nil {
		return err
	}
	anew := s.squeeze == squeezeAnew && (s.log.Size() > squeezeBytes || s.purging)
	most := cmp.Or(s.opts.Rotate, rotateAfterBytes)
	if s.redone.Load() {
		most = min(most, rotateAfterRedo)
	}
	if anew || s.log.Size() > most {
		err := s.log.Rotate()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return s.logGone()
		case errors.Is(err, wal.ErrFull) && anew && s.purging: // the log cannot be cut behind what was erased
			return err
		case err != nil && !errors.Is(err, wal.ErrFull):
			return s.eng.Fail(err)
		}
	}
	n, err := s.log.DropBefore(min(s.sys.PrevSeq, s.sys.Seq) + 1)
	rep.Segments = n
	if errors.Is(err, fs.ErrNotExist) {
		return s.logGone()
	}
	if errors.Is(err, wal.ErrPoisoned) { // the removal of a segment may not be on the disk: no later write may build on it
		return s.eng.Fail(fmt.Errorf("ctxpage: cut the log: %w", err))
	}
	if err != nil {
		return fmt.Errorf("ctxpage: cut the log: %w", err)
	}
	return nil
}

// logGone ends the store when its log was removed: the file has everything so far, and later commits
// would be lost.
func (s *Store) logGone() error {
	return s.eng.Fail(&store.CorruptError{File: s.opts.Path + "-wal", Err: errors.New("the log was removed or moved while it was open"), Hint: "put it back, and open again"})
}
