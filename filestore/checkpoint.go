package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"
)

// When the background goroutine acts.
const (
	syncEvery       = 50 * time.Millisecond // audit leaves are synced within 100 ms
	checkpointBytes = 16 << 20              // this many unflushed bytes start a checkpoint
	redoneBytes     = 16 << 10              // this many that an open had to redo start one at once, see background

	markEvery        = 1024      // leaves
	archiveLeaves    = 16 << 10  // this many unarchived leaves start one: they are in memory
	rotateAfterBytes = 8 << 20   // a log larger than this starts a new segment at a checkpoint
	rotateAfterRedo  = 256 << 10 // and one larger than this at that of an open that had to redo, see background
)

// checkpointAge is how old an unflushed row is that starts a checkpoint. Tests change it: see PeekAge.
var checkpointAge = 10 * time.Second

// background syncs the leaves of reads, and makes checkpoints. It ends with Close, or with the
// first failure. Commits that the open had to redo are checkpointed soon: if one owner after
// another is killed before a checkpoint is due, each redoes more than the one before, while agents
// wait. That checkpoint also starts a new segment of a short log: the next owner reads all of a
// segment, and compares what the archive has already, so with 2 MiB of old records a hand-over took
// half as long again.
func (s *Store) background() {
	defer s.done.Done()
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var retryAt time.Time // after a full disk: no checkpoint before it
	for {
		select {
		case <-s.eng.Stopped():
			return
		case <-tick.C:
		}
		if s.eng.Failure() != nil {
			return
		}
		if s.log.Durable() < s.log.Last() {
			if err := s.log.Sync(context.Background(), s.log.Last()); err != nil {
				s.eng.Fail(err)
				return
			}
		}
		full := s.log.Full()
		if time.Now().After(retryAt) && (full || s.due()) {
			// A failed checkpoint leaves everything in the log. The next commit or Close returns
			// the error.
			var err error
			if full {
				err = s.relieve(context.Background())
				retryAt = time.Now().Add(relieveEvery)
			} else {
				err = s.checkpointDue(context.Background())
			}
			if errors.Is(err, store.ErrClosed) {
				return
			}
			if err != nil && !noSpace(err) {
				s.eng.Fail(err)
				return
			}
			if err != nil { // a full disk: everything stays in the log
				retryAt = time.Now().Add(relieveEvery)
			} else {
				s.recordLater()
			}
		}
	}
}

// checkpointDue makes a checkpoint, unless the one that it had to wait for has done what was due.
func (s *Store) checkpointDue(ctx context.Context) error {
	if err := s.startJob(ctx); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	if !s.due() {
		return nil
	}
	_, err := s.checkpointLocked(ctx)
	return err
}

// due reports whether a checkpoint should be made now.
func (s *Store) due() bool {
	if s.redone.Load() || s.eng.Leaves.Size()-s.eng.Leaves.Archived() > archiveLeaves {
		return true
	}
	w := s.eng.Waiting()
	return w.Bytes > checkpointBytes || w.Rows > 0 && time.Since(w.Since) > checkpointAge
}

// checkpoint writes the log's effect into bbolt and cuts the front of the log:
//
//	freeze    the overlay becomes the old one; new commits fill a new one        cat.mu, briefly
//	archive   audit leaves up to there go to the archive, synced                 no lock of the store
//	steps     segments of the index, while many are due, each in a bbolt transaction    no lock of the store
//	apply     rows, segments and the applied LSN in one bbolt transaction        no lock of the store
//	release   the old overlay goes, the index takes its new segments             cat.mu, briefly
//	cut       segments of the log below the checkpoint before this one go
//
// ckptMu is held throughout; "no lock" means that commits and reads go on.
//
// A crash after each step leaves:
//
//	freeze    nothing on disk changed
//	archive   leaves are in archive and log; redo compares them
//	steps     the index has pages that the rows do not have yet; redo leaves those out of its part in memory
//	apply     the log repeats commits that the rows have; redo skips them by LSN
//	cut       nothing is missing: the log still has everything above the LSN that bbolt names, and one checkpoint more,
//	          because bbolt falls back in silence to its older meta page when the newest is damaged
//
// The archive comes before the cut, because the log is the only other place of those leaves. The
// cut comes last, because until then the log is the only other copy.
func (s *Store) checkpoint(ctx context.Context) (store.JobReport, error) {
	if err := s.startJob(ctx); err != nil {
		return store.JobReport{}, err
	}
	defer s.ckptMu.Unlock()
	return s.checkpointLocked(ctx)
}

