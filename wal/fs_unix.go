//go:build unix

package wal

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags: no symbolic link is followed, and opening a pipe left in a file's place does not hang.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// linkCount returns the number of names of a file. A file with a second name (a hard link) would be changed
// under that name too.
func linkCount(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 1
}

// syncDir makes the names in a directory durable: a new or renamed file may be lost in a power cut
// until then, however often it was synced itself.
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
