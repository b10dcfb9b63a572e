package filestore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// worker does the background work: it syncs the leaves of reads, makes checkpoints, refreshes the
// snapshot of the columns, and closes the files of the audit until they are used again. It has no
// goroutine while the database is idle: the first record after a run starts a timer (wake), whose
// goroutine ends with the run (work). The worker ends with Close, or with the first failure.
//
// Commits that the open had to redo are checkpointed soon: if one owner after another is killed before
// a checkpoint is due, each redoes more than the last, while agents wait. That checkpoint also starts
// a new segment of a short log: the next owner reads all of a segment, and compares what the archive
// has already, so with 2 MiB of old records a hand-over took half as long again.
type worker struct {
	mu      sync.Mutex  // held by a run
	timer   *time.Timer // nil: the store is not open for writing
	awake   atomic.Bool // a run begins within syncEvery
	retryAt time.Time   // after a full disk: no checkpoint before it; guarded by mu
	said    bool        // that the disk is full; guarded by mu
}

// startWork lets wake start runs. An open may have left something to do. A snapshot can wait: the host
// has work of its own after an open.
func (s *Store) startWork() {
	s.columns.next = time.Now().Add(checkpointAge)
	s.worker.timer = time.AfterFunc(time.Hour, s.work)
	s.wake()
}

// wake sees to it that a run begins within syncEvery. It is called for each record, often under locks.
func (s *Store) wake() {
	if t := s.worker.timer; t != nil && !s.worker.awake.Load() && s.worker.awake.CompareAndSwap(false, true) {
		t.Reset(syncEvery)
	}
}

// work is a run. What comes while it runs starts the next one.
func (s *Store) work() {
	w := &s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awake.Store(false)
	next, ok := s.workOnce()
	if next != syncEvery {
		s.eng.Leaves.Rest(s.wake)
	}
	if !ok || next == 0 {
		return
	}
	w.timer.Reset(next)
	if w.awake.Load() { // it was woken meanwhile, and this Reset may have come last
		w.timer.Reset(syncEvery)
	}
}

// endWork waits until no run is under way and none can begin. Call it after Shut.
func (s *Store) endWork() {
	if s.worker.timer == nil {
		return
	}
	s.worker.mu.Lock()
	defer s.worker.mu.Unlock()
	s.worker.timer.Stop() // a run that begins all the same finds the store closed
}

// workOnce does what is due. Pages that wait for the index are entered here, so that a question soon
// after some commits finds the work done. It returns when there will be more to do; 0: not before the next record.
// false: the store was closed or has failed.
func (s *Store) workOnce() (next time.Duration, ok bool) {
	if s.eng.Closed() || s.eng.Failure() != nil {
		return 0, false
	}
	if err := s.log.Sync(context.Background(), s.log.Last(), nil); err != nil {
		s.eng.Fail(err)
		s.opts.Logger.Error("the log cannot be synced; nothing is committed until the database is opened again", "path", s.opts.Path, "error", err)
		return 0, false
	}
	s.free() // a program that only reads sees the disk fill up as well
	s.eng.IndexWaiting()
	if full := s.logFull(); time.Now().After(s.worker.retryAt) && (full || s.due()) {
		if !s.workCheckpoint(full) {
			return 0, false
		}
	}
	return s.nextWork(), true
}

// workCheckpoint makes a checkpoint. It returns false if the store was closed or has failed.
//
// A failed checkpoint leaves everything in the log. The next commit or Close returns the error.
func (s *Store) workCheckpoint(full bool) bool {
	w := &s.worker
	var err error
	if full {
		err = s.relieve(context.Background())
		w.retryAt = time.Now().Add(relieveEvery)
	} else {
		err = s.checkpointDue(context.Background())
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return false
	case err != nil && !noSpace(err):
		s.eng.Fail(err)
		s.opts.Logger.Error("a checkpoint failed; nothing is committed until the database is opened again", "path", s.opts.Path, "error", err)
		return false
	case err != nil: // a full disk: everything stays in the log
		if !w.said {
			s.opts.Logger.Warn("the disk is full; commits stay in the log until there is space", "path", s.opts.Path, "error", err)
		}
		w.said = true
		w.retryAt = time.Now().Add(relieveEvery)
	default:
		w.said = false
		s.recordLater()
	}
	return true
}

// nextWork refreshes the snapshot if it can, and returns when there will be something to do; 0: not
// before the next record.
func (s *Store) nextWork() time.Duration {
	switch w := s.eng.Waiting(); {
	case s.logFull() || s.due():
		return syncEvery
	case w.Rows > 0 && !s.columnsHold(w):
		return max(syncEvery, time.Until(w.Since.Add(checkpointAge)))
	case w.Rows > 0:
		return 0
	}
	return s.refreshColumns()
}
