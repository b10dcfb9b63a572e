package filestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// A full disk. A database that cannot write cannot free space either, so some space is kept for that:
//
//	disk   puts leave checkpointSpace and a share of the file, so that this database alone never fills the disk
//	log    has preallocated zeros, for deletes, what gc drops, marks, a clean end and some reads; a checkpoint without space gets all but
//	       checkpointKeep (wal.Log.Shrink). While the disk has more than spaceCacheAbove, a short log has less of them (leastReserve)
//	file   pages that bbolt freed count as space for rows
//
// Space is freed by a checkpoint. Then the log begins a new segment and the old ones go. Space that gc
// frees is free inside the file, not on the disk.
//
// Order on a full disk: relieve takes ckptMu, so no caller may hold a lock that comes after it. A
// relief that failed is not repeated within relieveEvery.
const (
	checkpointKeep  = 64 << 10  // bytes that stay preallocated in the log when a checkpoint without space shrinks it
	tightBytes      = 192 << 10 // rows waiting for so many bytes of pages of the file start a checkpoint on a nearly full disk
	openSpace       = 1 << 20   // bytes that a new database takes; a recovery takes less
	checkpointSpace = 256 << 10 // bytes that puts leave on the disk: for audit and log of deletes, gc and checkpoints
	checkpointPages = 48        // and at least so many pages of the file: a checkpoint writes a changed page anew before it frees the old one
	auditSpace      = 64 << 10  // this part of it must be on the disk, not inside the file
	keepShare       = 6         // puts leave this fraction of what the file has in use, too; what deletes leave in the audit is that much of small pages
	keepMost        = 16 << 20  // but at most this many bytes
	rowsFactor      = 3         // bytes that a byte of a row may take: pages half full, and the index
	relieveEvery    = time.Second
	squeezeBytes    = 64 << 10  // a smaller log does not begin a new segment
	spaceCacheAbove = 128 << 20 // with this many bytes free, space is not counted for a while
	fillRate        = 8 << 30   // bytes a second: no disk is filled faster
	spaceCacheFor   = 50 * time.Millisecond
	leastReserve    = 48 << 10  // what a short log keeps, while the disk has space: commits in progress take leastBulk of it, reads leave deleteSpace
	deleteSpace     = 24 << 10  // of what the log keeps, reads leave this much to deletes, marks and a clean end, or half of it
	bulkBytes       = 128 << 10 // from this many bytes of batches in progress, the log preallocates before it takes them
	leastBulk       = 8 << 10   // the same while it keeps less than checkpointKeep and bulkBytes
)

// free returns the bytes that may still be written on the disk; -1: not known. When they become few, the log takes all the
// space that it keeps for a full disk.
func (s *Store) free() int64 {
	free := freeBytes(filepath.Dir(s.opts.Path))
	if free < spaceCacheAbove && s.log != nil && !s.opts.ReadOnly && s.reserved.CompareAndSwap(false, true) {
		_ = s.log.Reserve() // an error is the log's, which returns it for the next record
	}
	return free
}

// bulkFrom returns from how many bytes of batches in progress on the log preallocates: what comes without that is taken from what it
// keeps.
func (s *Store) bulkFrom() int64 {
	if _, keeps := s.log.Room(); keeps >= leastReserve && keeps < checkpointKeep+bulkBytes {
		return leastBulk
	}
	return bulkBytes
}

// relief is the time and the error of the last relieve that failed. Guarded by ckptMu.
type relief struct {
	at  time.Time
	err error
}

// spaceCache remembers until when the disk surely has space, whatever other processes write: asking
// the disk took a tenth of a put. It errs to the safe side only if no program fills the disk faster
// than fillRate.
type spaceCache struct{ until atomic.Pointer[time.Time] }

// fresh reports whether the disk need not be asked.
func (c *spaceCache) fresh(now time.Time) bool {
	until := c.until.Load()
	return until != nil && now.Before(*until)
}

// put takes in how many bytes are free (-1: not known, taken as plenty) and reports whether that is
// enough to skip the exact count. Below spaceCacheAbove nothing is remembered: the next put asks.
func (c *spaceCache) put(now time.Time, free int64) bool {
	if free < 0 {
		free = math.MaxInt64
	}
	if free < spaceCacheAbove {
		return false
	}
	last := time.Duration(float64(free-spaceCacheAbove) / fillRate * float64(time.Second))
	until := now.Add(min(last, spaceCacheFor))
	c.until.Store(&until)
	return true
}

// inJob marks the context of writes under ckptMu: a leaf that finds the log full cannot wait for a
// checkpoint, which would wait for ckptMu. The job ends with the error.
func inJob(ctx context.Context) context.Context { return context.WithValue(ctx, jobKey{}, true) }

// jobKey is the key of inJob.
type jobKey struct{}

// relieve frees space on a full disk: it makes a checkpoint, starts a new segment of the log and
// drops the segments that are applied.
func (s *Store) relieve(ctx context.Context) error {
	if ctx.Value(jobKey{}) != nil {
		return engine.ErrLogFull
	}
	if err := s.mustJob(); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	if s.relief.err != nil && time.Since(s.relief.at) < relieveEvery {
		return s.relief.err
	}
	_, err := s.squeezeLog(ctx, 3, func(rep store.JobReport) bool { return rep.Segments > 0 || s.log.Size() < squeezeBytes })
	if err == nil {
		err = s.log.Write()
	}
	s.relief.err = err
	s.relief.at = time.Now()
	return s.relief.err
}

