// Package faultfs is a file system in memory that loses, tears and refuses, for tests of what must survive
// that. It implements wal.FS.
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
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
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

// ErrCrashed is a handy Fault.Err for a process that is thought to be dead from here on.
var ErrCrashed = errors.New("faultfs: crashed")

// FS is the file system. Safe for concurrent use; paths are cleaned, the root directory exists.
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

// image is what a file holds.
type image struct {
	b      []byte
	shared bool // others have the array too: copied before the first change
}

// share gives the image to one more.
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
func New() *FS {
	f := &FS{now: newTree(), stable: newTree()}
	for _, d := range []string{"/", "."} {
		f.now.dirs[d], f.stable.dirs[d] = true, true
	}
	return f
}

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
	name = filepath.Clean(name)
	ino, ok := f.now.files[name]
	switch {
	case ok && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, os.ErrExist)
	case !ok && (flag&os.O_CREATE == 0 || !f.now.dirs[filepath.Dir(name)]):
		return nil, pathErr("open", name, os.ErrNotExist)
	case !ok:
		if fault := f.begin(traced{Op: OpCreate, name: name}); fault != nil {
			return nil, pathErr(OpCreate, name, fault.Err)
		}
		ino = &inode{}
		f.changeDir(filepath.Dir(name), func(t tree) { t.files[name] = ino })
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
	dir = filepath.Clean(dir)
	if !f.now.dirs[dir] {
		return nil, pathErr("readdir", dir, os.ErrNotExist)
	}
	var names []string
	for name := range f.now.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for name := range f.now.dirs {
		if filepath.Dir(name) == dir && name != dir {
			names = append(names, filepath.Base(name))
		}
	}
	sort.Strings(names)
	return names, nil
}

// Remove implements wal.FS; for files.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if f.now.files[name] == nil {
		return pathErr(OpRemove, name, os.ErrNotExist)
	}
	if fault := f.begin(traced{Op: OpRemove, name: name}); fault != nil {
		return pathErr(OpRemove, name, fault.Err)
	}
	f.changeDir(filepath.Dir(name), func(t tree) { delete(t.files, name) })
	return nil
}

// Rename implements wal.FS; for files, within one directory.
func (f *FS) Rename(oldname, newname string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldname, newname = filepath.Clean(oldname), filepath.Clean(newname)
	ino := f.now.files[oldname]
	if ino == nil || !f.now.dirs[filepath.Dir(newname)] {
		return pathErr(OpRename, oldname, os.ErrNotExist)
	}
	if filepath.Dir(oldname) != filepath.Dir(newname) {
		return pathErr(OpRename, oldname, errors.New("faultfs: expected both names in one directory"))
	}
	if fault := f.begin(traced{Op: OpRename, name: oldname, to: newname}); fault != nil {
		return pathErr(OpRename, oldname, fault.Err)
	}
	f.changeDir(filepath.Dir(newname), func(t tree) {
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
	return f.mkdir(filepath.Clean(dir))
}

func (f *FS) mkdir(dir string) error {
	if f.now.dirs[dir] {
		return nil
	}
	parent := filepath.Dir(dir)
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
	dir = filepath.Clean(dir)
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
	name = filepath.Clean(name)
	if ino := f.now.files[name]; ino != nil {
		return info{name: filepath.Base(name), size: int64(len(ino.now.b)), mode: 0o600}, nil
	}
	if f.now.dirs[name] {
		return info{name: filepath.Base(name), mode: fs.ModeDir | 0o700}, nil
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
	ino := f.now.files[filepath.Clean(name)]
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
	name = filepath.Clean(name)
	f.put(name, image{b: append([]byte(nil), data...)})
}

// RemoveFile unlinks name durably, likewise.
func (f *FS) RemoveFile(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	delete(f.now.files, name)
	delete(f.stable.files, name)
}

// Clone returns a copy of what is visible now, all of it durable: what another process finds after this one
// was killed. No faults, no limit, empty trace.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := New()
	for dir := range f.now.dirs {
		c.now.dirs[dir], c.stable.dirs[dir] = true, true
	}
	for name, ino := range f.now.files {
		c.put(name, ino.now.share())
	}
	return c
}

// Killed returns what another process finds after this one was killed: what is visible now, and of it on the disk only
// what was synced. Directory entries that were not synced count as durable. No faults, no limit, empty trace.
func (f *FS) Killed() *FS {
	c := f.Clone()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, ino := range f.now.files {
		k := c.now.files[name]
		k.stable, k.pending = ino.stable.share(), append([]change(nil), ino.pending...)
	}
	return c
}

func (f *FS) put(name string, data image) {
	ino := &inode{now: data.share(), stable: data.share()}
	f.now.files[name], f.stable.files[name] = ino, ino
}

// CrashClone returns what a power cut at this moment might leave: all that was synced, and of the rest each
// sector and each directory entry with a probability of keepPercent. The same state, seed and percentage
// give the same clone.
func (f *FS) CrashClone(seed uint64, keepPercent int) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0x6372617368))
	keep := func() bool { return rng.IntN(100) < keepPercent }
	t := newTree()
	for d := range f.stable.dirs {
		t.dirs[d] = true
	}
	for name, ino := range f.stable.files {
		t.files[name] = ino
	}
	for _, op := range f.dirOps {
		if keep() {
			op.apply(t)
		}
	}
	c := New()
	for dir := range t.dirs {
		if t.reachable(dir) {
			c.now.dirs[dir], c.stable.dirs[dir] = true, true
		}
	}
	names := make([]string, 0, len(t.files))
	for name := range t.files {
		names = append(names, name)
	}
	sort.Strings(names) // the random numbers must not meet them in map order
	for _, name := range names {
		data := t.files[name].crash(keep)
		if t.reachable(filepath.Dir(name)) {
			c.put(name, data)
		}
	}
	return c
}

