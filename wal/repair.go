package wal

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// storage creates and removes segments.
type storage struct {
	fs       FS
	dir      string
	salt     func() uint64
	syncFile func(File) error
	noSync   bool
	least    int64 // the reserve of a short segment; guarded by Log.wmu once the log is open
	step     int64 // of a long one: space is preallocated in multiples of it, and half of it is the reserve
}

// syncDir makes the names in a directory durable, unless syncs are off for a test.
func (st *storage) syncDir(dir string) error {
	if st.noSync {
		return nil
	}
	return st.fs.SyncDir(dir)
}

// sync makes a file durable, unless syncs are off for a test.
func (st *storage) sync(f File) error {
	if st.noSync {
		return nil
	}
	return st.syncFile(f)
}

// randomSalt is the salt of a new segment. It tells segments of two logs apart.
func randomSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// makeDir makes the log's directory and missing parents. Each entry on the way is synced, because
// whoever made it may not have synced it; above the parent errors are ignored, because most of that
// path is not ours.
func (st *storage) makeDir() error {
	dir := filepath.Clean(st.dir)
	if err := st.fs.MkdirAll(dir, dirPerm); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := st.syncDir(parent); err != nil {
		return err
	}
	for up := filepath.Dir(parent); up != parent; parent, up = up, filepath.Dir(up) {
		st.syncAbove(up)
	}
	return nil
}

// above has the directories above logs that this process has synced, as they were before: a process that makes a thousand
// databases would sync the root of the disk a thousand times.
var above sync.Map // fs.FileInfo by path

// syncAbove syncs a directory that has changed since this process last synced it. Errors are ignored, see makeDir. Times of
// directories go on in ticks of the clock, so one that has changed within the last second is synced the next time as well.
func (st *storage) syncAbove(dir string) {
	is, err := st.fs.Stat(dir)
	if err == nil {
		if was, ok := above.Load(dir); ok && os.SameFile(was.(fs.FileInfo), is) && was.(fs.FileInfo).ModTime().Equal(is.ModTime()) {
			return
		}
	}
	if st.syncDir(dir) == nil && err == nil && !st.noSync && time.Since(is.ModTime()) > time.Second {
		above.Store(dir, is)
	}
}

