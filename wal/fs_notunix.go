//go:build !unix

package wal

import "io/fs"

const openFlags = 0

func linkCount(fs.FileInfo) uint64 { return 1 }

// syncDir does nothing: these systems offer no sync of a directory.
func syncDir(string) error { return nil }
