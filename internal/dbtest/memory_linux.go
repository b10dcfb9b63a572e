package dbtest

import (
	"sync"
	"syscall"
)

// memory is a file system in memory with room for the tests of several packages at once; "" if there is none: containers
// often have 64 MiB.
var memory = sync.OnceValue(func() string {
	const dir, enough = "/dev/shm", 512 << 20
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Bavail < enough/uint64(st.Bsize) {
		return ""
	}
	return dir
})
