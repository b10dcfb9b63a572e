package ctxpage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The embedded store: one log, bbolt behind it, and a catalogue in memory.
//
//	commit      sequence.go    preconditions, LSN, group buffer; one sync for the group; install in LSN order
//	reads       filestore_read.go    catalogue and overlay under one read lock, then bbolt
//	checkpoint  checkpoint.go  leaves to the archive, overlay into bbolt, front of the log cut
//	gc          filestore_gc.go    which versions nobody names; dropped by commits of their own
//	recovery    here           head rows of bbolt, then redo of the log above the applied LSN
//
// What may be trusted when: a row in bbolt is as old as the applied LSN; a row in the overlay is durable in the log;
// a record the log has not synced is in neither.

// FormatVersion is the version of the file; a file with a higher one is refused with ErrNewerFormat. One with a lower one
// is raised to it when it is opened for writing.
const FormatVersion = 2

// Buckets of bbolt. The byte is part of each row's checksum.
var (
	bucketSys     = []byte("sys")
	bucketMeta    = []byte("meta")
	bucketContent = []byte("content")
	bucketSeg     = []byte("seg")
	bucketHeld    = []byte("held")
	bucketTxn     = []byte("txn")
	bucketState   = []byte("state")
	bucketVec     = []byte("vec") // made with the first vector: most databases have none
	allBuckets    = [][]byte{bucketSys, bucketMeta, bucketContent, bucketSeg, bucketHeld, bucketTxn, bucketState}
)

var sysKey = []byte("sys")

// sysRow is the one row of the bucket sys.
type sysRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Format   int
	ID       string
	Secret   []byte // keys the fence and the digests of questions
	Created  int64
	Applied  uint64 // LSN
	Seq      uint64 // record of the log that carries Applied
	PrevSeq  uint64 // the same of the checkpoint before: the log is kept down to it
	Analyzer string
	High     string // highest numbers of artefacts, pages and groups, by spaces; "": those there are
	Rows     rowCounts
}

// rowCounts is how many rows each bucket has: a damaged page of bbolt may hide rows, and what is hidden has no checksum
// to fail. meta, held and state are counted at every open, the others by a check; a missing content is noticed when its
// page is read.
type rowCounts struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack                        struct{} `msgpack:",as_array"`
	Meta, Content, Held, Txn, State int
}

// storeOptions is what the store needs of Options.
type storeOptions struct {
	path     string
	readOnly bool
	// mustExist refuses to make a database; lockWait is how long to wait for another process to let go.
	mustExist bool
	lockWait  time.Duration
	audit     Durability   // of the leaf that tells of a recovery
	logger    *slog.Logger // hears of a recovery
	fs        wal.FS
	now       func() time.Time
	rand      io.Reader
	analyzer  *lexical.Analyzer
	noSync    bool
	group     time.Duration
	segment   int64                   // wal.Options.SegmentBytes
	rotate    int64                   // size of the log from which a checkpoint starts a new segment; 0: rotateAfterBytes
	hook      func(step string) error // tests copy the files at a step, or let it fail
	state     []StateKind             // what the pipeline says of its state rows
	trust     bool                    // tests: rows and texts are not compared with their digests
	// dropped is told which page versions stopped being current, so that frames can go. Called under no lock.
	dropped func(nums []uint64)
}

type fileStore struct {
	opts storeOptions
	lock *processLock // nil: the caller has it
	sys  sysRow
	bolt *bbolt.DB
	file *os.File // bbolt's, to drop its lock after a panic
	log  *wal.Log
	made wal.Recovery // of the log of a file that was just made
	man  *manifest.Log
	idx  *lexical.Index // under cat.mu
	cat  *catalogue
	// pageLimit is the highest page number that the size of file and log allows, while they are read: the columns of
	// the catalogue are as long as the highest number, and a forged one must not take all memory. 0: no limit.
	pageLimit uint64

	unread []uint64 // pages found damaged at open, rising: the index does not know their words. Fixed from then on

	over *overlay // under cat.mu
	old  *overlay // being written by a checkpoint; under cat.mu
	high highest  // as of the file; a checkpoint's
	// filed is the greatest batch id with an outcome in the file, or something greater; under cat.mu.
	filed ulid.ULID

	// Held batches that wait for review, once counted, and how often one was held or decided; under cat.mu.
	heldOpen, heldChanges int
	heldKnown             bool

	seq sequencer

	provedFrom struct { // LSN of the first leaf with digests of rows; 0: there is none
		once sync.Once
		lsn  uint64
		err  error
	}

	findings  sync.Pool  // of *finding
	gcMu      sync.Mutex // one gc at a time; before ckptMu
	ckptMu    sync.Mutex // one checkpoint, backup or check at a time; before the sequencer
	ckpts     atomic.Uint64
	unflushed atomic.Int64 // bytes in over and old, for throttle
	appended  atomic.Bool  // leaves were written since the last mark
	failed    atomic.Pointer[error]
	broken    atomic.Pointer[error] // bbolt panicked with its locks held
	reindex   atomic.Bool           // the index was found damaged
	stop      chan struct{}
	done      sync.WaitGroup
	closed    atomic.Bool
}

// overlay holds what is durable in the log and not yet in bbolt, and vectors, which can be made again.
type overlay struct {
	lsn    uint64
	seq    uint64
	leaves uint64
	bytes  int
	since  time.Time
	scopes []newScope
	groups []newGroup
	heads  map[headKey][]byte
	texts  map[uint64]string
	state  map[string][]byte
	held   map[ulid.ULID][]byte
	result map[ulid.ULID][]byte
	vecs   map[vecKey][]byte // derived: not in the log (filestore_vector.go)
	gone   []dropped         // by gc (filestore_gc.go)
	forgot []forgotten       // by gc (forget.go)
	high   highest
}

