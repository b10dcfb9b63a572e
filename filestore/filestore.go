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
	"github.com/ctxpage/ctxpage/internal/seal"
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
// What may be trusted when: a row in bbolt is as old as the applied LSN; a row in the overlay is
// durable in the log; a record that the log has not synced is in neither.
//
// An open is a list of steps (openFileStore), in the order in which one file vouches for the next:
//
//	bbolt        its first pages are read and checked before bbolt maps them; a copy is checked as a whole
//	size         bounds what damaged numbers may claim
//	system row   id, secret, applied LSN, and the record of the log that carries it
//	catalogue    from the snapshot of the columns (columnfile.go), or from the rows; the index is made again if it is damaged
//	archive      leaves of the audit
//	log          replayed above the applied LSN; a torn end is cut, anything else is an error
//	stamp        the file is made this file's own, and of this format
//
// Nothing is changed before the log was read to its end, apart from a new database and a damaged
// index. If a step fails, everything that was opened is closed again and the lock is released.

// FormatVersion is the version of the file format. A file of a higher version is refused with
// ErrNewerFormat. A file of a lower version is converted when it is opened for writing.
const FormatVersion = 6

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

// Options configure the store.
type Options struct {
	Path     string
	ReadOnly bool
	// Key encrypts the files: 32 random bytes. A database keeps what it was made with: a database
	// made with a key opens with that key only, one made without a key only without. nil: no
	// encryption. Errors match ErrKey.
	Key []byte
	// Keyring is the path of the keyring; "": Path + ".keys". Another path is for ReadOnly alone: a
	// backup has no keyring of its own. A writer needs its own keyring, because an erase changes it
	// and the page numbers of a copy soon differ from those of the original.
	Keyring string
	// Identity is the id and secret of a new database: those of the database that it imports. The
	// zero Info makes new ones. An existing database keeps its own.
	Identity store.Info
	// MustExist returns ErrNotExist where Open would make a new database. LockWait is how long to
	// wait for another process to release the lock.
	MustExist bool
	LockWait  time.Duration
	Lock      *Lock            // of Path, held by the caller, who releases it after Close; nil: Open takes it. Not with ReadOnly
	Audit     store.Durability // of the leaf that records a recovery
	Logger    *slog.Logger     // hears of a recovery
	FS        wal.FS
	Now       func() time.Time
	Rand      io.Reader
	Analyzer  *lexical.Analyzer
	NoSync    bool
	group     time.Duration
	Segment   int64                   // wal.Options.SegmentBytes
	Rotate    int64                   // bytes of the log from which a checkpoint starts a new segment; 0: rotateAfterBytes
	onBolt    func(*bbolt.DB)         // tests let its writes fail
	Hook      func(step string) error // tests copy the files at a step, or let it fail
	ring      *seal.Ring              // of the keyring
	State     []store.StateKind       // what the pipeline says of its state rows
	Trust     bool                    // tests: rows and texts are not compared with their digests
	Blind     bool                    // tests: copies are not recognised
	Greedy    bool                    // tests: puts leave no space for deletes and checkpoints
	Columns   int                     // page versions from which a snapshot of the columns is kept; 0: columnsFrom; negative: none is read or kept
}

