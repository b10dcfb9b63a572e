package ctxpage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// processLock is path.lock: flocked while a process has the database open, and saying who it is. Readers share it;
// bbolt's own lock alone would keep a second process out too, but could not say whom to ask.
type processLock struct {
	f      *os.File
	signed bool
}

type lockHolder struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
}

func lockProcess(path string, readOnly bool, wait time.Duration, now func() time.Time) (*processLock, error) {
	name := path + ".lock"
	flag, mode := os.O_RDWR|os.O_CREATE, syscall.LOCK_EX
	if readOnly {
		flag, mode = os.O_RDONLY, syscall.LOCK_SH
	}
	if err := fileProblem(name); err != nil { // what it leads to would be written to
		return nil, err
	}
	f, err := os.OpenFile(name, flag|oNoFollow|syscall.O_NONBLOCK, 0o600)
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
				return nil, holderOf(path, f)
			}
			return nil, fmt.Errorf("ctxpage: lock %s: %w", name, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	l := &processLock{f: f}
	if !readOnly {
		if err := l.sign(now()); err != nil {
			l.release()
			return nil, err
		}
	}
	return l, nil
}

func (l *processLock) sign(since time.Time) error {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	b, err := json.Marshal(lockHolder{os.Getpid(), filepath.Base(program), since.UTC()})
	if err != nil {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	l.signed = true
	_, err = l.f.WriteAt(append(b, '\n'), 0)
	if err != nil {
		return fmt.Errorf("ctxpage: lock: %w", err)
	}
	return nil
}

func holderOf(path string, f *os.File) error {
	e := &LockedError{Path: path}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	var h lockHolder
	if json.Unmarshal(b[:n], &h) == nil && alive(h.PID) {
		e.PID, e.Program, e.Since = h.PID, h.Program, h.Since
	}
	return e
}

// alive keeps a writer that was killed from being named when it is a reader who holds the file now.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// release lets go. The file stays: removing it would let two processes lock two files of one name. A writer takes its
// name out of it, so that nobody is told to ask it when readers hold the file later.
func (l *processLock) release() error {
	if l.f == nil {
		return nil
	}
	if l.signed {
		_ = l.f.Truncate(0)
	}
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN)
	return l.f.Close()
}