// lastID is above every batch id.
var lastID = ulid.ULID(bytes.Repeat([]byte{0xff}, len(ulid.ULID{})))

type headKey struct {
	art     uint64
	version uint32
}

func newOverlay() *overlay {
	return &overlay{
		heads: map[headKey][]byte{}, texts: map[uint64]string{}, state: map[string][]byte{},
		held: map[ulid.ULID][]byte{}, result: map[ulid.ULID][]byte{}, vecs: map[vecKey][]byte{},
	}
}

func (o *overlay) rows() int {
	return len(o.heads) + len(o.texts) + len(o.state) + len(o.held) + len(o.result) + len(o.vecs) + len(o.forgot)
}

func (o storeOptions) withDefaults() storeOptions {
	if o.now == nil {
		o.now = time.Now
	}
	if o.rand == nil {
		o.rand = &lockedReader{r: rand.Reader}
	}
	if o.fs == nil {
		o.fs = wal.OS()
	}
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
	}
	if o.analyzer == nil {
		o.analyzer = lexical.NewAnalyzer()
	}
	return o
}

// openDatabase takes the process lock of path, finishes what a killed restore left, and opens or makes the database
// there. After an unclean end a leaf says so. Close releases the lock.
func openDatabase(opts storeOptions) (st *fileStore, err error) {
	opts = opts.withDefaults()
	if opts.path, err = filepath.Abs(opts.path); err != nil {
		return nil, fmt.Errorf("ctxpage: open: %w", err)
	}
	if err := opts.mayOpen(); err != nil {
		return nil, err
	}
	lock, err := lockProcess(opts.path, opts.readOnly, opts.lockWait, opts.now)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			st, err = nil, errors.Join(err, lock.release())
		}
	}()
	switch {
	case opts.readOnly && swapping(opts.path):
		return nil, halfRestored(opts.path)
	case !opts.readOnly:
		if err := finishSwap(opts.path, func(string) error { return nil }); err != nil {
			return nil, err
		}
	}
	st, rec, err := openFileStore(context.Background(), opts)
	if err != nil {
		return nil, err
	}
	if err := st.tellRecovery(rec); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	st.lock = lock
	return st, nil
}

// mayOpen tells a missing database from one that may be made.
func (o *storeOptions) mayOpen() error {
	if swapping(o.path) {
		return nil // there will be one
	}
	if _, err := os.Lstat(o.path); !errors.Is(err, os.ErrNotExist) {
		return cmp.Or(fileProblem(o.path), foreign(o.path))
	}
	if o.readOnly || o.mustExist {
		return fmt.Errorf("%w: %s", ErrNotExist, o.path)
	}
	return directoryThere("open", o.path)
}

// tellRecovery writes the leaf of an open after an unclean end.
func (s *fileStore) tellRecovery(rec wal.Recovery) error {
	if rec.Fresh || rec.Clean || s.opts.readOnly {
		return nil
	}
	s.opts.logger.Warn("recovered after an unclean end", "path", s.opts.path, "cut_bytes", rec.CutBytes)
	err := s.note(context.Background(), s.opts.audit, &manifest.Record{
		Type: manifest.TypeRecovered, Cut: rec.Last, Lost: uint64(rec.CutBytes),
		Reason: "reads of the last 100 ms before the end may be missing",
	})
	if err != nil {
		s.fail(err) // else Close would call this end clean, and the next open would not tell what this one could not
	}
	return err
}

// note writes one leaf of the database's own.
func (s *fileStore) note(ctx context.Context, d Durability, leaf *manifest.Record) error {
	id, err := store.NewID(s.opts.now(), s.opts.rand)
	if err != nil {
		return err
	}
	leaf.Trace, leaf.Time = id.String(), codec.Micros(s.opts.now())
	return s.Append(ctx, []*manifest.Record{leaf}, d)
}

// openFileStore opens or creates the files and recovers. It takes no process lock: Open holds that already.
func openFileStore(ctx context.Context, opts storeOptions) (s *fileStore, rec wal.Recovery, err error) {
	st := &fileStore{opts: opts, cat: newCatalogue(), over: newOverlay(), stop: make(chan struct{})}
	st.seq.init()
	defer func() {
		if err != nil {
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
		if err := st.at("opened " + step.name); err != nil {
			return nil, rec, err
		}
	}
	if rec, err = st.recover(ctx); err != nil {
		return nil, rec, err
	}
	if err := st.at("opened log"); err != nil {
		return nil, rec, err
	}
	st.pageLimit = 0
	if err := st.view(func(tx *bbolt.Tx) error { st.filed = newestOutcome(tx); return nil }); err != nil {
		st.filed = lastID // damage is told by who reads the row
	}
	st.seq.start(st)
	if !opts.readOnly && st.sys.Format < FormatVersion { // before the first row that older programs take for damage
		st.sys.Format = FormatVersion
		if err = st.update(st.putSys); err != nil {
			return nil, rec, fmt.Errorf("ctxpage: raise the format of %s: %w", opts.path, err)
		}
	}
	if !opts.readOnly {
		st.done.Add(1)
		go st.background()
	}
	return st, rec, nil
}

func (s *fileStore) openBolt(context.Context) (err error) {
	if _, err := os.Lstat(s.opts.path); errors.Is(err, os.ErrNotExist) && s.opts.readOnly {
		return fmt.Errorf("%w: %s", ErrNotExist, s.opts.path)
	}
	empty, err := s.inspect()
	if err != nil {
		return err
	}
	if empty {
		left, err := s.leftBehind()
		if err != nil {
			return err
		}
		if left {
			return &CorruptError{File: s.opts.path, Err: errors.New("the file is missing or empty, its log or archive is there"), Hint: store.HintSalvage}
		}
	}
	if empty && s.opts.readOnly {
		return notMade(s.opts.path)
	}
	if empty { // else bbolt takes what its killed maker left for a file
		if err := os.Truncate(s.opts.path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ctxpage: create %s: %w", s.opts.path, err)
		}
	}
	defer s.recoverBolt(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s.bolt, err = bbolt.Open(s.opts.path, 0o600, &bbolt.Options{
		Timeout: time.Second, ReadOnly: s.opts.readOnly, FreelistType: bbolt.FreelistMapType, NoSync: s.opts.noSync,
		InitialMmapSize: 1 << 28, // a remap waits for readers; start above the size most files reach
		OpenFile:        s.openFile,
	})
	if err == nil {
		s.bolt.AllocSize = 1 << 20 // bytes a growing file is ahead; bbolt's 16 MiB is most of a small database
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return &LockedError{Path: s.opts.path}
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return &CorruptError{File: s.opts.path, Err: err, Hint: store.HintSalvage}
	}
	return fmt.Errorf("ctxpage: open %s: %w", s.opts.path, err)
}

// limitPages allows a page for each of the fewest bytes one takes: its number and its length in the log. Holes hold none.
// What gc has forgotten still has its bytes in the audit.
func (s *fileStore) limitPages(context.Context) error {
	st, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	bytes := dataBytes(s.file, st.Size())
	for _, dir := range []string{"-wal", "-manifest"} { // what is missing is told when it is opened
		entries, _ := os.ReadDir(s.opts.path + dir)
		for _, e := range entries {
			f, err := os.OpenFile(filepath.Join(s.opts.path+dir, e.Name()), os.O_RDONLY|oNoFollow|syscall.O_NONBLOCK, 0)
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
	s.pageLimit = uint64(bytes) / fewest
	return nil
}

// openFile refuses symbolic links, and keeps bbolt's file: its lock must be dropped by hand after a panic.
func (s *fileStore) openFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag|oNoFollow|syscall.O_NONBLOCK, perm) // a pipe in its place must not make us wait
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errors.New("expected a regular file"))
	}
	s.file = f
	return f, nil
}