// Store is the embedded store: an engine over a log in segments and rows in bbolt. Its methods are
// safe for concurrent use.
//
// It owns the files from Open to Close. In between, only the goroutine that holds ckptMu writes
// bbolt's file, cuts the log or replaces a file. sys is written under ckptMu and, in a checkpoint,
// under the engine's cat.mu as well, so that Stat sees one row and not parts of two.
//
// States. Each failure moves to the right only; reopening is the way back:
//
//	open      commits and reads; the background goroutine syncs and makes checkpoints
//	failed    eng.Failure is set: no commits, no checkpoints; reads go on from memory and bbolt
//	broken    bbolt panicked: its locks are never released, so reads that need the file fail too
//	ending    Close was called: jobs that wait for ckptMu end with ErrClosed
//	closed    everything returns ErrClosed
//
// The files are read at open and not watched afterwards. Before a checkpoint writes, it looks whether
// the path still leads to the open file (sameFile) and whether the log is still in its place.
type Store struct {
	served // answered by eng
	eng    *engine.Engine
	opts   Options
	lock   *processLock // nil: the caller has it
	sys    sysRow
	ring   atomic.Pointer[seal.Ring] // nil: the files are plain; an erase replaces it
	bolt   atomic.Pointer[bbolt.DB]  // compact replaces it
	file   atomic.Pointer[os.File]   // bbolt's file, to drop its lock after a panic
	log    *wal.Log
	line   *fileLog     // log and rows as the engine has them
	made   wal.Recovery // of the log, if the file was just made

	nextRing *seal.Ring // the keyring after the erase whose files are written anew; under ckptMu
	copied   bool       // the file is a copy of the one that was written; valid if asked
	asked    bool
	nameless bool   // it is so damaged that nothing says whether it is a copy
	pageSize int64  // of bbolt's file, and of the one that compact makes
	archived uint64 // leaves in the archive when it was opened

	ckptMu     engine.JobLock // one checkpoint, backup, check or purge at a time; after gcMu, before the log's tail
	redone     atomic.Bool    // the open redid so much that the next checkpoint makes the log short, see background
	bulk       atomic.Int64   // bytes of batches in progress
	purging    bool           // a checkpoint begins a new segment whatever its size; under ckptMu
	squeeze    int            // what a checkpoint does to free the log whatever its size; under ckptMu
	relief     relief
	spaceCache spaceCache
	unrecorded atomic.Pointer[manifest.Record] // the leaf of a recovery that found no space on the disk

	broken atomic.Pointer[error] // bbolt panicked with its locks held
	done   sync.WaitGroup
	ending atomic.Bool // Close has begun: jobs that still wait end

	columns columnFile // under ckptMu once it is open
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

// Open takes the process lock of path, finishes an interrupted restore, and opens or makes the
// database there. After an unclean end it appends an audit leaf that says so. Close releases the
// lock.
//
// Errors: *store.LockedError, which names the process that has the lock; ErrNotExist, with ReadOnly
// or MustExist; ErrNotDatabase; ErrNewerFormat; ErrCorrupt; ErrNoSpace; ErrKey.
//
// These are the steps. If one fails, Open closes what it had opened and releases the lock, so it
// may be called again at once.
//
//	may it be opened    nothing else is at the path; nothing was changed yet
//	lock                no other process writes from here on
//	keyring             a wrong key ends here, before a file of the database is opened
//	swap                a restore that crashed after its mark is finished: the path leads to one whole database
//	path.compact        the remains of a compaction that crashed are removed
//	files               openFileStore
//	leaf, erase         an unclean end is recorded, an erase that a crash interrupted goes on
func Open(opts Options) (st *Store, err error) {
	opts = opts.withDefaults()
	if opts.Path, err = filepath.Abs(opts.Path); err != nil {
		return nil, fmt.Errorf("ctxpage: open: %w", err)
	}
	if err := opts.mayOpen(); err != nil {
		return nil, err
	}
	var lock *processLock // nil: the caller has it
	if opts.Lock == nil {
		if lock, err = lockProcess(opts.Path, lockHolder{Reading: opts.ReadOnly}, opts.LockWait, opts.Now); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			st, err = nil, errors.Join(err, lock.release())
		}
	}()
	if err := opts.readRing(); err != nil {
		return nil, err
	}
	switch {
	case opts.ReadOnly && swapping(opts.Path):
		return nil, halfRestored(opts.Path)
	case !opts.ReadOnly:
		if swapping(opts.Path) {
			if err := finishSwap(opts.Path, func(string) error { return nil }); err != nil {
				return nil, err
			}
			opts.ring = nil // the swap may have brought a keyring
			if err := opts.readRing(); err != nil {
				return nil, err
			}
		}
		if err := os.Remove(opts.Path + compactSuffix); err != nil && !errors.Is(err, os.ErrNotExist) { // a crash left it
			return nil, fmt.Errorf("ctxpage: open: %w", err)
		}
	}
	st, rec, err := openFileStore(context.Background(), opts)
	if err != nil {
		return nil, noSpaceError(opts.Path, err, openSpace)
	}
	err = st.recordRecovery(rec)
	if err == nil {
		err = st.finishErase(context.Background())
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	st.lock = lock
	return st, nil
}

// mayOpen returns an error if there is no database and none may be made, or if something else is at
// the path. It follows no link and makes nothing, so it may run before the lock is taken.
func (o *Options) mayOpen() error {
	if swapping(o.Path) {
		return nil // the swap will put one there
	}
	if _, err := os.Lstat(o.Path); !errors.Is(err, os.ErrNotExist) {
		return cmp.Or(fileProblem(o.Path), refuseForeign(o.Path))
	}
	if o.ReadOnly || o.MustExist {
		return fmt.Errorf("%w: %s", store.ErrNotExist, o.Path)
	}
	return directoryThere("open", o.Path)
}

// recordRecovery writes the leaf of an open after an unclean end. If the disk is full, the leaf is
// written when there is space, and until then no end counts as clean, so a later open writes it.
func (s *Store) recordRecovery(rec wal.Recovery) error {
	if rec.Fresh || rec.Clean || s.opts.ReadOnly {
		return nil
	}
	s.opts.Logger.Warn("recovered after an unclean end", "path", s.opts.Path, "cut_bytes", rec.CutBytes)
	leaf := &manifest.Record{
		Type: manifest.TypeRecovered, Cut: rec.Last, Lost: uint64(rec.CutBytes),
		Reason: "reads of the last 100 ms before the end may be missing",
	}
	err := s.note(context.Background(), s.opts.Audit, leaf)
	if noSpace(err) && s.eng.Failure() == nil {
		s.unrecorded.Store(leaf)
		return nil
	}
	if err != nil {
		s.eng.Fail(err) // otherwise Close would mark this end as clean, and no open would ever write the leaf
	}
	return err
}

// note writes one leaf of the database itself. It has an id of its own as its trace, and no scope:
// it is about the files, not about what is in them.
func (s *Store) note(ctx context.Context, d store.Durability, leaf *manifest.Record) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	leaf.Trace, leaf.Time = id.String(), codec.Micros(s.opts.Now())
	return s.Append(ctx, []*manifest.Record{leaf}, d)
}

