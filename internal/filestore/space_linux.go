package filestore

import "syscall"

// freeBytes returns the bytes that an ordinary user may still write on the disk of dir; -1: not known.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
