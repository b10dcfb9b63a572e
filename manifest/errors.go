package manifest

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

var (
	// ErrNewerFormat: the bytes were written by a newer program. They are not
	// damaged; read them with that program.
	ErrNewerFormat = errors.New("manifest: written by a newer version of ctxpage; use that version to read it")

	// ErrNoLeaf: the log has no leaf at that index, or none of that trace.
	ErrNoLeaf = errors.New("manifest: no such leaf")

	// ErrNoQuestion: the text of a question is not there, only its digest.
	ErrNoQuestion = errors.New("manifest: the question was erased or not kept")

	// ErrGap: a leaf was added that is not the next one and not one the log has.
	ErrGap = errors.New("manifest: leaves are missing between the archive and the log")

	// ErrHead: the log does not contain what the given head vouches for.
	ErrHead = errors.New("manifest: the log does not agree with the head")

	// ErrProof: a proof does not prove what it claims.
	ErrProof = errors.New("manifest: the proof does not hold")

	// ErrReadOnly: the log was opened for reading.
	ErrReadOnly = errors.New("manifest: opened read-only")

	// ErrFailed: an earlier write or sync of the archive failed. The leaves are
	// still in the log; close and open again.
	ErrFailed = errors.New("manifest: archiving failed earlier; close and open again")

	// ErrClosed: the log was closed.
	ErrClosed = errors.New("manifest: closed")
)

// CorruptError says that stored bytes are not what was written: where, and what
// to do about it.
type CorruptError struct {
	File   string // base name in the archive; empty for bytes that came from elsewhere
	Offset int64  // of the first wrong thing in File
	Leaf   int64  // index of the first leaf concerned; -1 when no single one is
	Err    error  // what was expected and what was found
	Hint   string // what to do
}

// Error tells all of it in one line.
func (e *CorruptError) Error() string {
	s := "manifest: corrupt"
	if e.File != "" {
		s += fmt.Sprintf(" %s at byte %d", e.File, e.Offset)
	}
	if e.Leaf >= 0 {
		s += fmt.Sprintf(" (leaf %d)", e.Leaf)
	}
	s += ": " + e.Err.Error()
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// ioFailed tells a read that the system could not do now from bytes that are wrong: tried again it may give them.
func ioFailed(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains(passing, e)
}

var passing = []syscall.Errno{
	syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.ESTALE,
}
