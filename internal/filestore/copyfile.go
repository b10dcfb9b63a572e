package filestore

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/wal"
)

// newFile makes a file and syncs it before it returns. It fails if the file exists.
func newFile(fsys wal.FS, path string, fill func(to *fileWriter) (int64, error)) (n int64, err error) {
	f, err := fsys.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	if n, err = fill(&fileWriter{to: f}); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// fileWriter writes a file from its beginning. It keeps the error of a write, because bbolt returns
// only the text of an error in the first two pages, and a full disk would not be recognised.
type fileWriter struct {
	to  wal.File
	off int64
	err error
}

// Write appends to the file.
func (w *fileWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.to.WriteAt(b, w.off)
	w.off += int64(n)
	return n, w.err
}

// copyDir copies the regular files of a directory, as long as they are now, and syncs them.
func copyDir(ctx context.Context, fsys wal.FS, from, to string, progress func(done, total uint64)) (int64, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	var total int64
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if !e.Type().IsRegular() {
			continue
		}
		n, err := copyFile(fsys, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		if err != nil {
			return total, err
		}
		total += n
		progress(uint64(i+1), uint64(len(entries)))
	}
	return total, fsys.SyncDir(to)
}

// copyFile copies the bytes that a file has when it is opened, and what is appended while it is
// copied. It does not follow a symbolic link.
func copyFile(fsys wal.FS, from, to string) (n int64, err error) {
	src, err := system.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	defer src.Close()
	return newFile(fsys, to, func(w *fileWriter) (int64, error) {
		return io.CopyBuffer(w, struct{ io.Reader }{src}, make([]byte, 1<<18))
	})
}

// syncDirectory makes names in a directory durable: a file that was made, renamed or removed.
func syncDirectory(dir string) error { return wal.OS().SyncDir(dir) }

// removeDatabase removes the files that a failed copy left at a path that was free before.
func removeDatabase(path string) {
	os.Remove(path)
	os.RemoveAll(path + "-wal")
	os.RemoveAll(path + "-manifest")
	os.Remove(path + ".lock")
	os.Remove(path + columnsSuffix)
}
