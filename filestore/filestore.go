package filestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/corrupt"
	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// The embedded store: one log, bbolt behind it, and an engine that is built from both.
//
//	open        filestore.go    lock, files, recovery: the rows, then the log above them
//	checkpoint  checkpoint.go   leaves to the archive, the engine's overlay into bbolt, the front of the log cut
//	backup      checkpoint.go   a copy beside running writers; restore.go puts it back
//	damage      boltfile.go, checkfile.go   what bbolt's file must look like; salvage.go copies what can be read
//	commits and reads are the engine's (package engine)
//
// What may be trusted when: a row in bbolt is as old as the applied LSN; a row in the overlay is durable in the log;
// a record the log has not synced is in neither.

// FormatVersion is the version of the file; a file with a higher one is refused with ErrNewerFormat. One with a lower one
// is raised to it when it is opened for writing.
const FormatVersion = 3

// Buckets of bbolt. The byte is part of each row's checksum.
var (
	bucketSys     = []byte("sys")
	bucketMeta    = []byte("meta")
	bucketContent = []byte("content")
	bucketSeg     = []byte("seg")
	bucketHeld    = []byte("held")
	bucketTxn     = []byte("txn")
	bucketState   = []byte("state")
	bucketVec     = []byte("vec")      // made with the first vector: most databases have none
	bucketAsked   = []byte("question") // made with the first question
	allBuckets    = [][]byte{bucketSys, bucketMeta, bucketContent, bucketSeg, bucketHeld, bucketTxn, bucketState}
)

// Options is what the store needs of Options.
type Options struct {
	Path     string
	ReadOnly bool
	// MustExist refuses to make a database; lockWait is how long to wait for another process to let go.
	MustExist bool
	LockWait  time.Duration
	Lock      *Lock            // of Path, held by the caller, who releases it after Close; nil: Open takes it. Not with ReadOnly
	Audit     store.Durability // of the leaf that tells of a recovery
	Logger    *slog.Logger     // hears of a recovery
	FS        wal.FS
	Now       func() time.Time
	Rand      io.Reader
	Analyzer  *lexical.Analyzer
	NoSync    bool
	group     time.Duration
	Segment   int64                   // wal.Options.SegmentBytes
	Rotate    int64                   // size of the log from which a checkpoint starts a new segment; 0: rotateAfterBytes
	onBolt    func(*bbolt.DB)         // tests let its writes fail
	Hook      func(step string) error // tests copy the files at a step, or let it fail
	State     []store.StateKind       // what the pipeline says of its state rows
	Trust     bool                    // tests: rows and texts are not compared with their digests
	Blind     bool                    // tests: copies are not told from others
	Greedy    bool                    // tests: puts leave no space to deletes and checkpoints
}

// Store is the embedded store: an engine over a log in segments and rows in bbolt.
type Store struct {
	served // by eng
	eng    *engine.Engine
	opts   Options
	lock   *processLock // nil: the caller has it
	sys    sysRow
	bolt   atomic.Pointer[bbolt.DB] // compact gives the file another one
	file   atomic.Pointer[os.File]  // bbolt's, to drop its lock after a panic
	log    *wal.Log
	line   *fileLog     // log and rows as the engine has them
	made   wal.Recovery // of the log of a file that was just made

	copied   bool // the file was not written where it is; known once asked
	asked    bool
	nameless bool   // so damaged that nothing says which file it was
	archived uint64 // leaves in the archive when it was opened

	ckptMu  sync.Mutex   // one checkpoint, backup or check at a time; before the sequencer
	bulk    atomic.Int64 // bytes of batches under way
	purging bool         // it begins a new segment whatever its size; under ckptMu
	squeeze int          // what a checkpoint does to free the log whatever its size; under ckptMu
	relief  relief
	ample   ample
	untold  atomic.Pointer[manifest.Record] // leaf of a recovery that found no space on the disk

	broken atomic.Pointer[error] // bbolt panicked with its locks held
	done   sync.WaitGroup
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = &LockedReader{R: rand.Reader}
	}
	if o.FS == nil {
		o.FS = wal.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Analyzer == nil {
		o.Analyzer = lexical.NewAnalyzer()
	}
	return o
}

