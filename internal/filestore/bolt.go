package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// bbolt maps its file and trusts what it reads: a damaged page ends in a panic, or in a fault of
// the memory system. So
//
//	before    the first pages are read and checked (boltfile.go)
//	within    faults become panics, and panics become a CorruptError; a panic in our own walk over rows ends the transaction
//	after     a panic inside bbolt leaves its locks taken: bbolt is not called again, not even to close it, and the lock of
//	          the file is dropped by hand (closeFiles)
//
// Transactions must not be nested: an outer read transaction holds bbolt's map, a writer that must
// remap waits for it, and an inner one would wait for that writer.

// openBolt opens the file, or makes an empty one. Nothing is mapped before inspect has read what
// bbolt will trust. The order: nothing is made where readers or misfits forbid it, nothing is cut
// where a log says that there was a database, nothing is mapped before it was inspected.
func (s *Store) openBolt(context.Context) (err error) {
	if _, err := os.Lstat(s.opts.Path); errors.Is(err, os.ErrNotExist) && s.opts.ReadOnly {
		return fmt.Errorf("%w: %s", store.ErrNotExist, s.opts.Path)
	}
	empty, err := s.inspect()
	if err != nil {
		return err
	}
	if empty {
		left, err := s.leftBehind()
		if err != nil {
			return err
		}
		if left {
			return &store.CorruptError{File: s.opts.Path, Err: errors.New("the file is missing or empty, its log or archive is there"), Hint: store.HintSalvage}
		}
	}
	if empty && (s.opts.ReadOnly || s.opts.MustExist) {
		return notMade(s.opts.Path)
	}
	if empty { // remove what a killed creation left, which bbolt would take for a database
		if err := os.Truncate(s.opts.Path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ctxpage: create %s: %w", s.opts.Path, err)
		}
	}
	defer s.recoverBolt(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err := bbolt.Open(s.opts.Path, 0o600, s.boltOptions(s.openFile))
	switch {
	case err == nil:
		s.use(db)
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return &store.LockedError{Path: s.opts.Path}
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return &store.CorruptError{File: s.opts.Path, Err: err, Hint: store.HintSalvage}
	}
	return fmt.Errorf("ctxpage: open %s: %w", s.opts.Path, err)
}

// use makes an opened file the one of the store.
func (s *Store) use(db *bbolt.DB) {
	db.AllocSize = allocSize
	s.bolt.Store(db)
	s.pageSize = int64(db.Info().PageSize)
	if s.opts.onBolt != nil {
		s.opts.onBolt(db)
	}
}

// allocSize is the step in which the file grows, bytes. bbolt's 16 MiB would be most of a small
// database.
const allocSize = 1 << 20

// boltPage is the size of bbolt's pages in a new file. Of texts of 1 KiB seven fill a page, and of
// 4 KiB only three: such a text takes a tenth less. A file keeps the size it was made with.
const boltPage = 8 << 10

// boltOptions are those with which this store opens bbolt's file. The free list is a map: an
// allocation does not search a sorted list.
func (s *Store) boltOptions(open func(string, int, os.FileMode) (*os.File, error)) *bbolt.Options {
	return &bbolt.Options{
		Timeout: time.Second, ReadOnly: s.opts.ReadOnly, FreelistType: bbolt.FreelistMapType, NoSync: s.opts.NoSync,
		InitialMmapSize: system.MapBytes, // a remap waits for readers; start above the size most files reach
		OpenFile:        open,
		PageSize:        boltPage,
	}
}

// openFile refuses symbolic links and keeps bbolt's file: after a panic its lock must be dropped by
// hand.
func (s *Store) openFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	f, err := system.OpenFile(name, flag, perm) // a pipe in its place must not make us wait
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errors.New("expected a regular file"))
	}
	s.file.Store(f)
	return f, nil
}

// recoverBolt turns a panic inside bbolt into an error. bbolt's locks may be held forever then, so
// it is not entered again, and Close drops the file instead of closing it.
func (s *Store) recoverBolt(err *error) {
	if r := recover(); r != nil {
		*err = s.panicked(r)
		s.broken.CompareAndSwap(nil, err)
	}
}