// reachable tells whether dir and all above it are there.
func (t tree) reachable(dir string) bool {
	return t.dirs[dir] && (dir == filepath.Dir(dir) || t.reachable(filepath.Dir(dir)))
}

// crash returns the stable image with the kept sectors of pending changes applied in order.
func (ino *inode) crash(keep func() bool) image {
	data := ino.stable.share()
	for _, ch := range ino.pending {
		if ch.data == nil {
			if keep() {
				data.apply(ch)
			}
			continue
		}
		for len(ch.data) > 0 {
			n := min(int64(len(ch.data)), sector-ch.off%sector)
			if keep() {
				data.apply(change{off: ch.off, data: ch.data[:n]})
			}
			ch = change{off: ch.off + n, data: ch.data[n:]}
		}
	}
	return data
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

func overwrite(b []byte, ch change) []byte {
	if ch.off == int64(len(b)) {
		return append(b, ch.data...)
	}
	if end := ch.off + int64(len(ch.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[ch.off:], ch.data)
	return b
}

// do applies a change to the visible image; it becomes durable with the next sync.
func (ino *inode) do(ch change) {
	ino.pending = append(ino.pending, ch)
	ino.now.apply(ch)
}

func (ino *inode) sync() {
	for _, ch := range ino.pending {
		ino.stable.apply(ch)
	}
	ino.pending = nil
}

type file struct {
	fs       *FS
	ino      *inode
	name     string // as opened
	writable bool
	closed   bool
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return 0, pathErr("read", h.name, os.ErrClosed)
	}
	if off >= int64(len(h.ino.now.b)) {
		return 0, io.EOF
	}
	n := copy(p, h.ino.now.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) usable(op Op) error {
	if h.closed {
		return pathErr(op, h.name, os.ErrClosed)
	}
	if !h.writable {
		return pathErr(op, h.name, os.ErrPermission)
	}
	return nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable(OpWrite); err != nil {
		return 0, err
	}
	n, err := len(p), error(nil)
	if fault := h.fs.begin(traced{Op: OpWrite, name: h.name, at: [2]int64{off, int64(len(p))}}); fault != nil {
		n, err = min(fault.Short, n), fault.Err
	}
	if fit := h.fs.spaceAt(h.ino, off); int64(n) > fit {
		n, err = int(fit), syscall.ENOSPC
	}
	if n > 0 {
		h.ino.do(change{off: off, data: append([]byte(nil), p[:n]...)})
	}
	if err != nil {
		return n, pathErr(OpWrite, h.name, err)
	}
	return n, nil
}

// spaceAt returns how many bytes a write at off may have; mu is held.
func (f *FS) spaceAt(ino *inode, off int64) int64 {
	if f.limit == 0 {
		return 1 << 62
	}
	return max(0, int64(len(ino.now.b))-off+max(0, f.limit-f.used()))
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return pathErr(OpSync, h.name, os.ErrClosed)
	}
	if fault := h.fs.begin(traced{Op: OpSync, name: h.name}); fault != nil {
		h.ino.pending = nil // taken for clean from now on, and lost with the power
		return pathErr(OpSync, h.name, fault.Err)
	}
	h.ino.sync()
	return nil
}

func (h *file) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable(OpTruncate); err != nil {
		return err
	}
	if fault := h.fs.begin(traced{Op: OpTruncate, name: h.name, at: [2]int64{size}}); fault != nil {
		return pathErr(OpTruncate, h.name, fault.Err)
	}
	h.ino.do(change{off: size})
	return nil
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return 0, pathErr("stat", h.name, os.ErrClosed)
	}
	return int64(len(h.ino.now.b)), nil
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return pathErr("close", h.name, os.ErrClosed)
	}
	h.closed = true
	return nil
}