// leftBehind tells whether a log or an archive says that there was a database here: then an empty file in its place is
// damage, and making a new one would hide it. A log without records is what a maker who was killed leaves: nothing is
// written before the system row is.
func (s *fileStore) leftBehind() (bool, error) {
	names, err := s.opts.fs.ReadDir(s.opts.path + "-manifest")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("ctxpage: open: %w", err)
	}
	if len(names) > 0 {
		return true, nil
	}
	errFirst := errors.New("a record")
	rec, err := wal.Scan(context.Background(), s.opts.path+"-wal", s.opts.fs, 0, func(wal.Record) error { return errFirst })
	var damaged *wal.CorruptError
	switch {
	case err == nil:
		return !rec.Fresh, nil
	case errors.Is(err, errFirst), errors.As(err, &damaged), errors.Is(err, wal.ErrNewerFormat):
		return true, nil
	}
	return false, fmt.Errorf("ctxpage: open: %w", err)
}

// recoverBolt turns a panic inside bbolt into an error. Its locks may be held for ever then: nobody may enter it again,
// and Close drops the file instead of closing it.
func (s *fileStore) recoverBolt(err *error) {
	if r := recover(); r != nil {
		*err = s.panicked(r)
		s.broken.CompareAndSwap(nil, err)
	}
}

// recoverWalk turns a panic of our own walk over a damaged page into an error; bbolt then ends the transaction itself.
func (s *fileStore) recoverWalk(err *error) {
	if r := recover(); r != nil {
		*err = s.panicked(r)
	}
}

func (s *fileStore) panicked(r any) error {
	return &CorruptError{File: s.opts.path, Err: fmt.Errorf("%v", r), Hint: store.HintSalvage}
}

// view runs a bbolt read transaction. A fault in the mapped file (a page beyond its end) becomes an error.
func (s *fileStore) view(fn func(tx *bbolt.Tx) error) error {
	return s.within(s.bolt.View, fn)
}

// update runs a bbolt write transaction, likewise.
func (s *fileStore) update(fn func(tx *bbolt.Tx) error) error {
	return s.within(s.bolt.Update, fn)
}

