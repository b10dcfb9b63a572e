package wal

import "errors"

var (
	// ErrPoisoned: a write or sync failed, so the outcome of everything that is not yet durable is
	// unknown. It wraps the cause. Close the log and open it again; nothing else helps, because a
	// sync is never retried.
	ErrPoisoned = errors.New("wal: log is poisoned by a failed write or sync; close and reopen it")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("wal: log is closed")
	// ErrFull: the disk is full. Nothing was enqueued and the log is not poisoned; Close has the space
	// that it needs, and urgent records may have it.
	ErrFull = errors.New("wal: disk is full; free some space")
)

// errReadOnly answers every change of a log that was opened read-only.
var errReadOnly = errors.New("wal: log is open read-only")
