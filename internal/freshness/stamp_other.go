//go:build !linux && !windows

package freshness

import (
	"io/fs"
	"syscall"
	"time"
)

// changeOf returns the ctime and the inode of a file.
func changeOf(fi fs.FileInfo) (time.Time, uint64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fi.ModTime(), 0
	}
	return time.Unix(st.Ctimespec.Unix()), st.Ino
}
