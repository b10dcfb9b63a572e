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

	"github.com/ctxpage/ctxpage/store"
)

// A full disk. The log has a reserve, into which go deletes, what gc drops, and some reads. To free space a checkpoint
// must go through, which itself needs some: it gets most of that reserve. Then the log begins a new segment and the old
// ones go; what gc dropped is free inside the file. Puts leave the disk the space that the next checkpoint needs, so
// that this database alone never fills it up.
const (
	checkpointKeep    = 64 << 10  // bytes of the log's reserve that a checkpoint without space leaves to deletes
	checkpointReserve = 160 << 10 // bytes of the log's reserve below which deletes let a checkpoint go first
	tightRows         = 48        // rows that a checkpoint on a disk about to be full writes at once
	openSpace         = 1 << 20   // bytes that a new database takes, and more than a recovery does
	checkpointSpace   = 256 << 10 // bytes that puts leave on the disk: for audit and log of deletes, gc and checkpoints
	auditSpace        = 64 << 10  // bytes of it that must be on the disk, not inside the file
	keepShare         = 8         // and that part of the file
	keepMost          = 16 << 20  // bytes, at most
	rowsFactor        = 3         // bytes that a byte of a row may take: pages half full, and the index
	relieveEvery      = time.Second
	squeezeBytes      = 64 << 10  // size of a log that is not worth beginning anew
	amplySpace        = 128 << 20 // bytes free on the disk from which nobody counts
	fillRate          = 8 << 30   // bytes a second: no disk is filled faster
	ampleFor          = 50 * time.Millisecond
	bulkBytes         = 128 << 10 // of batches under way together, from which the log is asked for space before it takes them
)

// relief is when relieve last failed, and of what. Guarded by ckptMu.
type relief struct {
	at  time.Time
	err error
}

// ample is until when a disk has space whoever writes to it. To ask it took a tenth of a put.
type ample struct{ until atomic.Pointer[time.Time] }

// at says that the disk need not be asked.
func (a *ample) at(now time.Time) bool {
	until := a.until.Load()
	return until != nil && now.Before(*until)
}

// found takes in how many bytes are free, -1: nobody knows. It says that these are enough for now.
func (a *ample) found(now time.Time, free int64) bool {
	if free < 0 {
		free = math.MaxInt64
	}
	if free < amplySpace {
		return false
	}
	last := time.Duration(float64(free-amplySpace) / fillRate * float64(time.Second))
	until := now.Add(min(last, ampleFor))
	a.until.Store(&until)
	return true
}

// relieve frees what it can of a full disk: it checkpoints, lets the log begin anew and drops what is applied. What was
// tried in vain is not tried again at once.
func (s *Store) relieve(ctx context.Context) error {
	if err := s.startJob(); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	if s.relief.err != nil && time.Since(s.relief.at) < relieveEvery {
		return s.relief.err
	}
	s.relief.err = s.squeezeLog(ctx)
	s.relief.at = time.Now()
	return s.relief.err
}

// squeezeLog makes up to three checkpoints: the first writes what there is and starts a segment, the next two move on the
// record down to which the log is kept. The caller holds ckptMu.
func (s *Store) squeezeLog(ctx context.Context) error {
	defer func() { s.squeeze = squeezeNot }()
	for s.squeeze = squeezeAnew; ; s.squeeze++ {
		rep, err := s.checkpointLocked(ctx)
		if err != nil {
			return err
		}
		if s.squeeze == squeezeLast || rep.Segments > 0 || s.log.Size() < squeezeBytes {
			return s.log.Write()
		}
	}
}

// What a checkpoint does to free the log.
const (
	squeezeNot  = iota
	squeezeAnew // begins a new segment
	squeezeNext // moves on the record down to which the log is kept
	squeezeLast // likewise
)

// checkpointLocked is checkpointOnce, and where the disk is full once more with what the log can spare.
func (s *Store) checkpointLocked(ctx context.Context) (store.JobReport, error) {
	rep, err := s.checkpointOnce(ctx)
	if noSpace(err) && s.log.Shrink(checkpointKeep) == nil {
		rep, err = s.checkpointOnce(ctx)
	}
	return rep, err
}

// disk is what the engine asks of the disk under a store.
type disk struct{ *Store }

// Admit keeps a batch that writes from taking the space that the next checkpoint needs, and asks the log for that of a
// large one. Deletes and gc pass.
func (s disk) Admit(ctx context.Context, n int64, puts bool) (done func(), err error) {
	under := s.bulk.Add(n)
	done = func() { s.bulk.Add(-n) }
	if !puts && s.early() {
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

// Relieve asks a log that is full whether there is space by now, and else frees some.
func (s disk) Relieve(ctx context.Context) error {
	if s.log.Full() && s.log.Write() == nil && !s.log.Full() {
		return nil
	}
	return s.relieve(ctx)
}

// NoSpace gives the error of a batch the type that says what would help.
func (s disk) NoSpace(err error, n int64) error {
	return noSpaceError(s.opts.Path, err, checkpointSpace+rowsFactor*n)
}

// space says whether a batch fits, as one of several under way.
func (s *Store) space(puts bool, under int64) error {
	if now := time.Now(); puts && !s.opts.Greedy && !s.ample.at(now) {
		if free := freeBytes(filepath.Dir(s.opts.Path)); !s.ample.found(now, free) {
			st := s.bolt.Load().Stats()
			inside := int64(st.FreePageN+st.PendingPageN) * int64(s.bolt.Load().Info().PageSize)
			rows := rowsFactor * (s.eng.Unflushed() + under)
			// Pages that are free inside the file count, but for what audit and log take of the disk.
			if need := max(auditSpace, s.keepFree()+rows-inside); free < need {
				return &store.NoSpaceError{Path: s.opts.Path, Needed: need, Free: free, Err: syscall.ENOSPC}
			}
		}
	}
	if under < bulkBytes {
		return nil
	}
	if err := s.log.Grow(under); noSpace(err) { // any other the log says of the record itself
		return fmt.Errorf("ctxpage: log: %w", err)
	}
	return nil
}

// keepFree is what puts leave on the disk: deletes and gc write before they free, more where there is more to delete.
func (s *Store) keepFree() int64 {
	st, err := s.file.Load().Stat()
	if err != nil {
		return checkpointSpace
	}
	return checkpointSpace + min(st.Size()/keepShare, keepMost)
}

// early says that a checkpoint should go before the next delete: while the log's reserve, of which it takes most, is there,
// and few pages of the file have changed, each of which it writes anew.
func (s *Store) early() bool {
	if !(disk{s}).Tight() {
		return false
	}
	return s.eng.Waiting().Rows >= tightRows || s.log.Full() && s.log.Unused() < checkpointReserve
}

// Tight says that the disk is full or about to be.
func (s disk) Tight() bool {
	free := freeBytes(filepath.Dir(s.opts.Path))
	return s.log.Full() || free >= 0 && free < 2*s.keepFree()
}

// noSpaceError gives an error of a full disk the type that says what would help.
func noSpaceError(path string, err error, need int64) error {
	if !noSpace(err) || errors.Is(err, store.ErrNoSpace) || errors.Is(err, store.ErrOutcomeUnknown) {
		return err
	}
	return &store.NoSpaceError{Path: path, Needed: need, Free: freeBytes(filepath.Dir(path)), Err: err}
}

// tellLater writes the leaf of a recovery that found the disk full.
func (s *Store) tellLater() {
	leaf := s.untold.Load()
	if leaf != nil && s.note(context.Background(), s.opts.Audit, leaf) == nil {
		s.untold.CompareAndSwap(leaf, nil)
	}
}
