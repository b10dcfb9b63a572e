package ctxpage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"
)

// When the background work acts.
const (
	syncEvery        = 50 * time.Millisecond // audit leaves are synced within 100 ms
	checkpointBytes  = 16 << 20              // unflushed bytes that start a checkpoint
	checkpointAge    = 10 * time.Second      // age of the oldest unflushed row that starts one
	throttleBytes    = 128 << 20             // unflushed bytes from which commits are slowed down, gradually
	throttleDelay    = 20 * time.Millisecond // of a small commit at twice that
	throttleUnit     = 16 << 10              // bytes a commit may write for one such delay
	throttleMost     = time.Second           // of any commit
	markEvery        = 1024                  // leaves
	archiveLeaves    = 16 << 10              // unarchived leaves, which are in memory, that start one
	rotateAfterBytes = 8 << 20               // a log larger than this starts a new segment at a checkpoint
)

// background syncs what reads wrote, and checkpoints. It ends with Close.
func (s *fileStore) background() {
	defer s.done.Done()
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var again time.Time // no checkpoint before it: the disk was full
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if s.failure() != nil {
			return
		}
		if s.log.Durable() < s.log.Last() {
			if err := s.log.Sync(context.Background(), s.log.Last()); err != nil {
				s.fail(err)
				return
			}
		}
		if time.Now().After(again) && s.due() {
			// A failed checkpoint leaves everything in the log; the next commit or Close reports it.
			_, err := s.checkpoint(context.Background())
			if errors.Is(err, ErrClosed) {
				return
			}
			if err != nil && !noSpace(err) {
				s.fail(err)
				return
			}
			if err != nil { // all of it stays in the log
				again = time.Now().Add(time.Second)
			}
		}
	}
}

