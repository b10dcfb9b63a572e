package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Log is the durable order under an engine: commits and audit leaves, each with the next number,
// forever. A file beside one process is a Log (package filestore). A table that several hosts
// share can be one too: each host then has an engine and a Log of its own, and all follow
// the one order.
//
//	Acquire       the caller has the tail, alone and caught up: Follower.Follow got what others committed
//	Tail.Commit   the record has its place; it is not durable yet, and no reader sees it
//	Tail.Release  another caller may judge the next batch, on top of those in flight
//	Sync          one caller makes the whole group durable
//	Durable       the engine installs the group: leaves into the tree, pages into the catalogue
//	Lost          or the engine takes the group back: it never became durable
//
// The tail is released before the disk answers, which makes groups: batch n+1 is judged
// while n syncs, and one caller syncs for all that wait. A Log whose tail is a lock on a server
// keeps that lock from the first Acquire to the Sync of its group; an Acquire in between costs
// nothing.
//
// Rejected: a Commit that returns when its group is durable. The engine would have to collect a
// group before it judges one, which costs a lone writer a goroutine switch, and costs an embedded
// log half of the overlap.
//
// A Log serves one engine, its Follower, which is given to it when it is made. Its methods are safe
// for concurrent use.
//
// What the engine relies on:
//
//	order      records become durable in the order of their numbers; a durable record has all before it
//	once       Durable or Lost reports each entry exactly once, in order, unless the log fails for good
//	whole      a crash leaves a record whole or not at all; recovery passes a prefix of the order to Follow
//	reports    Durable has returned before Sync returns for a record of its group
//
// Sequence numbers (seq) count records, LSNs count commits. A leaf of a read has a record and takes
// no LSN.
type Log interface {
	Rows
	// Acquire waits until no other caller extends the order and the Follower has everything in it.
	// In an embedded log it takes a mutex. Errors: ErrTooOld, ErrForked, the error of ctx.
	Acquire(ctx context.Context) (Tail, error)
	// Follow passes to the Follower what other writers committed. If there is nothing, it waits for at
	// most wait. An embedded log has no other writers. Errors: ErrTooOld, ErrForked.
	Follow(ctx context.Context, wait time.Duration) error
	// Leave puts audit leaves of reads into the order, without the tail: a read must not wait for a
	// writer. It sets their Seq and does not wait for the disk. It returns the Seq of the last one.
	// An embedded log sets their Index at once. A log on a server sets it when it has the tail,
	// which may be after they are durable. Errors: ErrLogFull, ErrLogTooLarge, ErrLogBroken.
	Leave(ctx context.Context, leaves []*Leaf) (seq uint64, err error)
	// Write hands records in flight to the operating system, so that a killed process does not lose
	// them.
	Write() error
	// Sync returns when record seq, and all before it, is durable and Durable has returned for it,
	// or when heard is closed. seq 0 stands for the newest record. For a seq that Leave returned, a
	// log on a server makes the leaves of that call durable and may install them later; seq 0 waits
	// for that too.
	//
	// If ctx ends, only the wait ends; the record may still become durable. ErrNothing: the record
	// will never be durable, and nothing happened. After an error that matches
	// store.ErrOutcomeUnknown or store.ErrClosed the log knows the outcome later. Any other error
	// means that the log has failed for good.
	Sync(ctx context.Context, seq uint64, heard <-chan struct{}) error
	// Outcome returns the outcome row of a batch id; nil: there is none. ErrTooOld: the log keeps
	// newer outcomes only.
	Outcome(ctx context.Context, id ulid.ULID) ([]byte, error)
	// Snapshot shows fn the rows that a new engine starts from, and the LSN and counts that they
	// belong to.
	Snapshot(ctx context.Context, fn func(Reader, Base) error) error
}

// Tail is the right to extend the order. It holds the lock that comes before the engine's locks
// (see sequencer).
type Tail interface {
	// Next returns the numbers that the next commit gets.
	Next() Counters
	// Commit puts a commit with these numbers at the end of the order, sets its Seq, and takes its
	// After for the next. It does not wait for the disk. On an error the order is as it was.
	// Errors: ErrLogFull, ErrLogTooLarge, ErrLogBroken.
	Commit(c *Commit) error
	// Release lets the next caller of Acquire go on.
	Release()
}

