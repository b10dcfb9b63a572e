package filestore

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/ctxpage/ctxpage/wal"
)

// oNoFollow keeps a symbolic link in a file's place from being followed.
const oNoFollow = syscall.O_NOFOLLOW

// unlockFile drops the lock of a file that bbolt keeps open and can no longer close.
func unlockFile(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// noSpace reports whether an error means a full disk (or quota), not a failing one.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, wal.ErrFull)
}

// ioFailed reports whether the system could not read now: another try may succeed. Bytes that were
// read and are wrong are not that.
func ioFailed(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains(passing, e)
}

// passing are errors of the system that may be gone at the next try. They must never be reported as
// damage: a person would restore a backup over a sound database.
var passing = []syscall.Errno{
	syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.ESTALE,
}

// LockedReader makes a source of randomness safe for concurrent use.
type LockedReader struct {
	mu sync.Mutex
	R  io.Reader
}

// Read implements io.Reader.
func (l *LockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.R.Read(b)
}
