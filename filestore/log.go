package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// fileLog is the log in segments and the rows in bbolt as the engine knows them: an order that one process has for itself.
//
// The tail is a mutex, and nothing else: there are no others who commit, so whoever has it is caught up. An entry is
// put into the log's buffer and into flying in one step under mu, or a sync that is under way could report it before it is
// there. When the log reports a group, its entries leave flying as soon as the engine has installed them.
//
//	tail      next, record, reserve, and the end of the log
//	mu        flying and filed; a leaf, which the log's report takes, too
type fileLog struct {
	s *Store

	tail    sync.Mutex      // held from Acquire to Release
	next    engine.Counters // of what is in the log and in flight
	record  []byte          // encoded last, to use again
	reserve int             // bytes of leaves in the log's reserve

	mu     sync.Mutex
	flying []engine.Entry // in the order of their records
	filed  ulid.ULID      // greatest batch id with an outcome in the rows, or something greater

	marked atomic.Uint64 // leaves that the last mark covers, or fewer
}

// maxKeptRecord bounds the memory kept for the next record, bytes.
const maxKeptRecord = 1 << 20

// readReserve is how many bytes of leaves may go into the log's reserve on a full disk: a quarter of it, so that reads go
// on for a while and deletes and a clean end always find the rest. After that reads fail: they cannot be audited.
const readReserve = 64 << 10

// begin takes over from recovery: the next numbers, what the rows have, and that no mark is due before there is a leaf.
func (l *fileLog) begin() {
	l.next = l.s.eng.Counters()
	l.marked.Store(l.next.Leaf)
	if err := l.View(l.distrust); err != nil {
		l.filed = lastID // damage is told by who reads the row
	}
}

// distrust says which ids must be looked up: all from before this open, also where the row of the newest is not there any
// more, for somebody may have taken it away; then the audit tells. An id may be ahead of our clock. So where the rows have
// not the sum that was kept, and one such may be gone, every id is looked up.
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
	if sum, _ := engine.SumRows(tx); l.s.sys.Origin != "" && sum != l.s.sys.Rows.Sum {
		l.filed = lastID
	}
	return nil
}

// Acquire: see engine.Log.
func (l *fileLog) Acquire(context.Context) (engine.Tail, error) {
	l.tail.Lock()
	return l, nil
}

// Release: see engine.Tail.
func (l *fileLog) Release() { l.tail.Unlock() }

// Next: see engine.Tail.
func (l *fileLog) Next() engine.Counters { return l.next }

// Commit: see engine.Tail.
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

// Leave: see engine.Log.
func (l *fileLog) Leave(_ context.Context, leaves []*engine.Leaf) (seq uint64, err error) {
	l.tail.Lock()
	defer l.tail.Unlock()
	if err := l.s.eng.Writable(); err != nil { // again: Close waits for those who are in here, and for nobody else
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

func (l *fileLog) leave(leaf *engine.Leaf) (seq uint64, err error) {
	head, body := leaf.Head(), leaf.Body()
	l.mu.Lock()
	defer l.mu.Unlock()
	seq, err = l.append(wal.KindAudit, false, head, body)
	switch size := len(head) + len(body) + 64; {
	case err == nil:
		l.reserve = 0
	case errors.Is(err, engine.ErrLogFull) && l.reserve+size <= readReserve:
		l.reserve += size
		seq, err = l.append(wal.KindAudit, true, head, body)
	}
	if err == nil {
		leaf.Seq = seq
		l.flying = append(l.flying, engine.Entry{Leaf: leaf})
	}
	return seq, err
}

// append puts a record into the log's buffer. What is urgent may use space that is kept for the end of a full disk.
func (l *fileLog) append(kind wal.Kind, urgent bool, parts ...[]byte) (uint64, error) {
	enqueue := l.s.log.Enqueue
	if urgent {
		enqueue = l.s.log.EnqueueReserve
	}
	seq, err := enqueue(kind, parts...)
	return seq, engineError(err)
}

// durable hands what a sync covered to the engine. The log reports one group at a time.
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
	clear(group) // they are large, and the next one may be long in coming
	if l.flying = l.flying[n:]; len(l.flying) == 0 {
		l.flying = nil
	}
}

// settled is a record of the log up to which everything is installed, so that a checkpoint that begins after it covers it.
func (l *fileLog) settled() uint64 {
	l.tail.Lock()
	defer l.tail.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flying) > 0 {
		return l.flying[0].Seq() - 1
	}
	return l.s.log.Last()
}

// Follow: see engine.Log. There are no others.
func (l *fileLog) Follow(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// Write: see engine.Log.
func (l *fileLog) Write() error { return engineError(l.s.log.Write()) }

// Sync: see engine.Log.
func (l *fileLog) Sync(ctx context.Context, seq uint64, heard <-chan struct{}) error {
	if seq == 0 {
		seq = l.s.log.Last()
	}
	return engineError(l.s.log.SyncOr(ctx, seq, heard))
}

// Outcome: see engine.Log. Ids sort by time, so one that was just made is above all those in the file, which need not be
// read then.
func (l *fileLog) Outcome(ctx context.Context, id ulid.ULID) (row []byte, err error) {
	l.mu.Lock()
	above := id.Compare(l.filed) > 0
	l.mu.Unlock()
	if above {
		return nil, nil
	}
	err = l.View(func(tx engine.Reader) (err error) {
		row, err = engine.OutcomeIn(tx, id)
		return err
	})
	if err != nil && !errors.Is(err, engine.ErrTooOld) {
		err = l.s.eng.Corrupt("outcome of "+id.String(), err)
	}
	if row == nil && err == nil { // it may have been taken away: then the batch must not be applied once more
		named, aerr := l.s.eng.Leaves.Named(ctx, id.String())
		if err = engine.AuditError(aerr); named {
			err = engine.ErrTooOld
		}
	}
	return row, err
}

// file says which outcomes the rows have.
func (l *fileLog) file(newest ulid.ULID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filed.Compare(newest) < 0 {
		l.filed = newest
	}
}

// lastID is above every batch id.
var lastID = ulid.ULID(bytes.Repeat([]byte{0xff}, len(ulid.ULID{})))

// View: see engine.Rows.
func (l *fileLog) View(fn func(engine.Reader) error) error { return l.s.viewRows(fn) }

// Snapshot: see engine.Log.
func (l *fileLog) Snapshot(_ context.Context, fn func(engine.Reader, engine.Base) error) error {
	return l.s.snapshot(fn)
}

// mark writes {synced size, root, frontier} into the log when there are leaves the last mark does not cover.
func (l *fileLog) mark(audit *manifest.Log) error {
	_ = l.Sync(context.Background(), 0, nil) // after an error there are fewer leaves, all of them durable
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

// engineError adds the name that the engine has for an error of the log.
func engineError(err error) error {
	for _, e := range [...]struct{ of, is error }{
		{wal.ErrFull, engine.ErrLogFull}, {wal.ErrPoisoned, engine.ErrLogBroken}, {wal.ErrTooLarge, engine.ErrLogTooLarge}, {wal.ErrClosed, engine.ErrLogClosed},
	} {
		if errors.Is(err, e.of) {
			return &namedError{e.is, err}
		}
	}
	return err
}

// namedError reads like its cause and matches its name.
type namedError struct{ name, cause error }

func (e *namedError) Error() string        { return e.cause.Error() }
func (e *namedError) Unwrap() error        { return e.cause }
func (e *namedError) Is(target error) bool { return target == e.name }
