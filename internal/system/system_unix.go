//go:build unix

package system

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// Modes reports whether the permission bits of a file keep other users out.
const Modes = true

// ReplacesOpen reports whether a file can be renamed over one that is open or mapped.
const ReplacesOpen = true

// ToSync are the flags to open a file with to sync it, and ReadSyncs reports whether the right to read it is enough.
const (
	ToSync    = os.O_RDONLY
	ReadSyncs = true
)

// MapBytes is how much of a file may be mapped before the file has as many bytes.
const MapBytes = 1 << 28

var (
	noSpace     = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	passingHere []syscall.Errno
)

// OpenFile is os.OpenFile, but follows no symbolic link in the last element and does not wait at a pipe.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, perm)
}

// Rename is os.Rename.
func Rename(from, to string) error { return os.Rename(from, to) }

// Patiently calls do: a file can be opened, renamed and removed here while another process has it open.
func Patiently(do func() error) error { return do() }

// RenameNew is Rename that replaces nothing: it returns fs.ErrExist if there is a file. A file system without links replaces.
func RenameNew(from, to string) error {
	switch err := os.Link(from, to); {
	case err == nil:
		return os.Remove(from)
	case errors.Is(err, fs.ErrExist):
		return err
	}
	return os.Rename(from, to)
}

// Links returns the number of names of a regular file, by what Lstat or Stat returned for it.
func Links(_ string, st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 1
}

// Owned reports whether a file belongs to this user.
func Owned(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// TryLock locks a file, for this open file alone or shared, or returns ErrBusy. A lock that the file has already is replaced. The lock ends
// with Unlock, when the file is closed, and when the process ends.
func TryLock(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// Lock waits for a file, and locks it for this open file alone.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

// Unlock ends the lock of a file.
func Unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// UnlockMapped ends the lock that bbolt has on a file.
func UnlockMapped(f *os.File) { _ = Unlock(f) }

// Alive reports whether a process exists.
func Alive(pid int) bool { return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// Killed reports whether a process was ended from outside.
func Killed(end *os.ProcessState) bool {
	ws, ok := end.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, ws.Signal())
}

// SyncDir makes the names in a directory durable: a new or renamed file may be lost in a power cut
// until then, however often it was synced itself.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