func (s *fileStore) within(run func(func(*bbolt.Tx) error) error, fn func(tx *bbolt.Tx) error) (err error) {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	defer s.recoverBolt(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = run(func(tx *bbolt.Tx) (err error) {
		defer s.recoverWalk(&err)
		return fn(tx)
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

func (s *fileStore) loadSys(ctx context.Context) error {
	found, foreign := false, false
	err := s.view(func(tx *bbolt.Tx) error {
		k, _ := tx.Cursor().First()
		foreign = k != nil // a database is made in one transaction
		b := tx.Bucket(bucketSys)
		if b == nil {
			return nil
		}
		v := b.Get(sysKey)
		if v == nil {
			return nil
		}
		found = true
		return s.decodeSys(v)
	})
	if err != nil || found {
		return err
	}
	left, err := s.leftBehind()
	if err != nil {
		return err
	}
	if left { // a file that was never finished has neither log nor archive
		return &CorruptError{File: s.opts.path, Err: errors.New("the system row is missing"), Hint: store.HintSalvage}
	}
	if foreign {
		return notDatabase(s.opts.path)
	}
	if s.opts.readOnly {
		return notMade(s.opts.path)
	}
	return s.create(ctx)
}

// notMade is for a file whose maker was killed before there was anything in it.
func notMade(path string) error {
	return fmt.Errorf("%w: %s is empty; open it once for writing", ErrNotExist, path)
}

func (s *fileStore) decodeSys(v []byte) error {
	// The format stands before the checksum and the rest, so that a newer file is never taken for a damaged one; and
	// twice, once inverted, so that a damaged one is never taken for newer.
	if len(v) < 8 || binary.BigEndian.Uint32(v) != ^binary.BigEndian.Uint32(v[4:]) {
		return &CorruptError{File: s.opts.path, Err: codec.ErrMalformed, Hint: store.HintSalvage}
	}
	if f := binary.BigEndian.Uint32(v); f > FormatVersion {
		return fmt.Errorf("%w: %s has format %d, this program reads up to %d; use a newer release", ErrNewerFormat, s.opts.path, f, FormatVersion)
	}
	row, err := codec.Unseal('y', sysKey, v[8:])
	if err == nil {
		err = codec.Unpack(row, &s.sys)
	}
	if err == nil && uint32(s.sys.Format) != binary.BigEndian.Uint32(v) {
		err = codec.ErrMalformed
	}
	if err != nil {
		return &CorruptError{File: s.opts.path, Err: err, Hint: store.HintSalvage}
	}
	return nil
}

func encodeSys(row sysRow) ([]byte, error) {
	b, err := msgpack.Marshal(&row)
	if err != nil {
		return nil, err
	}
	f := uint32(row.Format)
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, f), ^f)
	return append(head, codec.Seal('y', sysKey, b)...), nil
}

// create makes the system row, and the log before it: so a file that has its row had a log, and one that is missing was
// lost, also where no checkpoint says how far it went.
func (s *fileStore) create(ctx context.Context) error {
	id, err := store.NewID(s.opts.now(), s.opts.rand)
	if err != nil {
		return err
	}
	s.sys = sysRow{Format: FormatVersion, ID: id.String(), Secret: make([]byte, 32), Created: codec.Micros(s.opts.now()), Analyzer: lexical.AnalyzerVersion}
	if _, err := io.ReadFull(s.opts.rand, s.sys.Secret); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	if err := os.Chmod(s.opts.path, 0o600); err != nil { // somebody else may have made the empty file
		return fmt.Errorf("ctxpage: create: %w", err)
	}
	if s.log, s.made, err = s.openLog(ctx, false, s.redo); err != nil {
		return err
	}
	err = s.update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return s.putSys(tx)
	})
	if err != nil {
		return fmt.Errorf("ctxpage: create %s: %w", s.opts.path, err)
	}
	return s.opts.fs.SyncDir(filepath.Dir(s.opts.path))
}

func (s *fileStore) putSys(tx *bbolt.Tx) error {
	b, err := encodeSys(s.sys)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketSys).Put(sysKey, b)
}

func (s *fileStore) corrupt(where string, err error) error {
	return &CorruptError{File: s.opts.path, Err: fmt.Errorf("%s: %w", where, err), Hint: store.HintSalvage}
}

// Keys of the bucket meta.
func scopeRowKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'s'}, num) }
func groupRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'g'}, num) }
func headRowKey(k headKey) []byte {
	b := append(make([]byte, 0, 13), 'h')
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, k.art), k.version)
}
func textRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64(nil, num) }

// supersession waits until all artefacts are known.
type supersession struct {
	scope   uint32
	ids     []string
	by, lsn uint64
}

func (s *fileStore) loadCatalogue(context.Context) error {
	err := s.loadFile()
	if errors.Is(err, lexical.ErrCorrupt) || errors.Is(err, lexical.ErrAnalyzer) {
		return s.rebuildIndex()
	}
	return err
}

func (s *fileStore) loadFile() error {
	return s.view(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			return s.corrupt("bucket meta", errors.New("missing"))
		}
		if err := s.loadMeta(meta); err != nil {
			return err
		}
		s.cat.lsn = s.sys.Applied // not before: what stands in the file has not changed since
		for _, b := range []struct {
			name []byte
			want int
		}{{bucketHeld, s.sys.Rows.Held}, {bucketState, s.sys.Rows.State}} {
			if err := s.countRows(tx, b.name, b.want); err != nil {
				return err
			}
		}
		var err error
		if s.idx, err = lexical.Open(boltRows{tx.Bucket(bucketSeg)}); err == nil {
			return s.loadTail(tx)
		}
		return err
	})
}

// rebuildIndex builds the index anew from the pages when its segments are damaged or were made by another analyzer:
// nothing in it is not in the pages.
func (s *fileStore) rebuildIndex() error {
	s.unread = nil
	if !s.opts.readOnly {
		if err := s.update(func(tx *bbolt.Tx) error { return lexical.Reset(boltRows{tx.Bucket(bucketSeg)}) }); err != nil {
			return fmt.Errorf("ctxpage: rebuild the index: %w", err)
		}
	}
	return s.view(func(tx *bbolt.Tx) (err error) {
		if s.idx, err = lexical.Open(noRows{}); err != nil {
			return err
		}
		return s.loadTail(tx)
	})
}

// noRows is an empty store of segments.
type noRows struct{}

func (noRows) Get([]byte) []byte                   { return nil }
func (noRows) Scan([]byte, func(_, _ []byte) bool) {}

// countRows compares the rows of a bucket with the count that was kept.
func (s *fileStore) countRows(tx *bbolt.Tx, name []byte, want int) error {
	n := 0
	var last []byte
	if b := tx.Bucket(name); b != nil {
		c := b.Cursor()
		for k, _ := c.First(); k != nil && n <= want; k, _ = c.Next() {
			if n > 0 && bytes.Compare(last, k) >= 0 {
				return s.corrupt("bucket "+string(name), fmt.Errorf("row %x follows row %x", k, last))
			}
			n, last = n+1, append(last[:0], k...)
		}
	}
	if n != want {
		return s.corrupt("bucket "+string(name), fmt.Errorf("has %d rows, expected %d", n, want))
	}
	return nil
}

// rowWalk goes through the rows of a bucket that begin with a letter. Rows out of order are reported by err: a damaged
// page of bbolt may show rows of another place, all of them with right checksums.
type rowWalk struct {
	c    *bbolt.Cursor
	n    int
	last []byte
	err  error
}

