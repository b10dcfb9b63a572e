//go:build !linux

package filestore

import "os"

// originOf names a file so that a copy of it has another name, and a moved one the same. "": not
// known.
func originOf(f *os.File) string { return plainOrigin(f) }
