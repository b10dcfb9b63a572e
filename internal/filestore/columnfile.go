package filestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"go.etcd.io/bbolt"
)

// agent.ctx.columns has what an open builds from the rows, in the form memory has it, so that a
// large database is there in milliseconds. Why it may be believed is said in engine/columns.go; how
// the file keeps that:
//
//	head         version, place of the leaf, length of the directory, and their checksum
//	directory    database, LSN, and of each part kind, length and SHA-256; its digest is in the leaf
//	parts        as the engine makes them
//
// It is written beside commits after a checkpoint, once memory is at the LSN of the rows (refreshColumns),
// and when the database is closed, if commits came since it was written last, unless
// another process waits to be the next owner (leavesToNext): the leaf
// first, synced and archived, then the file under another name, synced, renamed. While it is of the
// rows, no checkpoint is due for the age of what waits, until the log has columnsShare of its size:
// so after a kill an open reads the snapshot, and the log has the rest. An open believes
// it if it names this database, the LSN of the rows and an archived leaf that has its digest, and
// if every part has the digest in the directory, before a byte of a part is decoded. Anything else
// means that it is not used, and the next open for writing removes it:
//
//	absent, cut, damaged, edited     a digest differs
//	old, or rows from before it      another LSN
//	of another database or history   another id; or the leaf at its place is another one
//	a copy of the database           is checked as a whole, and has no such file (origin.go)
//
// A crash leaves the old file, whose LSN is not the LSN of the rows, or the new one whole. An
// erase removes it before anything else goes from the files: it has ids, tags and metadata.
//
// Rejected: to write it at every checkpoint, whoever commits meanwhile. It must be of the LSN of the
// rows, so commits would wait until all of it is made: 0.1 s with 1M pages.

const (
	columnsSuffix  = ".columns"
	newSuffix      = ".columns.new" // until it is whole
	columnsMagic   = "ctxpcols"
	columnsVersion = 1
	columnsHead    = 8 + 4 + 4 + 8 + 8
	columnsEntry   = 1 + 8 + sha256.Size
	columnsMost    = 1 << 20 // bytes of a directory
	columnsReaders = 4

	// columnsFrom is the number of page versions from which the file is kept: below it the rows are
	// read as fast as a file is opened.
	columnsFrom = 4096

	// columnsShare is the part of the snapshot's size from which what waits in the log is worth a
	// checkpoint, and a new snapshot after it.
	columnsShare = 8
	// columnsEvery bounds how often it is written while the database is open.
	columnsEvery = time.Minute
	columnsRetry = time.Second // commits came while it was made
)

// columnFile describes the snapshot on disk.
//
// state is for Stat and the background work, which take no lock. next belongs to the background work. audit is handed to the engine by the step of the open that
// comes after (openManifest), so the archive is opened once.
type columnFile struct {
	stale bool                        // there is a useless one
	audit *archive.Log                // opened to look for the leaf
	next  time.Time                   // none is written beside commits before
	state atomic.Pointer[columnsStat] // for Stat
}

// columnsStat is the size of the snapshot, whether this open read it, and whether rows and index have
// changed since: then it is useless, and goes with the next one or the next open.
type columnsStat struct {
	bytes int64
	read  bool // by this open
	old   bool
}

// errColumns means that a snapshot is not used. It is not reported: the rows have everything.
var errColumns = errors.New("the columns are not used")

// loadColumns builds catalogue and index from the snapshot. false: it is not used.
func (s *Store) loadColumns(ctx context.Context) (bool, error) {
	if s.opts.Columns < 0 || s.opts.Trust || s.ring.Load() != nil {
		return false, nil
	}
	cols, size, err := s.readColumns(ctx)
	if err != nil {
		s.columns.stale = !errors.Is(err, fs.ErrNotExist)
		return false, nil
	}
	used, whole := false, false
	err = s.line.Snapshot(ctx, func(tx engine.Reader, b engine.Base) (err error) {
		used, whole, err = s.eng.LoadColumns(tx, b, cols)
		return err
	})
	if s.columns.stale = !used; used {
		s.columns.state.Store(&columnsStat{size, true, !whole})
	}
	return used, err
}

