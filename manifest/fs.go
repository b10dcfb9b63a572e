package manifest

import "github.com/ctxpage/ctxpage/wal"

// FS is the file system. It is the log's type, so that a test can put one
// faulty file system under both.
type FS = wal.FS

// File is an open file of an FS.
type File = wal.File
