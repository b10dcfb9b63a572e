package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	filePerm os.FileMode = 0o600
	dirPerm  os.FileMode = 0o700

	defaultSegment = 64 << 20
	maxSegment     = 1 << 30
	writeChunk     = 1 << 20
)

// archive is the directory. Its fields change in open, write and close only,
// which Log keeps apart; the files are read by anybody at any time, below what
// the mark covers.
type archive struct {
	dir      string
	fs       FS
	readOnly bool
	segSize  int64

	index, hashes File // nil in a reader when there is none
	segs          []segment
	mark          stamp
	read          blocks // of index and segments, for single digests
	uncut         bool   // something lies behind the leaves that are held; cut before writing
}

// segment is one file of leaf bytes.
type segment struct {
	first uint64
	file  File  // nil when its header could not be read: none of its leaves is held
	end   int64 // of its last leaf that counts; the file may go on
}

func (a *archive) path(name string) string { return filepath.Join(a.dir, name) }

// open finds out how many leaves are held. Steps: directory, mark, index and
// hashes, segments, the whole prefix, the root, the cut.
func (a *archive) open(ctx context.Context, db string) (Report, error) {
	rep := Report{}
	if err := a.openDir(); err != nil {
		return rep, err
	}
	known, err := a.openMark(&rep, db)
	if err != nil {
		return rep, err
	}
	if err := a.openFixed(&rep); err != nil {
		return rep, err
	}
	if err := a.openSegments(&rep); err != nil {
		return rep, err
	}
	limit := uint64(maxLeaves)
	if known {
		limit = a.mark.size
	}
	if rep.Archived, err = a.prefix(ctx, limit, &rep); err != nil {
		return rep, err
	}
	if err := a.checkRoot(known, &rep); err != nil {
		return rep, err
	}
	rep.Marked = a.mark.size
	return rep, a.settle(&rep)
}

// damage notes the first thing that is wrong and that a reader can live with.
func (rep *Report) damage(err error) {
	if rep.Damage == nil {
		rep.Damage = err
	}
}

func (a *archive) openDir() error {
	st, err := a.fs.Stat(a.dir)
	switch {
	case err == nil && !st.IsDir():
		return fmt.Errorf("manifest: %s is no directory; move it away", a.dir)
	case a.readOnly && (err == nil || errors.Is(err, fs.ErrNotExist)):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("manifest: %w", err)
	}
	if err := a.fs.MkdirAll(a.dir, dirPerm); err != nil {
		return fmt.Errorf("manifest: make the archive: %w", err)
	}
	// Also if it was there: who made it may have been killed before the sync.
	if err := a.fs.SyncDir(filepath.Dir(a.dir)); err != nil {
		return fmt.Errorf("manifest: make the archive: %w", err)
	}
	return nil
}

// openMark reads the mark. A new archive gets one over no leaves. The mark is
// replaced by a rename, so a crash cannot damage it or take it away: a writer
// refuses an archive whose mark is gone, a reader goes on without.
func (a *archive) openMark(rep *Report, db string) (known bool, err error) {
	a.mark, err = a.readMark()
	switch {
	case err == nil && db != "" && a.mark.db != db:
		return false, corruptAt(markName, headerSize, noLeaf, fmt.Errorf("the archive belongs to database %q, not to %q", a.mark.db, db))
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNewerFormat), ioFailed(err):
		return false, err
	case errors.Is(err, fs.ErrNotExist):
		something, herr := a.holdsSomething()
		if herr != nil {
			return false, herr
		}
		if !something {
			a.mark = stamp{db: db, root: new(Frontier).Root()}
			return true, a.create()
		}
		err = corruptAt(markName, 0, noLeaf, errors.New("the mark is missing though leaves are there"))
	}
	if !a.readOnly {
		return false, err
	}
	a.mark = stamp{db: db}
	rep.damage(err)
	return false, nil
}

