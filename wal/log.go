// Package wal is the one log: framed records in segments.
package wal

import (
	"context"
	"errors"
	"time"
)

// Kind says what a record is. The log knows the three kinds and attaches no meaning to them.
type Kind byte

// The known kinds.
const (
	KindCommit Kind = 'C' // a commit, or what is like one: held, approved, rejected
	KindAudit  Kind = 'A' // an audit leaf
	KindMark   Kind = 'M' // a mark, written after a sync
)

// Record is one record as replay and Scan hand it out.
type Record struct {
	Seq     uint64 // number in the log, gapless over all records, from 1
	Kind    Kind
	Durable uint64 // highest record known durable when this one was written
	Close   bool   // final record of a clean Close
	Body    []byte // valid during the callback only
	Segment string // path of the file
	Offset  int64  // of the frame in it, bytes
}

// Options of a log. The zero value is usable.
type Options struct {
	FS           FS               // nil: OS()
	SegmentBytes int64            // a segment is followed by the next from this size on; 0: 64 MiB
	GroupWait    time.Duration    // longest a group waits for recently seen committers; 0: 40µs, < 0: never
	Salt         func() uint64    // salt of a new segment; nil: crypto/rand
	OnDurable    func(seq uint64) // called in order, one at a time, before a Sync that waits for seq returns; must not call the log
	MaxRecord    int              // longest body, bytes; 0: 64 MiB
	ReadOnly     bool             // replay only; nothing on disk changes
	NoSync       bool             // syncs nothing: the negative control of tests, nothing else
}

// Recovery tells what Open or Scan found.
type Recovery struct {
	Clean     bool   // the last record carries Close and nothing follows it
	Fresh     bool   // no record was ever written
	First     uint64 // oldest record there; Last+1 when there is none
	Last      uint64 // newest record there; 0 in a fresh log
	Segments  int
	CutFile   string // segment with a torn end, "" when there was none
	CutAt     int64  // where the valid part ends, bytes
	CutBytes  int64  // bytes behind it, up to the last that is not zero
	Rewritten bool   // the tail was copied into a new-generation segment
}

// Log is an open log. Safe for concurrent use.
type Log struct{}

var errSkeleton = errors.New("wal: being built")

// Open opens the log in dir, making both if need be, and hands every record to replay in order.
func Open(ctx context.Context, dir string, opts Options, replay func(Record) error) (*Log, Recovery, error) {
	return nil, Recovery{}, errSkeleton
}

// Enqueue appends a record, its body being the parts joined, to the group buffer and returns its number.
// Call order is log order. No I/O; the parts are copied.
func (l *Log) Enqueue(kind Kind, body ...[]byte) (uint64, error) { return 0, errSkeleton }

// EnqueueReserve is Enqueue for records that must get through on a full disk (deletes, say).
func (l *Log) EnqueueReserve(kind Kind, body ...[]byte) (uint64, error) { return 0, errSkeleton }

// Write hands what is buffered to the operating system: it survives a killed process, not a power cut.
func (l *Log) Write() error { return errSkeleton }

// Sync returns when record seq is durable. ctx ends the waiting, never a started write.
func (l *Log) Sync(ctx context.Context, seq uint64) error { return errSkeleton }

// Durable returns the highest record that is durable and was given to OnDurable.
func (l *Log) Durable() uint64 { return 0 }

// Last returns the highest record enqueued.
func (l *Log) Last() uint64 { return 0 }

// First returns the oldest record there; Last+1 when there is none.
func (l *Log) First() uint64 { return 0 }

// Size returns the bytes of all segments, preallocated space apart.
func (l *Log) Size() int64 { return 0 }

// DropBefore removes whole segments, oldest first, all of whose records are below seq; never the active
// one. It returns how many.
func (l *Log) DropBefore(seq uint64) (int, error) { return 0, errSkeleton }

// Rotate starts a new segment now.
func (l *Log) Rotate() error { return errSkeleton }

// Close appends a final record flagged Close, syncs and closes.
func (l *Log) Close(kind Kind, body []byte) error { return errSkeleton }

// Scan reads the log in dir from record from on, beside a live writer; it changes nothing. A torn end is
// not an error.
func Scan(ctx context.Context, dir string, fsys FS, from uint64, fn func(Record) error) (Recovery, error) {
	return Recovery{}, errSkeleton
}
