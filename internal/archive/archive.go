package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/wal"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	filePerm os.FileMode = 0o600
	dirPerm  os.FileMode = 0o700

	defaultSegment = 64 << 20
	maxSegment     = 1 << 30
	writeChunk     = 1 << 20
)

// archive is the directory. Its fields change only in open, write and close,
// which Log keeps apart (Log.archiving). The files are read at any time without
// a lock, below what the mark covers.
//
// Damage is judged by the mark. Everything that the mark covers was synced, so anything missing or
// wrong there is damage: a writer refuses the archive, or takes the leaves from the log if the log
// still has them; a reader reports it and reads the prefix. Bytes behind the mark are never damage.
//
// What counts, in three layers. A reader needs all three to agree:
//
//	mark     how many leaves are synced, their root, and which generation of files counts
//	index    row i: where the frame of leaf i is, what type it has, the hashes of its traces
//	leaves   frame i: index, length and checksum, then the bytes
//
// A prune replaces the archive by another one, with files of the next generation, under Log.mu.
// Views that have the old one go on with it.
type archive struct {
	dir      string
	fs       wal.FS
	readOnly bool
	segSize  int64
	seal     Sealer // nil: the archive is not sealed

	index, hashes wal.File // nil in a reader when there is none
	segs          []segment
	mark          stamp
	read          blocks // cache of index and segments, for single digests
	opened        openedLeaves
	named         bool     // the mark was renamed by this process, and its name is synced
	uncut         bool     // there may be bytes behind the leaves that count; cut them before writing
	pruners       sync.Map // *Pruned by the trace of its leaf
}

// segment is one file of leaf bytes.
type segment struct {
	first uint64
	gen   uint32   // of the prune that wrote it; 0: none did
	file  wal.File // nil: its header could not be read, so none of its leaves counts
	end   int64    // the end of its last leaf that counts; the file may be longer
}

// name is the name of the file.
func (s segment) name() string { return segmentName(s.first, s.gen) }

// path is the path of a file of the archive.
func (a *archive) path(name string) string { return filepath.Join(a.dir, name) }

// open finds out how many leaves count. Steps: directory, mark, index and
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
	if err := a.openFixed(known, &rep); err != nil {
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
	return rep, a.dropUncovered(&rep)
}

// damage notes the first problem that a reader can live with.
func (rep *Report) damage(err error) {
	if rep.Damage == nil {
		rep.Damage = err
	}
}

// openDir makes the directory, if this is a writer. A reader takes a missing one for an archive
// without leaves.
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
	// Even if it was there: the process that made it may have been killed before the sync. It makes the mark after that.
	if _, err := a.fs.Stat(a.path(markName)); err == nil {
		return nil
	}
	if err := a.fs.SyncDir(filepath.Dir(a.dir)); err != nil {
		return fmt.Errorf("manifest: make the archive: %w", err)
	}
	return nil
}