// Follower is an engine as its Log sees it. The Log calls one of its methods at a time.
type Follower interface {
	// Position returns how far the engine has installed the order.
	Position() Position
	// Counters are the numbers that come after it.
	Counters() Counters
	// Follow takes the next durable record of the order, written by others or before this process
	// began. *RecordError says what is wrong with it.
	Follow(kind Kind, seq uint64, body []byte) error
	// Durable says that these entries, the next ones in flight, are durable. It may block while
	// pages are analysed. It does not call the Log.
	Durable(entries []Entry)
	// Lost says that these entries, all that are in flight, will never be durable. The log reuses
	// their numbers.
	Lost(entries []Entry)
}

// Position is a place in an order. Two orders are the same up to a position if all three fields
// agree; the root makes sure of it, because LSN and leaf count can agree by chance. A follower
// sends it when it asks a log on a server for the records after it.
type Position struct {
	LSN    uint64        // of the newest commit
	Leaves uint64        // of the audit
	Root   manifest.Hash // of the tree over them: an order that had another root there is another order
}

// Counters are the numbers of a commit, or those that the next commit starts from. No number is
// given twice, unless a commit was Lost, which no reader ever saw.
//
//	LSN    commits, from 1
//	Leaf   index of the commit's leaf in the audit, from 0
//	Art    artefacts, from 1
//	Num    page versions, from 1
//	Group  groups, from 1
type Counters struct {
	LSN, Leaf, Art, Num, Group uint64
}

// Entry is a commit or a leaf on its way through a log. Exactly one of the two fields is set.
type Entry struct {
	Commit *Commit
	Leaf   *Leaf // if Commit is nil
}

// Seq returns the number of the entry's record in the log.
func (e Entry) Seq() uint64 {
	if e.Commit != nil {
		return e.Commit.Seq
	}
	return e.Leaf.Seq
}

// Leaf is an audit leaf without a commit: of a read, or of a batch that was refused.
type Leaf struct {
	Index uint64 // set by the Log, before it is durable
	Seq   uint64 // set by Leave

	leaf     archive.Leaf
	question []byte
}

// Body is the encoded leaf: the end of its record, behind AppendLeafHead.
func (l *Leaf) Body() []byte { return l.leaf.Body() }

// Question is the row of the leaf's question; nil: it has none.
func (l *Leaf) Question() []byte { return l.question }

// AppendLeafHead appends the beginning of the record of a leaf to b; its Body follows. It needs no
// Leaf, because a log on a server also numbers the leaves of a process that has ended.
func AppendLeafHead(b []byte, index uint64, question []byte) []byte {
	return format.AppendAuditBody(b, index, question)
}

// Kind says what a record of the log is.
type Kind uint8

// The kinds.
const (
	KindCommit Kind = iota // a commit with its audit leaf
	KindLeaf               // an audit leaf alone
	KindMark               // a mark of the audit: size and root
)

// The errors of a Log. After ErrLogFull the engine frees space and tries once more. ErrLogBroken is
// final for this handle.
var (
	ErrLogFull     = errors.New("engine: the log has no space")
	ErrLogTooLarge = errors.New("engine: the record is too large for the log")
	ErrLogBroken   = errors.New("engine: the log failed and takes no more records")
	ErrLogClosed   = errors.New("engine: the log is closed")
	// ErrNothing: the record is not in the log and will not be. Nothing happened; the batch may be
	// repeated.
	ErrNothing = errors.New("engine: the log lost the record before it was durable")
	// ErrTooOld: the log does not reach back that far.
	ErrTooOld = errors.New("engine: the log no longer has what follows")
	// ErrForked: the follower is at a place that this order never had.
	ErrForked = errors.New("engine: the log is of another history")
)

// enqueueError turns an error of Tail.Commit or Leave into the error for callers of the
// store.
func enqueueError(err error) error {
	switch {
	case errors.Is(err, ErrLogBroken): // of this batch nothing was written, but the handle is of no use any more
		return fmt.Errorf("%w: %w; reopen the database and repeat with the same id", store.ErrOutcomeUnknown, err)
	case errors.Is(err, ErrLogTooLarge):
		return store.Invalid("transaction", "a log record above the limit", "at most 64 MiB; write it in several transactions")
	case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrOutcomeUnknown):
		return err
	}
	return fmt.Errorf("ctxpage: log: %w", err)
}

