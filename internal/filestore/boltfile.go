package filestore

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
)

// The file is inspected before bbolt may map it, because bbolt trusts its pages. If the high-water
// mark lies beyond the end of the file, or the free list is damaged, it kills the process with
// SIGBUS, hangs, or hands out pages in use. So the two meta pages, and the pages that the valid one
// names, are read with ReadAt first.
//
//	inspect    before every open: meta pages, size of the file, root page, free list
//	walkBolt   the whole tree and the free list, for checks
//	unfinished a file whose creation was killed in bbolt's first write: made anew, if nothing else is there
//	foreign    another program's file: refused, never changed
//
// Offsets come from bbolt's internal/common package, version 2 of its format; a test compares
// them with a file that bbolt wrote. Numbers in the file are in the byte order of the machine, as
// bbolt writes them.
const (
	boltPageHead  = 16 // id u64, flags u16, count u16, overflow u32
	boltMetaSize  = 64
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	boltMetaPage  = 0x04
	boltLeaf      = 0x02
	boltBranch    = 0x01
	boltFreelist  = 0x10
	boltNoPage    = ^uint64(0)
	boltMinPage   = 1 << 10
	boltMaxPage   = 16 << 20
	boltHugeCount = 0xFFFF // in a free list: the true count follows as the first u64

	sparseBytes = 64 << 20 // files up to this size may have holes
)

// boltMeta is the content of a meta page.
type boltMeta struct {
	pageSize             int64
	root, freelist, high uint64
	txid                 uint64
}

// fileProblem returns why nothing may be opened at a path: something is there that is no regular
// file with one name.
func fileProblem(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	if st.IsDir() {
		return store.Invalid("path", path+", which is a directory", "the file of a database, or a name that is not taken")
	}
	if !st.Mode().IsRegular() {
		return store.Invalid("path", path+", which is "+fileKind(st), "a regular file, or nothing; symbolic links are not followed")
	}
	if n := system.Links(path, st); n > 1 {
		return store.Invalid("path", fmt.Sprintf("%s, which has %d names (hard links)", path, n), "a file with one name; copy it instead")
	}
	return nil
}

