package archive

import (
	"io/fs"

	"github.com/ctxpage/ctxpage/wal"
)

// InMemory makes a log without files: its leaves live as long as it does. It is the audit of a
// store that keeps nothing.
func InMemory(db string) *Log {
	a := &archive{fs: noFiles{}, readOnly: true, mark: stamp{db: db, root: new(Frontier).Root()}}
	return &Log{now: view{arch: a}, marked: a.mark}
}

// noFiles is a file system in which nothing is. A log that is only in memory reads no more of it,
// and writes nothing.
type noFiles struct{ wal.FS }

func (noFiles) ReadDir(string) ([]string, error)                    { return nil, fs.ErrNotExist }
func (noFiles) Stat(string) (fs.FileInfo, error)                    { return nil, fs.ErrNotExist }
func (noFiles) OpenFile(string, int, fs.FileMode) (wal.File, error) { return nil, fs.ErrNotExist }
