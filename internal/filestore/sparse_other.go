//go:build !linux

package filestore

import "io"

// dataBytes takes the whole file for data.
func dataBytes(_ io.ReaderAt, size int64) int64 { return size }
