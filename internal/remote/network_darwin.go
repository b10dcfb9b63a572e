package remote

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// networkOf names the file system of a path if it is one of a network; "": it is not, or cannot be
// told.
func networkOf(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &st) != nil || st.Flags&unix.MNT_LOCAL != 0 {
		return ""
	}
	return unix.ByteSliceToString(st.Fstypename[:]) + ", a network file system"
}
