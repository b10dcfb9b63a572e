package filestore

import (
	"context"
	"errors"
	"os"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// Close stops the background work, makes a checkpoint (see Lock.Wanted for the exception), and ends
// the log with a mark that says the end was clean. A store that has failed is closed without
// checkpoint and mark, and Close returns the failure.
//
// Close waits for a job that holds ckptMu. It may be called more than once: later calls return nil
// and do not wait for the first.
//
//	ending   jobs that wait for ckptMu give up; a snapshot of the columns is written, if it is due
//	shut     no commit and no read begins any more
//	done     no background work runs any more
//	clean    log synced, checkpoint, log cut, mark (closeClean); not after a failure
//	closed   log, audit, bbolt, and the lock of the process last
//
// A crash before the mark is in the log loses nothing that was acknowledged: the next open redoes
// the log and records an unclean end.
func (s *Store) Close() error {
	if !s.eng.Closed() {
		s.ending.Store(true)
		s.recordLater()
		s.keepColumns(context.Background())
	}
	if !s.eng.Shut() {
		return nil
	}
	s.endWork()
	err := s.eng.Failure()
	if !s.opts.ReadOnly && err == nil {
		err = s.closeClean()
	}
	if !s.opts.ReadOnly && s.eng.IndexDamaged() { // even if a checkpoint failed because of it: otherwise each one would
		err = errors.Join(err, s.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: s.rows(tx)}) }))
	}
	err = errors.Join(err, s.closeFiles())
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return noSpaceError(s.opts.Path, err, checkpointSpace)
}

// handOverBytes is up to how many bytes of rows are left in the log for the next owner to redo.
const handOverBytes = 4 << 20

// leavesToNext reports whether Close leaves the checkpoint, and the snapshot of the columns, to the next owner. To redo a short
// log takes no longer than to checkpoint it. The snapshot of an earlier close is read if it still matches the rows; if a
// checkpoint has made it outdated, the next owner reads the rows, which takes no longer than to write a new one while others
// wait. Whoever closes last, when nobody waits, writes it. Vectors are in no log: without a checkpoint they would have to be
// computed again. The caller holds ckptMu.
func (s *Store) leavesToNext() bool {
	if !s.opts.Lock.isWanted() {
		return false
	}
	w := s.eng.Waiting()
	return w.Vectors == 0 && w.Bytes <= handOverBytes
}

// closeClean ends a store that has not failed: log synced, checkpoint, mark. On a full disk
// everything stays in the log, which has space for its end. The mark comes last: a log that
// ends with it has lost nothing, so the next open records no recovery.
func (s *Store) closeClean() error {
	s.line.tail.Lock() // after this no caller holds the tail: Shut was called, so none takes it again
	last := s.log.Last()
	s.line.tail.Unlock()
	if err := s.log.Sync(context.Background(), last, nil); err != nil {
		return err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if !s.leavesToNext() {
		if _, err := s.checkpointLocked(context.Background()); err != nil && !noSpace(err) {
			return err
		}
		if err := s.closeShort(); err != nil && !noSpace(err) {
			return err
		}
		s.endAtPages()
	}
	if s.unrecorded.Load() != nil {
		return nil // no clean end: the next open writes the leaf of the recovery
	}
	mark, err := s.eng.Leaves.Mark(s.eng.Leaves.Size())
	if err != nil {
		return err
	}
	return s.log.Close(wal.KindMark, mark)
}

// closeLogBytes is the size from which Close cuts the log.
const closeLogBytes = 256 << 10

// closeShort cuts the log before its end. Everything in it is in the file by now, but the next open would read all of it and
// compare its leaves with the archive: with the leaves of many searches an open of 10k pages took twice as long. Nobody may be
// waiting for the lock: one who is redoes the log, and makes it short then (see worker). On a nearly full disk it stays as it
// is, because a new segment would take space that a delete may need. The caller holds ckptMu.
func (s *Store) closeShort() error {
	short := func(store.JobReport) bool { return s.log.Size() <= closeLogBytes }
	if short(store.JobReport{}) || s.opts.Lock.isWanted() || (disk{s}).Tight() {
		return nil
	}
	_, err := s.squeezeLog(context.Background(), cutRounds, short)
	return err
}

// closeFiles closes what is open. After a panic inside bbolt its locks are taken forever, so bbolt
// is not closed; its file lock is dropped instead.
func (s *Store) closeFiles() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Abandon())
	}
	for _, l := range []*archive.Log{s.eng.Leaves, s.columns.audit} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	switch {
	case s.bolt.Load() != nil && s.broken.Load() == nil:
		errs = append(errs, s.bolt.Load().Close())
		if s.cutTo > 0 {
			_ = os.Truncate(s.opts.Path, s.cutTo)
		}
	case s.file.Load() != nil: // bbolt's Close would wait forever; closing only the file keeps its lock, because it is mapped
		unlockFile(s.file.Load())
	}
	return errors.Join(errs...)
}
