package filestore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// originOf names a file so that a copy of it has another name, and a moved one the same: its inode,
// and when it was made, where the file system tells. "": not known.
func originOf(f *os.File) string {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return plainOrigin(f)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("%d", st.Ino)
	}
	return fmt.Sprintf("%d %d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
}