// openFileStore opens or creates the files and recovers. It takes no process lock: Open holds that
// already. It closes what it opened if a step fails.
//
// The limit on page numbers is lifted once the log was read: from then on this process gives the
// numbers itself, and none of them is from a file. tidyColumns comes last, since only a file that
// is this database's for certain may lose its snapshot.
func openFileStore(ctx context.Context, opts Options) (s *Store, rec wal.Recovery, err error) {
	st := &Store{opts: opts}
	st.ring.Store(opts.ring)
	st.eng = engine.New(engine.Options{
		Path: opts.Path, ReadOnly: opts.ReadOnly, Now: opts.Now, Rand: opts.Rand, Analyzer: opts.Analyzer, State: opts.State, Hook: opts.Hook, Trust: opts.Trust, Sealed: opts.Key != nil,
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
	st.eng.Start()
	if err := cmp.Or(st.stamp(), st.tidyColumns()); err != nil {
		return nil, rec, err
	}
	if !opts.ReadOnly {
		st.redone.Store(st.eng.Waiting().Bytes > redoneBytes) // asked before the first commit, which is not redone
		st.done.Add(1)
		go st.background()
	}
	return st, rec, nil
}

// limitPages allows one page for the fewest bytes that a page takes: its number and its length in
// the log. Holes do not count. Artefacts that gc has forgotten still have bytes in the audit. So
// what hostile files can make an open allocate is bounded by the bytes that they really have.
func (s *Store) limitPages(context.Context) error {
	st, err := s.file.Load().Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	bytes := dataBytes(s.file.Load(), st.Size())
	for _, dir := range []string{"-wal", "-manifest"} { // opening a missing one reports it
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

// leftBehind reports whether a log or an archive says that there was a database here. Then an empty
// file in its place is damage, and a new database would hide that. A log without records is what a
// killed creation leaves: nothing is written before the system row is.
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

// putSys writes the system row and the rows beside it that older programs do not know. All of them
// belong to one moment, so they are always written together, in one transaction.
func putSys(tx *bbolt.Tx, ring *seal.Ring, row sysRow) error {
	b, err := encodeSys(ring, row)
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

// loadCatalogue fills the engine from the file. A damaged index, or one of another analyzer, is no
// reason to refuse a database: it is made again from the pages. Any other damage ends the open.
func (s *Store) loadCatalogue(context.Context) error {
	s.eng.Identify(store.Info{ID: s.sys.ID, Secret: s.sys.Secret})
	err := s.loadFile()
	if errors.Is(err, lexical.ErrCorrupt) || errors.Is(err, lexical.ErrAnalyzer) {
		return s.rebuildIndex()
	}
	return err
}

// loadFile loads from the snapshot of the columns, or else from the rows, after it has asked the
// system to read the file ahead.
func (s *Store) loadFile() error {
	if used, err := s.loadColumns(context.Background()); used || err != nil {
		return err
	}
	if st, err := s.file.Load().Stat(); err == nil {
		warm(s.file.Load(), st.Size())
	}
	return s.line.Snapshot(context.Background(), s.eng.LoadRows)
}

// snapshot shows fn the rows of the file, and the LSN and counts that they belong to. It is one
// transaction of bbolt, so rows and counts are of one moment; fn must not begin another.
func (s *Store) snapshot(fn func(engine.Reader, engine.Base) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketMeta) == nil {
			return s.eng.Corrupt("bucket meta", errors.New("missing"))
		}
		return fn(s.rows(tx), s.base(tx.Size()))
	})
}

// viewRows shows fn the rows of the file.
func (s *Store) viewRows(fn func(engine.Reader) error) error {
	return s.view(func(tx *bbolt.Tx) error { return fn(s.rows(tx)) })
}

// base says what the rows of the file are of. size is that of the file, in bytes.
func (s *Store) base(size int64) engine.Base {
	return engine.Base{Applied: s.sys.Applied, Rows: s.sys.Rows, Summed: s.sys.Origin != "", AskedOK: s.sys.AskedOK, High: s.sys.High, Size: size}
}

// rebuildIndex builds the index from the pages, if its segments are damaged or were made by another
// analyzer. Nothing is lost: the index has nothing that the pages do not have.
func (s *Store) rebuildIndex() error {
	if !s.opts.ReadOnly {
		err := s.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: s.rows(tx)}) })
		if noSpace(err) { // Close does it, or the next open
			s.eng.MarkIndexDamaged()
		} else if err != nil {
			return fmt.Errorf("ctxpage: rebuild the index: %w", err)
		}
	}
	return s.viewRows(s.eng.IndexAnew)
}

