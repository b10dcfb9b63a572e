package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A transaction is speculative: it lives as long as an inference and holds no lock and no snapshot of the store.
//
//	        Begin, Resume                      Update
//	             │                                │ (retried on conflict)
//	             ▼                                ▼
//	           open ──Rollback──► rolled back   managed ──fn's error──► rolled back
//	             │                                │
//	          Commit                           fn returns
//	             │                                │
//	     ┌───────┼──────────┬───────────┐         ├──────────┐
//	     ▼       ▼          ▼           ▼         ▼          ▼
//	 conflict  stale      held       applied   conflict   applied
//	 (nothing) (held, or             (durable, visible)
//	           failed)
//
// Every end of a speculative transaction leaves a leaf in the manifest, linked by the trace of the assembly it came from;
// an Update leaves one when it commits or conflicts.

// The reasons for which a commit is held (HeldError.Reason), beside store.ReasonStaleContext.
const (
	ReasonNoVerdict     = "no verdict"
	ReasonSelfCertified = "self-certified"
	ReasonLowConfidence = "confidence below the gate"
)

// Txn is a transaction. Its methods lock, so several goroutines may share it.
//
// It owns its writes (order, writes, drop), its read set (saw, expect) and a ticket of the store (reader). Nothing of
// it is in the store until Commit, and a crash before that leaves nothing.
type Txn struct {
	s  *Scope
	mu sync.Mutex

	done    bool
	managed bool // the host vouches for it: no gate
	id      ulid.ULID
	trace   string
	first   bool // the trace has not been given to an assembly yet
	onStale store.OnStale
	by, why string // who vouches for a managed transaction, and why; "": the host

	putOrder []string
	writes   map[string]*store.Put
	replaced rendering.Supersedes        // who supersedes whom among the writes
	worth    map[string]store.Provenance // provenance of a gated handle's drafts once the gate let them pass; nil: none
	drop     map[string]bool             // deletes; this map and the two below are nil while empty
	expect   map[string]uint64           // LSN of an artefact of the scope when it was first read or written
	saw      map[pageSlot]store.Seen
	echoes   []Ref // served pages that drafts merely repeat
	bytes    int
	out      store.Outcome
	reader   store.Ticket    // keeps from gc what the transaction may read
	maybe    bool            // a Commit ended without an answer: it may have happened
	unknown  map[string]bool // superseded ids that the scope has never had; nil: none
	failed   error           // the first write that failed: the transaction can no longer commit
}

// The read set has two parts. saw has the page versions that the model saw; Commit hands them to the store as the
// context of the draft, which judges staleness. expect has the LSN of each artefact of the scope itself when it was
// first read or written; those that are also written become preconditions, which judge conflicts.

type pageSlot struct {
	scope, id string
	page      int
}

// TxnOption configures Begin, Resume and Update.
type TxnOption func(*txnOptions)

type txnOptions struct {
	id      ulid.ULID
	onStale store.OnStale
	by, why string
	err     error
}

// WithID makes a transaction idempotent. Committed twice under one id, a ULID, it is applied once, and the second call
// returns the first outcome. The database remembers the newest 10,000 ids for 7 days; an older used id returns
// ErrTxnExpired.
func WithID(id string) TxnOption {
	return func(o *txnOptions) { o.id, o.err = parseBatchID(id) }
}

// WithOnStale says what Commit does when a page that the transaction saw has changed since: hold the draft (the
// default), fail with ErrStaleContext, or allow it.
func WithOnStale(v store.OnStale) TxnOption { return func(o *txnOptions) { o.onStale = v } }

// VouchedBy names who answers for an Update, and why, for its leaf in the manifest: by is at most 512 bytes, why at most MaxNote. Two
// empty texts mean the host. Begin and Resume ignore it: their verdict names the judge.
func VouchedBy(by, why string) TxnOption {
	return func(o *txnOptions) { o.by, o.why, o.err = by, why, checkVerdict(by, why) }
}

