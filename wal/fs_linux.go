package wal

import (
	"errors"
	"os"
	"syscall"
)

// nextData is where the next byte at or behind off stands that is no hole of the file, -1 if none
// does; off where the file system knows of no holes.
func (f osFile) nextData(off int64) int64 {
	const seekData = 3 // whence of lseek
	at, err := f.Seek(off, seekData)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return -1
	case err != nil:
		return off
	}
	return at
}

// datasync flushes contents and, when it grew, the size; it leaves timestamps to the kernel.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		// EINTR says that nothing was waited for yet, so this is not the forbidden retry of a
		// failed sync.
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