func (w *rowWalk) rows(letter byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for k, v := w.c.Seek([]byte{letter}); len(k) > 0 && k[0] == letter; k, v = w.c.Next() {
			if w.n > 0 && letter == w.last[0] && bytes.Compare(w.last, k) >= 0 {
				w.err = fmt.Errorf("row %x follows row %x", k, w.last)
				return
			}
			w.n, w.last = w.n+1, append(w.last[:0], k...)
			if !yield(k, v) {
				return
			}
		}
	}
}

func (s *fileStore) loadNames(w *rowWalk, high highest) error {
	for k, v := range w.rows('g') {
		v, err := codec.Unseal('m', k, v)
		if err != nil || len(v) < 4 || len(k) != 9 {
			return s.corrupt("group row", errors.Join(err, codec.ErrMalformed))
		}
		if num, n := binary.BigEndian.Uint64(k[1:]), uint64(len(s.cat.groups)); num <= n || num > max(n+1, high.group) { // gc leaves gaps
			return s.corrupt("group row", fmt.Errorf("number %d after %d", num, n))
		}
		s.cat.addGroup(binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(v), string(v[4:]))
	}
	for k, v := range w.rows('s') {
		v, err := codec.Unseal('m', k, v)
		if err != nil || len(k) != 5 {
			return s.corrupt("scope row", errors.Join(err, codec.ErrMalformed))
		}
		if num := binary.BigEndian.Uint32(k[1:]); int(num) != len(s.cat.scopes)+1 {
			return s.corrupt("scope row", fmt.Errorf("number %d after %d", num, len(s.cat.scopes)))
		}
		s.cat.addScope(binary.BigEndian.Uint32(k[1:]), string(v))
	}
	return nil
}

func (s *fileStore) loadHeads(w *rowWalk) error {
	var later []supersession
	var rows []PageRow
	for k, v := range w.rows('h') {
		row, err := codec.Unseal('m', k, v)
		if err != nil {
			return s.corrupt(fmt.Sprintf("head row %x", k), err)
		}
		if rows, later, err = s.installRow(row, rows, later); err != nil {
			return s.corrupt(fmt.Sprintf("head row %x", k), err)
		}
	}
	s.cat.retire(later)
	return nil
}

// retire applies supersessions in the order in which they happened: of two that replaced the same artefact, the later
// one answers for it; of two in one commit the one with the greater number, because no row keeps their order.
func (c *catalogue) retire(later []supersession) {
	slices.SortFunc(later, func(a, b supersession) int { return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.by, b.by)) })
	again := map[uint64][]uint64{} // artefacts put again since, with the LSNs from which they had been replaced
	for _, l := range later {
		for _, id := range l.ids {
			switch art := c.lookup(l.scope, id); {
			case art == 0 || art == l.by:
			case c.art(art).lsn > l.lsn:
				again[art] = append(again[art], l.lsn)
			default:
				c.supersede(art, l.by, l.lsn)
			}
		}
	}
	for i := 0; i < len(c.pages) && len(again) > 0; i++ {
		p := &c.pages[i]
		for _, lsn := range again[p.art] {
			if p.lsn <= lsn && lsn < p.end { // as install had it
				p.end = lsn
			}
		}
	}
}

// loadMeta reads names and heads, and sees to it that these are all rows there are.
func (s *fileStore) loadMeta(meta *bbolt.Bucket) error {
	s.reserve(meta)
	high, err := parseHighest(s.sys.High)
	if err != nil {
		return s.corrupt("system row", err)
	}
	w := &rowWalk{c: meta.Cursor()}
	if err := s.loadNames(w, high); err != nil {
		return err
	}
	if err := s.pad(high); err != nil {
		return s.corrupt("system row", err)
	}
	if err := s.loadHeads(w); err != nil {
		return err
	}
	if w.err == nil && w.n != s.sys.Rows.Meta {
		w.err = fmt.Errorf("has %d rows, expected %d", w.n, s.sys.Rows.Meta)
	}
	if w.err != nil {
		return s.corrupt("bucket meta", w.err)
	}
	s.high = s.cat.highest()
	return nil
}

// reserve makes room in the catalogue for what the file holds. The last keys tell (scopes come after
// heads); a damaged one is held to what the file has space for.
func (s *fileStore) reserve(meta *bbolt.Bucket) {
	most := uint64(meta.Tx().Size() / pageRowBytes)
	var arts, pages uint64
	c := meta.Cursor()
	if k, _ := c.Seek([]byte{'s'}); k != nil {
		if k, _ = c.Prev(); len(k) == len(headRowKey(headKey{})) && k[0] == 'h' {
			arts = binary.BigEndian.Uint64(k[1:])
		}
	}
	pages = lastNumber(meta.Tx().Bucket(bucketContent))
	s.cat.reserve(min(arts, most), min(pages, most))
}

// lastNumber is the greatest page number of the bucket, 0 if it cannot be read: it only saves growing.
func lastNumber(content *bbolt.Bucket) (num uint64) {
	defer func() { _ = recover() }()
	if k, _ := content.Cursor().Last(); len(k) == 8 {
		num = binary.BigEndian.Uint64(k)
	}
	return num
}

// installRow enters a head row into the catalogue. Supersessions are put off; rows is memory to use again.
func (s *fileStore) installRow(row []byte, rows []PageRow, later []supersession) ([]PageRow, []supersession, error) {
	d := codec.Decoder{B: row}
	t := decodeHot(&d)
	rows = decodeRows(&d, rows)
	if d.Err != nil {
		return rows, later, d.Err
	}
	if err := s.checkHot(&t, rows); err != nil {
		return rows, later, err
	}
	s.cat.install(&t, rows)
	if row[0] == rowVersionOld {
		s.cat.unproved++
	}
	if t.flags&flagSupersedes == 0 && t.kind != KindSummary {
		return rows, later, nil
	}
	c, err := decodeCold(row, &d)
	if err != nil {
		return rows, later, err
	}
	s.cat.addSummary(&t, c.DerivedFrom)
	if t.flags&flagSupersedes == 0 {
		return rows, later, nil
	}
	return rows, append(later, supersession{t.scope, c.Supersedes, t.art, t.lsn}), nil
}

