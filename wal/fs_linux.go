package wal

import (
	"errors"
	"os"
	"syscall"
)

// datasync flushes contents and, when it grew, the size; it leaves timestamps to the kernel.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		// EINTR says that nothing was waited for yet, so this is not the forbidden retry of a failed sync.
		for serr = syscall.EINTR; errors.Is(serr, syscall.EINTR); {
			serr = syscall.Fdatasync(int(fd))
		}
	})
	if err == nil {
		err = serr
	}
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