// The rows of a store, as the engine sees them: eight tables of bytes by key, read in snapshots and
// written by checkpoints. Keys are in the order of their bytes; numbers in keys are big-endian, so
// that this is the order of the numbers too. FORMAT.md has the keys and the values of each table.
//
// Each value ends with a checksum over the tag of its table, its key and itself (codec.Seal), so a
// row that is found under another key, or in another table, does not verify. The engine seals and
// unseals; Rows moves bytes. Only the rows of the index are sealed by package lexical.

// Table is a set of rows, ordered by key. A store keeps each table where it likes; bbolt has a
// bucket for each.
type Table uint8

// The tables.
const (
	TableMeta     Table = iota // scopes, groups, heads
	TableContent               // texts of pages
	TableSeg                   // segments of the index
	TableHeld                  // held batches
	TableTxn                   // outcomes
	TableState                 // state rows
	TableVec                   // vectors; may be absent
	TableQuestion              // texts of questions; may be absent
)

// String is the name of the table in errors and in the file: bbolt's buckets have these names.
func (t Table) String() string {
	return [...]string{"meta", "content", "seg", "held", "txn", "state", "vec", "question"}[t]
}

// Rows are the rows of a store beside its log: the effect of all commits up to some LSN. They may
// be newer than what the engine loaded, never older: a checkpoint only moves them forward.
type Rows interface {
	// View shows fn one snapshot. The rows that fn reads are borrowed and are valid until fn
	// returns. fn must take no lock of the engine except a leaf, because the snapshot may block a
	// writer that the lock's holder waits for; for the same reason it must not call View.
	View(fn func(Reader) error) error
}

// Reader reads a snapshot. Everything that it returns is borrowed: it must be copied to outlive the
// snapshot, and must not be changed.
type Reader interface {
	// Get returns the row of a key; nil: there is none.
	Get(t Table, key []byte) []byte
	// From yields the rows from a key on, in rising order.
	From(t Table, key []byte) iter.Seq2[[]byte, []byte]
	// Next returns the first row from a key on; nil: there is none.
	Next(t Table, key []byte) (k, v []byte)
	// Before returns the greatest key below another one; nil: there is none.
	Before(t Table, key []byte) []byte
	// Last returns the greatest key; nil: the table is empty.
	Last(t Table) []byte
	// Len returns about how many rows a table has.
	Len(t Table) int
}

// Writer changes rows, all or nothing. A value that was put must not change before the transaction
// ends. The caller may reuse a key once Put or Delete has returned. A row that was read before its
// table changed is no longer valid.
type Writer interface {
	Reader
	Put(t Table, key, value []byte) error
	Delete(t Table, key []byte) error
}

// SegRows shows the lexical index its segments.
type SegRows struct{ Reader }

// Get returns the row of a key; nil: there is none.
func (r SegRows) Get(key []byte) []byte { return r.Reader.Get(TableSeg, key) }

// Scan calls fn for the rows whose keys begin with prefix, from a key on (nil: from the first),
// until it returns false.
func (r SegRows) Scan(prefix, from []byte, fn func(k, v []byte) bool) {
	if from == nil {
		from = prefix
	}
	for k, v := range r.From(TableSeg, from) {
		if !bytes.HasPrefix(k, prefix) || !fn(k, v) {
			return
		}
	}
}

// Next returns the first row from a key on; nil: there is none.
func (r SegRows) Next(key []byte) (k, v []byte) { return r.Reader.Next(TableSeg, key) }

// Word appends to b what stands for a word in the key of its list: the word itself, or its mask
// (Masks).
func (r SegRows) Word(b []byte, scope uint32, word []byte) []byte {
	if m, ok := r.Reader.(lexical.Masked); ok {
		return m.Word(b, scope, word)
	}
	return append(b, word...)
}

// Masks reports whether the store masks words: an encrypted one keeps a keyed digest in place of
// each word.
func (r SegRows) Masks() bool {
	m, ok := r.Reader.(lexical.Masked)
	return ok && m.Masks()
}

// Put writes a row. It works in a checkpoint only, where the Reader is a Writer.
func (r SegRows) Put(k, v []byte) error { return r.Reader.(Writer).Put(TableSeg, k, v) }

// Delete removes a row, in a checkpoint only, as Put.
func (r SegRows) Delete(k []byte) error { return r.Reader.(Writer).Delete(TableSeg, k) }