// checkHot keeps a damaged row that has a right checksum (a bug, or a forger) from reaching outside the tables.
func (s *fileStore) checkHot(t *hot, rows []PageRow) error {
	if t.scope == 0 || int(t.scope) > len(s.cat.scopes) || t.group > uint64(len(s.cat.groups)) ||
		t.art == 0 || t.art > min(1<<32-1, uint64(len(s.cat.arts))+1) || !t.provenance.Valid() || len(t.id) == 0 || len(t.id) > MaxID {
		return codec.ErrMalformed
	}
	for i := range rows {
		if rows[i].Num == 0 || s.pageLimit != 0 && rows[i].Num > s.pageLimit {
			return codec.ErrMalformed
		}
	}
	return nil
}

// loadTail analyses again the pages above the segments: those the last checkpoints did not flush.
func (s *fileStore) loadTail(tx *bbolt.Tx) error {
	content := tx.Bucket(bucketContent)
	for num := s.idx.Through() + 1; num <= uint64(len(s.cat.pages)); num++ {
		p := s.cat.page(num)
		if p.art == 0 || p.gone() {
			continue
		}
		// By the head it came with, as install did it: a later one of the same text may differ in what is not indexed.
		head, err := s.headIn(tx, headKey{p.art, p.version})
		if errors.Is(err, ErrGone) { // a scan has just found it: a branch of the tree leads astray
			err = s.corrupt(fmt.Sprintf("head row of page %d", num), err)
		}
		if err != nil {
			return err
		}
		text, err := s.textIn(content, num)
		if i := int(p.page) - 1; err == nil && i < len(head.Rows) {
			err = s.provedText(num, &head.Rows[i], text)
		}
		if err != nil {
			// Only this page is lost: whoever reads it is told, and a question is told that it cannot be asked of it.
			// Its header is indexed, so that the counts of the index stay those of the pages.
			s.unread = append(s.unread, num)
		}
		s.idx.Add(s.doc(num, p.scope, head, text, nil))
	}
	return nil
}

// textIn reads a content row. A damaged page of the tree on the way to it is damage of this row alone.
func (s *fileStore) textIn(content *bbolt.Bucket, num uint64) (text string, err error) {
	defer s.recoverWalk(&err)
	key := textRowKey(num)
	row, err := codec.Unseal('c', key, content.Get(key))
	if err != nil {
		return "", s.corrupt(fmt.Sprintf("content of page %d", num), err)
	}
	return string(row), nil
}

func (s *fileStore) headIn(tx *bbolt.Tx, k headKey) (*Head, error) {
	key := headRowKey(k)
	v := tx.Bucket(bucketMeta).Get(key)
	if v == nil { // what the catalogue knows of has a row, also where gc dropped the version, or one that stands for it
		if row, err := floorOf(tx.Bucket(bucketMeta), k); row != nil && err == nil {
			h, err := decodeHead(row, s.cat.scopeName)
			if err == nil {
				err = s.provedHead(headKey{k.art, h.Version}, row, s.cat.names)
			}
			if err != nil {
				return nil, s.corrupt(fmt.Sprintf("head row %x", key), err)
			}
			return h.Below(k.version), nil
		}
		return nil, s.corrupt(fmt.Sprintf("head row %x", key), errors.New("missing"))
	}
	row, err := codec.Unseal('m', key, v)
	if err != nil {
		return nil, s.corrupt(fmt.Sprintf("head row %x", key), err)
	}
	h, err := decodeHead(row, s.cat.scopeName)
	if err == nil {
		err = s.provedHead(k, row, s.cat.names)
	}
	if err != nil {
		return nil, s.corrupt(fmt.Sprintf("head row %x", key), err)
	}
	return h, nil
}

func (s *fileStore) doc(num uint64, scope uint32, h *Head, text string, a *lexical.Analysis) lexical.Doc {
	if a == nil {
		an := store.Analyse(s.opts.analyzer, &h.Artefact, text)
		a = &an
	}
	return lexical.Doc{Num: num, Scope: scope, Group: h.GroupNum, Analysis: *a}
}

func (s *fileStore) openManifest(ctx context.Context) error {
	var err error
	s.man, _, err = manifest.Open(ctx, s.opts.path+"-manifest", s.opts.fs, manifest.Options{ReadOnly: s.opts.readOnly, DB: s.sys.ID})
	return logError(err)
}

// openLog opens the log and hands its records to replay.
func (s *fileStore) openLog(ctx context.Context, mustExist bool, replay func(wal.Record) error) (*wal.Log, wal.Recovery, error) {
	log, rec, err := wal.Open(ctx, s.opts.path+"-wal", wal.Options{
		FS: s.opts.fs, ReadOnly: s.opts.readOnly, MustExist: mustExist, OnDurable: s.installDurable, NoSync: s.opts.noSync, GroupWait: s.opts.group,
		SegmentBytes: s.opts.segment,
	}, replay)
	if errors.Is(err, wal.ErrMissing) {
		return nil, rec, &CorruptError{File: s.opts.path + "-wal", Err: errors.New("the log is missing: what was committed since the last checkpoint is only in it"),
			Hint: "it was removed, or not copied with the file: put it back; or " + store.HintSalvage}
	}
	return log, rec, logError(err)
}

