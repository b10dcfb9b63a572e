package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// A database opens in three steps, each of which may fail: the store, the sources, the background refresh. A failed
// step closes what the earlier ones opened; a store from Options.Store stays open and remains the caller's.
//
//	options checked ─▶ openStore ─▶ openSources ─▶ startRefresh ─▶ open ─▶ Close
//	                      │             │                                 refresher, keeper, watchers, store, in this order
//	                      └─────────────┴──▶ closeAll ─▶ the error
//
// The refresher, the watchers and what makes vectors write to the store, so they stop before it closes.

// Open opens the database at path. It creates path, path-wal/, path-manifest/ and path.lock unless Options say
// otherwise. The first process that opens a database owns its files and serves them to other processes of the same user at
// path.sock. Those work as if the files were theirs, and when the owner ends, another takes its place. After an unclean
// end Open replays the log: every acknowledged commit is there, and no half of one. With Options.Store Open opens no file.
//
// Errors: ErrLocked, ErrNewerFormat, ErrCorrupt, ErrNotExist, ErrNotDatabase, ErrInvalid, or an error of the file
// system.
//
// Without Options.Evaluator the commit gate believes the verdicts that callers pass to Commit.
func Open(path string, opts Options) (db *DB, err error) {
	watch := newStopwatch(&opts)
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
	d := &DB{path: path, opts: opts, watch: watch, lexer: lexical.NewAnalyzer(), steps: make(chan struct{}, 1)}
	defer func() {
		if err == nil {
			return
		}
		db = nil
		if o, is := d.store.(*observed); is && opts.Store != nil {
			o.end()
		}
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
	if d.opts.Store == nil && !opts.ReadOnly && !opts.NoWatch {
		remote.WhenOwner(unobserved(d.store), d.sessions.Keep)
	} else if !opts.NoWatch && !opts.ReadOnly {
		d.sessions.Keep()
	}
	if opts.Maintain > 0 && !opts.ReadOnly {
		d.keeper = freshness.Every(opts.Maintain, d.Admin().Retention().InBackground(opts.Logger))
	}
	return d, nil
}

// openStore opens or takes over the store and builds what lies directly on it: working set, vectors and sessions. The
// secret and the id of the store key the digests and fences of this database.
func (db *DB) openStore() (err error) {
	var o *observed
	if db.opts.Observer != nil {
		o = newObserved(&db.opts, db.watch, db.digestOfScope())
	}
	if db.store = db.opts.Store; db.store == nil {
		if db.store, err = db.openFiles(o); err != nil {
			return err
		}
	}
	if o != nil {
		db.store = o.before(db.store, db.opts.Observer)
	}
	db.table = newPageTable(db.store, db.opts.WorkingSet)
	db.vectors.By, db.vectors.Store = db.opts.Embedder, db.store
	db.vectors.ReadOnly = db.opts.ReadOnly
	db.vectors.Unkept = func(err error) {
		db.opts.Logger.Warn("vectors were not stored; they are made again when needed", "error", err)
	}
	db.vectors.Unmade = func(err error) {
		db.opts.Logger.Warn("vectors were not made; the next question tries again", "error", err)
	}
	caller, _ := unobserved(db.store).(interface {
		AfterTold(lsn uint64, want func(store.StateRow) bool, fn func()) (stop func())
	})
	info, err := db.store.Info(context.Background())
	db.secret, db.fence, db.host = info.Secret, info.ID, info.Host
	db.sessions = conversation.NewSessions(conversation.Host{
		Store: db.store, Counter: db.opts.Counter, Clock: db.opts.Clock, NewID: db.newID, Logger: db.opts.Logger, ReadOnly: db.opts.ReadOnly,
		Texts: db.texts, Shorten: db.shorten, Summarizer: db.opts.Summarizer,
		MakePut: func(a Artefact) (store.Put, error) { return db.makePut(a, store.Validator{}) },
		Owns:    db.owns, Shared: db.opts.Store != nil, Name: fmt.Sprintf("%s (pid %d)", cmp.Or(info.Host, filepath.Base(os.Args[0])), os.Getpid()),
		OnlyStarted: db.opts.NoWatch, Patience: db.opts.SummarizeTimeout,
	})
	if caller != nil {
		db.sessions.AfterTold = caller.AfterTold
	}
	return err
}

// owns reports whether this process decides about the sessions of other processes, too.
func (db *DB) owns() bool {
	if db.opts.Store != nil {
		return true
	}
	_, owns := remote.Files(unobserved(db.store))
	return owns
}

// openFiles opens the store of files, which a database has unless Options bring another one.
func (db *DB) openFiles(o *observed) (store.Store, error) {
	var checkpointed func(time.Time, store.JobReport, error)
	var synced func(time.Time, error)
	if o != nil {
		checkpointed, synced = o.checkpointed, o.synced
	}
	audit := store.Written
	if db.opts.AuditSync {
		audit = store.Synced
	}
	return remote.Open(remote.Options{Exclusive: db.opts.Exclusive, Stop: db.opts.Stop, Answer: db.opts.AnswerTimeout, Files: filestore.Options{
		Path: db.path, ReadOnly: db.opts.ReadOnly, Identity: db.opts.Identity, Key: db.opts.Key, Keyring: db.opts.Keyring, MustExist: db.opts.MustExist, LockWait: db.opts.LockTimeout, Audit: audit,
		Now: db.opts.Clock, Rand: db.opts.Rand, Logger: db.opts.Logger, Analyzer: db.lexer, State: StateKinds(), Checkpointed: checkpointed, Synced: synced,
	}})
}

// openSources sets up the file: source with its roots, and the sources of Options. A host's source may replace file:,
// never page:, which the database reads itself.
func (db *DB) openSources() error {
	files := freshness.NewFiles(store.MaxText, db.opts.Clock)
	files.Host = db.host
	for _, r := range db.opts.FileRoots {
		if err := checkFileRoot("Options.FileRoots", r); err != nil {
			return err
		}
		if err := files.AddRoot(r); err != nil {
			return err
		}
	}
	if db.opts.RecordedRoots {
		roots, err := db.Admin().FileRoots(context.Background())
		if err != nil {
			return err
		}
		for _, r := range roots {
			if err := files.AddRoot(r); err != nil {
				return err
			}
		}
	}
	sources := map[string]store.Source{"file": files}
	for scheme, src := range db.opts.Sources {
		sources[scheme] = src
	}
	db.checker = freshness.New(freshness.Host{
		Store: db.store, Files: files, Sources: sources, Clock: db.opts.Clock, Timeout: db.opts.SourceTimeout, ReadOnly: db.opts.ReadOnly,
		Logger: db.opts.Logger, Write: db.writeFetched, Read: db.readCopied,
	})
	return nil
}

// Close applies the log, closes it with a mark that says the end was clean, and closes the store. Transactions that are
// still open are lost, as after a Rollback. The first call returns what failed. Any other call waits until the database
// is closed and returns nil.
func (db *DB) Close() (err error) {
	db.closing.Do(func() { err = db.closeAll() })
	return err
}

// closeAll stops background work before it closes the store that the work writes to. Any part may be missing after a
// failed Open.
func (db *DB) closeAll() error {
	var errs []error
	db.refresher.Stop()
	db.keeper.Stop()
	db.vectors.Stop()
	if db.sessions != nil {
		db.sessions.StopWatchers()
	}
	if db.store != nil {
		errs = append(errs, db.store.Close())
	}
	return errors.Join(errs...)
}
