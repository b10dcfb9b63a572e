// Package ctxpage is an embedded context database for agents built on language models.
//
// An agent's context window is RAM, its long-term memory is disk; ctxpage is the operating system between them: pages
// with source hashes in one local file, a page table with dirty bits, speculative writes that commit through a gate or
// are held for review, context assembled under a token budget in four named steps of degradation, and an append-only,
// provable manifest of every read.
//
// A process opens the file with Open and hands each agent a Scope. A Scope sees its own pages and those of its
// ancestors, nothing else. The host writes with a plain one; what acts for a model gets one that is Gated:
//
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{})
//	s := db.Scope("acme/support/agent-7")
//	s.Put(ctx, ctxpage.Artefact{ID: "refund-policy", Text: "Refunds up to $400 …"})
//	agent := db.Scope("acme/support/agent-7", ctxpage.Gated())
//	a, err := agent.Assemble(ctx, ctxpage.Query{Text: "what may I refund?", Budget: 4000})
//	tx, err := agent.Resume(ctx, a.Trace)               // what the model saw is the read set
//	tx.Put(ctx, ctxpage.Artefact{ID: "answer-1", Text: answer})
//	err = tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.88, By: "checker"}) // or ErrHeld
//
// The DB itself is the operator's: verified facts, review of held batches, manifests, checks, backups,
// gc.
package ctxpage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/vectors"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/source"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// THE LOCK ORDER. A lock is taken only while holding locks to its left:
//
//	DB.steps → conversation.lock → Txn.mu → Engine.gcMu → filestore.ckptMu → the log's turn → sequencer.flight →
//	catalogue.mu → pageTable.mu → (wal, manifest, lexical, changes: leaves)
//
//   - The log's turn makes the order of commits. It is held while the log's buffer takes a record, and never during I/O
//     except to read an old row.
//   - sequencer.flight is also taken by the installer, which holds no other lock of the store then but runs while the log
//     waits for its report. So never wait for the log (Sync, Write, Rotate, Close) while holding flight or any later lock.
//   - catalogue.mu guards what readers see: catalogue, overlay and lexical index. A search holds it for reading.
//   - bbolt's locks come after catalogue.mu. Inside one of its transactions, take no lock of ours but a leaf, unless
//     ckptMu is held.
//   - pageTable.mu is never held during I/O.
//   - No lock of ours is held while a Source, Counter, Evaluator, Embedder, Summarizer or Logger runs. The exceptions are
//     Txn.mu, which belongs to the caller's own transaction, and DB.steps and conversation.lock, under which directives
//     and turns are counted.

// DefaultGate is the confidence below which a speculative commit is held.
const DefaultGate = 0.7

// GateOff lets every verdict from outside pass. A missing or self-certified verdict is still held.
const GateOff = -1

// AuditMode says when the manifest of a read is on disk. It is written before the read returns either way.
type AuditMode uint8

// AuditAsync syncs manifests within 100 ms: a power cut may lose the last ones, a killed process does not. AuditSync
// syncs before the read returns.
const (
	AuditAsync AuditMode = iota
	AuditSync
)

// QuestionMode says what the manifest of a search or an assembly keeps of its question.
type QuestionMode uint8

// KeepQuestions keeps the text beside the leaf, where it can be erased, and a salted digest in the leaf. DigestQuestions
// keeps a digest alone: it tells whether two questions are the same, and nobody can read them.
const (
	KeepQuestions QuestionMode = iota
	DigestQuestions
)