// Open takes the process lock of path, finishes what a killed restore left, and opens or makes the database
// there. After an unclean end a leaf says so. Close releases the lock.
func Open(opts Options) (st *Store, err error) {
	opts = opts.withDefaults()
	if opts.Path, err = filepath.Abs(opts.Path); err != nil {
		return nil, fmt.Errorf("ctxpage: open: %w", err)
	}
	if err := opts.mayOpen(); err != nil {
		return nil, err
	}
	var lock *processLock // stays nil where the caller has it
	if opts.Lock == nil {
		if lock, err = lockProcess(opts.Path, opts.ReadOnly, opts.LockWait, opts.Now); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			st, err = nil, errors.Join(err, lock.release())
		}
	}()
	switch {
	case opts.ReadOnly && swapping(opts.Path):
		return nil, halfRestored(opts.Path)
	case !opts.ReadOnly:
		if err := finishSwap(opts.Path, func(string) error { return nil }); err != nil {
			return nil, err
		}
		if err := os.Remove(opts.Path + compactSuffix); err != nil && !errors.Is(err, os.ErrNotExist) { // a crash left it
			return nil, fmt.Errorf("ctxpage: open: %w", err)
		}
	}
	st, rec, err := openFileStore(context.Background(), opts)
	if err != nil {
		return nil, noSpaceError(opts.Path, err, openSpace)
	}
	err = st.tellRecovery(rec)
	if err == nil {
		err = st.finishErase(context.Background())
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	st.lock = lock
	return st, nil
}

// mayOpen tells a missing database from one that may be made.
func (o *Options) mayOpen() error {
	if swapping(o.Path) {
		return nil // there will be one
	}
	if _, err := os.Lstat(o.Path); !errors.Is(err, os.ErrNotExist) {
		return cmp.Or(fileProblem(o.Path), foreign(o.Path))
	}
	if o.ReadOnly || o.MustExist {
		return fmt.Errorf("%w: %s", store.ErrNotExist, o.Path)
	}
	return directoryThere("open", o.Path)
}

// tellRecovery writes the leaf of an open after an unclean end.
func (s *Store) tellRecovery(rec wal.Recovery) error {
	if rec.Fresh || rec.Clean || s.opts.ReadOnly {
		return nil
	}
	s.opts.Logger.Warn("recovered after an unclean end", "path", s.opts.Path, "cut_bytes", rec.CutBytes)
	leaf := &manifest.Record{
		Type: manifest.TypeRecovered, Cut: rec.Last, Lost: uint64(rec.CutBytes),
		Reason: "reads of the last 100 ms before the end may be missing",
	}
	err := s.note(context.Background(), s.opts.Audit, leaf)
	if noSpace(err) && s.eng.Failure() == nil { // told once there is space; until then no end is clean
		s.untold.Store(leaf)
		return nil
	}
	if err != nil {
		s.eng.Fail(err) // else Close would call this end clean, and the next open would not tell what this one could not
	}
	return err
}

// note writes one leaf of the database's own.
func (s *Store) note(ctx context.Context, d store.Durability, leaf *manifest.Record) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	leaf.Trace, leaf.Time = id.String(), codec.Micros(s.opts.Now())
	return s.Append(ctx, []*manifest.Record{leaf}, d)
}

