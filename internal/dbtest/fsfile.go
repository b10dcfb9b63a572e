package dbtest

import (
	"errors"
	"io"
	"os"
	"syscall"
)

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
		if !errors.Is(fault.Err, ErrCrashed) {
			h.ino.pending = nil // taken for clean from now on, and lost with the power
		}
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
