package dbtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/wal"
)

// Op names an operation in traces and faults.
type Op string

// The operations that change something.
const (
	OpCreate   Op = "create"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpSyncDir  Op = "syncdir"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
)

// Fault makes operations fail. The zero values of Op and Name match any.
type Fault struct {
	Op     Op
	Name   string // substring of the path
	N      int    // fail the Nth match from now on, 1 being the next; 0 means 1
	Err    error  // what to fail with; nil: syscall.EIO
	Short  int    // a failing write first writes this many bytes
	Sticky bool   // every later match fails too

	seen int
}

// ErrCrashed is a Fault.Err for a process that is thought to be dead from here on. A Sync that fails with it was
// not begun: CrashClone may keep any part of what it would have flushed.
var ErrCrashed = errors.New("dbtest: crashed")

// FS is a file system in memory that loses, tears and refuses, for tests of what must survive that. It implements wal.FS.
//
// Every file and directory has two images: what a reader sees now, and what a power cut would leave for
// certain, which only Sync and SyncDir move on. CrashClone returns what one power cut might leave: the
// certain image plus a random part of the rest, writes in sectors of 512 bytes, directory entries one by one.
// The model is harsher than real file systems: unsynced operations survive in any combination, and a synced
// file whose directory entry was not synced is gone.
//
// A failed Sync behaves as on Linux: what it should have flushed stays visible, is taken for clean, and
// is flushed by no later Sync.
//
// Trace lists the operations that change something, for golden tests: a missing sync is a red line in a diff.
// It is safe for concurrent use; paths are cleaned, the root directory exists.
type FS struct {
	mu     sync.Mutex
	now    tree
	stable tree
	dirOps []dirOp // since the last SyncDir of their directory, in order
	faults []*Fault
	trace  []traced
	ops    int
	limit  int64 // bytes of all files; 0: none
}

// tree is a set of directories and the files in them by path.
type tree struct {
	dirs  map[string]bool
	files map[string]*inode
}

func newTree() tree { return tree{dirs: map[string]bool{}, files: map[string]*inode{}} }

// dirOp is an unsynced change of directory entries.
type dirOp struct {
	dir   string // whose SyncDir makes it certain
	apply func(tree)
}

// inode is a file's contents. Guarded by FS.mu.
type inode struct {
	now     image
	stable  image
	pending []change
}

// image is the content of a file.
type image struct {
	b      []byte
	shared bool // others have the array too: copied before the first change
}

// share returns the image for one more owner, who must not write to it.
func (im *image) share() image {
	im.shared = true
	return *im
}

func (im *image) apply(ch change) {
	if im.shared {
		*im = image{b: append([]byte(nil), im.b...)}
	}
	if ch.data == nil {
		im.b = resize(im.b, ch.off)
	} else {
		im.b = overwrite(im.b, ch)
	}
}

// change is an unsynced write, or with data == nil a truncate to off.
type change struct {
	off  int64
	data []byte
}

const sector = 512

// New returns an empty file system.
func NewFS() *FS {
	f := &FS{now: newTree(), stable: newTree()}
	for _, d := range []string{"/", "."} {
		f.now.dirs[d], f.stable.dirs[d] = true, true
	}
	return f
}

// cleaned is a path as this file system has it: with slashes on every system, so that traces and faults are the same.
func cleaned(name string) string { return path.Clean(filepath.ToSlash(name)) }

var _ wal.FS = (*FS)(nil)

// Inject adds a fault.
func (f *FS) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault.N, fault.seen = max(fault.N, 1), 0
	if fault.Err == nil {
		fault.Err = syscall.EIO
	}
	f.faults = append(f.faults, &fault)
}

// Heal removes all faults and the limit.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.limit = nil, 0
}

// Limit makes writes that would grow all files together beyond n bytes end short with ENOSPC.
func (f *FS) Limit(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = n
}

// Used returns the bytes of all files.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

func (f *FS) used() (n int64) {
	for _, ino := range f.now.files {
		n += int64(len(ino.now.b))
	}
	return n
}

// Ops returns how many operations that change something were begun.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Trace returns the operations since the last ResetTrace, one a line; failed ones end in their error.
func (f *FS) Trace() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := make([]string, len(f.trace))
	for i, op := range f.trace {
		lines[i] = op.String()
	}
	return strings.Join(lines, "\n")
}

// traced is an operation of the trace. It is put into words when it is asked for, which hardly any is.
type traced struct {
	Op
	name string
	to   string   // of a rename
	at   [2]int64 // of a write, where and how many bytes; of a truncate, the size
	err  error
}

func (op traced) String() string {
	line := string(op.Op) + " " + op.name
	switch op.Op {
	case OpRename:
		line += " " + op.to
	case OpWrite:
		line += fmt.Sprintf(" %d+%d", op.at[0], op.at[1])
	case OpTruncate:
		line += fmt.Sprintf(" %d", op.at[0])
	}
	if op.err != nil {
		line += ": " + op.err.Error()
	}
	return line
}

// ResetTrace empties the trace.
func (f *FS) ResetTrace() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trace = nil
}

// begin counts and traces an operation and returns the fault it meets, if any; mu is held.
func (f *FS) begin(op traced) *Fault {
	f.ops++
	var hit *Fault
	for _, fault := range f.faults {
		if (fault.Op == "" || fault.Op == op.Op) && strings.Contains(op.name, fault.Name) {
			fault.seen++
			if hit == nil && (fault.seen == fault.N || fault.Sticky && fault.seen > fault.N) {
				hit = fault
			}
		}
	}
	if hit != nil {
		op.err = hit.Err
	}
	f.trace = append(f.trace, op)
	return hit
}