// startJob takes ckptMu for a job on the whole file that somebody asked for. It waits no longer
// than ctx, and not when Close has begun (ErrClosed): Close would have to wait for all that were
// asked for before it.
func (s *Store) startJob(ctx context.Context) error {
	if err := s.ckptMu.Take(ctx); err != nil {
		return err
	}
	if s.ending.Load() || s.eng.Closed() {
		s.ckptMu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// mustJob takes ckptMu for what has to be done whoever waits: the end of an erase, relief of a full
// disk. ErrClosed: the store is shut; Close makes the last checkpoint, and after that there is no
// log.
func (s *Store) mustJob() error {
	s.ckptMu.Lock()
	if s.eng.Closed() {
		s.ckptMu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// checkpointOnce makes one checkpoint. The caller holds ckptMu. If the engine still has the overlay
// of a failed checkpoint, only that one is written; the next checkpoint writes the newer rows.
//
// What is covered. The rows that are written are those of the frozen overlay, so the new Applied,
// Seq and Leaves are the overlay's. covered is the last record that was installed before the
// freeze; it may be later than the overlay's Seq, because leaves of reads have records without
// rows. A log that only reads made long is cut by moving Seq on to covered, with the LSN where it
// was.
func (s *Store) checkpointOnce(ctx context.Context) (rep store.JobReport, err error) {
	if s.opts.ReadOnly {
		return rep, store.ErrReadOnly
	}
	if err := s.eng.Failure(); err != nil {
		return rep, err
	}
	if err := s.sameFile(); err != nil { // before anything is written under the path
		return rep, err
	}
	_ = s.line.Sync(context.Background(), 0, nil) // covers everything before this call; after an error it covers less
	covered := s.line.installedTo()
	c := s.eng.Checkpoint()
	if c.Retry { // its rows were frozen before some of the log was written
		covered = 0
	}
	leaves := s.eng.Leaves.Size()
	if err := s.eng.Leaves.Archive(ctx, leaves); err != nil {
		return rep, LogError(err)
	}
	if err := s.eng.At("archived"); err != nil {
		return rep, err
	}
	// Without new rows the file is written only so that a log that reads alone made long can be
	// cut.
	long := (covered > s.sys.Seq && s.log.Size() > cmp.Or(s.opts.Rotate, rotateAfterBytes) || s.squeeze > squeezeAnew && covered > s.sys.PrevSeq) &&
		s.log.Durable() >= covered
	if c.Rows == 0 && !long {
		c.Done(nil)
		return rep, s.cutLog(&rep)
	}
	if err := s.indexSteps(ctx, c); err != nil {
		return rep, s.unsure(err)
	}
	next := s.sys
	switch { // vectors alone change neither: they are in no record of the log
	case c.LSN > s.sys.Applied:
		next.PrevSeq, next.Applied, next.Seq, next.Leaves = s.sys.Seq, c.LSN, c.Seq, c.Leaves
	case long:
		next.PrevSeq, next.Seq, next.Leaves = s.sys.Seq, covered, leaves
	}
	if err := s.eng.At("before bbolt"); err != nil {
		return rep, err
	}
	err = s.update(func(tx *bbolt.Tx) (err error) {
		if next.High, err = c.Write(s.rows(tx), &next.Rows); err != nil {
			return err
		}
		return putSys(tx, s.ring.Load(), next)
	})
	if err != nil {
		return rep, s.unsure(fmt.Errorf("ctxpage: checkpoint: %w", err))
	}
	c.Done(func(newest ulid.ULID) {
		s.sys = next
		s.line.file(newest)
	})
	if err := s.eng.At("after bbolt"); err != nil {
		return rep, err
	}
	rep.Applied, rep.Rows, rep.Bytes = next.Applied, c.Rows, int64(c.Bytes)
	if err := s.cutLog(&rep); err != nil {
		return rep, err
	}
	return rep, s.eng.At("after cut")
}

// unsure ends the store after a commit of the file that may or may not be on the disk: the memory
// counts rows from the commit before. The log has everything, and the next open reads what the file
// has.
func (s *Store) unsure(err error) error {
	var e *unsureError
	if errors.As(err, &e) {
		return s.eng.Fail(err)
	}
	return err
}

// indexSteps writes much of the index into bbolt before the checkpoint itself, in transactions of
// bounded size, because a transaction keeps every row it writes in memory. Each leaves the file
// whole: the system row is still that of the last checkpoint, and redo leaves out what the index
// has already.
func (s *Store) indexSteps(ctx context.Context, c *engine.Checkpoint) error {
	update := func(fn func(engine.Writer) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.update(func(tx *bbolt.Tx) error { return fn(s.rows(tx)) })
	}
	if err := c.Steps(update, func() error { return s.eng.At("after a step") }); err != nil {
		return fmt.Errorf("ctxpage: checkpoint: %w", err)
	}
	return nil
}

// syncRead syncs the records that a reader found in the log: the process that wrote it may have
// been killed before its sync. A disk that is mounted read-only has nothing to sync.
func (s *Store) syncRead() error {
	dir := s.opts.Path + "-wal"
	names, err := s.opts.FS.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: head: %w", err)
	}
	for _, name := range names {
		f, err := s.opts.FS.OpenFile(filepath.Join(dir, name), os.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("ctxpage: head: %w", err)
		}
		err = f.Sync()
		f.Close()
		if err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("ctxpage: head: sync %s: %w", name, err)
		}
	}
	return nil
}

// sameFile returns an error if the path no longer leads to the open file. Another database may be at
// the path now, with an owner of its own: nothing may be written, renamed or removed there.
func (s *Store) sameFile() error {
	open, err := s.file.Load().Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: stat: %w", err)
	}
	now, err := os.Lstat(s.opts.Path)
	if err != nil || !os.SameFile(open, now) {
		return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("the file was replaced or removed while it was open"),
			Hint: "close, put the right file in place, and open again; the log still has what is missing"}
	}
	return nil
}

