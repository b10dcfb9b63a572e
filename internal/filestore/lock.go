package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
)

// processLock is path.lock. It is flocked while a process has the database open, and says which
// process. Readers share it. bbolt's own lock would keep a second process out too, but could not
// say which process to ask.
//
//	writer   exclusive flock; truncates the file and writes its line, truncates it again when it ends
//	reader   shared flock; appends a line, and blanks it when it ends, because other readers have lines too
//	waiter   tries a shared flock: if it gets one, readers have the file, and their lines count; else the writer's line does
//
// A process that was killed releases its flock and leaves its line. Such a line names no process:
// it is of the wrong kind, or its process is not alive.
//
// The file is never removed. Otherwise two processes could lock two files of one name.
type processLock struct {
	f      *os.File
	signed bool
	line   int64 // where the line of a reader begins
	size   int   // the length of that line; 0: there is none
}

// lockHolder is a line of the lock file. Any program of the user can write it, so it is a hint for
// an error text and never a permission: the flock decides. A client reaches the
// owner by the two flags and Socket.
type lockHolder struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
	Reading bool      `json:"reading,omitempty"`
	Socket  string    `json:"socket,omitempty"`  // where it serves the database to others
	Opening bool      `json:"opening,omitempty"` // it will serve, and then say where
}

// Lock is the process lock of a database, held for writing by a caller that does something before
// the files are opened and after they are closed. Pass it to Open as Options.Lock.
type Lock struct {
	l      *processLock
	since  time.Time
	wanted atomic.Bool
}

// TakeLock takes the process lock of opts.Path for writing. Its errors are those that Open returns
// before it opens files; *store.LockedError names the process that has the lock.
func TakeLock(opts Options) (*Lock, error) {
	opts = opts.withDefaults()
	var err error
	if opts.Path, err = filepath.Abs(opts.Path); err != nil {
		return nil, fmt.Errorf("ctxpage: open: %w", err)
	}
	if err := opts.mayOpen(); err != nil {
		return nil, err
	}
	since := opts.Now()
	l, err := lockProcess(opts.Path, lockHolder{Opening: true}, opts.LockWait, func() time.Time { return since })
	if err != nil {
		return nil, err
	}
	return &Lock{l: l, since: since}, nil
}

// Wanted tells the store that another process waits for the lock. Close then leaves the checkpoint of a short log, and
// the snapshot of the columns, to that process, which needs no more time for them.
func (l *Lock) Wanted() { l.wanted.Store(true) }

func (l *Lock) isWanted() bool { return l != nil && l.wanted.Load() }

// Serve writes the path of the socket at which the holder serves the database into the lock file,
// for processes that find it locked. It replaces the line that said Opening. A process that reads
// the file during the write may find half of a line; it is no JSON, so that process knows no
// holder.
func (l *Lock) Serve(socket string) error {
	b, err := lockHolder{Since: l.since, Socket: socket}.line()
	if err != nil {
		return err
	}
	return l.l.name(b)
}

// Guard writes into the lock file where a listener is reached, and returns the listener with a Close that releases the lock as
// well. After an error both are closed. The system releases the lock of a process that crashes; its next holder removes a socket
// that was left.
//
//	lock taken ─▶ socket made ─▶ lock file names the socket ─▶ serving ─▶ socket removed ─▶ lock released
func (l *Lock) Guard(of net.Listener, where string) (net.Listener, error) {
	if err := l.Serve(where); err != nil {
		return nil, errors.Join(err, of.Close(), l.Release())
	}
	return &guarded{Listener: of, lock: l}, nil
}

type guarded struct {
	net.Listener
	lock *Lock
	once sync.Once
}

// Close closes the listener, then releases the lock.
func (g *guarded) Close() error {
	err := net.ErrClosed
	g.once.Do(func() { err = errors.Join(g.Listener.Close(), g.lock.Release()) })
	return err
}

// Release releases the lock. Close the files first.
func (l *Lock) Release() error { return l.l.release() }

// maxLockFile bounds the lines of readers, in bytes. Beyond it a reader holds the lock without a
// line.
const maxLockFile = 64 << 10

