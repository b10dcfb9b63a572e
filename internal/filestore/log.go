package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// fileLog is the log in segments and the rows in bbolt as the engine sees them: an order that
// belongs to one process.
//
// The tail is a mutex and nothing else. No other process commits, so whoever has it is caught up.
// An entry is put into the log's buffer and into flying in one step under mu; otherwise a sync in
// progress could report it before it is there. When the log reports a group, its entries leave
// flying as soon as the engine has installed them.
//
//	tail      next, record, and the end of the log
//	mu        flying and filed; after tail, before the locks of the log; the log's report takes it too
//
// Crash: nothing here is on disk. begin computes next again from what was recovered, so the numbers
// of records that were torn off are given again; no reader or caller ever saw them.
//
// How a commit passes (the names of package engine on the left):
//
//	Acquire       tail
//	Tail.Commit   the record is encoded under tail, put into the log's buffer and into flying under mu
//	Tail.Release  the next caller may judge
//	Sync          the caller syncs the log, or finds that another one is syncing for the group
//	Durable       wal calls durable with the last record that the sync covered; what the engine installed leaves flying
//
// flying is in the order of the records, and everything before its first entry is installed.
// installedTo relies on that.
//
// An entry is durable before anybody but its own commit can see it:
//
//	judged ──Commit──▶ flying (the log's buffer) ──sync──▶ durable ──Durable──▶ installed: reads see it
//	   │                   │                                 │
//	crash: it never was    crash: it may be lost or torn     crash: the next open redoes it
//	                       off; its caller has no answer
type fileLog struct {
	s *Store

	tail   sync.Mutex      // held from Acquire to Release
	next   engine.Counters // the numbers after those in the log and in flight
	record []byte          // memory for the next record
	urgent int             // bytes of leaves that found the log full; guarded by mu

	mu     sync.Mutex
	flying []engine.Entry // in the order of their records
	head   []byte         // memory for the beginning of the next leaf's record
	parts  [2][]byte      // and for its parts
	filed  ulid.ULID      // no outcome in the rows has a greater batch id

	marked atomic.Uint64 // how many leaves the last mark covers, at least
}

// maxKeptRecord bounds the memory kept for the next record, bytes.
const maxKeptRecord = 1 << 20

// maxKeptFlying bounds the memory kept for entries in flight: 256 KiB, as many as a fast reader
// leaves between two syncs.
const maxKeptFlying = 16 << 10

// readSpace bounds the bytes of leaves that go into a full log: a quarter of its largest reserve.
// So reads go on for a while, and deletes and a clean end always find the rest (deleteSpace). After that reads fail,
// because they cannot be audited.
const readSpace = 64 << 10

// begin takes over from recovery: the next numbers, what the rows have, and that no mark is due
// before there is a leaf.
func (l *fileLog) begin() {
	l.next = l.s.eng.Counters()
	l.marked.Store(l.next.Leaf)
	if err := l.View(l.distrust); err != nil {
		l.filed = lastID // look up every id; reading the damaged row returns the error
	}
}

// distrust decides which batch ids must be looked up in the rows: all from before this open. A row
// that should be there may have been removed, and then the audit tells. An id may be ahead of our
// clock, so if the rows do not have the sum that was kept, and one of those may be missing, every
// id is looked up.
func (l *fileLog) distrust(tx engine.Reader) error {
	l.filed = engine.NewestOutcome(tx)
	if l.s.opts.Trust || l.s.opts.ReadOnly {
		return nil
	}
	opened := lastID
	if err := opened.SetTime(ulid.Timestamp(l.s.opts.Now())); err != nil {
		return err
	}
	if l.filed.Compare(opened) < 0 {
		l.filed = opened
	}
	if sum, _ := engine.SumRows(tx); sum != l.s.sys.Rows.Sum {
		l.filed = lastID
	}
	return nil
}

// Acquire implements engine.Log.
func (l *fileLog) Acquire(context.Context) (engine.Tail, error) {
	l.tail.Lock()
	return l, nil
}

// Release implements engine.Tail.
func (l *fileLog) Release() { l.tail.Unlock() }

