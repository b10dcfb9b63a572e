// Package ctxpage is an embedded context database for agents built on language models.
//
// An agent's context window is RAM and its long-term memory is disk. ctxpage is the operating system between them. It
// keeps pages with source hashes in one local file and a page table with dirty bits. Speculative writes commit through
// a gate or are held for review. A context is assembled under a token budget in four named steps of degradation. Every
// read is recorded in an append-only, provable manifest.
//
// A process opens the file with Open and hands each agent a Scope. A Scope sees its own pages and its
// ancestors' pages, nothing else. The host writes through a plain Scope. Code that acts for a model gets a Scope that is
// Gated:
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
// The DB itself belongs to the operator: review of held batches and manifests, and behind DB.Admin verified facts, checks,
// backups and gc.
package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// THE LOCK ORDER. Take a lock only while holding locks above it in this list:
//
//	DB.steps, Conversation.lock, Txn.mu    of the pipeline, in this order
//	Client.renewLock                       a process that does not own the files: telling releases; a token
//	guest.taking, Client.helloLock         the same: becoming the owner, saying hello
//	filestore worker.mu                    one run of the background work
//	filestore eraseMu                      one erase, with its purge
//	Engine.gcMu                            one gc, or the commits of one erase
//	filestore ckptMu                       one checkpoint, backup, check or purge
//	the log's tail                         the right to commit next
//	the log's lead, wmu and report         inside package wal
//	sequencer.flight                       what is in the log and not yet durable
//	catalogue.mu                           what readers see: catalogue, overlays and lexical index
//	bbolt's own locks                      a transaction
//	leaves                                 pageTable.mu, fileLog.mu, the wal's mu, archive.Log, lexical.Index, changes.mu,
//	                                       holds.mu, names.mu, sieves.mu, idList.mu, behind.mu, guest.mu, Client.mu,
//	                                       conversation.Sessions.mu and then the mu of its keeper, observed.mu, the mu of a file of the
//	                                       archive that may rest, acceptor.mu and then bell.mu
//
//   - The tail makes the order of commits. It is held while the log's buffer takes a record, and during I/O only to read
//     an old row. A caller that holds it never waits for the log.
//   - The log calls the installer while it holds report, and waits for it. So never wait for the log (Sync, Write, Rotate,
//     Close) while holding flight or anything below it.
//   - A search holds catalogue.mu for reading while it is inside a bbolt transaction. So inside a transaction take only
//     leaves, and begin no second one: bbolt waits for readers before it remaps or closes its file. A check may take
//     catalogue.mu there, because it holds ckptMu.
//   - A leaf may be held while another one is taken in four cases: fileLog.mu before the wal's mu, guest.mu and a
//     session of package remote before holds.mu, inside archive.Log (see there), whose locks come before those of its
//     files, and the keeper's mu before changes.mu (Engine.AfterTold).
//   - pageTable.mu is never held during I/O, and guest.mu and Client.mu never while another process is asked.
//   - No lock of ours is held while a Source, Counter, Evaluator, Embedder, Summarizer, Observer or Logger runs. There are three
//     exceptions: Txn.mu, which belongs to the caller's own transaction, and DB.steps and Conversation.lock, under
//     which directives and turns are counted.

// DB is an open database. All methods are safe for concurrent use.
//
// A DB owns its store from a successful Open to Close. It owns the working set (table), the dirty check (checker), the
// conversations in memory (sessions) and the pools below. Handles (Scope, Txn, Session, Review) point to it and own
// nothing, so they need no closing, except Txn, which holds a ticket of the store.
type DB struct {
	path    string
	opts    Options
	store   store.Store
	watch   *stopwatch // nil: without an observer
	table   *pageTable
	checker *freshness.Checker // the dirty check of sources and lineage

	refresher *freshness.Background // the background refresh; nil: none
	keeper    *freshness.Background // the background retention; nil: none
	sessions  *conversation.Sessions
	vectors   vector.Maker // Options.Embedder's
	closing   sync.Once
	scratches sync.Pool       // of *scratch
	macs      sync.Pool       // of hash.Hash: see keyed
	leaves    sync.Pool       // of *readLeaf
	traces    sync.Map        // traces given to assemblies in flight: see takeTrace
	begins    [2]atomic.Int64 // see preamble
	lexer     *lexical.Analyzer
	steps     chan struct{} // capacity 1: held by the step of directives in flight
	fence     string        // seed of the fences around pages in a rendered context
	host      string        // whose files file: sources are, where a database is used by several hosts
	secret    []byte
}

// Admin is the operator's access to a database: upkeep, erasure, export and the writes that raise trust. No Scope
// reaches these methods, so an agent that holds a Scope cannot call them. It is safe for concurrent use.
type Admin struct{ db *DB }

// Admin returns the operator's access to the database.
func (db *DB) Admin() *Admin { return &Admin{db} }

// Path returns the absolute path of the file. With Options.Store it returns the path as Open got it.
func (db *DB) Path() string { return db.path }