// newTxn makes an open transaction that holds nothing of the store. Begin, Resume and Update take the ticket that they
// need.
func (s *Scope) newTxn(opts []TxnOption) (*Txn, error) {
	if s.err != nil {
		return nil, s.err
	}
	var o txnOptions
	for _, f := range opts {
		f(&o)
		if o.err != nil {
			return nil, o.err
		}
	}
	if s.gated && o.onStale == store.AllowStale {
		return nil, gatedError("AllowStale", "a draft from a stale context is held; use HoldStale or FailStale")
	}
	if s.db.opts.ReadOnly {
		return nil, store.ErrReadOnly
	}
	tx := &Txn{s: s, id: o.id, onStale: o.onStale, by: o.by, why: o.why, first: true,
		writes: map[string]*store.Put{}}
	var err error
	if tx.id == (ulid.ULID{}) {
		if tx.id, err = s.db.newID(); err != nil {
			return nil, err
		}
	}
	trace, err := s.db.newID()
	tx.trace = trace.String()
	return tx, err
}

// vouched makes a transaction that passes no gate.
func (s *Scope) vouched(opts ...TxnOption) (*Txn, error) {
	tx, err := s.newTxn(opts)
	if err == nil {
		tx.managed = true
	}
	return tx, err
}

// Begin starts a speculative transaction. Its writes are invisible to everybody else until Commit passes the gate. It
// reads committed pages and its own writes. End it with Commit or Rollback: until then gc drops no version that was
// current when it began. A deferred Rollback after Commit is harmless.
func (s *Scope) Begin(ctx context.Context, opts ...TxnOption) (*Txn, error) {
	tx, err := s.newTxn(opts)
	if err != nil {
		return nil, err
	}
	if tx.reader, err = s.db.hold(ctx); err != nil {
		return nil, err
	}
	return tx, nil
}

// end closes the transaction: gc may drop what it saw.
func (tx *Txn) end() {
	tx.done = true
	tx.s.db.store.Release(tx.reader)
}

// ID returns the batch id that the transaction commits under.
func (tx *Txn) ID() string { return tx.id.String() }

// Trace returns the id that links the transaction's reads and its end in the manifest.
func (tx *Txn) Trace() string { return tx.trace }

// Done reports whether the transaction has ended. After a Commit that failed, false means that another Commit may follow.
func (tx *Txn) Done() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.done
}

// Outcome returns the result of the Commit that ended the transaction.
func (tx *Txn) Outcome() store.Outcome {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.out
}

// Get reads an artefact as Scope.Get does, and the transaction's own writes first. If the transaction also writes an
// artefact of the scope that it read, that artefact must not change before Commit.
func (tx *Txn) Get(ctx context.Context, id string, opts ...ReadOption) (*Version, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return nil, store.ErrTxnDone
	}
	if err := store.CheckID("id", id); err != nil {
		return nil, err
	}
	id = store.Canonical(id)
	if w := tx.writes[id]; w != nil {
		return tx.own(w), nil
	}
	s := tx.s
	if tx.drop[id] { // as after the commit: an ancestor's artefact may become visible
		parent := *s
		parent.chain = s.chain[1:]
		s = &parent
	}
	at := s.db.began()
	v, leaf, err := s.read(ctx, Ref{ID: id}, readOpts(opts))
	if errors.Is(err, store.ErrNotFound) && !tx.drop[id] {
		tx.sawNone(id)
	}
	if err != nil {
		return nil, tx.s.failed(s.db.since(ctx, at), manifest.TypeGet, err)
	}
	if v.Ref.Scope != tx.s.name && !tx.drop[id] {
		tx.sawNone(id)
	}
	for _, p := range v.Pages {
		tx.see(v.head(), p.Ref.Page, p.Num)
	}
	leaf.Parent = tx.trace
	if err := tx.s.emitRead(ctx, at, leaf); err != nil {
		return nil, tx.s.failed(s.db.since(ctx, at), manifest.TypeGet, err)
	}
	return v, nil
}