// cutLog removes the segments that neither redo nor the archive needs. A mark is written first. It
// vouches for the synced size, so that a later cut below it is not taken for a torn end.
func (s *Store) cutLog(rep *store.JobReport) error {
	if err := s.log.Present(); errors.Is(err, os.ErrNotExist) { // the file has everything so far; later commits would be lost
		return s.eng.Fail(&store.CorruptError{File: s.opts.Path + "-wal", Err: errors.New("the log was removed or moved while it was open"), Hint: "put it back, and open again"})
	}
	if err := s.line.mark(s.eng.Leaves); err != nil {
		return err
	}
	rotate := s.log.Rotate
	anew := s.squeeze == squeezeAnew && (s.log.Size() > squeezeBytes || s.purging)
	if anew && !s.purging {
		rotate = s.log.RotateReserve
	}
	most := cmp.Or(s.opts.Rotate, rotateAfterBytes)
	if s.redone.Load() {
		most = min(most, rotateAfterRedo)
	}
	if anew || s.log.Size() > most {
		if err := rotate(); err != nil && !errors.Is(err, wal.ErrFull) {
			return s.eng.Fail(err)
		}
	}
	n, err := s.log.DropBefore(min(s.sys.PrevSeq, s.sys.Seq) + 1)
	rep.Segments = n
	if errors.Is(err, wal.ErrPoisoned) { // the removal of a segment may not be on the disk: no later write may build on it
		return s.eng.Fail(fmt.Errorf("ctxpage: cut the log: %w", err))
	}
	if err != nil {
		return fmt.Errorf("ctxpage: cut the log: %w", err)
	}
	return nil
}

// Head returns the head over the leaves that are on the disk when it returns.
func (s *Store) Head(ctx context.Context) (manifest.Head, error) {
	size, err := s.headSize(ctx)
	if err != nil {
		return manifest.Head{}, err
	}
	now := s.opts.Now()
	if err := store.CheckClock(now); err != nil { // a head with such a time could not be read back
		return manifest.Head{}, err
	}
	root, err := s.eng.Leaves.Root(size)
	return manifest.Head{DB: s.eng.Leaves.DB(), Size: size, Root: root, Time: codec.Micros(now)}, LogError(err)
}

// headSize returns how many leaves are durable. A writer syncs what is in flight; a reader syncs
// the log that it found, because the writer may have been killed before its sync.
func (s *Store) headSize(ctx context.Context) (uint64, error) {
	if s.eng.Closed() {
		return 0, store.ErrClosed
	}
	if s.opts.ReadOnly {
		return s.eng.Leaves.Size(), s.syncRead()
	}
	if err := s.eng.Writable(); err != nil {
		return 0, err
	}
	if err := s.syncLog(ctx); err != nil {
		return 0, err
	}
	return s.eng.Leaves.Size(), nil
}

// syncLog makes the records in flight durable and installs them.
func (s *Store) syncLog(ctx context.Context) error {
	err := s.log.Sync(ctx, s.log.Last())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return s.eng.Fail(err)
}