// How a checkpoint lets the log be cut.
const (
	squeezeNot  = iota
	squeezeAnew // begins a new segment
	squeezeNext // moves on the record down to which the log is kept
)

// squeezeLog makes up to so many checkpoints until the log is cut enough. The first writes what there is
// and starts a segment, the next ones move on the record down to which the log is kept. The caller holds
// ckptMu.
func (s *Store) squeezeLog(ctx context.Context, checkpoints int, enough func(store.JobReport) bool) (done bool, err error) {
	defer func() { s.squeeze = squeezeNot }()
	s.squeeze = squeezeAnew
	for ; checkpoints > 0 && !done; checkpoints-- {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		rep, err := s.checkpointLocked(ctx)
		if err != nil {
			return false, err
		}
		s.squeeze, done = squeezeNext, enough(rep)
	}
	return done, nil
}

// checkpointLocked makes a checkpoint; on a full disk it tries once more with the space that the
// log can spare. The caller holds ckptMu.
func (s *Store) checkpointLocked(ctx context.Context) (store.JobReport, error) {
	began := s.opts.Now()
	rep, err := s.checkpointOnce(ctx)
	if noSpace(err) && s.log.Shrink(checkpointKeep) == nil {
		rep, err = s.checkpointOnce(ctx)
	}
	if s.opts.Checkpointed != nil {
		s.opts.Checkpointed(began, rep, err)
	}
	if err == nil {
		s.redone.Store(false)
	}
	return rep, err
}

// disk implements engine.Space for the disk under a store.
type disk struct{ *Store }

// Admit implements engine.Space. A put must not take the space that the next checkpoint needs, and
// for a large batch the log must have space before it is judged. Deletes and gc pass.
func (s disk) Admit(ctx context.Context, n int64, puts bool) (done func(), err error) {
	under := s.bulk.Add(n)
	done = func() { s.bulk.Add(-n) }
	if !puts && s.checkpointFirst() {
		_ = s.relieve(ctx)
	}
	for try := 0; ; try++ {
		if err = s.space(puts, under); err == nil {
			return done, nil
		}
		if !noSpace(err) || try > 0 || s.relieve(ctx) != nil {
			done()
			return nil, err
		}
	}
}

// Relieve implements engine.Space. It asks a full log first whether there is space by now.
func (s disk) Relieve(ctx context.Context) error {
	if !s.logFull() {
		return nil
	}
	return s.relieve(ctx)
}

// NoSpace implements engine.Space.
func (s disk) NoSpace(err error, n int64) error {
	return noSpaceError(s.opts.Path, err, checkpointSpace+rowsFactor*n)
}

// space returns an error if a batch does not fit. under is the size of all batches in progress,
// this one included.
func (s *Store) space(puts bool, under int64) error {
	if now := time.Now(); puts && !s.opts.Greedy && !s.spaceCache.fresh(now) {
		if free := s.free(); !s.spaceCache.put(now, free) {
			st := s.bolt.Load().Stats()
			inside := int64(st.FreePageN+st.PendingPageN) * s.pageSize
			rows := rowsFactor * (s.eng.Unflushed() + under)
			// Pages that are free inside the file count, except for what audit and log take from
			// the disk.
			if need := max(auditSpace, s.keepFree()+rows-inside); free < need {
				return &store.NoSpaceError{Path: s.opts.Path, Needed: need, Free: free, Err: syscall.ENOSPC}
			}
		}
	}
	if under < s.bulkFrom() {
		return nil
	}
	if err := s.log.Grow(under); noSpace(err) { // the log returns any other error for the record itself
		return fmt.Errorf("ctxpage: log: %w", err)
	}
	return nil
}

// keepFree returns how many bytes puts leave on the disk. Deletes and gc write before they free,
// more where there is more to delete.
func (s *Store) keepFree() int64 {
	used := int64(0)
	_ = s.view(func(tx *bbolt.Tx) error { // the file grows ahead of its pages
		used = tx.Size() - s.freePages()
		return nil
	})
	return max(checkpointSpace, checkpointPages*s.pageSize) + min(max(used, 0)/keepShare, keepMost)
}

// checkpointFirst reports whether a checkpoint should go before the next delete: while few pages of the
// file have changed, each of which it writes anew.
func (s *Store) checkpointFirst() bool {
	return (disk{s}).Tight() && (s.logFull() || int64(s.eng.Waiting().Rows)*s.pageSize >= tightBytes)
}

// logFull reports whether the log takes no records, after it has looked for space once more.
func (s *Store) logFull() bool { return errors.Is(s.log.Grow(0), wal.ErrFull) }

// Tight implements engine.Space.
func (s disk) Tight() bool {
	free := s.free()
	return s.logFull() || free >= 0 && free < 2*s.keepFree()
}

// noSpaceError adds the needed space to the error of a full disk.
func noSpaceError(path string, err error, need int64) error {
	if !noSpace(err) || errors.Is(err, store.ErrNoSpace) || errors.Is(err, store.ErrOutcomeUnknown) {
		return err
	}
	return &store.NoSpaceError{Path: path, Needed: need, Free: freeBytes(filepath.Dir(path)), Err: err}
}

// recordLater writes the leaf of a recovery that found the disk full, if there is space by now.
func (s *Store) recordLater() {
	leaf := s.unrecorded.Load()
	if leaf != nil && s.note(context.Background(), s.opts.Audit, leaf) == nil {
		s.unrecorded.CompareAndSwap(leaf, nil)
	}
}
