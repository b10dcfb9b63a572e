//go:build !linux

package wal

import "os"

// datasync is a full sync: on macOS Go asks the disk to empty its cache, too (F_FULLFSYNC).
func datasync(f *os.File) error { return f.Sync() }