// own shows a write of the transaction itself.
func (tx *Txn) own(w *store.Put) *Version {
	v := draftOf(w, tx.s.name, tx.s.actor)
	v.fillParts(v.head(), true)
	return v
}

// batch is the transaction as the store gets it. Everything in it has a fixed order, so that a retry binds the same
// digest. A page of an artefact that the transaction also writes is judged as a conflict, not as context.
func (tx *Txn) batch() store.Batch {
	b := store.Batch{ID: tx.id, Scope: tx.s.name, Actor: tx.s.actor, Now: tx.s.db.opts.Clock(), OnStale: tx.onStale}
	if !tx.managed || !tx.first {
		b.Trace = tx.trace
	}
	b.Puts = tx.beyondGate()
	b.Deletes = sortedKeys(tx.drop)
	for _, id := range sortedKeys(tx.expect) {
		if tx.writes[id] != nil || tx.drop[id] {
			b.Expect = append(b.Expect, store.Precondition{Ref: Ref{Scope: tx.s.name, ID: id}, LSN: tx.expect[id]})
		}
	}
	for _, c := range tx.context() {
		if c.Scope == tx.s.name && (tx.writes[c.ID] != nil || tx.drop[c.ID]) {
			continue // judged as a conflict already
		}
		b.Context = append(b.Context, c)
	}
	return b
}

// ownDocs returns the transaction's own pages, analysed, so that they can be ranked beside what the store proposes.
func (tx *Txn) ownDocs() []ownPage {
	var out []ownPage
	for _, id := range tx.putOrder {
		w := tx.writes[id]
		for i := range w.Pages {
			p := &w.Pages[i]
			if p.Analysis == nil {
				an := format.Analyse(tx.s.db.lexer, &w.Artefact, p.Text)
				p.Analysis = &an
			}
			out = append(out, ownPage{put: w, page: i + 1, analysis: p.Analysis})
		}
	}
	return out
}

type ownPage struct {
	put      *store.Put
	page     int
	analysis *lexical.Analysis
}

// beyondGate returns the writes as they are stored when the gate lets them pass, or when somebody approves the held
// batch.
func (tx *Txn) beyondGate() []store.Put {
	puts := make([]store.Put, 0, len(tx.putOrder))
	for _, id := range tx.putOrder {
		p := *tx.writes[id]
		if worth, ok := tx.worth[id]; ok {
			p.Artefact.Provenance = worth
		}
		puts = append(puts, p)
	}
	return puts
}

// see records a page version that the model saw. The oldest one counts: a text written from it is not based on a later
// version that somebody reads afterwards. The version also becomes the precondition of a write of the same artefact.
func (tx *Txn) see(h *store.Head, page int, num uint64) {
	slot := pageSlot{h.Scope, h.ID, page}
	if was, ok := tx.saw[slot]; !ok || num < was.Num { // numbers rise with every version of a page
		set(&tx.saw, slot, store.Seen{Scope: h.Scope, ID: h.ID, Page: page, Num: num})
	}
	if h.Scope != tx.s.name {
		return
	}
	if was, ok := tx.expect[h.ID]; !ok || h.LSN < was {
		set(&tx.expect, h.ID, h.LSN)
	}
}

// sawNone records that the scope itself had no artefact of that name when it was looked up.
func (tx *Txn) sawNone(id string) {
	if _, ok := tx.expect[id]; !ok {
		set(&tx.expect, id, 0)
	}
}

// context returns the page versions that the model saw, by their numbers.
func (tx *Txn) context() []store.Seen {
	return slices.SortedFunc(maps.Values(tx.saw), func(a, b store.Seen) int { return cmp.Compare(a.Num, b.Num) })
}

// checkVerdict bounds what goes into the manifest. An empty By is a reason to hold, not an error.
func checkVerdict(by, note string) error {
	if by != "" {
		if err := store.CheckID("by", by); err != nil {
			return err
		}
	}
	if len(note) > store.MaxNote {
		return store.Invalid("note", fmt.Sprintf("%d bytes", len(note)), fmt.Sprintf("at most %d", store.MaxNote))
	}
	return nil
}