func (a *archive) readMark() (stamp, error) {
	f, err := a.fs.OpenFile(a.path(markName), os.O_RDONLY, 0)
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	b, err := readUpTo(f, 0, maxMark)
	if err != nil {
		return stamp{}, err
	}
	return parseStamp(b)
}

// holdsSomething reports whether there is more than a crash in create leaves
// behind.
func (a *archive) holdsSomething() (bool, error) {
	names, err := a.fs.ReadDir(a.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("manifest: open the archive: %w", err)
	}
	for _, name := range names {
		if _, leaves := parseSegmentName(name); leaves {
			return true, nil
		}
		if name != indexName && name != hashesName {
			continue
		}
		st, err := a.fs.Stat(a.path(name))
		if err != nil {
			return false, fmt.Errorf("manifest: open the archive: %w", err)
		}
		if st.Size() > headerSize {
			return true, nil
		}
	}
	return false, nil
}

// create makes an empty archive. Until its mark is there it does not exist.
func (a *archive) create() error {
	if a.readOnly {
		return nil
	}
	for _, x := range fixedFiles {
		f, err := a.make(x.name, x.kind, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("manifest: make %s: %w", x.name, err)
		}
	}
	if err := a.fs.SyncDir(a.dir); err != nil {
		return fmt.Errorf("manifest: make the archive: %w", err)
	}
	return a.writeMark(a.mark)
}

var fixedFiles = [...]struct {
	name string
	kind byte
}{{indexName, kindIndex}, {hashesName, kindHashes}}

// make opens a fresh file with its header; the caller syncs it.
func (a *archive) make(name string, kind byte, first uint64) (File, error) {
	f, err := a.fs.OpenFile(a.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return nil, fmt.Errorf("manifest: make %s: %w", name, err)
	}
	if _, err := f.WriteAt(header(kind, first), 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("manifest: make %s: %w", name, err)
	}
	return f, nil
}

