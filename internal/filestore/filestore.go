package filestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// The embedded store: one log, bbolt behind it, and an engine that is built from both.
//
// What may be trusted when: a row in bbolt is as old as the applied LSN; a row in the overlay is
// durable in the log; a record that the log has not synced is in neither.
//
// An open is a list of steps (openFileStore), in the order in which one file vouches for the next:
//
//	bbolt        its first pages are read and checked before bbolt maps them
//	size         bounds what damaged numbers may claim
//	system row   id, secret, applied LSN, and the record of the log that carries it
//	catalogue    from the snapshot of the columns (columnfile.go), or from the rows; the index is made again if it is damaged
//	archive      leaves of the audit
//	log          replayed above the applied LSN; a torn end is cut, anything else is an error
//
// Nothing is changed before the log was read to its end, apart from a new database and a damaged
// index. If a step fails, everything that was opened is closed again and the lock is released.

// FormatVersion is the version of the file format. A file of a higher version is refused with
// ErrNewerFormat, one from before v0.1.0 with ErrOldFormat.
const FormatVersion = 1

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
	// and the page numbers of a copy soon differ from the numbers of the original.
	Keyring string
	// Identity is the id and secret of a new database that imports another one: it keeps both. The
	// zero Info makes new ones. An existing database keeps its own.
	Identity store.Info
	// MustExist returns ErrNotExist where Open would make a new database. LockWait bounds the
	// wait for another process to release the lock.
	MustExist bool
	LockWait  time.Duration
	Lock      *Lock            // of Path, held by the caller, who releases it after Close; nil: Open takes it. Not with ReadOnly
	Audit     store.Durability // of the leaf that records a recovery
	Logger    *slog.Logger     // hears of a recovery
	// Checkpointed is called after a checkpoint, with when it began by Now. It must not call the store. nil: nobody.
	Checkpointed func(began time.Time, rep store.JobReport, err error)
	// Synced is called after a sync of the log, with when it began by Now, under locks of the log. It must not call the store. nil: nobody.
	Synced   func(began time.Time, err error)
	FS       wal.FS
	syncNew  func(*bbolt.DB) error // syncs the file of a compaction; tests watch it
	Now      func() time.Time
	Rand     io.Reader
	Analyzer *lexical.Analyzer
	NoSync   bool
	Segment  int64                   // wal.Options.SegmentBytes
	Rotate   int64                   // bytes of the log from which a checkpoint starts a new segment; 0: rotateAfterBytes
	onBolt   func(*bbolt.DB)         // tests let its writes fail
	Hook     func(step string) error // tests copy the files at a step, or let it fail
	ring     *Ring                   // of the keyring
	State    []store.StateKind       // what the pipeline says of its state rows
	Trust    bool                    // tests: rows and texts are not compared with their digests
	Greedy   bool                    // tests: puts leave no space for deletes and checkpoints
	Columns  int                     // page versions from which a snapshot of the columns is kept; 0: columnsFrom; negative: none is read or kept
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
//	open      commits and reads; the background work syncs and makes checkpoints
//	failed    eng.Failure is set: no commits, no checkpoints; reads go on from memory and bbolt
//	broken    bbolt panicked: its locks are never released, so reads that need the file fail too
//	ending    Close was called: jobs that wait for ckptMu end with ErrClosed
//	closed    everything returns ErrClosed
//
// The files are read at open and not watched afterwards. Before a checkpoint writes, it looks whether
// the path still leads to the open file (sameFile) and whether the log is still in its place.
type Store struct {
	served    // answered by eng
	eng       *engine.Engine
	opts      Options
	lock      *processLock // nil: the caller has it
	sys       sysRow
	ring      atomic.Pointer[Ring]     // nil: the files are plain; an erase replaces it
	bolt      atomic.Pointer[bbolt.DB] // compact replaces it
	cutTo     int64                    // bytes of the file that pages take, for closeFiles; 0: it is left as it is
	replacing sync.RWMutex             // held while it is replaced by a file that is opened for that; see replaceClosed
	file      atomic.Pointer[os.File]  // bbolt's file, to drop its lock after a panic
	log       *wal.Log
	line      *fileLog     // log and rows as the engine has them
	made      wal.Recovery // of the log, if the file was just made

	nextRing *Ring  // the keyring after the erase whose files are written anew; under ckptMu
	pageSize int64  // of bbolt's file, and of the one that compact makes
	archived uint64 // leaves in the archive when it was opened

	eraseMu    engine.JobLock // one erase at a time, with its purge; before gcMu
	ckptMu     engine.JobLock // one checkpoint, backup, check or purge at a time; after gcMu, before the log's tail
	redone     atomic.Bool    // the open redid so much that the next checkpoint makes the log short, see background
	bulk       atomic.Int64   // bytes of batches in progress
	purging    bool           // a checkpoint begins a new segment whatever its size; under ckptMu
	squeeze    int            // what a checkpoint does to free the log whatever its size; under ckptMu
	relief     relief
	spaceCache spaceCache
	reserved   atomic.Bool                     // the log keeps its largest reserve; see free
	unrecorded atomic.Pointer[manifest.Record] // the leaf of a recovery that found no space on the disk

	broken atomic.Pointer[error] // bbolt panicked with its locks held
	worker worker
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
	if o.syncNew == nil {
		o.syncNew = (*bbolt.DB).Sync
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

// note writes one leaf of the database itself. It has an id of its own as its trace, and no scope:
// it is about the files, not about what is in them.
func (s *Store) note(ctx context.Context, d store.Durability, leaf *manifest.Record) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	leaf.Trace, leaf.Time = id.String(), codec.Micros(s.opts.Now())
	return s.eng.Note(ctx, []*manifest.Record{leaf}, d)
}

// openFileStore opens or creates the files and recovers. It takes no process lock: Open holds that
// already. It closes what it opened if a step fails.
//
// The limit on page numbers is lifted once the log was read: from then on this process assigns the
// numbers itself, and none is from a file. tidyColumns comes last, since only a file that
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
	_, noAudit := opts.FS.Stat(opts.Path + "-manifest")
	defer func() {
		if err != nil {
			st.closeFiles()
			if !opts.ReadOnly && st.log == nil && errors.Is(noAudit, fs.ErrNotExist) {
				st.removeNewAudit()
			}
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
	if err := st.eng.At("opened log"); err != nil {
		return nil, rec, err
	}
	st.eng.LimitPages(0)
	st.line.begin()
	st.eng.Start()
	if err := st.tidyColumns(); err != nil {
		return nil, rec, err
	}
	if !opts.ReadOnly {
		w := st.eng.Waiting() // asked before the first commit, which is not redone
		st.redone.Store(w.Bytes > redoneBytes && !st.columnsHold(w))
		st.startWork()
	}
	return st, rec, nil
}

// removeNewAudit removes the archive that an open has made which then failed, before it had a log. There is no leaf in it, and
// it would look like the audit of a database that has none.
func (s *Store) removeNewAudit() {
	dir := s.opts.Path + "-manifest"
	names, _ := s.opts.FS.ReadDir(dir)
	for _, name := range names {
		_ = s.opts.FS.Remove(filepath.Join(dir, name))
	}
	_ = s.opts.FS.Remove(dir)
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
			f, err := system.OpenFile(filepath.Join(s.opts.Path+dir, e.Name()), os.O_RDONLY, 0)
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

// loadFile loads from the snapshot of the columns, or else from the rows.
func (s *Store) loadFile() error {
	if used, err := s.loadColumns(context.Background()); used || err != nil {
		return err
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

// base describes the rows of the file. size is the size of the file in bytes.
func (s *Store) base(size int64) engine.Base {
	return engine.Base{Applied: s.sys.Applied, Rows: s.sys.Rows, High: s.sys.High, Size: size}
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
	s.eng.Leaves, _, err = archive.Open(ctx, s.opts.Path+"-manifest", s.opts.FS, archive.Options{ReadOnly: s.opts.ReadOnly, DB: s.sys.ID, Seal: sealerOf(s.ring.Load())})
	if err == nil {
		s.archived = s.eng.Leaves.Archived()
	}
	return LogError(err)
}