// Options configure a database. The zero value is ready to use; it is taken by value and never changed.
type Options struct {
	// WorkingSet is how many bytes of pages are kept in memory; 0: 64 MiB, negative: none.
	WorkingSet int64
	// Gate is the confidence below which Commit holds a batch; 0: DefaultGate, GateOff: none.
	Gate float64
	// PageTokens is the size at which a text is split; 0: 512.
	PageTokens int
	// Counter counts tokens; nil: the built-in estimator. It may be slow and is called under no lock.
	Counter token.Counter
	// Sources by scheme, beside file: and page:. Called concurrently, under a deadline, under no lock; a source may
	// not call the database.
	Sources map[string]source.Source
	// FileRoots are the directories file: sources may read. RecordedRoots also allows those recorded in the file by
	// DB.AddFileRoot; leave it off for files from elsewhere, which could otherwise name what to read here.
	FileRoots     []string
	RecordedRoots bool
	SourceTimeout time.Duration // of one probe or fetch; 0: 10 s
	// RefreshEvery refreshes the file: sources and recorded directories of all scopes in the background, at Open and then
	// at this interval; 0: never. Close waits for it. A read-only database does not.
	RefreshEvery time.Duration
	// Embedder lets relevance be judged by vectors beside words; nil: by words alone. EmbedTimeout is for what
	// one assembly asks of it; 0: 10 s. When it fails, the assembly is made by words alone, and says so.
	Embedder     Embedder
	EmbedTimeout time.Duration
	// Evaluator judges a draft when Commit is given no verdict. It must not be the writer.
	Evaluator Evaluator
	// Summarizer shortens what the watcher compacts, and a page that a context has room for only in part when no summary
	// of it is stored; nil: extracts stand in. SummarizeTimeout is for one summary of a page; 0: 30 s.
	Summarizer       Summarizer
	SummarizeTimeout time.Duration
	Audit            AuditMode
	// Questions says whether the audit keeps the texts of questions; what was kept before stays.
	Questions QuestionMode
	// Clock and Rand are the only time and randomness the database uses for what it stores; nil: the system's. A Clock
	// outside the years 1 to 9999 gives an InvalidError.
	Clock func() time.Time
	Rand  io.Reader
	// Logger hears of recoveries and failed background work; nil: nobody. Errors are returned, not logged.
	Logger   *slog.Logger
	ReadOnly bool
	// MustExist refuses to create a database.
	MustExist bool
	// LockTimeout is how long Open waits for another process to let go; 0: not at all.
	LockTimeout time.Duration
	// Store holds the database instead of files at the path; the path is then a name in errors and Stats. Open it with
	// StateKinds. A successful Open takes it over, and Close closes it; after a failed Open it is still the caller's.
	// ReadOnly, MustExist and LockTimeout describe how files are opened: with a Store they give an InvalidError.
	Store Store

	noSync  bool // the negative control of crash tests
	trust   bool // tests: what was edited in the file is served
	blind   bool // tests: a copy is opened like the file it was made from
	fs      wal.FS
	segment int64
	rotate  int64
	hook    func(step string) error
}