func pathErr(op Op, name string, err error) error {
	return &os.PathError{Op: string(op), Path: name, Err: err}
}

func (f *FS) changeDir(dir string, apply func(tree)) {
	apply(f.now)
	f.dirOps = append(f.dirOps, dirOp{dir: dir, apply: apply})
}

// OpenFile implements wal.FS. It knows O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL and O_TRUNC.
func (f *FS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = cleaned(name)
	ino, ok := f.now.files[name]
	switch {
	case ok && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, os.ErrExist)
	case !ok && (flag&os.O_CREATE == 0 || !f.now.dirs[path.Dir(name)]):
		return nil, pathErr("open", name, os.ErrNotExist)
	case !ok:
		if fault := f.begin(traced{Op: OpCreate, name: name}); fault != nil {
			return nil, pathErr(OpCreate, name, fault.Err)
		}
		ino = &inode{}
		f.changeDir(path.Dir(name), func(t tree) { t.files[name] = ino })
	case flag&os.O_TRUNC != 0 && len(ino.now.b) > 0:
		if fault := f.begin(traced{Op: OpTruncate, name: name}); fault != nil {
			return nil, pathErr(OpTruncate, name, fault.Err)
		}
		ino.do(change{off: 0})
	}
	return &file{fs: f, ino: ino, name: name, writable: flag&(os.O_WRONLY|os.O_RDWR) != 0}, nil
}

// ReadDir implements wal.FS.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = cleaned(dir)
	if !f.now.dirs[dir] {
		return nil, pathErr("readdir", dir, os.ErrNotExist)
	}
	var names []string
	for name := range f.now.files {
		if path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	for name := range f.now.dirs {
		if path.Dir(name) == dir && name != dir {
			names = append(names, path.Base(name))
		}
	}
	sort.Strings(names)
	return names, nil
}

// Remove implements wal.FS; for files.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = cleaned(name)
	if f.now.files[name] == nil {
		return pathErr(OpRemove, name, os.ErrNotExist)
	}
	if fault := f.begin(traced{Op: OpRemove, name: name}); fault != nil {
		return pathErr(OpRemove, name, fault.Err)
	}
	f.changeDir(path.Dir(name), func(t tree) { delete(t.files, name) })
	return nil
}

// Rename implements wal.FS; for files, within one directory.
func (f *FS) Rename(oldname, newname string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldname, newname = cleaned(oldname), cleaned(newname)
	ino := f.now.files[oldname]
	if ino == nil || !f.now.dirs[path.Dir(newname)] {
		return pathErr(OpRename, oldname, os.ErrNotExist)
	}
	if path.Dir(oldname) != path.Dir(newname) {
		return pathErr(OpRename, oldname, errors.New("dbtest: expected both names in one directory"))
	}
	if fault := f.begin(traced{Op: OpRename, name: oldname, to: newname}); fault != nil {
		return pathErr(OpRename, oldname, fault.Err)
	}
	f.changeDir(path.Dir(newname), func(t tree) {
		if t.files[oldname] == ino {
			delete(t.files, oldname)
		}
		t.files[newname] = ino
	})
	return nil
}

// MkdirAll implements wal.FS.
func (f *FS) MkdirAll(dir string, perm os.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mkdir(cleaned(dir))
}

func (f *FS) mkdir(dir string) error {
	if f.now.dirs[dir] {
		return nil
	}
	parent := path.Dir(dir)
	if err := f.mkdir(parent); err != nil {
		return err
	}
	if fault := f.begin(traced{Op: OpMkdir, name: dir}); fault != nil {
		return pathErr(OpMkdir, dir, fault.Err)
	}
	f.changeDir(parent, func(t tree) { t.dirs[dir] = true })
	return nil
}

// SyncDir implements wal.FS. After a failed one the changes stay uncertain; a later one makes them durable.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = cleaned(dir)
	if !f.now.dirs[dir] {
		return pathErr(OpSyncDir, dir, os.ErrNotExist)
	}
	if fault := f.begin(traced{Op: OpSyncDir, name: dir}); fault != nil {
		return pathErr(OpSyncDir, dir, fault.Err)
	}
	rest := f.dirOps[:0]
	for _, op := range f.dirOps {
		if op.dir == dir {
			op.apply(f.stable)
		} else {
			rest = append(rest, op)
		}
	}
	f.dirOps = rest
	return nil
}

// Stat implements wal.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = cleaned(name)
	if ino := f.now.files[name]; ino != nil {
		return info{name: path.Base(name), size: int64(len(ino.now.b)), mode: 0o600}, nil
	}
	if f.now.dirs[name] {
		return info{name: path.Base(name), mode: fs.ModeDir | 0o700}, nil
	}
	return nil, pathErr("stat", name, os.ErrNotExist)
}

type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

// ReadFile returns a copy of what name holds now.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino := f.now.files[cleaned(name)]
	if ino == nil {
		return nil, pathErr("read", name, os.ErrNotExist)
	}
	return append([]byte(nil), ino.now.b...), nil
}

// WriteFile makes name hold data, durably, in a directory that exists: how a test damages a file. It is
// neither traced nor meets faults.
func (f *FS) WriteFile(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = cleaned(name)
	f.put(name, image{b: append([]byte(nil), data...)})
}

// RemoveFile unlinks name durably, likewise.
func (f *FS) RemoveFile(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = cleaned(name)
	delete(f.now.files, name)
	delete(f.stable.files, name)
}

func (f *FS) put(name string, data image) {
	ino := &inode{now: data.share(), stable: data.share()}
	f.now.files[name], f.stable.files[name] = ino, ino
}