// readColumns reads the snapshot of this database at the LSN of the rows, and compares it with its
// leaf.
//
// Each step trusts only what an earlier one proved. The head bounds what is read next (columnsMost, the size of the
// file); the directory names the database and the LSN; the leaf proves the directory; the directory
// proves the parts. Nothing is decoded before it is proved.
func (s *Store) readColumns(ctx context.Context) (*engine.Columns, int64, error) {
	f, err := s.opts.FS.OpenFile(s.opts.Path+columnsSuffix, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := s.opts.FS.Stat(s.opts.Path + columnsSuffix)
	if err != nil {
		return nil, 0, err
	}
	head := make([]byte, columnsHead)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, 0, err
	}
	n := int64(binary.BigEndian.Uint32(head[12:]))
	if string(head[:8]) != columnsMagic || binary.BigEndian.Uint32(head[8:]) != columnsVersion || n > min(columnsMost, st.Size()-columnsHead) ||
		binary.BigEndian.Uint64(head[24:]) != xxhash.Sum64(head[:24]) {
		return nil, 0, errColumns
	}
	directory := make([]byte, n)
	if _, err := f.ReadAt(directory, columnsHead); err != nil {
		return nil, 0, err
	}
	d := &codec.Decoder{B: directory}
	cols := &engine.Columns{LSN: d.U64()}
	if id := d.Str(); d.Err != nil || id != s.sys.ID || cols.LSN != s.sys.Applied || len(d.B)%columnsEntry != 0 {
		return nil, 0, errColumns
	}
	if err := s.provedColumns(ctx, binary.BigEndian.Uint64(head[16:]), cols.LSN, columnsDigest(directory)); err != nil {
		return nil, 0, err
	}
	return cols, st.Size(), readParts(f, cols, d.B, columnsHead+n, st.Size())
}

// columnsDigest is the digest of a snapshot in its leaf.
func columnsDigest(directory []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(columnsMagic))
	h.Write(binary.BigEndian.AppendUint32(nil, columnsVersion))
	h.Write(directory)
	return [sha256.Size]byte(h.Sum(nil))
}

// provedColumns looks for the leaf that has a digest. Only an archived leaf counts: the log is read
// after the columns.
func (s *Store) provedColumns(ctx context.Context, leaf, lsn uint64, digest [sha256.Size]byte) error {
	if err := s.openManifest(ctx); err != nil {
		return err // the step that opens it says so
	}
	s.columns.audit, s.eng.Leaves = s.eng.Leaves, nil
	r, err := s.columns.audit.Leaf(leaf)
	if err != nil || r.Type != manifest.TypeColumns || r.LSN != lsn || !bytes.Equal(r.Root, digest[:]) {
		return errors.Join(errColumns, err)
	}
	return nil
}

// readParts reads the parts and compares each with its digest, several at a time: to hash is most
// of the work. The lengths must add up to the size of the file exactly, so a forged length cannot
// allocate more than the file has bytes.
func readParts(f interface {
	ReadAt([]byte, int64) (int, error)
}, cols *engine.Columns, entries []byte, at, size int64) error {
	n := len(entries) / columnsEntry
	cols.Parts = make([]engine.ColumnPart, n)
	offsets := make([]int64, n)
	for i := range n {
		e := entries[i*columnsEntry:]
		length := binary.BigEndian.Uint64(e[1:])
		if length > uint64(size-at) {
			return errColumns
		}
		cols.Parts[i] = engine.ColumnPart{Kind: e[0], Body: make([]byte, length)}
		offsets[i] = at
		at += int64(length)
	}
	if at != size {
		return errColumns
	}
	var next atomic.Int64
	errs := make([]error, n)
	var reading sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), columnsReaders, n) {
		reading.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				body := cols.Parts[i].Body
				if _, err := f.ReadAt(body, offsets[i]); err != nil && len(body) > 0 {
					errs[i] = err
				} else if sum := sha256.Sum256(body); !bytes.Equal(sum[:], entries[i*columnsEntry+9:(i+1)*columnsEntry]) {
					errs[i] = errColumns
				}
			}
		})
	}
	reading.Wait()
	return errors.Join(errs...)
}