// openFileStore opens or creates the files and recovers. It takes no process lock: Open holds that already.
func openFileStore(ctx context.Context, opts Options) (s *Store, rec wal.Recovery, err error) {
	st := &Store{opts: opts}
	st.eng = engine.New(engine.Options{
		Path: opts.Path, ReadOnly: opts.ReadOnly, Now: opts.Now, Rand: opts.Rand, Analyzer: opts.Analyzer, State: opts.State, Hook: opts.Hook, Trust: opts.Trust,
		Space: disk{st}, Checkpoint: func(ctx context.Context) error { _, err := st.checkpoint(ctx); return err },
	})
	st.line = &fileLog{s: st}
	st.served = st.eng
	st.eng.Attach(st.line)
	defer func() {
		if err != nil {
			err = st.misfit(err)
			st.closeFiles()
		}
	}()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"bbolt", st.openBolt}, {"size", st.limitPages}, {"system row", st.loadSys}, {"catalogue", st.loadCatalogue}, {"archive", st.openManifest}} {
		if err := step.do(ctx); err != nil {
			return nil, rec, err
		}
		if err := st.eng.At("opened " + step.name); err != nil {
			return nil, rec, err
		}
	}
	if rec, err = st.recover(ctx); err != nil {
		return nil, rec, err
	}
	if err := st.checkCopy(ctx); err != nil {
		return nil, rec, err
	}
	if err := st.eng.At("opened log"); err != nil {
		return nil, rec, err
	}
	st.eng.LimitPages(0)
	st.line.begin()
	st.eng.Start(store.Info{ID: st.sys.ID, Secret: st.sys.Secret})
	if err := st.stamp(); err != nil {
		return nil, rec, err
	}
	if !opts.ReadOnly {
		st.done.Add(1)
		go st.background()
	}
	return st, rec, nil
}

// limitPages allows a page for each of the fewest bytes one takes: its number and its length in the log. Holes hold none.
// What gc has forgotten still has its bytes in the audit.
func (s *Store) limitPages(context.Context) error {
	st, err := s.file.Load().Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	bytes := dataBytes(s.file.Load(), st.Size())
	for _, dir := range []string{"-wal", "-manifest"} { // what is missing is told when it is opened
		entries, _ := os.ReadDir(s.opts.Path + dir)
		for _, e := range entries {
			f, err := os.OpenFile(filepath.Join(s.opts.Path+dir, e.Name()), os.O_RDONLY|oNoFollow|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
				bytes += dataBytes(f, fi.Size())
			}
			f.Close()
		}
	}
	const fewest = 9
	s.eng.LimitPages(uint64(bytes) / fewest)
	return nil
}

// leftBehind tells whether a log or an archive says that there was a database here: then an empty file in its place is
// damage, and making a new one would hide it. A log without records is what a maker who was killed leaves: nothing is
// written before the system row is.
func (s *Store) leftBehind() (bool, error) {
	names, err := s.opts.FS.ReadDir(s.opts.Path + "-manifest")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("ctxpage: open: %w", err)
	}
	if len(names) > 0 {
		return true, nil
	}
	errFirst := errors.New("a record")
	rec, err := wal.Scan(context.Background(), s.opts.Path+"-wal", s.opts.FS, 0, func(wal.Record) error { return errFirst })
	var damaged *store.CorruptError
	switch {
	case err == nil:
		return !rec.Fresh, nil
	case errors.Is(err, errFirst), errors.As(err, &damaged), errors.Is(err, wal.ErrNewerFormat):
		return true, nil
	}
	return false, fmt.Errorf("ctxpage: open: %w", err)
}

func putSys(tx *bbolt.Tx, row sysRow) error {
	b, err := encodeSys(row)
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketSys).Put(sysKey, b); err != nil {
		return err
	}
	if b, err = encodeOrigin(row); err != nil {
		return err
	}
	if err := tx.Bucket(bucketSys).Put(originKey, b); err != nil {
		return err
	}
	if !row.AskedOK {
		return nil
	}
	if b, err = encodeAsked(row); err != nil {
		return err
	}
	return tx.Bucket(bucketSys).Put(askedKey, b)
}

func (s *Store) loadCatalogue(context.Context) error {
	s.eng.Identify(store.Info{ID: s.sys.ID, Secret: s.sys.Secret})
	err := s.loadFile()
	if errors.Is(err, lexical.ErrCorrupt) || errors.Is(err, lexical.ErrAnalyzer) {
		return s.rebuildIndex()
	}
	return err
}

