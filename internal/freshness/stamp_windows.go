package freshness

import (
	"io/fs"
	"syscall"
	"time"
)

// changeOf returns when a file was made and no number: a FileInfo has no ctime and no inode here. A file that was put in the place
// of another was made at another time.
func changeOf(fi fs.FileInfo) (time.Time, uint64) {
	st, ok := fi.Sys().(*syscall.Win32FileAttributeData)
	if !ok {
		return fi.ModTime(), 0
	}
	return time.Unix(0, st.CreationTime.Nanoseconds()), 0
}
