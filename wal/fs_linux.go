package wal

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mmap implements mapper. A file system that is not in the list may keep what is written through
// memory apart from what is written by calls.
func (f osFile) mmap(off, n int64) (mem []byte, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var st unix.Statfs_t
		if err = unix.Fstatfs(int(fd), &st); err != nil {
			return
		}
		switch int64(st.Type) {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
			mem, err = unix.Mmap(int(fd), off, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		default:
			err = fmt.Errorf("a file system of type %#x has no window", st.Type)
		}
	})
	if err == nil {
		err = cerr
	}
	return mem, err
}

func (f osFile) munmap(mem []byte) error { return unix.Munmap(mem) }

// nextData returns the offset of the first byte at or behind off that is in no hole of the file; -1: there
// is none. Where the file system knows of no holes it returns off.
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
