//go:build unix

package wal

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags: no symbolic link is followed, and opening a pipe left in a file's place does not hang.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func links(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 1
}

func syncDir(dir string) error {
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