// lockProcess takes the lock, shared if the holder is reading, and says who has it. wait 0 tries
// once. A reader without the right to write takes the lock without a line.
func lockProcess(path string, holder lockHolder, wait time.Duration, now func() time.Time) (*processLock, error) {
	name, readOnly := path+".lock", holder.Reading
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDWR
	}
	if err := fileProblem(name); err != nil { // a link would lead the write elsewhere
		return nil, err
	}
	if err := ownWrites(name, readOnly); err != nil { // another user could hold it, or forge the holder
		return nil, err
	}
	f, err := system.OpenFile(name, flag, 0o600)
	if readOnly && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) { // lock it without a line
		f, err = system.OpenFile(name, os.O_RDONLY, 0)
	}
	if readOnly && (errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist)) {
		// A reader makes no file. Without this one, as in a copy, a writer is kept out by bbolt's
		// own lock.
		return &processLock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ctxpage: lock: %w", err)
	}
	// A wait for another process is in real time, whatever the database's clock says.
	for deadline := time.Now().Add(wait); ; {
		err = system.TryLock(f, readOnly)
		if err == nil {
			break
		}
		if !errors.Is(err, system.ErrBusy) || !time.Now().Before(deadline) {
			defer f.Close()
			if errors.Is(err, system.ErrBusy) {
				return nil, holderOf(path, f, readOnly)
			}
			return nil, fmt.Errorf("ctxpage: lock %s: %w", name, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	l := &processLock{f: f}
	holder.Since = now()
	if readOnly {
		l.signReader(name, holder)
	} else if err := l.sign(holder); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// line says that this process is the holder.
func (h lockHolder) line() ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	h.PID, h.Program, h.Since = os.Getpid(), filepath.Base(program), h.Since.UTC()
	b, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: lock: %w", err)
	}
	return append(b, '\n'), nil
}

// signReader appends a line, if it can: a reader needs no permission to write, and no space on the
// disk.
func (l *processLock) signReader(name string, holder lockHolder) {
	b, err := holder.line()
	if err != nil {
		return
	}
	st, err := l.f.Stat()
	if err != nil || st.Size() > maxLockFile {
		return
	}
	f, err := system.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if same, err := f.Stat(); err != nil || !os.SameFile(st, same) {
		return
	}
	n, _ := f.Write(b)
	if end, err := f.Seek(0, io.SeekCurrent); err == nil {
		l.line, l.size = end-int64(n), n
	}
}

// sign makes the lock file say who the writer is, in place of what it said.
func (l *processLock) sign(holder lockHolder) error {
	b, err := holder.line()
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	l.signed = true
	return l.name(b)
}

// name writes the line of the holder. The line is for people; on a full disk the lock holds without
// it.
func (l *processLock) name(b []byte) error {
	if _, err := l.f.WriteAt(b, 0); err != nil && !noSpace(err) {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	return nil
}

// holderOf returns the error that names the holder of the file. A reader is kept out by a writer
// only. A writer is kept out by a writer, or by readers; then a shared lock succeeds. At most
// maxLockFile bytes and one line of a late reader are read, whatever somebody wrote into the file.
func holderOf(path string, f *os.File, reader bool) error {
	e := &store.LockedError{Path: path}
	if !reader && system.TryLock(f, true) == nil {
		e.Reading = true // closing f releases it again
	}
	b := make([]byte, maxLockFile+1<<10)
	n, _ := f.ReadAt(b, 0)
	for line := range bytes.Lines(b[:n]) {
		var h lockHolder
		if json.Unmarshal(line, &h) == nil && h.Reading == e.Reading && system.Alive(h.PID) {
			e.PID, e.Program, e.Since, e.Socket, e.Opening = h.PID, h.Program, h.Since, h.Socket, h.Opening
			break
		}
	}
	return e
}

// release releases the lock. The file stays (see processLock). A writer removes its line, so that
// it is not named while readers hold the file later.
func (l *processLock) release() error {
	if l == nil || l.f == nil {
		return nil
	}
	if l.signed {
		_ = l.f.Truncate(0)
	}
	if l.size > 0 {
		_, _ = l.f.WriteAt(append(bytes.Repeat([]byte{' '}, l.size-1), '\n'), l.line)
	}
	_ = system.Unlock(l.f)
	return l.f.Close()
}