func (s *Store) loadFile() error {
	return s.line.Snapshot(context.Background(), s.eng.LoadRows)
}

// snapshot shows fn the rows of the file.
func (s *Store) snapshot(fn func(engine.Reader, engine.Base) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketMeta) == nil {
			return s.eng.Corrupt("bucket meta", errors.New("missing"))
		}
		return fn(newBoltRows(tx), s.base(tx.Size()))
	})
}

// viewRows shows fn the rows of the file.
func (s *Store) viewRows(fn func(engine.Reader) error) error {
	return s.view(func(tx *bbolt.Tx) error { return fn(newBoltRows(tx)) })
}

func (s *Store) base(size int64) engine.Base {
	return engine.Base{Applied: s.sys.Applied, Rows: s.sys.Rows, Summed: s.sys.Origin != "", AskedOK: s.sys.AskedOK, High: s.sys.High, Size: size}
}

// rebuildIndex builds the index anew from the pages when its segments are damaged or were made by another analyzer:
// nothing in it is not in the pages.
func (s *Store) rebuildIndex() error {
	if !s.opts.ReadOnly {
		err := s.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: newBoltRows(tx)}) })
		if noSpace(err) { // the end does it, or the next open
			s.eng.MarkIndexDamaged()
		} else if err != nil {
			return fmt.Errorf("ctxpage: rebuild the index: %w", err)
		}
	}
	return s.viewRows(s.eng.IndexAnew)
}

func (s *Store) openManifest(ctx context.Context) error {
	var err error
	s.eng.Leaves, _, err = manifest.Open(ctx, s.opts.Path+"-manifest", s.opts.FS, manifest.Options{ReadOnly: s.opts.ReadOnly, DB: s.sys.ID})
	if err == nil {
		s.archived = s.eng.Leaves.Archived()
	}
	return LogError(err)
}

// openLog opens the log and hands its records to replay.
func (s *Store) openLog(ctx context.Context, mustExist bool, replay func(wal.Record) error) (*wal.Log, wal.Recovery, error) {
	log, rec, err := wal.Open(ctx, s.opts.Path+"-wal", wal.Options{
		FS: s.opts.FS, ReadOnly: s.opts.ReadOnly, MustExist: mustExist, OnDurable: s.line.durable, NoSync: s.opts.NoSync, GroupWait: s.opts.group,
		SegmentBytes: s.opts.Segment,
	}, replay)
	if errors.Is(err, wal.ErrMissing) {
		return nil, rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: errors.New("the log is missing: what was committed since the last checkpoint is only in it"),
			Hint: "it was removed, or not copied with the file: put it back; or " + store.HintSalvage}
	}
	return log, rec, LogError(err)
}

// hintCopy follows what to do about files that do not fit together.
const hintCopy = "; a copy made while the database was written does not fit together: copy with Backup (dbctl backup) instead; or " + store.HintSalvage

// recover replays the log: leaves into the audit, commits above the applied LSN into catalogue and overlay.
func (s *Store) recover(ctx context.Context) (wal.Recovery, error) {
	if s.log != nil { // made with the file
		return s.made, nil
	}
	first := true
	log, rec, err := s.openLog(ctx, true, func(r wal.Record) error {
		if first && r.Seq > s.sys.Seq+1 {
			return &store.CorruptError{File: r.Segment, Err: fmt.Errorf("%w: log begins at record %d, the file ends at %d", store.ErrMisfit, r.Seq, s.sys.Seq),
				Hint: "segments of the log are missing: put them back" + hintCopy}
		}
		first = false
		return s.redo(r)
	})
	if err != nil {
		return rec, err
	}
	s.log = log
	if rec.First > s.sys.Seq+1 { // also where what is left of the log has no records to say so
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log begins at record %d, the file ends at %d", store.ErrMisfit, rec.First, s.sys.Seq),
			Hint: "segments of the log are missing: put them back" + hintCopy}
	}
	if s.sys.Seq > rec.Last {
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log ends at record %d, the file at %d", store.ErrMisfit, rec.Last, s.sys.Seq),
			Hint: "the log was removed or replaced: put it back" + hintCopy}
	}
	if last := max(s.eng.Followed(), s.sys.Leaves); s.sys.Origin != "" && s.archived > last && !s.opts.Blind {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: archive has %d leaves, log and file know of %d", store.ErrMisfit, s.archived, last),
			Hint: "the log was cut or replaced: put it back" + hintCopy}
	}
	if have := s.eng.Leaves.Size(); s.sys.Origin != "" && have < s.sys.Leaves && !s.opts.Blind {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: archive and log have %d leaves, the file has commits up to leaf %d", store.ErrMisfit, have, s.sys.Leaves),
			Hint: "the archive was replaced: put it back" + hintCopy}
	}
	return rec, nil
}