// Maintain implements store.Store.
func (s *Store) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if s.eng.Closed() {
		return store.JobReport{}, store.ErrClosed
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	rep, err := s.maintain(ctx, job, progress)
	return rep, noSpaceError(s.opts.Path, err, checkpointSpace)
}

func (s *Store) maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	switch job.Kind {
	case store.JobCheckpoint:
		return s.checkpoint(ctx)
	case store.JobBackup:
		return s.backup(ctx, job.Path, progress)
	case store.JobCheck:
		return s.check(ctx, progress)
	case store.JobGCPlan, store.JobGC:
		return s.eng.Collect(ctx, job, progress)
	case store.JobErase:
		return s.erase(ctx, job.Erase, progress)
	case store.JobCompactPlan, store.JobCompact:
		return s.shrink(ctx, job.Kind == store.JobCompactPlan, progress)
	}
	return store.JobReport{}, store.Invalid("job", fmt.Sprint(job.Kind), "checkpoint, backup, check, gc, erase or compaction")
}

// recordBackup writes the leaf of a backup that begins, so that an erase can name it. The copy has
// the leaf as well, so a head that is taken after the backup is one of the copy, too.
func (s *Store) recordBackup(ctx context.Context, to string) (failed func(), err error) {
	leaf := &manifest.Record{Type: manifest.TypeBackup, Note: filepath.Base(to), LSN: s.eng.Mark().LSN}
	if err := s.note(ctx, store.Synced, leaf); err != nil {
		return nil, err
	}
	return func() {
		err := s.note(context.WithoutCancel(ctx), store.Written, &manifest.Record{Type: manifest.TypeBackup, Parent: leaf.Trace, Reason: "failed"})
		if err != nil {
			s.opts.Logger.Warn("a backup failed, and the audit could not be told", "path", to, "error", err)
		}
	}, nil
}

// backup copies the database to another path; the copy is a database. Checkpoints wait, so bbolt,
// archive and the front of the log do not change. Commits go on, the log only grows, and the copy
// ends with some whole prefix of them.
func (s *Store) backup(ctx context.Context, to string, progress store.Progress) (rep store.JobReport, err error) {
	if err := s.startJob(ctx); err != nil {
		return rep, err
	}
	defer s.ckptMu.Unlock()
	if err := mayReplace("backup", to, false); err != nil { // a failure below removes the files at the path
		return rep, err
	}
	failed := func() {}
	if !s.opts.ReadOnly {
		if rep, err = s.checkpointLocked(ctx); err != nil {
			return rep, err
		}
		if s.ring.Load() != nil { // the log of a backup is under keys that no erase destroys: it gets as little of it as can be
			if err := errors.Join(s.cutBefore(ctx, s.log.Last()), s.widenRing()); err != nil {
				return rep, err
			}
		}
		if failed, err = s.recordBackup(ctx, to); err != nil {
			return rep, err
		}
		if err := s.syncLog(ctx); err != nil {
			return rep, err
		}
	}
	space := copySpaceFor(s.opts.Path, to)
	defer func() {
		if err != nil {
			removeDatabase(to)
			failed()
			err = space.explain("backup", err)
		}
	}()
	n, err := copyDir(ctx, s.opts.FS, s.opts.Path+"-manifest", to+"-manifest", func(done, total uint64) { progress("copy manifest", done, total) })
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	n, err = s.copyLog(ctx, to+"-wal", progress)
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	if s.ring.Load() != nil {
		n, err = s.copySealed(ctx, to, progress)
	} else {
		n, err = s.copyBolt(to, progress)
	}
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	return rep, s.opts.FS.SyncDir(filepath.Dir(to))
}

// copyLog copies the log while it grows. A segment that is sealed between the listing and its copy
// promises a successor that the copy does not have; then the log is copied again.
func (s *Store) copyLog(ctx context.Context, to string, progress func(string, uint64, uint64)) (n int64, err error) {
	for range 3 {
		if n, err = copyDir(ctx, s.opts.FS, s.opts.Path+"-wal", to, func(done, total uint64) { progress("copy log", done, total) }); err != nil {
			return n, err
		}
		if _, err = wal.Scan(ctx, to, wal.OS(), 0, nil); err == nil {
			return n, nil
		}
		if rerr := os.RemoveAll(to); rerr != nil {
			return n, rerr
		}
	}
	return n, LogError(err)
}

