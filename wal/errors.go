package wal

import "errors"

var (
	// ErrPoisoned: a write or sync failed, so the outcome of everything that is not yet durable is
	// unknown. It wraps the cause. Close the log and open it again; nothing else helps, because a
	// sync is never retried.
	ErrPoisoned = errors.New("wal: log is poisoned by a failed write or sync; close and reopen it")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("wal: log is closed")
	// ErrReadOnly: the log was opened read-only.
	ErrReadOnly = errors.New("wal: log is open read-only")
	// ErrFull: the disk is full, and only the reserve is left, which EnqueueReserve and Close may
	// use. Nothing was enqueued and the log is not poisoned.
	ErrFull = errors.New("wal: disk is full; free some space, only the reserve is left")
	// ErrMissing: there is no segment, and Options.MustExist says that there was one. Nothing was
	// made.
	ErrMissing = errors.New("wal: the log has no segment")
	// ErrTooLarge: the record is larger than Options.MaxRecord.
	ErrTooLarge = errors.New("wal: record is too large")
	// ErrNewerFormat: a segment was written by a newer version of the format. The text names both.
	// It is never a corrupt.Error, and nothing was changed.
	ErrNewerFormat = errors.New("wal: newer log format")
	// ErrOldFormat: a segment was made before v0.1.0. Nothing was changed.
	ErrOldFormat = errors.New("wal: made before v0.1.0")
)