// fileKind names what is at a path in place of a file or a directory.
func fileKind(st os.FileInfo) string {
	switch mode := st.Mode(); {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a device, socket or pipe"
}

// directoryProblem returns why a directory of the database may not be used: something else, or a
// link, is in its place.
func directoryProblem(path string) error {
	st, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	if err == nil && !st.IsDir() {
		return store.Invalid("path", path+", which is "+fileKind(st), "a directory, or nothing; symbolic links are not followed")
	}
	return nil
}

// ownWrites keeps other users from writing a part of the database. A writer removes the permission.
// A reader, which changes nothing, refuses what every user may write. A missing file is no problem.
// Where files have no such permission, the folder keeps others out.
func ownWrites(path string, readOnly bool) error {
	if !system.Modes {
		return nil
	}
	shared := fs.FileMode(0o022)
	if readOnly {
		shared = 0o002
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("ctxpage: open: %w", err)
	case st.Mode()&fs.ModeSymlink != 0 || st.Mode()&shared == 0:
		return nil // links are refused where they are opened
	}
	if !readOnly && os.Chmod(path, st.Mode().Perm()&^shared) == nil {
		if st, err = os.Lstat(path); err == nil && st.Mode()&shared == 0 {
			return nil
		}
	}
	return store.Invalid("path", fmt.Sprintf("%s, which other users may write (%v)", path, st.Mode().Perm()), "a file that only its owner may write; run chmod go-w on it (the file system must keep permissions)")
}

// ownParts keeps other users from writing any part of the database. Directories come first, so that
// nothing can be added to them meanwhile.
func (o *Options) ownParts() error {
	paths := []string{o.Path, o.Path + columnsSuffix}
	for _, dir := range []string{o.Path + "-wal", o.Path + "-manifest"} {
		if err := ownWrites(dir, o.ReadOnly); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("ctxpage: open: %w", err)
		}
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for _, path := range paths {
		if err := ownWrites(path, o.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

// inspect reads what bbolt will trust. It reports whether there is nothing in the file yet. true:
// openBolt makes a new database there, unless a log or archive says that one was lost.
func (s *Store) inspect() (empty bool, err error) {
	if err := cmp.Or(fileProblem(s.opts.Path), directoryProblem(s.opts.Path+"-wal"), directoryProblem(s.opts.Path+"-manifest")); err != nil {
		return false, err
	}
	if err := s.opts.ownParts(); err != nil {
		return false, err
	}
	f, err := s.openFile(s.opts.Path, os.O_RDONLY, 0)
	s.file.Store(nil)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ctxpage: open %s: %w", s.opts.Path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return true, err
	}
	if err := inspectBolt(f, st.Size()); codec.Unread(err) {
		return false, fmt.Errorf("ctxpage: open %s: %w", s.opts.Path, err)
	} else if err != nil {
		left, lerr := s.leftBehind()
		if lerr != nil {
			return false, lerr
		}
		if left {
			return false, &store.CorruptError{File: s.opts.Path, Err: err, Hint: store.HintSalvage}
		}
		if unfinished(f, st.Size()) {
			return true, nil
		}
		return false, &store.CorruptError{File: s.opts.Path, Err: err, Hint: hintForeign}
	}
	return false, nil
}

// hintForeign is the hint for a file that is no sound database and has neither log nor archive
// beside it.
const hintForeign = "no log and no archive lie beside it, so it is another program's file, or a database that was copied without them; name another path, or move the file away to make a new database here"

// refuseForeign returns an error for a file that is something else: it has no page that begins as the
// first two of a database do, and neither log nor audit beside it. A file that cannot be read here
// is not refused; opening it reports the error. It looks for the magic at each place where a second
// meta page can be, so a database whose first page is damaged is not taken for another program's
// file.
func refuseForeign(path string) error {
	for _, dir := range []string{path + "-wal", path + "-manifest"} {
		if names, _ := os.ReadDir(dir); len(names) > 0 {
			return nil
		}
	}
	f, err := system.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 || unfinished(f, st.Size()) {
		return nil
	}
	b := make([]byte, 4)
	for off := int64(0); off <= boltMaxPage && off < st.Size(); off = max(boltMinPage, 2*off) {
		if _, err := f.ReadAt(b, off+boltPageHead); codec.Unread(err) || err == nil && binary.NativeEndian.Uint32(b) == boltMagic {
			return nil
		}
	}
	return notDatabase(path)
}

// notDatabase is the error for a file that no database can be, with nothing of a database beside
// it.
func notDatabase(path string) error {
	return fmt.Errorf("%w: %s: it does not begin as a database does, and no log or audit lies beside it; name another path; if it is a database that was copied without them, copy its -wal and -manifest directories too, or run Salvage", store.ErrNotDatabase, path)
}

// unfinished recognises a file whose creation did not get through bbolt's first write, of four
// pages: the process was killed, or the power went, and each sector has what was to be written
// there, or zeros. Any other file is left alone, however small. Older programs made pages as the
// machine has them.
func unfinished(f io.ReaderAt, size int64) bool {
	return unfinishedPages(f, size, boltPage) || unfinishedPages(f, size, os.Getpagesize())
}

// A file longer than those four pages was used, so it is never taken for an unfinished one.
func unfinishedPages(f io.ReaderAt, size int64, pageSize int) bool {
	first := firstPages(pageSize)
	if size > int64(len(first)) {
		return false
	}
	have := make([]byte, size)
	if _, err := f.ReadAt(have, 0); err != nil {
		return false
	}
	zero := make([]byte, sectorBytes)
	for at := 0; at < len(have); at += sectorBytes {
		sector := have[at:min(at+sectorBytes, len(have))]
		if !bytes.Equal(sector, first[at:at+len(sector)]) && !bytes.Equal(sector, zero[:len(sector)]) {
			return false
		}
	}
	return true
}

// sectorBytes is the unit in which a power cut leaves a disk written or not.
const sectorBytes = 512

// firstPages returns what bbolt writes first into a new file: two meta pages, an empty free list,
// an empty root.
func firstPages(pageSize int) []byte {
	b := make([]byte, 4*pageSize)
	u16, u32, u64 := binary.NativeEndian.PutUint16, binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	for id, flags := range []uint16{boltMetaPage, boltMetaPage, boltFreelist, boltLeaf} {
		p := b[id*pageSize:]
		u64(p, uint64(id))
		u16(p[8:], flags)
		if flags != boltMetaPage {
			continue
		}
		m := p[boltPageHead:][:boltMetaSize]
		u32(m, boltMagic)
		u32(m[4:], boltVersion)
		u32(m[8:], uint32(pageSize))
		u64(m[16:], 3) // root
		u64(m[32:], 2) // free list
		u64(m[40:], 4) // high-water mark
		u64(m[48:], uint64(id))
		h := fnv.New64a()
		h.Write(m[:boltMetaSize-8])
		u64(m[boltMetaSize-8:], h.Sum64())
	}
	return b
}

// inspectBolt checks meta pages, size, root and free list of a file. These are the numbers that
// bbolt follows before any checksum of ours is read. A hostile file can therefore neither make
// bbolt map more than it has nor make a check allocate for pages that are holes.
func inspectBolt(f io.ReaderAt, size int64) error {
	m, err := newestMeta(f, size)
	if err != nil {
		return err
	}
	if m.high < 3 || m.high > uint64(size/m.pageSize) {
		return fmt.Errorf("expected %d pages of %d bytes, the file has %d bytes: its end is missing", m.high, m.pageSize, size)
	}
	// bbolt maps all of it, and the tables of a check are as long as it has pages: a file that says
	// it is large must be.
	if used := int64(m.high) * m.pageSize; used > sparseBytes && dataBytes(f, used) < used/2 {
		return fmt.Errorf("expected %d pages of %d bytes, most of them are holes in the file", m.high, m.pageSize)
	}
	if _, err := m.page(f, m.root, boltLeaf|boltBranch); err != nil {
		return fmt.Errorf("root page: %w", err)
	}
	if m.freelist == boltNoPage {
		return nil
	}
	return m.freePages(f)
}

// CheckRows returns an error for a file of rows that bbolt would not survive, before it is opened: what every open of a database reads, or,
// with whole, each page. bbolt walks a file without a free list in a goroutine of its own, where damage ends the process, so such a file is
// refused. A file that is missing or empty is sound.
func CheckRows(path string, whole bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() == 0 {
		return err
	}
	if whole {
		walkBolt(f, fi.Size(), nil, func(format string, args ...any) { err = cmp.Or(err, fmt.Errorf(format, args...)) })
		return err
	}
	if err := inspectBolt(f, fi.Size()); err != nil {
		return err
	}
	m, err := newestMeta(f, fi.Size())
	if err == nil && m.freelist == boltNoPage {
		err = errors.New("the free list is missing")
	}
	return err
}

// newestMeta returns the meta page that bbolt will use: the valid one with the higher transaction.
func newestMeta(f io.ReaderAt, size int64) (m boltMeta, err error) {
	a, errA := readMeta(f, 0)
	sizes := []int64{a.pageSize}
	if errA != nil { // the page size is not known: try each place of the second
		sizes = nil
		for n := int64(boltMinPage); n <= boltMaxPage && n < size; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	errB := errA
	var b boltMeta
	for _, n := range sizes {
		if b, errB = readMeta(f, n); errB == nil {
			break
		}
	}
	switch {
	case codec.Unread(errA), codec.Unread(errB): // the one that could be read may be the older
		return m, fmt.Errorf("meta pages: %w", errors.Join(errA, errB))
	case errA != nil && errB != nil:
		return m, fmt.Errorf("both meta pages: %w", errA)
	case errA != nil, errB == nil && b.txid > a.txid:
		return b, nil
	}
	return a, nil
}

// readMeta reads the meta page at an offset and checks its sum.
func readMeta(f io.ReaderAt, off int64) (m boltMeta, err error) {
	b := make([]byte, boltPageHead+boltMetaSize)
	if _, err := f.ReadAt(b, off); err != nil {
		return m, err
	}
	b = b[boltPageHead:]
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	h := fnv.New64a()
	h.Write(b[:boltMetaSize-8])
	if u32(b) != boltMagic || u64(b[boltMetaSize-8:]) != h.Sum64() {
		return m, errors.New("no valid bbolt meta page")
	}
	m = boltMeta{pageSize: int64(u32(b[8:])), root: u64(b[16:]), freelist: u64(b[32:]), high: u64(b[40:]), txid: u64(b[48:])}
	if m.pageSize < boltMinPage || m.pageSize > boltMaxPage || m.pageSize&(m.pageSize-1) != 0 {
		return m, fmt.Errorf("the page size is %d; expected a power of two from %d to %d", m.pageSize, boltMinPage, boltMaxPage)
	}
	return m, nil
}

// likelyPageSize tells the size of the pages of a file without a meta page: by it most of the first pages stand where their
// heads say.
func likelyPageSize(f io.ReaderAt, size int64) int64 {
	const looked = 256
	best, most := int64(boltPage), 0
	head := make([]byte, 8)
	for n := int64(boltMinPage); n <= boltMaxPage; n *= 2 {
		placed := 0
		for id := int64(2); id < looked && id*n < size; id++ {
			if _, err := f.ReadAt(head, id*n); err == nil && binary.NativeEndian.Uint64(head) == uint64(id) {
				placed++
			}
		}
		if placed > most {
			best, most = n, placed
		}
	}
	return best
}

// page reads the head of a page and checks that it is the expected page, of the expected type,
// within the file. It returns the first bytes of the page.
func (m *boltMeta) page(f io.ReaderAt, id uint64, flags uint16) ([]byte, error) {
	if id < 2 || id >= m.high {
		return nil, fmt.Errorf("page %d is outside the file's %d pages", id, m.high)
	}
	b := make([]byte, boltPageHead+8)
	if _, err := f.ReadAt(b, int64(id)*m.pageSize); err != nil {
		return nil, err
	}
	got, is, overflow := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint16(b[8:]), binary.NativeEndian.Uint32(b[12:])
	if got != id || is&flags == 0 || is&^flags != 0 || id+uint64(overflow) >= m.high {
		return nil, fmt.Errorf("page %d: its head says page %d, flags %#x, %d overflow pages; expected page %d with flags within %#x", id, got, is, overflow, id, flags)
	}
	return b, nil
}

// freePages checks the free list: rising page numbers inside the file, neither the root nor the
// list itself. It is read as a stream, because a list may have millions of entries. A page that is
// listed although it is in use would be given away and overwritten: only the whole walk
// (walkBolt) finds that.
func (m *boltMeta) freePages(f io.ReaderAt) error {
	head, err := m.page(f, m.freelist, boltFreelist)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(head[12:]))
	count, at := uint64(binary.NativeEndian.Uint16(head[10:])), int64(boltPageHead)
	if count == boltHugeCount {
		count, at = binary.NativeEndian.Uint64(head[boltPageHead:]), at+8
	}
	if fit := (pages*uint64(m.pageSize) - uint64(at)) / 8; count > fit {
		return fmt.Errorf("free list: it says it has %d entries, but its pages hold at most %d", count, fit)
	}
	r := bufio.NewReader(io.NewSectionReader(f, int64(m.freelist)*m.pageSize+at, int64(count)*8))
	last, b := uint64(1), make([]byte, 8)
	for range count {
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
		id := binary.NativeEndian.Uint64(b)
		if id <= last || id >= m.high || id == m.root || id >= m.freelist && id < m.freelist+pages {
			return fmt.Errorf("free list: page %d follows page %d; expected free pages below %d, in rising order", id, last, m.high)
		}
		last = id
	}
	return nil
}

// boltWalk checks the structure of the whole file: each page is of the expected type and is reached
// once, keys rise, and each page is either in the tree or free. bbolt's own check walks mapped
// memory in its own goroutine, where a damaged page ends the process; this walk reads. The file
// must not be written during the walk.
type boltWalk struct {
	f    io.ReaderAt
	m    boltMeta
	used map[uint64]bool
	bad  func(format string, args ...any)
	// row, if not nil, gets every row, with the name of its bucket and the offset of its value in
	// the file.
	row    func(bucket string, k, v []byte, at int64)
	bucket string       // where the walk is
	only   []byte       // the only bucket to walk; nil: all
	ended  func() error // the walk ends early when it fails; nil: never
}

// walkBolt walks a whole file. row may be nil.
func walkBolt(f io.ReaderAt, size int64, row func(bucket string, k, v []byte, at int64), bad func(format string, args ...any)) {
	if err := inspectBolt(f, size); err != nil {
		bad("%v", err)
		return
	}
	m, err := newestMeta(f, size)
	if err != nil {
		bad("%v", err)
		return
	}
	w := &boltWalk{f: f, m: m, used: map[uint64]bool{0: true, 1: true}, bad: bad, row: row}
	w.tree(m.root, nil)
	w.free()
	for id := uint64(2); id < m.high; id++ {
		if !w.used[id] {
			bad("page %d is neither in use nor in the free list", id)
		}
	}
}

// load reads a page with its overflow, and marks it. Marking comes before the page is followed, so
// pages that lead to each other end the walk: each page is read at most once.
func (w *boltWalk) load(id uint64, flags uint16) []byte {
	head, err := w.m.page(w.f, id, flags)
	if err != nil {
		w.bad("%v", err)
		return nil
	}
	n := 1 + uint64(binary.NativeEndian.Uint32(head[12:]))
	for i := id; i < id+n; i++ {
		if w.used[i] {
			w.bad("page %d is used twice", i)
			return nil
		}
		w.used[i] = true
	}
	b := make([]byte, n*uint64(w.m.pageSize))
	if _, err := w.f.ReadAt(b, int64(id)*w.m.pageSize); err != nil {
		w.bad("page %d: %v", id, err)
		return nil
	}
	return b
}

// tree walks the pages below id. Its first key must not be less than from.
func (w *boltWalk) tree(id uint64, from []byte) {
	if w.ended != nil && w.ended() != nil {
		return
	}
	if b := w.load(id, boltLeaf|boltBranch); b != nil {
		w.page(id, b, int64(id)*w.m.pageSize, from)
	}
}

// page walks the elements of a page that begins at off, or of a small bucket that is stored within
// a page.
func (w *boltWalk) page(id uint64, b []byte, off int64, from []byte) {
	const element = 16 // branch: pos, ksize u32, page u64; leaf: flags, pos, ksize, vsize u32
	u32 := binary.NativeEndian.Uint32
	branch, count := binary.NativeEndian.Uint16(b[8:]) == boltBranch, int(binary.NativeEndian.Uint16(b[10:]))
	if boltPageHead+count*element > len(b) || branch && count == 0 {
		w.bad("page %d says it has %d elements, which do not fit into it", id, count)
		return
	}
	last := from
	for i := range count {
		at := boltPageHead + i*element
		e := b[at:]
		pos, ksize, vsize := uint64(u32(e)), uint64(u32(e[4:])), uint64(0)
		if !branch {
			pos, ksize, vsize = uint64(u32(e[4:])), uint64(u32(e[8:])), uint64(u32(e[12:]))
		}
		start := uint64(at) + pos
		if start+ksize+vsize > uint64(len(b)) {
			w.bad("page %d, element %d reaches beyond the page", id, i)
			return
		}
		key := b[start : start+ksize]
		if c := bytes.Compare(key, last); c < 0 || c == 0 && i > 0 {
			w.bad("page %d, element %d: keys do not rise", id, i)
		}
		last = key
		switch {
		case branch:
			w.tree(binary.NativeEndian.Uint64(e[8:]), key)
		case u32(e)&1 != 0:
			w.inBucket(id, key, b[start+ksize:start+ksize+vsize], off+int64(start+ksize))
		case w.row != nil:
			w.row(w.bucket, key, b[start+ksize:start+ksize+vsize], off+int64(start+ksize))
		}
	}
}

// inBucket walks a bucket. Its value is a root page and a sequence, followed by the page itself if
// the bucket is small.
func (w *boltWalk) inBucket(id uint64, name, v []byte, off int64) {
	if w.only != nil && !bytes.Equal(name, w.only) {
		return
	}
	defer func(outer string) { w.bucket = outer }(w.bucket)
	w.bucket = string(name)
	switch {
	case len(v) < 16:
		w.bad("page %d: a bucket has %d bytes, expected at least 16", id, len(v))
	case binary.NativeEndian.Uint64(v) != 0:
		w.tree(binary.NativeEndian.Uint64(v), nil)
	case len(v) < 16+boltPageHead:
		w.bad("page %d: a small bucket lacks its page", id)
	default:
		w.page(id, v[16:], off+16, nil)
	}
}

// free marks the pages of the free list and the pages that it lists.
func (w *boltWalk) free() {
	if w.m.freelist == boltNoPage {
		w.bad("the free list is missing")
		return
	}
	b := w.load(w.m.freelist, boltFreelist)
	if b == nil {
		return
	}
	count, at := uint64(binary.NativeEndian.Uint16(b[10:])), boltPageHead
	if count == boltHugeCount {
		count, at = binary.NativeEndian.Uint64(b[boltPageHead:]), at+8
	}
	for i := range int(count) {
		id := binary.NativeEndian.Uint64(b[at+8*i:])
		if w.used[id] {
			w.bad("page %d is in use and in the free list", id)
		}
		w.used[id] = true
	}
}