// append writes one leaf that belongs to no commit. The caller passes it as a list, which it may use again.
func (db *DB) append(ctx context.Context, leaves []*manifest.Record) error {
	leaf, now := leaves[0], db.opts.Clock()
	if err := store.CheckClock(now); err != nil {
		return err
	}
	if leaf.Trace == "" {
		id, err := store.NewID(now, db.opts.Rand)
		if err != nil {
			return err
		}
		leaf.Trace = id.String()
	}
	leaf.Time = codec.Micros(now)
	if b, is := ctx.(*began); is { // the call itself: what was derived from it may be in another goroutine
		b.leaf = now
	}
	d := store.Written
	if db.opts.AuditSync {
		d = store.Synced
	}
	return db.store.Append(ctx, leaves, d)
}

// stopwatch measures how long calls take.
type stopwatch struct {
	from  time.Time
	clock func() time.Time // nil: that of the system, of which only the monotonic part is read: the time of day would take as long again
}

// moment is a reading of the stopwatch in nanoseconds; 0: there is none.
type moment int64

// newStopwatch returns a stopwatch by Options.Clock; nil: without an observer.
func newStopwatch(opts *Options) *stopwatch {
	switch {
	case opts.Observer == nil:
		return nil
	case opts.Clock != nil:
		return &stopwatch{from: time.Unix(0, 0), clock: opts.Clock}
	}
	return &stopwatch{from: time.Now().Add(-1)}
}

func (w *stopwatch) now() moment {
	if w.clock != nil {
		return w.at(w.clock())
	}
	return moment(time.Since(w.from))
}

// at is the moment of a time.
func (w *stopwatch) at(t time.Time) moment { return moment(t.Sub(w.from)) }

// began is the context of a read, a pass or a hand-over, when it began, and when its leaf was made: reading the clock takes longer than telling.
type began struct {
	context.Context
	at   moment
	leaf time.Time
}

type beganKey struct{}

// Value returns the values of the context of the call, and itself.
func (b *began) Value(key any) any {
	if key == (beganKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// newID makes a ULID from the clock and the randomness of Options, so that a test decides every id.
func (db *DB) newID() (ulid.ULID, error) { return store.NewID(db.opts.Clock(), db.opts.Rand) }

// commit commits a batch of the database's own, under a new id and at the time of the clock.
func (db *DB) commit(ctx context.Context, b store.Batch) (_ store.Outcome, err error) {
	if b.ID, err = db.newID(); err != nil {
		return store.Outcome{}, err
	}
	b.Now = db.opts.Clock()
	return db.store.Commit(ctx, b)
}

// headOf resolves a reference and loads the head of its version.
func (db *DB) headOf(ctx context.Context, scopes store.Scopes, ref Ref) (*store.Head, store.Located, error) {
	l, err := db.store.Resolve(ctx, scopes, ref)
	if err != nil {
		return nil, l, err
	}
	loaded, err := db.store.Load(ctx, scopes, l.Pages[:1], store.WantHead)
	if err == nil {
		err = loaded[0].Err
	}
	if err != nil {
		return nil, l, err
	}
	return loaded[0].Head, l, nil
}

// Stats are sizes and counters of the database and of this process's working set.
type Stats struct {
	store.StoreStats
	Table TableStats `json:"working_set"`
	// Embedding reports the progress of the vectors of Options.Embedder; nil: there is none.
	Embedding *store.Embedding `json:"embedding,omitempty"`
	Path      string           `json:"path"`
}

// Stats returns a snapshot. Counters of the working set are of this process.
func (db *DB) Stats(ctx context.Context) (Stats, error) {
	st, err := db.store.Stat(ctx)
	table := db.table.stats()
	table.Refetches = db.checker.Refetches.Load()
	return Stats{StoreStats: st, Table: table, Path: db.path, Embedding: db.vectors.Progress()}, err
}

// Manifests returns the audit log for reading: leaves by index or trace, heads, proofs, verification.
func (db *DB) Manifests() store.Audit { return db.store.Audit() }

// Head syncs the log and returns the size and root of what is on disk then, including what other processes wrote. Keep
// a head elsewhere: with it Verify finds any later edit, and also a log whose files were all rolled back together.
func (db *DB) Head(ctx context.Context) (manifest.Head, error) { return db.store.Head(ctx) }

// hold keeps from gc everything that is current now, until the ticket is released.
func (db *DB) hold(ctx context.Context) (store.Ticket, error) {
	return db.store.Hold(ctx, store.Moment{LSN: db.store.Mark().LSN, Time: db.opts.Clock()})
}

// asked returns the question of a leaf; "": it was erased or not kept.
func (db *DB) asked(ctx context.Context, leaf *manifest.Record) (string, error) {
	text, err := db.Manifests().Question(ctx, leaf)
	if errors.Is(err, manifest.ErrNoQuestion) {
		err = nil
	}
	return text, err
}

// assemblyLeaf finds the leaf of an assembly by its trace.
func (db *DB) assemblyLeaf(ctx context.Context, trace string) (*manifest.Record, error) {
	leaves, err := db.Manifests().ByTrace(ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return nil, filestore.LogError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypeAssemble && l.Trace == trace {
			if l.Pruned != nil {
				return nil, fmt.Errorf("%w: %w: assembly %s was %s; its leaf %d still verifies", store.ErrGone, manifest.ErrPruned, trace, l.Pruned, l.Index)
			}
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: no assembly with trace %q in the manifest", store.ErrNotFound, trace)
}