// openManifest opens the archive of the audit, unless loadColumns has opened it already to look for
// a leaf.
func (s *Store) openManifest(ctx context.Context) error {
	var err error
	if s.columns.audit != nil {
		s.eng.Leaves, s.columns.audit = s.columns.audit, nil
		s.archived = s.eng.Leaves.Archived()
		return nil
	}
	s.eng.Leaves, _, err = manifest.Open(ctx, s.opts.Path+"-manifest", s.opts.FS, manifest.Options{ReadOnly: s.opts.ReadOnly, DB: s.sys.ID, Seal: sealerOf(s.ring.Load())})
	if err == nil {
		s.archived = s.eng.Leaves.Archived()
	}
	return LogError(err)
}

// openLog opens the log and gives its records to replay.
func (s *Store) openLog(ctx context.Context, mustExist bool, replay func(wal.Record) error) (*wal.Log, wal.Recovery, error) {
	log, rec, err := wal.Open(ctx, s.opts.Path+"-wal", wal.Options{
		FS: s.opts.FS, ReadOnly: s.opts.ReadOnly, MustExist: mustExist, OnDurable: s.line.durable, NoSync: s.opts.NoSync, GroupWait: s.opts.group,
		SegmentBytes: s.opts.Segment, Sealed: s.ring.Load() != nil,
	}, replay)
	if errors.Is(err, wal.ErrMissing) {
		return nil, rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: errors.New("the log is missing: only the log has the commits since the last checkpoint"),
			Hint: "it was removed, or not copied with the file: put it back; or " + store.HintSalvage}
	}
	return log, rec, LogError(err)
}

