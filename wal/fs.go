package wal

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/internal/system"
)

// FS is the file system of a log. It has only what a log needs, so that a test can provide one that
// loses data, tears writes and refuses calls. Names are paths; implementations are safe for
// concurrent use.
type FS interface {
	// OpenFile opens name with the os.O_* flags given. It follows no symbolic link in the last
	// element and refuses what is not a regular file.
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	// ReadDir lists the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// Remove unlinks name; durable after SyncDir of its directory.
	Remove(name string) error
	// Rename moves old to new, replacing new; durable after SyncDir.
	Rename(oldname, newname string) error
	// MkdirAll makes dir and its missing parents; the directories' own entries are durable after
	// SyncDir of their parents.
	MkdirAll(dir string, perm os.FileMode) error
	// SyncDir makes the entries of dir durable.
	SyncDir(dir string) error
	// Stat describes name, following no symbolic link.
	Stat(name string) (fs.FileInfo, error)
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes contents and size durable (fdatasync where there is one). After an error nothing
	// may be assumed about what was written since the last good one, and a second call may lie.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}

// Modes of what a log creates: only the owner may read an agent's memory.
const (
	filePerm os.FileMode = 0o600
	dirPerm  os.FileMode = 0o700
)

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

// osFS is the file system of the operating system; see FS for what each method promises.
type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := system.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	if err := checkOpened(f, flag); err != nil {
		f.Close()
		return nil, err
	}
	return osFile{f}, nil
}

// checkOpened refuses pipes, devices and directories, and for writing also a file with a second
// name: a process that uses the other name would see or make changes.
func checkOpened(f *os.File, flag int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("wal: open %s: expected a regular file, found %s", f.Name(), st.Mode().Type())
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		if n := system.Links(f.Name(), st); n > 1 { // it would be changed under that name too
			return fmt.Errorf("wal: open %s: the file has %d names (hard links), expected one; copy it instead", f.Name(), n)
		}
	}
	return nil
}

func (osFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Remove(name string) error                    { return os.Remove(name) }
func (osFS) Rename(oldname, newname string) error        { return system.Rename(oldname, newname) }
func (osFS) MkdirAll(dir string, perm os.FileMode) error { return os.MkdirAll(dir, perm) }
func (osFS) Stat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }
func (osFS) SyncDir(dir string) error                    { return system.SyncDir(filepath.Clean(dir)) }

// osFile is one of its files.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