// create makes a segment under a temporary name, lets fill write the records, and renames it only when
// everything is durable. So a segment under its own name is complete, whenever the power
// goes. On an error before the rename nothing has the name; after it, errNamed forbids to try
// again.
func (st *storage) create(seg *segment, fill func(*appender) error) (*appender, error) {
	seg.salt = st.salt()
	seg.key = seg.frameKey()
	seg.path = filepath.Join(st.dir, segName(seg.first, seg.gen))
	tmp := seg.path + tmpSuffix
	f, err := st.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return nil, err
	}
	a := &appender{segment: seg, least: st.least, step: st.step}
	a.file = f
	err = a.append(seg.header())
	if err == nil && fill != nil {
		err = fill(a)
	}
	if err == nil {
		err = a.note(a.alloc)
	}
	if err == nil {
		err = st.sync(f)
	}
	if err != nil {
		f.Close()
		st.fs.Remove(tmp) // best effort: Open removes it too
		return nil, err
	}
	if err = st.fs.Rename(tmp, seg.path); err == nil {
		if err = st.syncDir(st.dir); err != nil {
			err = fmt.Errorf("%w: %w", errNamed, err)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// errNamed: a segment has its name, and may or may not have it after a power cut. No other segment
// may be made in its place, even if the disk was full: the next Open would take this one.
var errNamed = errors.New("the name of a segment is not synced")

// remove unlinks files one by one, each removal durable before the next, so that a crash never
// leaves a hole between segments.
func (st *storage) remove(paths ...string) error {
	for _, p := range paths {
		if err := st.fs.Remove(p); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := st.syncDir(st.dir); err != nil {
			return err
		}
	}
	return nil
}

// repair makes what reader found durable and ready for appending, and returns the active segment.
//
//	clean Close          reopen: the tail is kept, and its final record is written once more
//	anything else        rewrite: the valid part of the tail becomes a new generation
//	the same, disk full  inPlace: the valid part is written over itself, zeros behind it
//
// After an unclean end the tail may have records that the disk never got although the page cache
// shows them (a failed sync marks pages clean), so its valid part is written anew. Segments before
// the tail need nothing: they were synced before the tail got its first record.
//
// Every step leaves a directory that reads the same: a new generation appears complete, and only
// then does the old one go.
//
//	rewrite  a crash leaves                                      the next Open reads
//	copying  path.tmp                                            the old generation; the file is stale
//	named    two generations with one first record               the new one, which says the same
//	removed  the new one                                         it
func (st *storage) repair(ctx context.Context, ls *listing, tail int, r *reader) (*appender, error) {
	if r.rec.Clean {
		if err := st.remove(ls.stale...); err != nil {
			return nil, err
		}
		return st.reopen(ls.segs[tail], r.lastAt)
	}
	a, err := st.rewrite(ctx, ls.segs[tail], ls.maxGen+1)
	if noSpace(err) {
		return st.inPlace(ctx, ls, tail)
	}
	if err != nil {
		return nil, err
	}
	r.rec.Rewritten = true
	gone := ls.stale
	for i := len(ls.segs) - 1; i >= tail; i-- { // the empty ones behind the tail, then its old generation
		gone = append(gone, ls.segs[i].path)
	}
	if err := st.remove(gone...); err != nil {
		a.file.Close()
		return nil, err
	}
	return a, nil
}

// reopen continues a segment that ends in a clean Close, at final. Close had synced everything
// before that record, but the sync of the record itself may have failed or never happened. So the
// same bytes are written again, which makes their pages dirty and this sync an honest one.
func (st *storage) reopen(seg *segment, final int64) (*appender, error) {
	f, err := st.fs.OpenFile(seg.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	own := *seg
	own.file = f
	a := &appender{segment: &own, least: st.least, step: st.step}
	if err := a.rewriteTail(final, st.sync); err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// rewriteTail writes the bytes from off to the end once more, and syncs them.
func (a *appender) rewriteTail(off int64, sync func(File) error) (err error) {
	b := make([]byte, a.end-off)
	if n, err := a.file.ReadAt(b, off); n < len(b) {
		return err
	}
	if _, err := a.file.WriteAt(b, off); err != nil {
		return err
	}
	if a.alloc, err = a.file.Size(); err != nil {
		return err
	}
	return sync(a.file)
}

// inPlace is the repair on a full disk, which has no room for a second copy of the tail. Writing
// the same bytes over themselves makes their pages dirty, so that the sync is an honest one, and no
// crash can tear what does not change. Everything behind the last record, even a seal, becomes
// zeros and is synced before anything is written there. Only then do the empty segments behind the
// tail go: until then a seal may promise one.
func (st *storage) inPlace(ctx context.Context, ls *listing, tail int) (*appender, error) {
	if err := st.remove(ls.stale...); err != nil {
		return nil, err
	}
	old := ls.segs[tail]
	f, err := st.fs.OpenFile(old.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	own := *old
	own.file = f
	a := &appender{segment: &own, least: st.least, step: st.step}
	if err = a.renew(ctx, st.sync); err == nil {
		err = st.sync(f)
	}
	for i := len(ls.segs) - 1; i > tail && err == nil; i-- {
		err = st.remove(ls.segs[i].path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// renew writes the records once more where they are, and zeros behind the last one. If the file has
// a hole there and no room for zeros, it is cut.
func (a *appender) renew(ctx context.Context, sync func(File) error) error {
	w, err := newWindow(a.file)
	if err != nil {
		return err
	}
	defer w.release()
	for off := int64(segHead); off < a.end; {
		var f frame
		if err := f.read(w, off, a.key); err != nil {
			return fmt.Errorf("%s at %d: record was readable a moment ago: %w", a.path, off, err)
		}
		if f.flags == flagSeal {
			a.end = off
			break
		}
		b, err := w.at(off, int(f.size))
		if err == nil {
			_, err = a.file.WriteAt(b, off)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		off += f.size
	}
	size, err := a.file.Size()
	if err != nil {
		return err
	}
	a.alloc = a.end
	if err = a.extend(size); noSpace(err) {
		err = a.shorten(a.alloc, sync)
	}
	return err
}

// rewrite copies the valid records of old, in large writes, into a segment of generation gen.
func (st *storage) rewrite(ctx context.Context, old *segment, gen uint64) (*appender, error) {
	seg := &segment{gen: gen, first: old.first, prevSalt: old.prevSalt, sealed: old.sealed}
	return st.create(seg, func(a *appender) error {
		w, err := newWindow(old.file)
		if err != nil {
			return err
		}
		defer w.release()
		buf := make([]byte, 0, min(old.end, windowBytes))
		for off := int64(segHead); off < old.end; {
			var n int64
			if buf, n, err = appendRekeyed(buf, w, off, old.key, seg.key); err != nil {
				return fmt.Errorf("%s at %d: record was readable a moment ago: %w", old.path, off, err)
			}
			off += n
			if len(buf) >= windowBytes || off >= old.end {
				if err := a.append(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return needReserve(a)
	})
}

// appendRekeyed appends the record at off to buf under a new key, and nothing for a seal. It
// returns the size of the frame it read. The old checksum is verified again: only a frame that is
// still intact may get a new checksum.
func appendRekeyed(buf []byte, w *window, off int64, oldKey, key uint64) ([]byte, int64, error) {
	var f frame
	err := f.read(w, off, oldKey)
	if err != nil || f.flags == flagSeal {
		return buf, f.size, err
	}
	start := len(buf)
	// Without flagClose: what came behind it was not clean, and the next Open has to know that too.
	buf = appendFrame(buf, f.kind, f.flags&^flagClose, f.seq, f.body)
	// The new segment is synced before it gets its name, so each record may say that those before
	// it are durable.
	finishFrame(buf[start:], key, f.seq-1)
	return buf, f.size, nil
}
