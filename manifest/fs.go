package manifest

import (
	"io"
	"io/fs"
	"os"
)

// FS is what the archive asks of a file system.
type FS interface {
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	ReadDir(dir string) ([]fs.DirEntry, error)
	Remove(name string) error
	Rename(from, to string) error
	MkdirAll(dir string, perm os.FileMode) error
	SyncDir(dir string) error
	Stat(name string) (fs.FileInfo, error)
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}