// recover replays the log: leaves into the audit, commits above the applied LSN into catalogue and overlay.
func (s *fileStore) recover(ctx context.Context) (wal.Recovery, error) {
	if s.log != nil { // made with the file
		return s.made, nil
	}
	first := true
	log, rec, err := s.openLog(ctx, true, func(r wal.Record) error {
		if first && r.Seq > s.sys.Seq+1 {
			return &CorruptError{File: r.Segment, Err: fmt.Errorf("log begins at record %d, the file ends at %d", r.Seq, s.sys.Seq),
				Hint: "segments of the log are missing: put them back; or " + store.HintSalvage}
		}
		first = false
		return s.redo(r)
	})
	if err != nil {
		return rec, err
	}
	s.log = log
	if rec.First > s.sys.Seq+1 { // also where what is left of the log has no records to say so
		return rec, &CorruptError{File: s.opts.path + "-wal", Err: fmt.Errorf("log begins at record %d, the file ends at %d", rec.First, s.sys.Seq),
			Hint: "segments of the log are missing: put them back; or " + store.HintSalvage}
	}
	if s.sys.Seq > rec.Last {
		return rec, &CorruptError{File: s.opts.path + "-wal", Err: fmt.Errorf("log ends at record %d, the file at %d", rec.Last, s.sys.Seq),
			Hint: "the log was removed or replaced: put it back; or " + store.HintSalvage}
	}
	return rec, nil
}

// logError gives damage in the log or the archive the type of this package.
func logError(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return err
	}
	var ce *wal.CorruptError
	switch {
	case errors.As(err, &ce):
		return &CorruptError{File: ce.File, Offset: ce.Offset, Err: err, Hint: ce.Hint}
	case errors.Is(err, wal.ErrNewerFormat), errors.Is(err, manifest.ErrNewerFormat):
		return fmt.Errorf("%w: %w", ErrNewerFormat, err)
	case errors.Is(err, manifest.ErrClosed):
		return ErrClosed
	}
	var me *manifest.CorruptError
	if errors.As(err, &me) {
		return &CorruptError{File: cmp.Or(me.File, "the audit"), Offset: me.Offset, Err: err, Hint: me.Hint}
	}
	if errors.Is(err, manifest.ErrGap) {
		return &CorruptError{File: "the audit", Err: err, Hint: "leaves are in neither the log nor the archive; " + store.HintSalvage}
	}
	return err
}

func (s *fileStore) redo(r wal.Record) error {
	switch r.Kind {
	case wal.KindMark:
		var wrong *manifest.CorruptError
		if err := s.man.CheckMark(r.Body); err != nil && !errors.As(err, &wrong) {
			return logError(err) // the archive could not be read, which says nothing of what is in it
		} else if err != nil {
			return &CorruptError{File: r.Segment, Offset: r.Offset, Err: err, Hint: "the audit log differs from its mark; restore a backup"}
		}
		return nil
	case wal.KindAudit:
		index, leaf, err := decodeAudit(r.Body)
		if err != nil {
			return &CorruptError{File: r.Segment, Offset: r.Offset, Err: err}
		}
		return s.man.Add(index, leaf)
	}
	leaf, body, lsn, err := commitHead(r.Body)
	if err != nil {
		return &CorruptError{File: r.Segment, Offset: r.Offset, Err: err}
	}
	if err := s.man.Add(leaf, body); err != nil {
		return err
	}
	if lsn == s.sys.Applied {
		return s.sameHistory(r)
	}
	if lsn <= s.cat.lsn {
		return nil // in the file already; the log is kept one checkpoint longer than it is needed
	}
	c, err := decodeCommit(r.Body)
	if err != nil {
		return &CorruptError{File: r.Segment, Offset: r.Offset, Err: err}
	}
	if c.lsn != s.cat.lsn+1 {
		return &CorruptError{File: r.Segment, Offset: r.Offset, LSN: c.lsn, Err: fmt.Errorf("expected lsn %d", s.cat.lsn+1)}
	}
	return s.redoCommit(r, c)
}

// sameHistory compares the newest commit that file and log both have: a log does not say whose it is, and its numbers
// may fit by chance. A head has random salts.
func (s *fileStore) sameHistory(r wal.Record) error {
	c, err := decodeCommit(r.Body)
	if err != nil {
		return &CorruptError{File: r.Segment, Offset: r.Offset, Err: err}
	}
	return s.view(func(tx *bbolt.Tx) error {
		for i := range c.heads {
			d := codec.Decoder{B: c.heads[i].row}
			t := decodeHot(&d)
			if t.flags&flagForgotten != 0 {
				continue
			}
			key := headRowKey(headKey{t.art, t.version})
			row, err := codec.Unseal('m', key, tx.Bucket(bucketMeta).Get(key))
			if err != nil || !bytes.Equal(row, c.heads[i].row) {
				return &CorruptError{File: r.Segment, Offset: r.Offset, LSN: c.lsn, Err: errors.Join(errors.New("it is not the log of this file"), err),
					Hint: "put the right one in its place; or " + store.HintSalvage}
			}
		}
		return nil
	})
}

func (s *fileStore) redoCommit(r wal.Record, c *commitRecord) error {
	if !s.cat.namesFollow(c) {
		return &CorruptError{File: r.Segment, Offset: r.Offset, LSN: c.lsn, Err: codec.ErrMalformed}
	}
	s.cat.addNames(c)
	for i := range c.heads {
		row := c.heads[i].row
		h, err := decodeHead(row, s.cat.scopeName)
		if err == nil && row[0] != rowVersionOld {
			err = s.provedHead(headKey{h.Art, h.Version}, row, s.cat.names)
		}
		if err != nil {
			return &CorruptError{File: r.Segment, Offset: r.Offset, LSN: c.lsn, Err: err}
		}
		c.heads[i].head = h
	}
	_, err := s.install(c, r.Seq)
	if err != nil {
		return &CorruptError{File: r.Segment, Offset: r.Offset, LSN: c.lsn, Err: err}
	}
	return nil
}

