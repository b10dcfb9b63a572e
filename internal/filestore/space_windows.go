package filestore

import (
	"math"

	"golang.org/x/sys/windows"
)

// freeBytes returns the bytes that this user may still write on the disk of dir; -1: not known.
func freeBytes(dir string) int64 {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return -1
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil {
		return -1
	}
	return int64(min(free, math.MaxInt64))
}
