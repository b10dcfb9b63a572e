package archive

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/wal"
)

// resting is a file of an archive that may be closed while nobody uses it, and is opened again by the next use: three of the
// seven descriptors of an idle database were the archive's. Its methods are safe for concurrent use.
//
//	open ──rest──▶ resting ──any use──▶ open
//	  └─────────────┴──Close──▶ closed
//
// It rests only when everything written is synced, or is behind the mark and will be written again: another descriptor might
// not be told that an earlier write failed. A file that was replaced meanwhile is refused, not read.
type resting struct {
	fs    wal.FS
	path  string
	mu    sync.RWMutex // held for reading while the file is used
	f     wal.File     // nil: it rests, or is closed
	done  bool         // closed
	was   fs.FileInfo  // of the file that rests; nil: the file system does not tell
	woken func()       // hears that the file is open again
}

var errReplaced = errors.New("the file was replaced while the database was open")

// rest closes the file until the next use, of which woken is told. A file that cannot be closed stays open.
func (r *resting) rest(woken func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return
	}
	was, err := inode(r.f)
	if err != nil {
		return
	}
	_ = r.f.Close() // nothing is unsynced
	r.f, r.was, r.woken = nil, was, woken
}

// inode describes an open file; nil: the file system does not tell.
func inode(f wal.File) (fs.FileInfo, error) {
	if s, ok := f.(interface{ Stat() (fs.FileInfo, error) }); ok {
		return s.Stat()
	}
	return nil, nil
}

// use returns the open file, with mu locked for reading.
func (r *resting) use() (wal.File, error) {
	for {
		r.mu.RLock()
		if r.f != nil {
			return r.f, nil
		}
		r.mu.RUnlock()
		if err := r.wake(); err != nil {
			return nil, err
		}
	}
}

// wake opens a file that rests.
func (r *resting) wake() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.done:
		return os.ErrClosed
	case r.f != nil:
		return nil
	}
	f, err := r.fs.OpenFile(r.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	now, err := inode(f)
	if err == nil && r.was != nil && !os.SameFile(r.was, now) {
		err = &fs.PathError{Op: "open", Path: r.path, Err: errReplaced}
	}
	if err != nil {
		f.Close()
		return err
	}
	r.f = f
	r.woken()
	return nil
}

// ReadAt and the other methods implement wal.File.
func (r *resting) ReadAt(b []byte, off int64) (int, error) {
	f, err := r.use()
	if err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	return f.ReadAt(b, off)
}

func (r *resting) WriteAt(b []byte, off int64) (int, error) {
	f, err := r.use()
	if err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	return f.WriteAt(b, off)
}

func (r *resting) Sync() error {
	f, err := r.use()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	return f.Sync()
}

func (r *resting) Truncate(size int64) error {
	f, err := r.use()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	return f.Truncate(size)
}

func (r *resting) Size() (int64, error) {
	f, err := r.use()
	if err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	return f.Size()
}

func (r *resting) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	r.f = nil
	return err
}

// files are the open files of the archive.
func (a *archive) files() (out []wal.File) {
	for _, f := range [...]wal.File{a.index, a.hashes} {
		if f != nil {
			out = append(out, f)
		}
	}
	for _, s := range a.segs {
		if s.file != nil {
			out = append(out, s.file)
		}
	}
	return out
}

// awake opens what rests. A prune calls it before it removes the names of files that views still read.
func (a *archive) awake() error {
	for _, f := range a.files() {
		if r, ok := f.(*resting); ok {
			if err := r.wake(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Rest closes the files until they are needed again, of which woken is told, under locks of the log. It does nothing while
// leaves are archived or pruned, and in a reader, whose writer may remove the names of its files.
func (l *Log) Rest(woken func()) {
	if !l.archiving.TryLock() {
		return
	}
	defer l.archiving.Unlock()
	if v, err := l.pending(0); err == nil && !v.arch.readOnly {
		for _, f := range v.arch.files() {
			if r, ok := f.(*resting); ok {
				r.rest(woken)
			}
		}
	}
}

// openedLeaves has leaves of a sealed archive that were opened lately. Every row that is served is
// compared with its digest in a leaf (digests.go), neighbours mostly with the same one, and of a
// sealed leaf no part can be read without the rest.
type openedLeaves struct {
	slots [openedSlots]atomic.Pointer[openedLeaf]
	large atomic.Pointer[openedLeaf] // one of any size
}

// openedLeaf is a leaf and its index. It is never changed after it was stored, so readers need no
// lock.
type openedLeaf struct {
	index uint64
	body  []byte
}

const (
	openedSlots = 128
	openedBytes = 16 << 10 // of a leaf in a slot: 2 MiB, when all are in use
)

// body returns the body of an archived leaf. Callers must not change it.
func (o *openedLeaves) body(v *view, i uint64, r row) ([]byte, error) {
	slot := &o.slots[i%openedSlots]
	for _, at := range [...]*atomic.Pointer[openedLeaf]{slot, &o.large} {
		if l := at.Load(); l != nil && l.index == i {
			return l.body, nil
		}
	}
	body, err := v.frame(i, r)
	if err != nil {
		return nil, err
	}
	if len(body) > openedBytes {
		slot = &o.large
	}
	slot.Store(&openedLeaf{i, body})
	return body, nil
}