// recoverWalk turns a panic of our own walk over a damaged page into an error; bbolt then ends the
// transaction itself.
func (s *Store) recoverWalk(err *error) {
	if r := recover(); r != nil {
		*err = s.panicked(r)
	}
}

// panicked makes the error for a panic: damage of the file, whatever bbolt or our walk stumbled
// over.
func (s *Store) panicked(r any) error {
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("%v", r), Hint: store.HintSalvage}
}

// view runs a bbolt read transaction. A fault in the mapped file (a page beyond its end) becomes an
// error. An error means damage of the file, or ErrClosed; fn's own error is passed on. It takes no
// lock of ours, and must not be called within another transaction.
func (s *Store) view(fn func(tx *bbolt.Tx) error) error {
	return s.within((*bbolt.DB).View, fn)
}

// update runs a bbolt write transaction, with the same protection. A commit that failed after its
// last write is an *unsureError: bbolt goes on with the new state, while memory has the state
// of the previous commit. Whether the commit counts is asked of bbolt itself: a newer transaction than the
// one before means that its meta page was written. The caller holds ckptMu, or is the only one at
// an open.
func (s *Store) update(fn func(tx *bbolt.Tx) error) error {
	id := 0
	err := s.within((*bbolt.DB).Update, func(tx *bbolt.Tx) error {
		id = tx.ID()
		return fn(tx)
	})
	if err == nil || id == 0 || s.broken.Load() != nil {
		return err
	}
	newest := id
	if verr := s.view(func(tx *bbolt.Tx) error { newest = tx.ID(); return nil }); verr == nil && newest < id {
		return err
	}
	return &unsureError{s.opts.Path, err}
}

// resizeError is of a file that could not grow. bbolt keeps only the text of the system's error;
// its number is found by that.
type resizeError struct {
	err   error
	errno error
}

// Error is bbolt's text.
func (e *resizeError) Error() string { return e.err.Error() }

// Unwrap is the number of the system's error, so that noSpace recognises a full disk.
func (e *resizeError) Unwrap() error { return e.errno }

// withErrno adds the number of the system error to an error of bbolt that the file could not grow.
// The file is unchanged, because bbolt grows it before it writes.
func withErrno(err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "file resize error: ") && !strings.HasPrefix(err.Error(), "file sync error: ") && !strings.HasPrefix(err.Error(), "mmap allocate error: ") {
		return err
	}
	for _, n := range []error{system.ErrNoSpace, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO} {
		if strings.HasSuffix(err.Error(), ": "+n.Error()) {
			return &resizeError{err, n}
		}
	}
	return err
}

// unsureError is of a commit of the file that is written and perhaps not on the disk. It is no full
// disk that a second try could get over, so it matches store.ErrNoSpace alone.
type unsureError struct {
	path string
	err  error
}

// Error says what to do.
func (e *unsureError) Error() string {
	return fmt.Sprintf("ctxpage: %s was written, and perhaps not to the disk: %v; free space on the disk, close the database and open it again", e.path, e.err)
}

// Is makes errors.Is(err, store.ErrNoSpace) true where the disk was full.
func (e *unsureError) Is(target error) bool { return target == store.ErrNoSpace && noSpace(e.err) }

// within runs a transaction and turns faults and panics into errors. If compact replaced the file
// in the meantime, the transaction runs on the new one.
func (s *Store) within(run func(*bbolt.DB, func(*bbolt.Tx) error) error, fn func(tx *bbolt.Tx) error) (err error) {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	defer s.recoverBolt(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for {
		db := s.bolt.Load()
		err = run(db, func(tx *bbolt.Tx) (err error) {
			defer s.recoverWalk(&err)
			return fn(tx)
		})
		if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			return withErrno(err)
		}
		s.replacing.RLock()
		same := db == s.bolt.Load() // otherwise compact replaced the file
		s.replacing.RUnlock()
		if same {
			return store.ErrClosed
		}
	}
}
