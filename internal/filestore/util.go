package filestore

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/wal"
)

// unlockFile drops the lock of a file that bbolt keeps open and can no longer close.
func unlockFile(f *os.File) {
	system.UnlockMapped(f)
	_ = f.Close()
}

// noSpace reports whether an error means a full disk (or quota), not a failing one.
func noSpace(err error) bool {
	return system.NoSpace(err) || errors.Is(err, wal.ErrFull)
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