// writeMark makes everything before it count.
func (a *archive) writeMark(s stamp) error {
	f, err := a.fs.OpenFile(a.path(markTemp), os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err == nil {
		_, err = f.WriteAt(s.encode(), 0)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = a.fs.Rename(a.path(markTemp), a.path(markName))
	}
	if err == nil {
		if err = a.fs.SyncDir(a.dir); err != nil {
			err = fmt.Errorf("%w: %w", errRenamed, err)
		}
	}
	if err != nil {
		return fmt.Errorf("manifest: write the mark: %w", err)
	}
	return nil
}

// errRenamed: the new mark is there, and may or may not survive a power cut. What it covers must not be cut.
var errRenamed = errors.New("its name is not synced")

// openFixed opens index and hashes. A file that is short is a matter of
// prefix; one with a wrong header stops a writer.
func (a *archive) openFixed(rep *Report) error {
	for i, at := range [...]*File{&a.index, &a.hashes} {
		x := fixedFiles[i]
		f, err := a.openFile(x.name, x.kind, 0, true)
		switch {
		case errors.Is(err, ErrNewerFormat), ioFailed(err):
			return err
		case errors.Is(err, errTornHeader), errors.Is(err, fs.ErrNotExist) && a.readOnly:
		case err != nil && !a.readOnly:
			return err
		case err != nil:
			rep.damage(err)
		}
		*at = f
	}
	return nil
}

// openFile opens name and checks its header. With errTornHeader a writer gets
// the file all the same.
func (a *archive) openFile(name string, kind byte, first uint64, create bool) (File, error) {
	flag := os.O_RDONLY
	if !a.readOnly {
		flag = os.O_RDWR
		if create {
			flag |= os.O_CREATE
		}
	}
	f, err := a.fs.OpenFile(a.path(name), flag, filePerm)
	if err != nil {
		return nil, fmt.Errorf("manifest: open the archive: %w", err)
	}
	b, err := readUpTo(f, 0, headerSize)
	if err == nil {
		err = checkHeader(name, b, kind, first)
	}
	if err != nil && (a.readOnly || !errors.Is(err, errTornHeader)) {
		f.Close()
		return nil, err
	}
	return f, err
}

// openSegments lists the segment files. One without a good header is kept in
// the list, so that its leaves are missed and not looked for elsewhere.
func (a *archive) openSegments(rep *Report) error {
	names, err := a.fs.ReadDir(a.dir)
	if err != nil {
		if a.readOnly && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("manifest: open the archive: %w", err)
	}
	for _, name := range names { // sorted, so by first leaf
		first, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		f, err := a.openFile(name, kindLeaves, first, false)
		if errors.Is(err, ErrNewerFormat) || ioFailed(err) {
			return err
		}
		if err != nil {
			if f != nil {
				f.Close()
				f = nil
			}
			if !errors.Is(err, errTornHeader) {
				rep.damage(err)
			}
		}
		a.segs = append(a.segs, segment{first: first, file: f})
	}
	return nil
}

// prefix is the largest n ≤ limit such that the first n leaves can be there:
// index and hashes are long enough, no segment is missing or short. It reads
// one leaf per segment; whether all the others are intact is for Verify, or
// found when they are read.
func (a *archive) prefix(ctx context.Context, limit uint64, rep *Report) (uint64, error) {
	n, err := a.fixedPrefix(limit)
	if err != nil || n == 0 {
		return 0, err
	}
	for k := 0; k < len(a.segs) && a.segs[k].first < n; k++ {
		end := n
		if k+1 < len(a.segs) {
			end = min(n, a.segs[k+1].first)
		}
		good, err := a.wholeUntil(ctx, a.segs[k].first, end, rep)
		if err != nil || good < end {
			return good, err
		}
	}
	if len(a.segs) == 0 || a.segs[0].first != 0 {
		return 0, nil
	}
	return n, nil
}

// fixedPrefix is how many leaves index and hashes have room for.
func (a *archive) fixedPrefix(limit uint64) (uint64, error) {
	if a.index == nil || a.hashes == nil {
		return 0, nil
	}
	rows, err := a.index.Size()
	if err != nil {
		return 0, fmt.Errorf("manifest: open the archive: %w", err)
	}
	hashes, err := a.hashes.Size()
	if err != nil {
		return 0, fmt.Errorf("manifest: open the archive: %w", err)
	}
	n := min(limit, uint64(max(0, rows-headerSize)/rowSize))
	whole := uint64(max(0, hashes-headerSize) / tlog.HashSize)
	n = min(n, (whole+64)/2) // n leaves take 2n hashes, less one for each bit set in n
	for n > 0 && hashCount(n) > whole {
		n--
	}
	return n, nil
}

// wholeUntil goes down from end to the last leaf of the segment that begins at
// first which is whole, and gives the index behind it.
func (a *archive) wholeUntil(ctx context.Context, first, end uint64, rep *Report) (uint64, error) {
	v := view{arch: a, archived: end, segs: a.segs}
	for ; end > first; end-- {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		_, _, err := v.archivedBody(end - 1)
		if err == nil {
			return end, nil
		}
		if errors.Is(err, ErrNewerFormat) || ioFailed(err) {
			return 0, err
		}
		rep.damage(err)
	}
	return first, nil
}

// checkRoot compares the tree with the mark where both are whole.
func (a *archive) checkRoot(known bool, rep *Report) error {
	if !known {
		return nil
	}
	if rep.Archived < a.mark.size {
		rep.damage(fmt.Errorf("manifest: the archive holds %d leaves, its mark says %d", rep.Archived, a.mark.size))
		return nil
	}
	v := view{arch: a, archived: rep.Archived, segs: a.segs}
	root, err := v.root(rep.Archived)
	if err == nil && root != a.mark.root {
		err = corruptAt(hashesName, headerSize, noLeaf, errors.New("the stored hashes do not give the root of the mark"))
	}
	if err != nil && (!a.readOnly || ioFailed(err)) {
		return err
	}
	if err != nil {
		rep.damage(err)
	}
	return nil
}

// settle forgets what lies behind the held leaves. A writer also syncs the
// directory, since the mark it found may be that of a process killed between
// rename and sync, and cuts off what lies behind, unless synced leaves are missing: then what is left may still be of use to
// somebody, and is cut when the log has filled the gap and the archive is
// written again.
func (a *archive) settle(rep *Report) error {
	if err := a.trimSegments(rep.Archived); err != nil {
		return err
	}
	if a.readOnly {
		return nil
	}
	a.uncut = true
	if err := a.fs.SyncDir(a.dir); err != nil {
		return fmt.Errorf("manifest: open the archive: %w", err)
	}
	if rep.Archived < a.mark.size {
		return nil
	}
	rep.Damage = nil // it lay behind the mark
	n, err := a.cut(rep.Archived)
	rep.Cut = n
	return err
}

// trimSegments drops the segments behind leaf n and tells the last its end.
func (a *archive) trimSegments(n uint64) error {
	for len(a.segs) > 0 && a.segs[len(a.segs)-1].first >= n {
		last := a.segs[len(a.segs)-1]
		a.segs = a.segs[:len(a.segs)-1]
		if last.file != nil {
			last.file.Close()
		}
	}
	if n == 0 {
		return nil
	}
	v := view{arch: a, archived: n, segs: a.segs}
	r, err := v.row(n - 1)
	if err != nil {
		return err
	}
	a.segs[len(a.segs)-1].end = r.end()
	return nil
}

// cut makes the files exactly as long as n leaves need and removes the others.
// The directory is synced after a removal: a stale segment must not come back
// once leaves of its range stand elsewhere.
func (a *archive) cut(n uint64) (cut int64, err error) {
	shorten := func(f File, size int64) {
		have, serr := f.Size()
		if err = errors.Join(err, serr); err == nil && have > size {
			cut += have - size
			err = f.Truncate(size)
		}
	}
	shorten(a.index, rowOffset(n))
	shorten(a.hashes, hashOffset(int64(hashCount(n))))
	if k := len(a.segs); k > 0 {
		shorten(a.segs[k-1].file, a.segs[k-1].end)
	}
	removed, rerr := a.removeBehind(n)
	if err = errors.Join(err, rerr, a.mendHeaders()); err == nil && removed > 0 {
		err = a.fs.SyncDir(a.dir)
	}
	if err != nil {
		return cut, fmt.Errorf("manifest: cut the archive after leaf %d: %w", n, err)
	}
	a.uncut = false
	return cut, nil
}

func (a *archive) removeBehind(n uint64) (removed int, err error) {
	names, err := a.fs.ReadDir(a.dir)
	for _, name := range names {
		first, ok := parseSegmentName(name)
		if ok && first >= n || name == markTemp {
			removed++
			err = errors.Join(err, a.fs.Remove(a.path(name)))
		}
	}
	return removed, err
}

// mendHeaders writes the headers of index and hashes again if they were torn.
func (a *archive) mendHeaders() error {
	for i, f := range [...]File{a.index, a.hashes} {
		have, err := f.Size()
		if err == nil && have < headerSize {
			_, err = f.WriteAt(header(fixedFiles[i].kind, 0), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// added is what write appends.
type added struct {
	from   uint64
	leaves []tailLeaf
	hashes []Hash
	root   Hash // over from + len(leaves)
}

// write appends leaves and gives the new segments and mark, which the caller
// installs. Bodies, rows and hashes are synced before the mark is replaced.
// Nothing is installed on an error; the next try, after a new open, writes over
// what this one left.
func (a *archive) write(ctx context.Context, x added) ([]segment, stamp, error) {
	if a.uncut {
		if _, err := a.cut(x.from); err != nil {
			return nil, stamp{}, err
		}
	}
	w := bodyWriter{a: a, segs: slices.Clone(a.segs)}
	err := w.bodies(ctx, x)
	if err == nil {
		err = writeSync(a.index, w.rows, rowOffset(x.from))
	}
	if err == nil {
		err = writeSync(a.hashes, hashBytes(x.hashes), hashOffset(int64(hashCount(x.from))))
	}
	if err == nil && w.made > 0 {
		err = a.fs.SyncDir(a.dir)
	}
	s := stamp{db: a.mark.db, size: x.from + uint64(len(x.leaves)), root: x.root}
	if err == nil {
		err = a.writeMark(s)
	}
	if err != nil {
		w.abandon()
		if noSpace(err) { // gives back what it took
			_, cerr := a.cut(x.from)
			err = errors.Join(err, cerr)
		}
		return nil, stamp{}, err
	}
	return w.segs, s, nil
}

// noSpace says that the disk was full, and that nothing the mark covers is in doubt.
func noSpace(err error) bool {
	return (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !errors.Is(err, errRenamed)
}

func writeSync(f File, b []byte, off int64) error {
	if _, err := f.WriteAt(b, off); err != nil {
		return fmt.Errorf("manifest: write the archive: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("manifest: sync the archive: %w", err)
	}
	return nil
}

func hashBytes(hashes []Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

// bodyWriter writes frames into segments and collects the rows.
type bodyWriter struct {
	a    *archive
	segs []segment
	made int // how many of segs are new
	rows []byte
	buf  []byte // frames of the last segment not written yet, ending at its end
}

func (w *bodyWriter) bodies(ctx context.Context, x added) error {
	for k, leaf := range x.leaves {
		i := x.from + uint64(k)
		if err := w.segmentFor(i, frameSize+int64(len(leaf.body))); err != nil {
			return err
		}
		last := &w.segs[len(w.segs)-1]
		r := leaf.row
		r.off = uint32(last.end)
		w.rows = r.append(w.rows, i)
		w.buf = appendFrame(w.buf, i, leaf.body)
		last.end = r.end()
		if len(w.buf) >= writeChunk {
			if err := errors.Join(ctx.Err(), w.flush()); err != nil {
				return err
			}
		}
	}
	return w.sync()
}

// segmentFor begins a new segment for leaf i where the frame does not fit into the
// last one.
func (w *bodyWriter) segmentFor(i uint64, frame int64) error {
	if k := len(w.segs); k > 0 && w.segs[k-1].end+frame <= w.a.segSize {
		return nil
	}
	if err := w.sync(); err != nil {
		return err
	}
	f, err := w.a.make(segmentName(i), kindLeaves, i)
	if err != nil {
		return err
	}
	w.made++
	w.segs = append(w.segs, segment{first: i, file: f, end: headerSize})
	return nil
}

func (w *bodyWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	last := w.segs[len(w.segs)-1]
	if _, err := last.file.WriteAt(w.buf, last.end-int64(len(w.buf))); err != nil {
		return fmt.Errorf("manifest: write the archive: %w", err)
	}
	w.buf = w.buf[:0]
	return nil
}

// sync ends the work on the last segment.
func (w *bodyWriter) sync() error {
	if len(w.segs) == 0 {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.segs[len(w.segs)-1].file.Sync(); err != nil {
		return fmt.Errorf("manifest: sync the archive: %w", err)
	}
	return nil
}

// abandon closes the segments this writer made; their files are overwritten or
// removed later.
func (w *bodyWriter) abandon() {
	for _, s := range w.segs[len(w.segs)-w.made:] {
		s.file.Close()
	}
}

func (a *archive) close() error {
	var errs []error
	for _, f := range [...]File{a.index, a.hashes} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, s := range a.segs {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(errs...)
}
