package wal

import (
	"fmt"
	"runtime/debug"
)

// tail is a window of memory over bytes that the appender has written ahead. A leaf of a read is
// copied into it instead of being written by a call of the system, which was a third of a read that
// found its page in memory. Bytes in the window are in the operating system's page cache at once,
// as after a write: a killed process loses nothing, and the next sync makes them durable.
//
// A group that is about to be synced does not go through the window. A sync protects the pages
// again, so that the next copy into one costs a fault, which is as much as a write.
//
// Only a file that says that it can (mapper) has a window: files on local file systems of Linux,
// and no file system of a test. A fault in the window (the disk failed, or a file system that
// copies on write is full) is an error and not the end of the process: the same bytes are then
// written by a call, which finds out what is wrong, and there is no window any more.
type tail struct {
	mem []byte
	off int64 // of mem[0] in the file
	no  bool  // the file has none, or it had a fault
}

// mapper is a File that can give a window over n of its bytes from off on. The window sees what is
// written to the file, and the other way round. unmap ends it.
type mapper interface {
	mmap(off, n int64) ([]byte, error)
	munmap([]byte) error
}

const (
	tailAlign = 64 << 10 // a multiple of every page size
	maxCopy   = 64 << 10 // larger groups gain nothing
)

// copyIn puts b at off and reports whether it did. The file has zeros there, up to alloc. false is
// no error: the caller writes by a call instead, and the bytes are the same in either case.
func (t *tail) copyIn(f File, b []byte, off, alloc int64) bool {
	if t.no || len(b) > maxCopy {
		return false
	}
	if off < t.off || off+int64(len(b)) > t.off+int64(len(t.mem)) {
		if err := t.move(f, off, alloc); err != nil || off+int64(len(b)) > t.off+int64(len(t.mem)) {
			t.no = t.no || err != nil
			return false
		}
	}
	if err := copyOrFault(t.mem[off-t.off:], b); err != nil {
		t.no = true
		return false
	}
	return true
}

// move puts the window over the bytes from off to alloc.
func (t *tail) move(f File, off, alloc int64) error {
	m, ok := f.(mapper)
	if !ok {
		return fmt.Errorf("the file has no window")
	}
	t.close(f)
	from := off / tailAlign * tailAlign
	mem, err := m.mmap(from, alloc-from)
	if err == nil {
		t.mem, t.off = mem, from
	}
	return err
}

// close ends the window.
func (t *tail) close(f File) {
	if t.mem != nil {
		f.(mapper).munmap(t.mem) // it fails for memory that is no window, which this is
		t.mem = nil
	}
}

// copyOrFault copies b to mem and makes a fault of the memory an error.
func copyOrFault(mem, b []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write to the window: %v", r)
		}
	}()
	copy(mem, b)
	return nil
}