func (s *fileStore) due() bool {
	if s.man.Size()-s.man.Archived() > archiveLeaves {
		return true
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.over.bytes > checkpointBytes || s.over.rows() > 0 && time.Since(s.over.since) > checkpointAge
}

// throttle slows a commit down while the file falls behind the log: by what is unflushed above a limit and by what the
// commit adds to it, so that all writers feel it a little and none meets a wall. A prototype that stopped them at a
// limit stalled for .3 s while its p99 showed 3.5 ms. No lock is held; an end of ctx means that nothing happened.
func (s *fileStore) throttle(ctx context.Context, b *Batch) error {
	d := throttled(s.unflushed.Load(), b.Bytes())
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.stop:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// throttled is how long a commit of so many bytes waits.
func throttled(unflushed, bytes int64) time.Duration {
	excess := float64(unflushed-throttleBytes) / throttleBytes
	if excess <= 0 {
		return 0
	}
	units := max(1, float64(bytes)/throttleUnit)
	return time.Duration(min(float64(throttleMost), excess*units*float64(throttleDelay)))
}

// countUnflushed lets throttle know what is not in bbolt yet. The caller holds cat.mu.
func (s *fileStore) countUnflushed() {
	n := s.over.bytes
	if s.old != nil {
		n += s.old.bytes
	}
	s.unflushed.Store(int64(n))
}

// checkpoint brings the log's effect into bbolt and cuts the front of the log:
//
//	freeze    the overlay becomes the old one; new commits fill a new one        cat.mu, briefly
//	archive   audit leaves up to there go to the archive, synced                 no lock of the store
//	apply     rows, segments and the applied LSN in one bbolt transaction        no lock of the store
//	release   the old overlay goes, the index takes its new segments             cat.mu, briefly
//	cut       segments of the log below the checkpoint before this one go
//
// A crash between any two of them is healed by redo: the log still holds everything above the LSN that bbolt names, and
// one checkpoint more, because bbolt falls back to its older meta page in silence when the newest is damaged.
func (s *fileStore) checkpoint(ctx context.Context) (JobReport, error) {
	if err := s.startJob(); err != nil {
		return JobReport{}, err
	}
	defer s.ckptMu.Unlock()
	return s.checkpointLocked(ctx)
}

// startJob takes ckptMu for a job on the whole file, or says that it is too late for one: Close makes the last checkpoint,
// and the log is not there after it.
func (s *fileStore) startJob() error {
	s.ckptMu.Lock()
	if s.closed.Load() {
		s.ckptMu.Unlock()
		return ErrClosed
	}
	return nil
}

func (s *fileStore) checkpointLocked(ctx context.Context) (rep JobReport, err error) {
	if s.opts.readOnly {
		return rep, ErrReadOnly
	}
	if err := s.failure(); err != nil {
		return rep, err
	}
	covered := s.settled()
	o := s.freeze()
	leaves := s.durableLeaves()
	if err := s.man.Archive(ctx, leaves); err != nil {
		return rep, logError(err)
	}
	if err := s.at("archived"); err != nil {
		return rep, err
	}
	// Without new rows the file is written only to let go of a log that reads alone have made long.
	long := covered > s.sys.Seq && s.log.Durable() >= covered && s.log.Size() > cmp.Or(s.opts.rotate, rotateAfterBytes)
	if o.rows() == 0 && !long {
		s.release(lexical.Swap{}, nil, ulid.ULID{})
		return rep, s.cutLog(&rep)
	}
	if err := s.sameFile(); err != nil {
		return rep, err
	}
	next := s.sys
	s.high.add(o.high)
	next.High = s.high.String()
	switch { // vectors alone change neither: no record of the log carries them
	case o.lsn > s.sys.Applied:
		next.PrevSeq, next.Applied, next.Seq = s.sys.Seq, o.lsn, o.seq
	case long:
		next.PrevSeq, next.Seq = s.sys.Seq, covered
	}
	if err := s.at("before bbolt"); err != nil {
		return rep, err
	}
	var swap lexical.Swap
	var filed ulid.ULID
	err = s.update(func(tx *bbolt.Tx) (err error) {
		seg := tx.Bucket(bucketSeg)
		seg.FillPercent = .95
		if swap, err = s.idx.Checkpoint(boltRows{seg}, false); errors.Is(err, lexical.ErrCorrupt) {
			return s.badIndex(err)
		}
		if err != nil {
			return err
		}
		if err := applyOverlay(tx, o, &next.Rows); err != nil {
			return err
		}
		filed = newestOutcome(tx)
		b, err := encodeSys(next)
		if err != nil {
			return err
		}
		return tx.Bucket(bucketSys).Put(sysKey, b)
	})
	if err != nil {
		return rep, fmt.Errorf("ctxpage: checkpoint: %w", err)
	}
	s.release(swap, &next, filed)
	s.ckpts.Add(1)
	if err := s.at("after bbolt"); err != nil {
		return rep, err
	}
	rep.Applied, rep.Rows, rep.Bytes = next.Applied, o.rows(), int64(o.bytes)
	if err := s.cutLog(&rep); err != nil {
		return rep, err
	}
	return rep, s.at("after cut")
}

// settled is a record of the log up to which every commit is installed, so that a checkpoint that begins after it
// covers them all; 0 while a commit is under way.
func (s *fileStore) settled() uint64 {
	s.seq.mu.Lock()
	defer s.seq.mu.Unlock()
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	if len(s.seq.arts)+len(s.seq.ids)+len(s.seq.queue) > 0 {
		return 0
	}
	return s.log.Last()
}

// at tells a test that a step is reached. What the test answers is an error of that step.
func (s *fileStore) at(step string) error {
	if s.opts.hook == nil {
		return nil
	}
	return s.opts.hook(step)
}

// freeze makes the overlay the old one. It is not changed any more, so it may be read without a lock.
func (s *fileStore) freeze() *overlay {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if s.old == nil { // a checkpoint that failed left one behind: it is tried again first
		s.old, s.over = s.over, newOverlay()
		s.over.lsn, s.over.seq, s.over.leaves, s.over.high = s.old.lsn, s.old.seq, s.old.leaves, s.old.high
	}
	return s.old
}

func (s *fileStore) release(swap lexical.Swap, sys *sysRow, filed ulid.ULID) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if sys != nil {
		s.sys, s.filed = *sys, filed
		s.idx.Apply(swap)
	}
	s.old = nil
	s.countUnflushed()
}

// durableLeaves counts the leaves whose records are synced.
func (s *fileStore) durableLeaves() uint64 {
	size, err := s.syncLeaves(context.Background())
	if err != nil {
		return s.man.Archived()
	}
	return size
}

// syncLeaves counts the leaves and syncs the log up to the record of the last of them. Count and record are read
// together, before the sync: leaves that other writers append meanwhile are not counted.
func (s *fileStore) syncLeaves(ctx context.Context) (uint64, error) {
	s.seq.mu.Lock()
	size, last := s.man.Size(), s.log.Last()
	s.seq.mu.Unlock()
	return size, s.log.Sync(ctx, last)
}

// syncRead brings to the disk what a reader found in the log: the process that wrote it may have been killed before it
// synced. A disk that takes no writes has nothing to sync.
func (s *fileStore) syncRead() error {
	dir := s.opts.path + "-wal"
	names, err := s.opts.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: head: %w", err)
	}
	for _, name := range names {
		f, err := s.opts.fs.OpenFile(filepath.Join(dir, name), os.O_RDONLY, 0)
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

// sameFile refuses to write when the path no longer leads to the file that is open: a second writer may have it.
func (s *fileStore) sameFile() error {
	open, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: stat: %w", err)
	}
	now, err := os.Lstat(s.opts.path)
	if err != nil || !os.SameFile(open, now) {
		return &CorruptError{File: s.opts.path, Err: fmt.Errorf("the file was replaced or removed while it was open"),
			Hint: "close, put the right file in place, and open again; the log still has what is missing"}
	}
	return nil
}

// cutLog removes the segments that neither redo nor the archive needs. A mark is written first: it vouches for the
// synced size, so that a later cut below it is told from a torn end.
func (s *fileStore) cutLog(rep *JobReport) error {
	if err := s.log.Present(); errors.Is(err, os.ErrNotExist) { // the file has all up to here; later commits would be lost
		return s.fail(&CorruptError{File: s.opts.path + "-wal", Err: errors.New("the log was removed or moved while it was open"), Hint: "put it back, and open again"})
	}
	if err := s.mark(); err != nil {
		return err
	}
	if s.log.Size() > cmp.Or(s.opts.rotate, rotateAfterBytes) {
		if err := s.log.Rotate(); err != nil && !errors.Is(err, wal.ErrFull) {
			return s.fail(err)
		}
	}
	n, err := s.log.DropBefore(min(s.sys.PrevSeq, s.sys.Seq) + 1)
	rep.Segments = n
	if err != nil {
		return fmt.Errorf("ctxpage: cut the log: %w", err)
	}
	return nil
}

// mark writes {synced size, root, frontier} into the log when there are leaves the last mark does not cover.
func (s *fileStore) mark() error {
	if !s.appended.Swap(false) {
		return nil
	}
	size := s.durableLeaves()
	body, err := s.man.Mark(size)
	if err != nil {
		return err
	}
	s.seq.mu.Lock()
	_, err = s.log.EnqueueReserve(wal.KindMark, body)
	s.seq.mu.Unlock()
	if err != nil {
		return enqueueError(err)
	}
	return nil
}

// applyOverlay writes the rows in key order, which keeps bbolt's pages dense, and counts those that are new.
func applyOverlay(tx *bbolt.Tx, o *overlay, n *rowCounts) error {
	var seals sealer
	meta := tx.Bucket(bucketMeta)
	for _, n := range o.scopes {
		if err := putRow(meta, 'm', scopeRowKey(n.num), []byte(n.name)); err != nil {
			return err
		}
	}
	for _, g := range o.groups {
		v := append(binary.BigEndian.AppendUint32(nil, g.scope), g.name...)
		if err := putRow(meta, 'm', groupRowKey(g.num), v); err != nil {
			return err
		}
	}
	rows, err := applyForgotten(meta, o, n)
	if err != nil {
		return err
	}
	heads := make([]headKey, 0, len(rows))
	for k := range rows {
		heads = append(heads, k)
	}
	slices.SortFunc(heads, func(a, b headKey) int { return cmp.Or(cmp.Compare(a.art, b.art), cmp.Compare(a.version, b.version)) })
	n.Meta -= replacedInFile(meta, o, rows)
	for _, k := range heads {
		key := headRowKey(k)
		if err := meta.Put(key, sealed(&seals, 'm', key, rows[k])); err != nil {
			return err
		}
	}
	content := tx.Bucket(bucketContent)
	content.FillPercent = .9 // page numbers only grow
	for _, num := range slices.Sorted(maps.Keys(o.texts)) {
		key := textRowKey(num)
		if err := content.Put(key, sealed(&seals, 'c', key, o.texts[num])); err != nil {
			return err
		}
	}
	n.Meta += len(o.scopes) + len(o.groups) + len(rows) // their numbers are never used twice
	n.Content += len(o.texts)
	if err := applyVectors(tx, o); err != nil {
		return err
	}
	if err := applyGone(tx, o, n); err != nil {
		return err
	}
	return applySmall(tx, &seals, o, n)
}

func applySmall(tx *bbolt.Tx, seals *sealer, o *overlay, n *rowCounts) error {
	state := tx.Bucket(bucketState)
	for _, k := range slices.Sorted(maps.Keys(o.state)) {
		was := state.Get([]byte(k)) != nil
		if o.state[k] == nil {
			if err := state.Delete([]byte(k)); err != nil {
				return err
			}
			if was {
				n.State--
			}
			continue
		}
		if !was {
			n.State++
		}
		if err := putRow(state, 's', []byte(k), o.state[k]); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		bucket []byte
		tag    byte
		rows   map[ulid.ULID][]byte
		n      *int
	}{{bucketHeld, 'd', o.held, &n.Held}, {bucketTxn, 't', o.result, &n.Txn}} {
		b := tx.Bucket(r.bucket)
		ids := make([]ulid.ULID, 0, len(r.rows))
		for id := range r.rows {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, ulid.ULID.Compare)
		for _, id := range ids {
			was := b.Get(id[:]) != nil
			if len(r.rows[id]) == 0 { // gc took it
				if err := b.Delete(id[:]); err != nil {
					return err
				}
				if was {
					*r.n--
				}
				continue
			}
			if !was {
				*r.n++
			}
			if err := b.Put(id[:], sealed(seals, r.tag, id[:], r.rows[id])); err != nil {
				return err
			}
		}
	}
	return forgetOutcomes(tx.Bucket(bucketTxn), o, n)
}

// forgetOutcomes drops the outcomes of ids that are refused by now anyway. The newest id of the overlay is the clock.
func forgetOutcomes(b *bbolt.Bucket, o *overlay, n *rowCounts) error {
	var newest uint64
	for id := range o.result {
		newest = max(newest, id.Time())
	}
	keep := uint64((outcomeDays + 24*time.Hour) / time.Millisecond)
	if newest < keep {
		return nil
	}
	var limit ulid.ULID
	if err := limit.SetTime(newest - keep); err != nil {
		return err
	}
	var drop [][]byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil && ulid.ULID(k).Compare(limit) < 0; k, _ = c.Next() {
		drop = append(drop, slices.Clone(k))
	}
	for _, k := range drop {
		if err := b.Delete(k); err != nil {
			return err
		}
		n.Txn--
	}
	return forgetOldest(b, n)
}

// sealer is where rows of a transaction lie until it ends: bbolt does not copy values. The zero value is ready.
type sealer struct{ room []byte }

// sealed is seal for many rows.
func sealed[V string | []byte](s *sealer, tag byte, key []byte, value V) []byte {
	const roomSize = 64 << 10
	size := len(value) + 8
	if cap(s.room)-len(s.room) < size {
		s.room = make([]byte, 0, max(size, roomSize))
	}
	at := len(s.room)
	s.room = append(s.room, value...)
	s.room = binary.BigEndian.AppendUint64(s.room, codec.Sum(tag, key, s.room[at:]))
	return s.room[at:len(s.room):len(s.room)]
}

func putRow(b *bbolt.Bucket, tag byte, key, value []byte) error {
	return b.Put(key, codec.Seal(tag, key, value))
}

// Head gives the head over the leaves that are on the disk when it returns.
func (s *fileStore) Head(ctx context.Context) (manifest.Head, error) {
	size, err := s.headSize(ctx)
	if err != nil {
		return manifest.Head{}, err
	}
	now := s.opts.now()
	if err := store.CheckClock(now); err != nil { // its line would not be read again
		return manifest.Head{}, err
	}
	root, err := s.man.Root(size)
	return manifest.Head{DB: s.man.DB(), Size: size, Root: root, Time: codec.Micros(now)}, logError(err)
}

func (s *fileStore) headSize(ctx context.Context) (uint64, error) {
	if s.closed.Load() {
		return 0, ErrClosed
	}
	if s.opts.readOnly {
		return s.man.Size(), s.syncRead()
	}
	if err := s.writable(); err != nil {
		return 0, err
	}
	size, err := s.syncLeaves(ctx)
	if err != nil {
		return 0, s.syncError(ctx, err)
	}
	return size, nil
}

// Maintain: see the Store interface.
func (s *fileStore) Maintain(ctx context.Context, job Job, progress Progress) (JobReport, error) {
	if s.closed.Load() {
		return JobReport{}, ErrClosed
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	switch job.Kind {
	case JobCheckpoint:
		return s.checkpoint(ctx)
	case JobBackup:
		return s.backup(ctx, job.Path, progress)
	case JobCheck:
		return s.check(ctx, progress)
	case JobGCPlan, JobGC:
		return s.collect(ctx, job, progress)
	}
	return JobReport{}, store.Invalid("job", fmt.Sprint(job.Kind), "checkpoint, backup, check or gc")
}

// backup copies the database into files of the same kind at another path: the copy is a database. Checkpoints wait, so
// bbolt, archive and the front of the log stand still; commits go on, and the copy ends with some whole prefix of them.
func (s *fileStore) backup(ctx context.Context, to string, progress Progress) (rep JobReport, err error) {
	if err := s.startJob(); err != nil {
		return rep, err
	}
	defer s.ckptMu.Unlock()
	if err := mayReplace("backup", to, false); err != nil { // a failure below removes what stands there
		return rep, err
	}
	if !s.opts.readOnly {
		if rep, err = s.checkpointLocked(ctx); err != nil {
			return rep, err
		}
		if err := s.log.Sync(ctx, s.log.Last()); err != nil {
			return rep, s.syncError(ctx, err)
		}
	}
	room := roomFor(s.opts.path, to)
	defer func() {
		if err != nil {
			removeDatabase(to)
			err = room.explain("backup", err)
		}
	}()
	n, err := copyDir(ctx, s.opts.fs, s.opts.path+"-manifest", to+"-manifest", func(done, total uint64) { progress("copy manifest", done, total) })
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	n, err = s.copyLog(ctx, to+"-wal", progress)
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	n, err = s.copyBolt(to, progress)
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	return rep, s.opts.fs.SyncDir(filepath.Dir(to))
}

// copyLog copies the log while it grows. A segment that is sealed between the listing and its copying leaves a copy
// that promises a successor it does not have; then it is copied once more.
func (s *fileStore) copyLog(ctx context.Context, to string, progress func(string, uint64, uint64)) (n int64, err error) {
	for range 3 {
		if n, err = copyDir(ctx, s.opts.fs, s.opts.path+"-wal", to, func(done, total uint64) { progress("copy log", done, total) }); err != nil {
			return n, err
		}
		if _, err = wal.Scan(ctx, to, wal.OS(), 0, nil); err == nil {
			return n, nil
		}
		if rerr := os.RemoveAll(to); rerr != nil {
			return n, rerr
		}
	}
	return n, logError(err)
}

func (s *fileStore) copyBolt(path string, progress func(string, uint64, uint64)) (n int64, err error) {
	return newFile(s.opts.fs, path, func(to *fileWriter) (n int64, err error) {
		err = s.view(func(tx *bbolt.Tx) (err error) {
			n, err = tx.WriteTo(to)
			progress("copy pages", uint64(n), uint64(tx.Size()))
			return cmp.Or(to.err, err)
		})
		return n, err
	})
}

// newFile makes a file that is synced when it returns.
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

// fileWriter writes a file from its beginning. It keeps the error of a write: of the first two pages bbolt gives its text
// only, and a full disk would not be known.
type fileWriter struct {
	to  wal.File
	off int64
	err error
}

func (w *fileWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.to.WriteAt(b, w.off)
	w.off += int64(n)
	return n, w.err
}

// copyDir copies the regular files of a directory as long as they are now, synced.
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

func syncDirectory(dir string) error { return wal.OS().SyncDir(dir) }

// removeDatabase takes away what a failed copy left at a path that was free before.
func removeDatabase(path string) {
	os.Remove(path)
	os.RemoveAll(path + "-wal")
	os.RemoveAll(path + "-manifest")
	os.Remove(path + ".lock")
}

// Stat is a snapshot of sizes and counters.
func (s *fileStore) Stat(ctx context.Context) (StoreStats, error) {
	if err := s.readable(ctx); err != nil {
		return StoreStats{}, err
	}
	s.cat.mu.RLock()
	st := StoreStats{
		ID: s.sys.ID, Format: s.sys.Format, Created: codec.FromMicros(s.sys.Created), LSN: s.cat.lsn, Applied: s.sys.Applied,
		Artefacts: s.cat.live, Pages: s.cat.livePages, PageVersions: s.cat.versions, Scopes: len(s.cat.scopes), Unverified: s.cat.unproved,
		Overlay: s.over.rows(), Checkpoints: s.ckpts.Load(),
	}
	s.cat.mu.RUnlock()
	st.Leaves, st.Archived, st.LogBytes = s.man.Size(), s.man.Archived(), s.log.Size()
	if fi, err := s.file.Stat(); err == nil {
		st.FileBytes = fi.Size()
	}
	var err error
	st.Held, err = s.undecided()
	return st, err
}
