package system

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// Modes reports whether the permission bits of a file keep other users out.
const Modes = false

// ReplacesOpen reports whether a file can be renamed over one that is open or mapped.
const ReplacesOpen = false

// ToSync are the flags to open a file with to sync it, and ReadSyncs reports whether the right to read it is enough.
const (
	ToSync    = os.O_RDWR
	ReadSyncs = false
)

// MapBytes is how much of a file may be mapped before the file has as many bytes: nothing, because a file grows to what is mapped of it.
const MapBytes = 0

var (
	noSpace = []syscall.Errno{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}
	// Programs that look for viruses, and those that index, open files for a moment and share them with nobody.
	passingHere = []syscall.Errno{
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY,
		windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_CRC, windows.ERROR_READ_FAULT, windows.ERROR_IO_DEVICE,
		windows.ERROR_NOT_READY, windows.ERROR_SEM_TIMEOUT, windows.ERROR_NETNAME_DELETED, windows.ERROR_COMMITMENT_LIMIT,
	}
)

// OpenFile is os.OpenFile, but follows no symbolic link in the last element, and lets the file be renamed and removed while it is
// open. perm means nothing here.
func OpenFile(name string, flag int, _ fs.FileMode) (*os.File, error) {
	failed := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	wide, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return failed(err)
	}
	access := [...]uint32{os.O_RDONLY: windows.GENERIC_READ, os.O_WRONLY: windows.GENERIC_WRITE, os.O_RDWR: windows.GENERIC_READ | windows.GENERIC_WRITE}[flag&(os.O_WRONLY|os.O_RDWR)]
	if flag&os.O_APPEND != 0 { // each write goes to the end only if the file cannot be written elsewhere
		access = access&^windows.GENERIC_WRITE | windows.FILE_APPEND_DATA | windows.FILE_WRITE_ATTRIBUTES | windows.SYNCHRONIZE
	}
	made := uint32(windows.OPEN_EXISTING)
	switch {
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		made = windows.CREATE_NEW
	case flag&os.O_CREATE != 0:
		made = windows.OPEN_ALWAYS
	}
	const shared = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(wide, access, shared, nil, made, windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return failed(err)
	}
	f := os.NewFile(uintptr(h), name)
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.Mode()&fs.ModeSymlink != 0:
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
	case st.IsDir() && flag&(os.O_WRONLY|os.O_RDWR) != 0:
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	case flag&os.O_TRUNC != 0 && st.Size() > 0:
		err = f.Truncate(0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Rename is os.Rename, but waits while another process has one of the files open, as a reader of the files has for a moment.
func Rename(from, to string) error {
	return Patiently(func() error { return os.Rename(from, to) })
}

// RenameNew is Rename that replaces nothing: it returns fs.ErrExist if there is a file.
func RenameNew(from, to string) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	if err := Patiently(func() error { return windows.MoveFileEx(old, name, 0) }); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// Patiently calls something that opens, renames or removes a file, again while another process has the file open, for three seconds.
func Patiently(do func() error) error {
	for began, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := do()
		open := errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
		if !open || time.Since(began) > patience {
			return err
		}
		time.Sleep(pause)
	}
}

const patience = 3 * time.Second

// Links returns the number of names of a regular file; 1: it cannot be told.
func Links(name string, _ fs.FileInfo) uint64 {
	f, err := os.Open(name)
	if err != nil {
		return 1
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info) != nil {
		return 1
	}
	return uint64(info.NumberOfLinks)
}

// Owned reports whether a file belongs to this user. It is not asked here: the folder protects a file.
func Owned(fs.FileInfo) bool { return true }

// lockedByte returns the byte of a file that a lock covers. A lock keeps other handles from reading and writing what it covers, so it covers
// one byte that no file has. bbolt takes the last of all bytes; this one precedes it.
func lockedByte() *windows.Overlapped {
	return &windows.Overlapped{Offset: math.MaxUint32 - 1, OffsetHigh: math.MaxUint32}
}

// TryLock locks a file, for this open file alone or shared, or returns ErrBusy. The lock ends with Unlock, when the file is closed, and
// when the process ends.
func TryLock(f *os.File, shared bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if !shared {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrBusy
	}
	return err
}

// Lock waits for a file, and locks it for this open file alone.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, lockedByte())
}

// Unlock ends the lock of a file.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte())
}

// UnlockMapped ends the lock that bbolt has on a file.
func UnlockMapped(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: math.MaxUint32, OffsetHigh: math.MaxUint32})
}

// Alive reports whether a process exists. One that may not be asked exists.
func Alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	h, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return !errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	state, err := windows.WaitForSingleObject(h, 0) // a process that ended exists as long as anybody has a handle of it
	return err != nil || state != windows.WAIT_OBJECT_0
}

// Killed reports whether a process was ended from outside. taskkill, the task manager and Go end a process with exit code 1, Ctrl-C and a
// closed console with STATUS_CONTROL_C_EXIT.
func Killed(end *os.ProcessState) bool {
	return end.ExitCode() == 1 || uint32(end.ExitCode()) == uint32(windows.STATUS_CONTROL_C_EXIT)
}

// SyncDir does nothing: the file system keeps a log of names, and offers no sync of a directory.
func SyncDir(string) error { return nil }