// openMark reads the mark. A new archive gets a mark over no leaves. The mark
// is replaced by a rename, so a crash can neither damage nor remove it.
// Therefore a writer refuses an archive without a mark; a reader goes on
// without.
func (a *archive) openMark(rep *Report, db string) (known bool, err error) {
	a.mark, err = a.readMark()
	switch {
	case err == nil && db != "" && a.mark.db != db:
		return false, corruptAt(markName, headerSize, noLeaf, fmt.Errorf("the archive belongs to database %q, not to %q", a.mark.db, db))
	case err == nil:
		return true, nil
	case unreadable(err):
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

// readMark reads the mark as it is on the disk now: a writer may have replaced it since the archive
// was opened.
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
	return a.parseStamp(b)
}

// holdsSomething reports whether there is more than a crash in create leaves
// behind.
func (a *archive) holdsSomething() (bool, error) {
	names, err := a.fs.ReadDir(a.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("manifest: open the archive: %w", err)
	}
	for _, name := range names {
		if _, _, leaves := parseSegmentName(name); leaves {
			return true, nil
		}
		if _, index := parseIndexFile(name); !index && name != hashesName {
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

// create makes an empty archive. It does not exist until its mark is there. The other files are not synced: of an archive
// without leaves a writer makes them anew (openFixed), and the first leaves are synced with them.
func (a *archive) create() error {
	if a.readOnly {
		return nil
	}
	for _, x := range fixedFiles {
		f, err := a.make(x.name, x.kind, 0)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("manifest: make %s: %w", x.name, err)
		}
	}
	return a.writeMark(a.mark)
}

var fixedFiles = [...]struct {
	name string
	kind byte
}{{indexName, kindIndex}, {hashesName, kindHashes}}

// make opens a new file with its header. The caller syncs it.
func (a *archive) make(name string, kind byte, first uint64) (wal.File, error) {
	f, err := a.fs.OpenFile(a.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return nil, fmt.Errorf("manifest: make %s: %w", name, err)
	}
	if _, err := f.WriteAt(a.header(kind, first), 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("manifest: make %s: %w", name, err)
	}
	return &resting{fs: a.fs, path: a.path(name), f: f}, nil
}

// writeMark replaces the mark. From then on everything written before counts.
func (a *archive) writeMark(s stamp) error {
	f, err := a.fs.OpenFile(a.path(markTemp), os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err == nil {
		_, err = f.WriteAt(s.encode(a), 0)
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
	a.named = true
	return nil
}

// errRenamed: the new mark is in place, and may or may not survive a power cut.
// So what it covers must not be cut.
var errRenamed = errors.New("its name is not synced")

// openFixed opens index and hashes. A file that is too short is left to prefix. A wrong header stops a writer, unless the mark
// says that there are no leaves: a power cut may leave anything in files that create did not sync, and they are begun anew.
func (a *archive) openFixed(known bool, rep *Report) error {
	empty := known && a.mark.size == 0
	for i, at := range [...]*wal.File{&a.index, &a.hashes} {
		x := fixedFiles[i]
		if x.kind == kindIndex {
			x.name = indexFile(a.mark.gen)
		}
		f, err := a.openFile(x.name, x.kind, 0, true)
		if empty && err != nil && !unreadable(err) && !errors.Is(err, errTornHeader) && !errors.Is(err, fs.ErrNotExist) {
			if a.readOnly {
				continue
			}
			f, err = a.anew(x.name)
		}
		switch {
		case unreadable(err):
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

// anew opens a file of an archive without leaves whose header is wrong, and empties it. Its header is written with the next cut.
func (a *archive) anew(name string) (wal.File, error) {
	f, err := a.fs.OpenFile(a.path(name), os.O_RDWR, filePerm)
	if err != nil {
		return nil, fmt.Errorf("manifest: open the archive: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, fmt.Errorf("manifest: open the archive: %w", err)
	}
	return &resting{fs: a.fs, path: a.path(name), f: f}, nil
}

// openFile opens name and checks its header. A writer gets the file even with
// errTornHeader.
func (a *archive) openFile(name string, kind byte, first uint64, create bool) (wal.File, error) {
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
		err = a.checkHeader(name, b, kind, first)
	}
	if err != nil && (a.readOnly || !errors.Is(err, errTornHeader)) {
		f.Close()
		return nil, err
	}
	if a.readOnly {
		return f, err
	}
	return &resting{fs: a.fs, path: a.path(name), f: f}, err
}

// openSegments lists the segment files. A segment without a good header stays in the list, so that
// its leaves count as missing and are not looked for elsewhere.
func (a *archive) openSegments(rep *Report) error {
	names, err := a.fs.ReadDir(a.dir)
	if err != nil {
		if a.readOnly && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("manifest: open the archive: %w", err)
	}
	for k, name := range names { // sorted, so by first leaf, then by generation
		first, gen, ok := parseSegmentName(name)
		if !ok || gen > a.mark.gen {
			continue
		}
		if k+1 < len(names) {
			if next, higher, ok := parseSegmentName(names[k+1]); ok && next == first && higher <= a.mark.gen {
				continue // a prune wrote it anew
			}
		}
		f, err := a.openFile(name, kindLeaves, first, false)
		if unreadable(err) {
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
		a.segs = append(a.segs, segment{first: first, gen: gen, file: f})
	}
	return nil
}

// prefix returns the largest n ≤ limit such that the first n leaves can be there: index and hashes
// are long enough, and no segment is missing or short. It reads one leaf of each segment. Damage of
// the others is found by Verify, or when they are read.
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

// fixedPrefix returns how many leaves index and hashes have room for.
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
	n = min(n, (whole+16)/16*15+15) // n leaves take n·16/15 hashes, less one for each level at most
	for n > 0 && hashCount(n) > whole {
		n--
	}
	return n, nil
}

// wholeUntil goes down from end to the last intact leaf of the segment that
// begins at first, and returns the index behind it.
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
		if unreadable(err) {
			return 0, err
		}
		rep.damage(err)
	}
	return first, nil
}

// checkRoot compares the tree with the mark, if all leaves of the mark are
// there.
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
	if err != nil && (!a.readOnly || codec.Unread(err)) {
		return err
	}
	if err != nil {
		rep.damage(err)
	}
	return nil
}

// dropUncovered forgets what is behind the leaves that count. A writer also syncs the
// directory, because the process that renamed the mark may have been killed
// before its sync, and cuts off what is behind. If synced leaves are missing it
// does not cut: what is left may still be useful, and is cut when the log has
// filled the gap and the archive is written again.
func (a *archive) dropUncovered(rep *Report) error {
	if err := a.trimSegments(rep.Archived); err != nil {
		return err
	}
	if a.readOnly {
		return nil
	}
	a.uncut = true
	if !a.named {
		if err := a.fs.SyncDir(a.dir); err != nil {
			return fmt.Errorf("manifest: open the archive: %w", err)
		}
	}
	if rep.Archived < a.mark.size {
		return nil
	}
	rep.Damage = nil // it was behind the mark
	n, err := a.cut(rep.Archived)
	rep.Cut = n
	return err
}

// trimSegments drops the segments behind leaf n and sets the end of the last
// one.
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

// cut makes the files exactly as long as n leaves need, and removes segments
// behind them. The directory is synced after a removal: a stale segment must
// not come back when leaves of its range are elsewhere.
func (a *archive) cut(n uint64) (cut int64, err error) {
	shorten := func(f wal.File, size int64) {
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

// removeBehind removes segments that begin at leaf n or later, unfinished marks, and leftovers of
// prunes.
func (a *archive) removeBehind(n uint64) (removed int, err error) {
	names, err := a.fs.ReadDir(a.dir)
	for _, name := range names {
		first, _, ok := parseSegmentName(name)
		if ok && first >= n || name == markTemp || a.leftover(name) {
			removed++
			err = errors.Join(err, a.fs.Remove(a.path(name)))
		}
	}
	return removed, err
}

// leftover reports whether a file is of a prune that did not finish, or has what
// a later prune wrote anew.
func (a *archive) leftover(name string) bool {
	if gen, ok := parseIndexFile(name); ok {
		return gen != a.mark.gen
	}
	first, gen, ok := parseSegmentName(name)
	return ok && !slices.ContainsFunc(a.segs, func(s segment) bool { return s.first == first && s.gen == gen })
}

// mendHeaders writes the headers of index and hashes again if they were torn.
func (a *archive) mendHeaders() error {
	for i, f := range [...]wal.File{a.index, a.hashes} {
		have, err := f.Size()
		if err == nil && have < headerSize {
			_, err = f.WriteAt(a.header(fixedFiles[i].kind, 0), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close closes the files. Views that still read them get an error of the system.
func (a *archive) close() error {
	var errs []error
	for _, f := range a.files() {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
