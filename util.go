package ctxpage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/wal"
)

// oNoFollow keeps a symbolic link in a file's place from being followed.
const oNoFollow = syscall.O_NOFOLLOW

// set enters a value into a map that may not be made yet.
func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

func unlockFile(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// noSpace tells a full disk from a failing one.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, wal.ErrFull)
}

// ioFailed tells a read that the system could not do now from bytes that are wrong: tried again it may give them.
func ioFailed(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains(passing, e)
}

var passing = []syscall.Errno{
	syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.ESTALE,
}

// checkClock refuses a time that cannot be stored or shown: rows hold the zero time for "never", and dates in JSON and
// in head lines have four digits. Whoever takes a time from Options.Clock to keep it asks here, or makes an id of it.
func checkClock(now time.Time) error {
	if y, utc := now.Year(), now.UTC().Year(); now.IsZero() || min(y, utc) < 1 || max(y, utc) > 9999 {
		return invalid("Options.Clock", fmt.Sprintf("a time in the year %d", y), "a time from the year 1, which is not the zero time, to the year 9999")
	}
	return nil
}

// newID makes an id that sorts by time. The randomness is the caller's, so that a test can repeat it.
func newID(now time.Time, rand io.Reader) (ulid.ULID, error) {
	if err := checkClock(now); err != nil {
		return ulid.ULID{}, err
	}
	ms := now.UnixMilli()
	if ms < 0 {
		ms = 0
	}
	id, err := ulid.New(uint64(ms), rand)
	if err != nil {
		return id, fmt.Errorf("ctxpage: id: %w", err)
	}
	return id, nil
}

// lockedReader makes a source of randomness safe for concurrent use.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}