func (o Options) withDefaults() (Options, error) {
	if o.WorkingSet == 0 {
		o.WorkingSet = 64 << 20
	}
	if o.Gate == 0 {
		o.Gate = DefaultGate
	}
	if o.PageTokens == 0 {
		o.PageTokens = PageTokens
	}
	if o.Counter == nil {
		o.Counter = token.Default()
	}
	if o.SourceTimeout == 0 {
		o.SourceTimeout = 10 * time.Second
	}
	if o.EmbedTimeout == 0 {
		o.EmbedTimeout = 10 * time.Second
	}
	if o.SummarizeTimeout == 0 {
		o.SummarizeTimeout = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Rand = &filestore.LockedReader{R: o.Rand}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.fs == nil {
		o.fs = wal.OS()
	}
	var errs []error
	if o.Gate != GateOff && !(o.Gate > 0 && o.Gate <= 1) {
		errs = append(errs, store.Invalid("Options.Gate", fmt.Sprint(o.Gate), "a confidence above 0 up to 1, or GateOff"))
	}
	if o.PageTokens < store.MinPageTokens || o.PageTokens > MaxPageTokens {
		errs = append(errs, store.Invalid("Options.PageTokens", fmt.Sprint(o.PageTokens), fmt.Sprintf("%d to %d", store.MinPageTokens, MaxPageTokens)))
	}
	for scheme := range o.Sources {
		if scheme == "page" || scheme == "" {
			errs = append(errs, store.Invalid("Options.Sources", scheme, "schemes other than page"))
		}
	}
	if o.SourceTimeout < 0 || o.RefreshEvery < 0 || o.LockTimeout < 0 || o.EmbedTimeout < 0 || o.SummarizeTimeout < 0 {
		errs = append(errs, store.Invalid("Options", "a negative timeout", "zero or more"))
	}
	return o, errors.Join(append(errs, o.checkStore())...)
}

// checkStore refuses options that only a store of files can follow, where the caller brings another store.
func (o Options) checkStore() error {
	if o.Store == nil {
		return nil
	}
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{{"ReadOnly", o.ReadOnly}, {"MustExist", o.MustExist}, {"LockTimeout", o.LockTimeout != 0}} {
		if f.set {
			errs = append(errs, store.Invalid("Options."+f.name, "a value beside Options.Store", "nothing: tell the store when you open it"))
		}
	}
	return errors.Join(errs...)
}

// DB is an open database. All methods may be used concurrently.
type DB struct {
	path    string
	opts    Options
	store   Store
	table   *pageTable
	checker *freshness.Checker // of sources and lineage

	refresher *freshness.Background // nil: none runs
	talks     conversations
	vectors   vectors.Maker // Options.Embedder's
	closing   sync.Once
	rooms     sync.Pool    // of *scratch
	macs      sync.Pool    // of hash.Hash: see keyed
	traces    sync.Map     // that assemblies under way were given: see takeTrace
	begins    atomic.Int64 // see preamble
	lexer     *lexical.Analyzer
	steps     chan struct{} // of one: held by the step of directives under way
	fence     string        // seed of the fences
	secret    []byte
}

// Open opens the database at path, creating it unless Options say otherwise: path itself, path-wal/, path-manifest/
// and path.lock. One process has a database open for writing at a time; a second gets a *LockedError. After an
// unclean end the log is replayed: every acknowledged commit is there, nothing half done is. With Options.Store no file is
// opened.
//
// Errors: ErrLocked, ErrNewerFormat, ErrCorrupt, ErrNotExist, ErrNotDatabase, ErrInvalid, or what the file system said.
//
// Without Options.Evaluator the commit gate believes the verdicts that callers of Commit pass.
func Open(path string, opts Options) (db *DB, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := store.CheckClock(opts.Clock()); err != nil {
		return nil, err
	}
	if opts.Store == nil {
		if path, err = filepath.Abs(path); err != nil {
			return nil, fmt.Errorf("ctxpage: open: %w", err)
		}
	}
	d := &DB{path: path, opts: opts, lexer: lexical.NewAnalyzer(), steps: make(chan struct{}, 1)}
	defer func() {
		if err == nil {
			return
		}
		db = nil
		if opts.Store != nil {
			d.store = nil // still the caller's
		}
		d.closeAll()
	}()
	if err := d.openStore(); err != nil {
		return nil, err
	}
	if err := d.openSources(); err != nil {
		return nil, err
	}
	d.startRefresh()
	return d, nil
}

func (db *DB) openStore() (err error) {
	if db.store = db.opts.Store; db.store == nil {
		if db.store, err = db.openFiles(); err != nil {
			return err
		}
	}
	db.table = newPageTable(db.store, db.opts.WorkingSet)
	db.vectors.By, db.vectors.Store = db.opts.Embedder, db.store
	db.vectors.Unkept = func(err error) { db.opts.Logger.Warn("vectors were not stored", "error", err) }
	info, err := db.store.Info(context.Background())
	db.secret, db.fence = info.Secret, info.ID
	return err
}

// openFiles opens the store that a database has unless Options bring another one.
func (db *DB) openFiles() (Store, error) {
	audit := store.Written
	if db.opts.Audit == AuditSync {
		audit = store.Synced
	}
	st, err := filestore.Open(filestore.Options{
		Path: db.path, ReadOnly: db.opts.ReadOnly, MustExist: db.opts.MustExist, LockWait: db.opts.LockTimeout, Audit: audit,
		FS: db.opts.fs, Now: db.opts.Clock, Rand: db.opts.Rand, Logger: db.opts.Logger, Analyzer: db.lexer,
		NoSync: db.opts.noSync, Trust: db.opts.trust, Blind: db.opts.blind, Segment: db.opts.segment, Rotate: db.opts.rotate, Hook: db.opts.hook, State: StateKinds(),
	})
	if err != nil {
		return nil, err // and no Store around a nil pointer
	}
	return st, nil
}

func (db *DB) openSources() error {
	files := freshness.NewFiles(MaxText, db.opts.Clock)
	for _, r := range db.opts.FileRoots {
		if err := checkFileRoot("Options.FileRoots", r); err != nil {
			return err
		}
		if err := files.AddRoot(r); err != nil {
			return err
		}
	}
	if db.opts.RecordedRoots {
		roots, err := db.FileRoots(context.Background())
		if err != nil {
			return err
		}
		for _, r := range roots {
			if err := files.AddRoot(r); err != nil {
				return err
			}
		}
	}
	sources := map[string]source.Source{"file": files}
	for scheme, src := range db.opts.Sources {
		sources[scheme] = src
	}
	db.checker = freshness.New(freshness.Host{
		Store: db.store, Files: files, Sources: sources, Clock: db.opts.Clock, Timeout: db.opts.SourceTimeout, ReadOnly: db.opts.ReadOnly,
		Logger: db.opts.Logger, Write: db.writeFetched, Read: db.readCopied,
	})
	return nil
}

// Close ends the database: the log is applied and closed with a mark that says the end was clean. Transactions that
// are still open are lost, as after a Rollback. The first call tells what failed; a later one, or one beside it, waits
// until the database is closed and gives nil.
func (db *DB) Close() (err error) {
	db.closing.Do(func() { err = db.closeAll() })
	return err
}

func (db *DB) closeAll() error {
	var errs []error
	db.refresher.Stop()
	db.stopWatchers()
	if db.store != nil {
		errs = append(errs, db.store.Close())
	}
	return errors.Join(errs...)
}

// Path is the absolute path of the file; with Options.Store it is the path as Open got it.
func (db *DB) Path() string { return db.path }

// append writes one leaf of the database's own.
func (db *DB) append(ctx context.Context, leaf *manifest.Record) error {
	if leaf.Trace == "" {
		id, err := db.newID()
		if err != nil {
			return err
		}
		leaf.Trace = id.String()
	}
	now := db.opts.Clock()
	if err := store.CheckClock(now); err != nil {
		return err
	}
	leaf.Time = codec.Micros(now)
	d := store.Written
	if db.opts.Audit == AuditSync {
		d = store.Synced
	}
	return db.store.Append(ctx, []*manifest.Record{leaf}, d)
}

func (db *DB) newID() (ulid.ULID, error) { return store.NewID(db.opts.Clock(), db.opts.Rand) }

// Stats are sizes and counters of the database and of this process's working set.
type Stats struct {
	store.StoreStats
	Table TableStats `json:"working_set"`
	Path  string     `json:"path"`
}

// Stats gives a snapshot.
func (db *DB) Stats(ctx context.Context) (Stats, error) {
	st, err := db.store.Stat(ctx)
	table := db.table.stats()
	table.Refetches = db.checker.Refetches.Load()
	return Stats{StoreStats: st, Table: table, Path: db.path}, err
}

// Checkpoint applies the log to the file and cuts what is no longer needed of it. It runs by itself in the background;
// calling it changes no answer.
func (db *DB) Checkpoint(ctx context.Context) (store.JobReport, error) {
	return db.store.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil)
}