// hintCopy is appended to the hints about files that do not fit together.
const hintCopy = "; a copy made while the database was written does not fit together: copy with Backup (dbctl backup) instead; or " + store.HintSalvage

// recover replays the log: leaves into the audit, commits above the applied LSN into catalogue and
// overlay. Then it compares where the three parts end. The file names the record that carries its
// LSN (Seq), so a log that begins after it or ends before it is another log, or lacks segments. The
// archive must not have more leaves than log and file know of, nor fewer than the file's commits
// need.
//
//	log      first ≤ Seq + 1                else segments are missing at its front
//	log      last ≥ Seq                     else it was cut or replaced
//	archive  at most what log and file name else the log was cut or replaced
//	audit    at least what the file needs   else the archive was replaced
//
// A file of an older program has no Origin, and the last two are not known of it. ErrMisfit tells a
// caller that each part may be sound and that they are of different moments.
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
	if rec.First > s.sys.Seq+1 { // a log without records did not reach the same test above
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log begins at record %d, the file ends at %d", store.ErrMisfit, rec.First, s.sys.Seq),
			Hint: "segments of the log are missing: put them back" + hintCopy}
	}
	if s.sys.Seq > rec.Last {
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log ends at record %d, the file at %d", store.ErrMisfit, rec.Last, s.sys.Seq),
			Hint: "the log was removed or replaced: put it back" + hintCopy}
	}
	if last := max(s.eng.Followed(), s.sys.Leaves); s.sys.Origin != "" && s.archived > last && !s.opts.Blind {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: the archive has %d leaves, but log and file name only %d", store.ErrMisfit, s.archived, last),
			Hint: "the log was cut or replaced: put it back" + hintCopy}
	}
	if have := s.eng.Leaves.Size(); s.sys.Origin != "" && have < s.sys.Leaves && !s.opts.Blind {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: archive and log have %d leaves, but the file has commits up to leaf %d", store.ErrMisfit, have, s.sys.Leaves),
			Hint: "the archive was replaced: put it back" + hintCopy}
	}
	return rec, nil
}

// LogError turns an error of the log or the archive into the error that store.Store promises.
// Damage has the right type already.
func LogError(err error) error {
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return err
	case errors.Is(err, wal.ErrNewerFormat):
		return fmt.Errorf("%w: %w", store.ErrNewerFormat, err)
	case errors.Is(err, manifest.ErrSealed):
		return fmt.Errorf("%w: %w", store.ErrKey, err)
	}
	return engine.AuditError(err)
}

// redo gives a record of the log to the engine, and adds to an error where the record is.
func (s *Store) redo(r wal.Record) error {
	r, err := openRecord(s.ring.Load(), r)
	if err != nil {
		return err
	}
	kind, ok := map[wal.Kind]engine.Kind{wal.KindCommit: engine.KindCommit, wal.KindAudit: engine.KindLeaf, wal.KindMark: engine.KindMark}[r.Kind]
	if !ok {
		kind = engine.KindCommit // a kind of a later release: the version of its record is refused
	}
	err = s.eng.Follow(kind, r.Seq, r.Body)
	var bad *engine.RecordError
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: %s: record %d: %w; use a newer release", store.ErrNewerFormat, r.Segment, r.Seq, err)
	}
	if errors.As(err, &bad) {
		return &store.CorruptError{File: r.Segment, Offset: r.Offset, Unit: corrupt.LSN, Num: bad.LSN, Err: bad.Err, Hint: bad.Hint}
	}
	return LogError(err)
}

