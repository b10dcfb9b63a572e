package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// processLock is path.lock: flocked while a process has the database open, and saying who it is. Readers share it;
// bbolt's own lock alone would keep a second process out too, but could not say whom to ask.
//
// A writer begins the file anew with its line. Each reader that may write the file appends a line, and blanks it when it
// ends: it cannot cut the file, which other readers have lines in. Who asks for the holder tries a shared lock, and so
// learns which lines count: a line that a killed process left behind names nobody.
type processLock struct {
	f      *os.File
	signed bool
	line   int64 // of a reader: where its line begins
	size   int   // of that line; 0: none
}

type lockHolder struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
	Reading bool      `json:"reading,omitempty"`
	Socket  string    `json:"socket,omitempty"` // where it serves the database to others
}

// Lock is the process lock of a database, held for writing by a caller who has something to do before the files are opened
// and after they are closed: give it to Open as Options.Lock.
type Lock struct {
	l     *processLock
	since time.Time
}

// TakeLock takes the process lock of opts.Path for writing. The errors are those of Open, as far as they come before the
// files: *store.LockedError says who has it.
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
	l, err := lockProcess(opts.Path, false, opts.LockWait, func() time.Time { return since })
	if err != nil {
		return nil, err
	}
	return &Lock{l, since}, nil
}

// Serve writes into the lock file at which socket the holder serves the database, for whoever finds it locked.
func (l *Lock) Serve(socket string) error {
	b, err := holderLine(l.since, false, socket)
	if err != nil {
		return err
	}
	return l.l.name(b)
}

// Release lets go, after the files were closed.
func (l *Lock) Release() error { return l.l.release() }

// maxLockFile bounds the lines of readers: beyond it a reader holds the lock unnamed.
const maxLockFile = 64 << 10

func lockProcess(path string, readOnly bool, wait time.Duration, now func() time.Time) (*processLock, error) {
	name := path + ".lock"
	flag, mode := os.O_RDWR|os.O_CREATE, syscall.LOCK_EX
	if readOnly {
		flag, mode = os.O_RDWR, syscall.LOCK_SH
	}
	if err := fileProblem(name); err != nil { // what it leads to would be written to
		return nil, err
	}
	if err := ownWrites(name, readOnly); err != nil { // others could keep it, or write who has it
		return nil, err
	}
	f, err := os.OpenFile(name, flag|oNoFollow|syscall.O_NONBLOCK, 0o600)
	if readOnly && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) { // it cannot sign
		f, err = os.OpenFile(name, os.O_RDONLY|oNoFollow|syscall.O_NONBLOCK, 0)
	}
	if readOnly && (errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist)) {
		// A reader makes no file. Without this one, as in a copy, a writer is kept out by bbolt's own lock.
		return &processLock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ctxpage: lock: %w", err)
	}
	// A wait for another process is in real time, whatever the database's clock says.
	for deadline := time.Now().Add(wait); ; {
		err = syscall.Flock(int(f.Fd()), mode|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || !time.Now().Before(deadline) {
			defer f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, holderOf(path, f, readOnly)
			}
			return nil, fmt.Errorf("ctxpage: lock %s: %w", name, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	l := &processLock{f: f}
	if readOnly {
		l.signReader(name, now())
	} else {
		if err := l.sign(now()); err != nil {
			l.release()
			return nil, err
		}
	}
	return l, nil
}

// holderLine says who this process is.
func holderLine(since time.Time, reading bool, socket string) ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	b, err := json.Marshal(lockHolder{os.Getpid(), filepath.Base(program), since.UTC(), reading, socket})
	if err != nil {
		return nil, fmt.Errorf("ctxpage: lock: %w", err)
	}
	return append(b, '\n'), nil
}

// signReader appends a line, if it can: a reader needs no permission to write, and no space on the disk.
func (l *processLock) signReader(name string, since time.Time) {
	b, err := holderLine(since, true, "")
	if err != nil {
		return
	}
	st, err := l.f.Stat()
	if err != nil || st.Size() > maxLockFile {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|oNoFollow|syscall.O_NONBLOCK, 0)
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

func (l *processLock) sign(since time.Time) error {
	b, err := holderLine(since, false, "")
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	l.signed = true
	return l.name(b)
}

// name writes who holds the lock. That is for people: on a full disk the lock holds without it.
func (l *processLock) name(b []byte) error {
	if _, err := l.f.WriteAt(b, 0); err != nil && !noSpace(err) {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	return nil
}

// holderOf names who has the file. A reader is kept out by a writer alone. A writer is kept out by a writer, or by
// readers: then the file can be shared.
func holderOf(path string, f *os.File, reader bool) error {
	e := &store.LockedError{Path: path}
	if !reader && syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		e.Reading = true // closing f lets go again
	}
	b := make([]byte, maxLockFile+1<<10)
	n, _ := f.ReadAt(b, 0)
	for line := range bytes.Lines(b[:n]) {
		var h lockHolder
		if json.Unmarshal(line, &h) == nil && h.Reading == e.Reading && alive(h.PID) {
			e.PID, e.Program, e.Since, e.Socket = h.PID, h.Program, h.Since, h.Socket
			break
		}
	}
	return e
}

// alive keeps a process that was killed from being named.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// release lets go. The file stays: removing it would let two processes lock two files of one name. A writer takes its
// name out of it, so that nobody is told to ask it when readers hold the file later.
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
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN)
	return l.f.Close()
}