// Next implements engine.Tail.
func (l *fileLog) Next() engine.Counters { return l.next }

// Commit implements engine.Tail. On an error nothing was taken: next is as it was, and the batch
// may be judged again.
func (l *fileLog) Commit(c *engine.Commit) error {
	record := c.Append(l.record[:0])
	if cap(record) <= maxKeptRecord {
		l.record = record
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if c.Seq, err = l.append(wal.KindCommit, c.Frees(), record); err != nil {
		return err
	}
	l.flying = append(l.flying, engine.Entry{Commit: c})
	l.next = c.After
	return nil
}

// Leave implements engine.Log. An error in the middle leaves the leaves before it in the log; those
// have their Seq.
func (l *fileLog) Leave(_ context.Context, leaves []*engine.Leaf) (seq uint64, err error) {
	l.tail.Lock()
	defer l.tail.Unlock()
	if err := l.s.eng.Writable(); err != nil { // asked again under the tail: Close waits only for callers that have it
		return 0, err
	}
	for _, leaf := range leaves {
		leaf.Index = l.next.Leaf
		if seq, err = l.leave(leaf); err != nil {
			return 0, err
		}
		l.next.Leaf++
	}
	return seq, nil
}

// leave puts one leaf into the log. On a full disk it may use part of what is preallocated (readSpace).
// What it used there is counted until a leaf fits without it: then the log has space again, and the
// allowance begins anew.
func (l *fileLog) leave(leaf *engine.Leaf) (seq uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = engine.AppendLeafHead(l.head[:0], leaf.Index, leaf.Question())
	l.parts = [2][]byte{l.head, leaf.Body()}
	seq, err = l.append(wal.KindAudit, false, l.parts[:]...)
	switch size := len(l.head) + len(leaf.Body()) + 64; {
	case err == nil:
		l.urgent = 0
	case errors.Is(err, engine.ErrLogFull) && l.urgent+size <= readSpace && l.leavesDeletes(size):
		l.urgent += size
		seq, err = l.append(wal.KindAudit, true, l.parts[:]...)
	}
	if err != nil {
		return 0, err
	}
	leaf.Seq = seq
	l.flying = append(l.flying, engine.Entry{Leaf: leaf})
	return seq, nil
}

// leavesDeletes reports whether deletes still have their space in a full log after so many bytes more. It is measured, not
// counted: the last commit and marks took of it, too.
func (l *fileLog) leavesDeletes(size int) bool {
	room, keeps := l.s.log.Room()
	return room-int64(size) >= min(deleteSpace, keeps/2)
}

// maxRecord is the longest record, bytes.
const maxRecord = 64 << 20

// append puts a record into the log's buffer. An urgent one passes on a full disk.
func (l *fileLog) append(kind wal.Kind, urgent bool, parts ...[]byte) (uint64, error) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > maxRecord {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", engine.ErrLogTooLarge, n, maxRecord)
	}
	if ring := l.s.ring.Load(); ring != nil {
		var err error
		if parts, err = sealRecord(ring, kind, l.s.log.Last()+1, parts); err != nil { // mu is held: the next record is this one
			return 0, err
		}
	}
	seq, err := l.s.log.Enqueue(kind, urgent, parts...)
	l.s.wake()
	return seq, engineError(err)
}

// durable passes the records that a sync covered to the engine. The log reports one group at a time. mu
// is not held while the engine installs: it takes its own locks, and commits go on.
func (l *fileLog) durable(seq uint64) {
	l.mu.Lock()
	n := 0
	for n < len(l.flying) && l.flying[n].Seq() <= seq {
		n++
	}
	group := l.flying[:n:n]
	l.mu.Unlock()
	l.s.eng.Durable(group)
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.flying[:n]) // entries are large, and the next group may be long in coming
	switch left := l.flying[n:]; {
	case len(left) > 0:
		l.flying = left
	case cap(l.flying) <= maxKeptFlying:
		l.flying = l.flying[:0]
	default:
		l.flying = nil
	}
}

