package filestore

import (
	"errors"
	"io"
	"os"
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