// namesFollow says whether the names of a record are the next ones. Numbers are dense.
func (c *catalogue) namesFollow(r *commitRecord) bool {
	scopes, groups := len(c.scopes), len(c.groups)
	for i, n := range r.scopes {
		if int(n.num) != scopes+i+1 {
			return false
		}
	}
	for i, g := range r.groups {
		if g.num != uint64(groups+i+1) {
			return false
		}
	}
	return true
}

func (c *catalogue) addNames(r *commitRecord) {
	for _, n := range r.scopes {
		c.addScope(n.num, n.name)
	}
	for _, g := range r.groups {
		c.addGroup(g.num, g.scope, g.name)
	}
}

// install makes a durable commit visible: catalogue, overlay, lexical tail. The caller holds cat.mu, or is recovery.
// It returns the page versions that stopped being current.
func (s *fileStore) install(c *commitRecord, seq uint64) (ended []uint64, err error) {
	s.cat.addNames(c)
	o := s.over
	if o.rows() == 0 {
		o.since = time.Now()
	}
	var later []supersession
	for i := range c.heads {
		h := &c.heads[i]
		d := codec.Decoder{B: h.row}
		t := decodeHot(&d)
		rows := decodeRows(&d, nil)
		if d.Err != nil {
			return nil, d.Err
		}
		if err := s.checkHot(&t, rows); err != nil {
			return nil, err
		}
		if t.flags&(flagFloor|flagForgotten) != 0 {
			if err := s.installForget(&t, rows, h.row); err != nil {
				return nil, err
			}
			continue
		}
		if t.flags&flagGone != 0 {
			if err := s.installGone(&t, rows, h.row, &ended); err != nil {
				return nil, err
			}
			continue
		}
		if t.art <= uint64(len(s.cat.arts)) {
			ended = append(ended, s.cat.nums(t.art)...)
		}
		s.cat.install(&t, rows)
		s.cat.addSummary(&t, h.head.DerivedFrom)
		if len(h.head.Supersedes) > 0 {
			later = append(later, supersession{t.scope, h.head.Supersedes, t.art, t.lsn})
		}
		o.heads[headKey{t.art, t.version}] = h.row
		o.bytes += len(h.row)
		for _, x := range h.texts {
			o.texts[x.num] = x.text
			o.bytes += len(x.text)
			// A checkpoint may have flushed postings of commits above the LSN it applied; redo must not add them twice.
			if x.num > s.idx.Through() {
				s.idx.Add(s.doc(x.num, t.scope, h.head, x.text, x.analysis))
			}
		}
	}
	s.cat.retire(later)
	for _, r := range c.state {
		if id, ok := strings.CutPrefix(r.Key, reviewGonePrefix); ok && len(id) == len(ulid.ULID{}) {
			o.held[ulid.ULID([]byte(id))] = []byte{}
			continue
		}
		o.state[r.Key] = r.Value
		o.bytes += len(r.Key) + len(r.Value)
	}
	if len(c.held) > 0 {
		o.held[c.heldID] = c.held
		o.bytes += len(c.held)
		s.heldChanges++
		if c.heldID == c.batch { // held; else one is decided, and only once
			s.heldOpen++
		} else {
			s.heldOpen--
		}
	}
	if len(c.result) > 0 {
		o.result[c.batch] = c.result
		o.bytes += len(c.result)
	}
	o.scopes = append(o.scopes, c.scopes...)
	o.groups = append(o.groups, c.groups...)
	o.lsn, o.seq, o.leaves, o.high = c.lsn, seq, c.leaf+1, s.cat.highest()
	s.cat.lsn = c.lsn
	s.countUnflushed()
	return ended, nil
}

// Close stops the background work, checkpoints, and ends the log with a mark that says the end was clean. A poisoned
// store is closed without all that and says why.
func (s *fileStore) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	close(s.stop)
	s.done.Wait()
	err := s.failure()
	if !s.opts.readOnly && err == nil {
		err = s.closeClean()
	}
	if !s.opts.readOnly && s.reindex.Load() { // also after a checkpoint that met it: else every one would
		err = errors.Join(err, s.update(func(tx *bbolt.Tx) error { return lexical.Reset(boltRows{tx.Bucket(bucketSeg)}) }))
	}
	err = errors.Join(err, s.closeFiles())
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return err
}

func (s *fileStore) closeClean() error {
	s.seq.mu.Lock() // closed is set: who was in the sequencer is through, and nobody enters any more
	last := s.log.Last()
	s.seq.mu.Unlock()
	if err := s.log.Sync(context.Background(), last); err != nil {
		return err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if _, err := s.checkpointLocked(context.Background()); err != nil && !noSpace(err) {
		return err // on a full disk all of it stays in the log, which has a reserve for its end
	}
	mark, err := s.man.Mark(s.man.Size())
	if err != nil {
		return err
	}
	return s.log.Close(wal.KindMark, mark)
}

func (s *fileStore) closeFiles() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Abandon())
	}
	if s.man != nil {
		errs = append(errs, s.man.Close())
	}
	switch {
	case s.bolt != nil && s.broken.Load() == nil:
		errs = append(errs, s.bolt.Close())
	case s.file != nil: // closing would wait for ever, and the mapping keeps the lock of a file that is merely closed
		unlockFile(s.file)
	}
	return errors.Join(errs...)
}

func (s *fileStore) failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail poisons the store after a failed write or sync: what was under way has an unknown outcome, and no later write
// may build on it.
func (s *fileStore) fail(err error) error {
	unknown := fmt.Errorf("%w: %w; reopen the database and repeat with the same id", ErrOutcomeUnknown, err)
	s.failed.CompareAndSwap(nil, &unknown)
	s.seq.abandon()
	return *s.failed.Load()
}