// copyBolt copies the pages of the file as one snapshot. The copy keeps the system row, which names
// the original as its origin, so the first open of the copy checks it as a whole.
func (s *Store) copyBolt(path string, progress func(string, uint64, uint64)) (n int64, err error) {
	return newFile(s.opts.FS, path, func(to *fileWriter) (n int64, err error) {
		err = s.view(func(tx *bbolt.Tx) (err error) {
			n, err = tx.WriteTo(to)
			progress("copy pages", uint64(n), uint64(tx.Size()))
			return cmp.Or(to.err, err)
		})
		return n, err
	})
}

// copySealed copies the rows of an encrypted file, without the index and without what bbolt freed:
// the keys of erased rows are destroyed by number, and bytes between the rows have no known number.
func (s *Store) copySealed(ctx context.Context, path string, progress func(string, uint64, uint64)) (n int64, err error) {
	open := func(name string, flag int, perm os.FileMode) (*os.File, error) {
		return os.OpenFile(name, flag|os.O_EXCL|oNoFollow|syscall.O_CREAT, perm)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true, OpenFile: open, PageSize: int(s.pageSize),
	})
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	db.AllocSize = allocSize
	err = s.view(func(from *bbolt.Tx) error {
		err := copyRows(ctx, from, db, s.forBackup(), func(_ string, done, total uint64) { progress("copy pages", done, total) })
		progress("copy pages", uint64(from.Size()), uint64(from.Size()))
		return err
	})
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error { n = tx.Size(); return nil })
	}
	if err == nil {
		err = db.Sync()
	}
	return n, withErrno(errors.Join(err, db.Close()))
}

// newFile makes a file and syncs it before it returns. It fails if the file exists.
func newFile(fsys wal.FS, path string, fill func(to *fileWriter) (int64, error)) (n int64, err error) {
	f, err := fsys.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	if n, err = fill(&fileWriter{to: f}); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// fileWriter writes a file from its beginning. It keeps the error of a write, because bbolt returns
// only the text of an error in the first two pages, and a full disk would not be recognised.
type fileWriter struct {
	to  wal.File
	off int64
	err error
}

// Write appends to the file.
func (w *fileWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.to.WriteAt(b, w.off)
	w.off += int64(n)
	return n, w.err
}

// copyDir copies the regular files of a directory, as long as they are now, and syncs them.
func copyDir(ctx context.Context, fsys wal.FS, from, to string, progress func(done, total uint64)) (int64, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	var total int64
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if !e.Type().IsRegular() {
			continue
		}
		n, err := copyFile(fsys, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		if err != nil {
			return total, err
		}
		total += n
		progress(uint64(i+1), uint64(len(entries)))
	}
	return total, fsys.SyncDir(to)
}

// copyFile copies the bytes that a file has when it is opened, and what is appended while it is
// copied. It does not follow a symbolic link.
func copyFile(fsys wal.FS, from, to string) (n int64, err error) {
	src, err := os.OpenFile(from, os.O_RDONLY|oNoFollow, 0)
	if err != nil {
		return 0, fmt.Errorf("ctxpage: copy: %w", err)
	}
	defer src.Close()
	return newFile(fsys, to, func(w *fileWriter) (int64, error) {
		return io.CopyBuffer(w, struct{ io.Reader }{src}, make([]byte, 1<<18))
	})
}

// syncDirectory makes names in a directory durable: a file that was made, renamed or removed.
func syncDirectory(dir string) error { return wal.OS().SyncDir(dir) }

// removeDatabase removes the files that a failed copy left at a path that was free before.
func removeDatabase(path string) {
	os.Remove(path)
	os.RemoveAll(path + "-wal")
	os.RemoveAll(path + "-manifest")
	os.Remove(path + ".lock")
	os.Remove(path + columnsSuffix)
}

// Stat implements store.Store: a snapshot of sizes and counters.
func (s *Store) Stat(ctx context.Context) (store.StoreStats, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return store.StoreStats{}, err
	}
	var st store.StoreStats
	s.eng.Count(&st, func() { // a checkpoint replaces the whole row under the lock
		st.ID, st.Format, st.Created, st.Applied = s.sys.ID, s.sys.Format, codec.FromMicros(s.sys.Created), s.sys.Applied
	})
	st.Leaves, st.Archived, st.LogBytes = s.eng.Leaves.Size(), s.eng.Leaves.Archived(), s.log.Size()
	if fi, err := s.file.Load().Stat(); err == nil {
		st.FileBytes = fi.Size()
	}
	if c := s.columns.state.Load(); c != nil {
		st.ColumnBytes, st.ColumnsRead = c.bytes, c.read
	}
	var err error
	st.Held, err = s.eng.Undecided()
	return st, err
}