// Close stops the background work, makes a checkpoint (see Lock.Wanted for the exception), and ends
// the log with a mark that says the end was clean. A store that has failed is closed without
// checkpoint and mark, and Close returns the failure.
//
// Close waits for a job that holds ckptMu. It may be called more than once: later calls return nil
// and do not wait for the first.
//
//	ending   jobs that wait for ckptMu give up; a snapshot of the columns is written, if it is due
//	shut     no commit and no read begins any more
//	done     the background goroutine has ended
//	clean    log synced, checkpoint, mark (closeClean); not after a failure
//	closed   log, audit, bbolt, and the lock of the process last
//
// A crash before the mark is in the log loses nothing that was acknowledged: the next open redoes
// the log and records an unclean end.
func (s *Store) Close() error {
	if !s.eng.Closed() {
		s.ending.Store(true)
		s.recordLater()
		s.keepColumns(context.Background())
	}
	if !s.eng.Shut() {
		return nil
	}
	s.done.Wait()
	err := s.eng.Failure()
	if !s.opts.ReadOnly && err == nil {
		err = s.closeClean()
	}
	if !s.opts.ReadOnly && s.eng.IndexDamaged() { // even if a checkpoint failed because of it: otherwise each one would
		err = errors.Join(err, s.update(func(tx *bbolt.Tx) error { return lexical.Reset(engine.SegRows{Reader: s.rows(tx)}) }))
	}
	err = errors.Join(err, s.closeFiles())
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return noSpaceError(s.opts.Path, err, checkpointSpace)
}

// handOverBytes is up to how many bytes of rows are left in the log for the next owner to redo.
const handOverBytes = 4 << 20

// leavesToNext reports whether Close leaves the checkpoint, and the snapshot of the columns, to the next owner. To redo a short
// log takes no longer than to checkpoint it. The snapshot of an earlier close is read if it is still that of the rows; if a
// checkpoint has made it outdated, the next owner reads the rows, which takes no longer than to write a new one while others
// wait. Whoever closes last, when nobody waits, writes it. Vectors are in no log: without a checkpoint they would have to be
// computed again. The caller holds ckptMu.
func (s *Store) leavesToNext() bool {
	if !s.opts.Lock.isWanted() {
		return false
	}
	w := s.eng.Waiting()
	return w.Vectors == 0 && w.Bytes <= handOverBytes
}

// closeClean ends a store that has not failed: log synced, checkpoint, mark. On a full disk
// everything stays in the log, which has a reserve for its end. The mark comes last: a log that
// ends with it has lost nothing, so the next open records no recovery.
func (s *Store) closeClean() error {
	s.line.tail.Lock() // after this no caller holds the tail: Shut was called, so none takes it again
	last := s.log.Last()
	s.line.tail.Unlock()
	if err := s.log.Sync(context.Background(), last); err != nil {
		return err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if !s.leavesToNext() {
		if _, err := s.checkpointLocked(context.Background()); err != nil && !noSpace(err) {
			return err
		}
		s.endAtPages()
	}
	if s.unrecorded.Load() != nil {
		return nil // no clean end: the next open writes the leaf of the recovery
	}
	mark, err := s.eng.Leaves.Mark(s.eng.Leaves.Size())
	if err != nil {
		return err
	}
	return s.log.Close(wal.KindMark, mark)
}

// closeFiles closes what is open. After a panic inside bbolt its locks are taken for ever, so bbolt
// is not closed; its file lock is dropped instead.
func (s *Store) closeFiles() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Abandon())
	}
	for _, l := range []*manifest.Log{s.eng.Leaves, s.columns.audit} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	switch {
	case s.bolt.Load() != nil && s.broken.Load() == nil:
		errs = append(errs, s.bolt.Load().Close())
	case s.file.Load() != nil: // bbolt's Close would wait for ever; closing only the file keeps its lock, because it is mapped
		unlockFile(s.file.Load())
	}
	return errors.Join(errs...)
}