// tidyColumns removes a useless snapshot, and the remains of one that a crash left. It comes last
// in an open. A stale one would never be read again, and it has names and metadata of what may have
// been erased since.
func (s *Store) tidyColumns() error {
	if s.opts.ReadOnly {
		return nil
	}
	if s.columns.stale {
		return s.dropColumns()
	}
	return removeIfThere(s.opts.FS, s.opts.Path+newSuffix)
}

// dropColumns removes the snapshot for good.
func (s *Store) dropColumns() error {
	s.columns.stale = false
	s.columns.state.Store(nil)
	err := errors.Join(removeIfThere(s.opts.FS, s.opts.Path+columnsSuffix), removeIfThere(s.opts.FS, s.opts.Path+newSuffix))
	if err == nil {
		err = s.opts.FS.SyncDir(filepath.Dir(s.opts.Path))
	}
	if err != nil {
		return fmt.Errorf("ctxpage: remove %s: %w", s.opts.Path+columnsSuffix, err)
	}
	return nil
}

// removeIfThere removes a file; one that is not there is no error.
func removeIfThere(fsys interface {
	Remove(string) error
}, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// closingWorkers make the snapshot at the end of the store, when nobody commits; beside commits one does.
const closingWorkers = 4

// keepColumns writes the snapshot at the end of the store, before the log is closed, because its leaf
// is a leaf like others.
func (s *Store) keepColumns(ctx context.Context) {
	if !s.keepsColumns() || s.mustJob() != nil {
		return
	}
	defer s.ckptMu.Unlock()
	if !s.leavesToNext() && s.columnsDue() {
		s.snapColumns(inJob(ctx), closingWorkers)
	}
}

// refreshColumns writes the snapshot beside commits. It does nothing while rows wait for a checkpoint.
// Only the background work calls it. It returns how long to wait for the next try; 0: no snapshot is due.
func (s *Store) refreshColumns() time.Duration {
	if st := s.columns.state.Load(); !s.keepsColumns() || st != nil && !st.old || !s.columnsDue() {
		return 0
	}
	if wait := time.Until(s.columns.next); wait > 0 {
		return wait
	}
	if s.eng.Waiting().Rows > 0 || s.startJob(context.Background()) != nil {
		return 0 // the checkpoint of the rows comes first
	}
	defer s.ckptMu.Unlock()
	s.columns.next = time.Now().Add(columnsEvery)
	if s.snapColumns(inJob(context.Background()), 1); !s.columnsOld() {
		return 0
	}
	s.columns.next = time.Now().Add(columnsRetry)
	return columnsRetry
}

// columnsOld reports whether there is no snapshot of the rows and the index.
func (s *Store) columnsOld() bool {
	st := s.columns.state.Load()
	return st == nil || st.old
}

// columnsHold reports whether the snapshot is of the rows and what waits in the log is a small part of
// it: then a checkpoint would cost the next open more than redoing the log.
func (s *Store) columnsHold(w engine.Waiting) bool {
	st := s.columns.state.Load()
	return st != nil && !st.old && w.Vectors == 0 && int64(w.Bytes) <= st.bytes/columnsShare
}

// keepsColumns reports whether this store keeps a snapshot at all.
func (s *Store) keepsColumns() bool {
	return !s.opts.ReadOnly && s.opts.Columns >= 0 && s.ring.Load() == nil && s.eng.Failure() == nil
}

// snapColumns writes the snapshot. It may fail: then there is no snapshot, and the next open reads the
// rows. The caller holds ckptMu.
//
// The order: a checkpoint, so that the rows have everything; the rest of the index; the columns in
// memory; the leaf with their digest, synced and archived; the file. A crash before the rename
// leaves a leaf that names a file nobody has, which is harmless.
func (s *Store) snapColumns(ctx context.Context, workers int) {
	if _, err := s.checkpointLocked(ctx); err != nil {
		return // closing, or the next checkpoint, reports it
	}
	s.columnsPass()
	err := s.eng.FlushTail(func(fn func(engine.Writer) error) error {
		return s.update(func(tx *bbolt.Tx) error { return fn(s.rows(tx)) })
	})
	if err != nil {
		_ = s.unsure(err)
		return
	}
	cols, err := s.eng.Columns(s.sys.Applied, workers)
	if err == nil && cols != nil {
		err = s.writeColumns(ctx, cols)
	}
	if err != nil {
		s.opts.Logger.Debug("no column snapshot was written; the next open takes longer", "path", s.opts.Path, "error", err)
	}
}

// columnsPass notes that rows or index are about to change. The caller holds ckptMu.
func (s *Store) columnsPass() {
	if st := s.columns.state.Load(); st != nil && !st.old {
		s.columns.state.Store(&columnsStat{st.bytes, st.read, true})
	}
}

// columnsDue reports whether a snapshot is worth its writing.
func (s *Store) columnsDue() bool {
	var st store.StoreStats
	s.eng.Count(&st, func() {})
	from := columnsFrom
	if s.opts.Columns > 0 {
		from = s.opts.Columns
	}
	return st.PageVersions >= from && (s.columnsOld() || s.eng.Waiting().Rows > 0) && s.unrecorded.Load() == nil
}

// writeColumns writes the snapshot in its place. It fails where the disk has no room beyond what
// puts leave free (keepFree): a snapshot is not worth a full disk.
func (s *Store) writeColumns(ctx context.Context, cols *engine.Columns) error {
	e := &codec.Encoder{}
	e.U64(cols.LSN)
	e.Str(s.sys.ID)
	size := int64(0)
	for _, p := range cols.Parts {
		sum := sha256.Sum256(p.Body)
		e.U8(p.Kind)
		e.U64(uint64(len(p.Body)))
		e.Raw(sum[:])
		size += int64(len(p.Body))
	}
	size += columnsHead + int64(len(e.B))
	if free := freeBytes(filepath.Dir(s.opts.Path)); free >= 0 && free < size+s.keepFree() || len(e.B) > columnsMost {
		return errColumns
	}
	digest := columnsDigest(e.B)
	leaf := &manifest.Record{Type: manifest.TypeColumns, LSN: cols.LSN, Size: uint64(size), Root: digest[:]}
	if err := s.note(ctx, store.Synced, leaf); err != nil {
		return err
	}
	if err := s.eng.Leaves.Archive(ctx, s.eng.Leaves.Size()); err != nil {
		return err
	}
	if err := s.eng.At("columns named"); err != nil {
		return err
	}
	if err := removeIfThere(s.opts.FS, s.opts.Path+newSuffix); err != nil {
		return err
	}
	_, err := newFile(s.opts.FS, s.opts.Path+newSuffix, func(w *fileWriter) (int64, error) {
		head := append([]byte(columnsMagic), 0, 0, 0, columnsVersion)
		head = binary.BigEndian.AppendUint32(head, uint32(len(e.B)))
		head = binary.BigEndian.AppendUint64(head, leaf.Index)
		head = binary.BigEndian.AppendUint64(head, xxhash.Sum64(head))
		_, err := w.Write(append(head, e.B...))
		for i := 0; i < len(cols.Parts) && err == nil; i++ {
			_, err = w.Write(cols.Parts[i].Body)
		}
		return w.off, err
	})
	if err == nil {
		err = s.eng.At("columns written")
	}
	if err == nil {
		err = s.opts.FS.Rename(s.opts.Path+newSuffix, s.opts.Path+columnsSuffix)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(s.opts.FS, s.opts.Path+newSuffix))
	}
	s.columns.state.Store(&columnsStat{bytes: size})
	if err := s.eng.At("columns renamed"); err != nil {
		return err
	}
	return s.opts.FS.SyncDir(filepath.Dir(s.opts.Path))
}
