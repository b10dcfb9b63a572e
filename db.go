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
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/live"
	"github.com/ctxpage/ctxpage/internal/vectors"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
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

// DB is an open database. All methods may be used concurrently.
type DB struct {
	path    string
	opts    Options
	store   Store
	table   *pageTable
	checker *freshness.Checker // of sources and lineage

	refresher *freshness.Background // nil: none runs
	sessions  *live.Sessions
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

// Manifests reads the audit log: leaves by index or trace, heads, proofs, verification. Nothing of it can write.
func (db *DB) Manifests() store.Audit { return db.store.Audit() }

// Head syncs the log and gives the size and root of what is on the disk then, also beside other writers: keep it
// elsewhere, and Verify will find any later edit, and a log that was set back as a whole.
func (db *DB) Head(ctx context.Context) (manifest.Head, error) { return db.store.Head(ctx) }

// hold keeps from gc what is current now, for one that begins to read.
func (db *DB) hold(ctx context.Context) (store.Ticket, error) {
	return db.store.Hold(ctx, store.Moment{LSN: db.store.Mark().LSN, Time: db.opts.Clock()})
}