// Backup copies the database to another path, where it can be opened as it is; its directory must be there, nothing of
// a database may. A full disk is told with what the copy takes and what was free; nothing of it is left. Writers are not stopped; the copy is
// some whole prefix of their commits. Progress, if not nil, is called from this goroutine.
func (db *DB) Backup(ctx context.Context, path string, progress func(what string, done, total uint64)) (store.JobReport, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return store.JobReport{}, fmt.Errorf("ctxpage: backup: %w", err)
	}
	return db.store.Maintain(ctx, store.Job{Kind: store.JobBackup, Path: abs}, progress)
}

// Check walks the whole database and reports every broken invariant (check.go numbers them). Damage is in the report,
// not in the error; the error is for a walk that could not be finished.
func (db *DB) Check(ctx context.Context, progress func(what string, done, total uint64)) ([]store.Problem, error) {
	rep, err := db.store.Maintain(ctx, store.Job{Kind: store.JobCheck}, progress)
	if err != nil {
		return rep.Problems, err
	}
	problems, err := db.checkDirectives(ctx)
	return append(rep.Problems, problems...), err
}

// Manifests reads the audit log: leaves by index or trace, heads, proofs, verification. Nothing of it can write.
func (db *DB) Manifests() store.Audit { return db.store.Audit() }

// Head syncs the log and gives the size and root of what is on the disk then, also beside other writers: keep it
// elsewhere, and Verify will find any later edit, and a log that was set back as a whole.
func (db *DB) Head(ctx context.Context) (manifest.Head, error) { return db.store.Head(ctx) }

// hold keeps from gc what is current now, for one that begins to read.
func (db *DB) hold(ctx context.Context) (store.Ticket, error) {
	return db.store.Hold(ctx, store.Moment{LSN: db.store.Mark().LSN, Time: db.opts.Clock()})
}
