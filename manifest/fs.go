package manifest

import "github.com/ctxpage/ctxpage/wal"

// FS is the seam to the file system; the log has the same one, so that one
// faulty file system of a test lies under both.
type FS = wal.FS

// File is an open file of an FS.
type File = wal.File