// LogError gives an error of the log or the archive the form that the store promises. Damage has it already.
func LogError(err error) error {
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return err
	case errors.Is(err, wal.ErrNewerFormat):
		return fmt.Errorf("%w: %w", store.ErrNewerFormat, err)
	}
	return engine.AuditError(err)
}

// redo gives a record of the log to the engine, and says where a damaged one stands.
func (s *Store) redo(r wal.Record) error {
	kind, ok := map[wal.Kind]engine.Kind{wal.KindCommit: engine.KindCommit, wal.KindAudit: engine.KindLeaf, wal.KindMark: engine.KindMark}[r.Kind]
	if !ok {
		kind = engine.KindCommit // of a later release; its version is refused
	}
	err := s.eng.Follow(kind, r.Seq, r.Body)
	var bad *engine.RecordError
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: %s: record %d: %w; use a newer release", store.ErrNewerFormat, r.Segment, r.Seq, err)
	}
	if errors.As(err, &bad) {
		return &store.CorruptError{File: r.Segment, Offset: r.Offset, Unit: corrupt.LSN, Num: bad.LSN, Err: bad.Err, Hint: bad.Hint}
	}
	return LogError(err)
}

// Close stops the background work, checkpoints, and ends the log with a mark that says the end was clean. A poisoned
// store is closed without all that and says why.
func (s *Store) Close() error {
	if !s.eng.Closed() {
		s.tellLater()
	}
	if !s.eng.Shut() {
		return store.ErrClosed
	}
	s.done.Wait()
	err := s.eng.Failure()
	if !s.opts.ReadOnly && err == nil {
		err = s.closeClean()
	}
	if !s.opts.ReadOnly && s.eng.IndexDamaged() { // also after a checkpoint that met it: else every one would
		err = errors.Join(err, s.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: newBoltRows(tx)}) }))
	}
	err = errors.Join(err, s.closeFiles())
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return noSpaceError(s.opts.Path, err, checkpointSpace)
}

func (s *Store) closeClean() error {
	s.line.tail.Lock() // closed is set: whoever had the tail has released it, and nobody gets it any more
	last := s.log.Last()
	s.line.tail.Unlock()
	if err := s.log.Sync(context.Background(), last); err != nil {
		return err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if _, err := s.checkpointLocked(context.Background()); err != nil && !noSpace(err) {
		return err // on a full disk all of it stays in the log, which has a reserve for its end
	}
	if s.untold.Load() != nil {
		return nil // the next open finds an unclean end once more, and tells
	}
	mark, err := s.eng.Leaves.Mark(s.eng.Leaves.Size())
	if err != nil {
		return err
	}
	return s.log.Close(wal.KindMark, mark)
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Abandon())
	}
	if s.eng.Leaves != nil {
		errs = append(errs, s.eng.Leaves.Close())
	}
	switch {
	case s.bolt.Load() != nil && s.broken.Load() == nil:
		errs = append(errs, s.bolt.Load().Close())
	case s.file.Load() != nil: // closing would wait for ever, and the mapping keeps the lock of a file that is merely closed
		unlockFile(s.file.Load())
	}
	return errors.Join(errs...)
}