// installedTo returns a record of the log up to which everything is installed. A checkpoint that
// freezes the overlay after that covers it.
func (l *fileLog) installedTo() uint64 {
	l.tail.Lock()
	defer l.tail.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flying) > 0 {
		return l.flying[0].Seq() - 1
	}
	return l.s.log.Last()
}

// Follow implements engine.Log. No other process commits.
func (l *fileLog) Follow(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// Write implements engine.Log.
func (l *fileLog) Write() error { return engineError(l.s.log.Write()) }

// Sync implements engine.Log. 0 means everything that was put in so far. heard ends the wait early:
// somebody else has the answer already.
func (l *fileLog) Sync(ctx context.Context, seq uint64, heard <-chan struct{}) error {
	if seq == 0 {
		seq = l.s.log.Last()
	}
	return engineError(l.s.log.Sync(ctx, seq, heard))
}

// Outcome implements engine.Log. Ids sort by time, so an id that was just made is greater than all
// in the file, which is then not read. nil: neither rows nor audit have it. ErrTooOld: the audit
// names it while its row is gone, so it may not be applied once more.
func (l *fileLog) Outcome(ctx context.Context, id ulid.ULID) (row []byte, err error) {
	l.mu.Lock()
	above := id.Compare(l.filed) > 0
	l.mu.Unlock()
	if above {
		return nil, nil
	}
	return l.filedOutcome(ctx, id)
}

// filedOutcome is Outcome for an id that may be in the file.
func (l *fileLog) filedOutcome(ctx context.Context, id ulid.ULID) (row []byte, err error) {
	err = l.View(func(tx engine.Reader) (err error) {
		row, err = engine.OutcomeIn(tx, id)
		return err
	})
	if err != nil && !errors.Is(err, engine.ErrTooOld) {
		err = l.s.eng.Corrupt("outcome of "+id.String(), err)
	}
	if row == nil && err == nil { // the row may have been removed, and the batch must not be applied twice
		named, aerr := l.s.eng.Leaves.Named(ctx, id.String())
		if err = engine.AuditError(aerr); named {
			err = engine.ErrTooOld
		}
	}
	return row, err
}

// file notes the greatest batch id with an outcome in the rows.
func (l *fileLog) file(newest ulid.ULID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filed.Compare(newest) < 0 {
		l.filed = newest
	}
}

// lastID is above every batch id.
var lastID = ulid.ULID(bytes.Repeat([]byte{0xff}, len(ulid.ULID{})))

// View implements engine.Rows.
func (l *fileLog) View(fn func(engine.Reader) error) error { return l.s.viewRows(fn) }

// Snapshot implements engine.Log.
func (l *fileLog) Snapshot(_ context.Context, fn func(engine.Reader, engine.Base) error) error {
	return l.s.snapshot(fn)
}

// mark writes {synced size, root, frontier} into the log, if there are leaves that the last mark
// does not cover.
func (l *fileLog) mark(audit *archive.Log) error {
	_ = l.Sync(context.Background(), 0, nil) // after an error the audit has fewer leaves, all durable
	size := audit.Size()
	if size <= l.marked.Swap(size) {
		return nil
	}
	body, err := audit.Mark(size)
	if err != nil {
		return err
	}
	l.tail.Lock()
	defer l.tail.Unlock()
	if _, err := l.append(wal.KindMark, true, body); err != nil {
		return fmt.Errorf("ctxpage: log: %w", err)
	}
	return nil
}

// engineError adds the engine's name for an error of the log. The engine decides by these names
// alone, so that it knows no package wal.
func engineError(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range [...]struct{ of, is error }{
		{wal.ErrFull, engine.ErrLogFull}, {wal.ErrPoisoned, engine.ErrLogBroken}, {wal.ErrClosed, engine.ErrLogClosed},
	} {
		if errors.Is(err, e.of) {
			return &namedError{e.is, err}
		}
	}
	return err
}

// namedError has the text of its cause and matches its name.
type namedError struct{ name, cause error }

// Error, Unwrap and Is let callers match both the name and the cause.
func (e *namedError) Error() string        { return e.cause.Error() }
func (e *namedError) Unwrap() error        { return e.cause }
func (e *namedError) Is(target error) bool { return target == e.name }
