package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/succession"
	"github.com/ctxpage/ctxpage/lexical"
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

// Reasons for which a commit is held.
const (
	ReasonNoVerdict     = "no verdict"
	ReasonSelfCertified = "self-certified"
	ReasonLowConfidence = "confidence below the gate"
)

type txnState uint8

const (
	txnOpen txnState = iota
	txnManaged
	txnDone
)

// Txn is a transaction. It may be used by one goroutine at a time, or several: its methods lock.
type Txn struct {
	s  *Scope
	mu sync.Mutex

	state   txnState
	managed bool
	id      ulid.ULID
	trace   string
	first   bool // the trace has not been given to an assembly yet
	onStale OnStale

	order    []string
	writes   map[string]*store.Put
	replaced succession.Writes     // by the writes
	worth    map[string]Provenance // of drafts of a gated handle, beyond the gate; nil without
	drop     map[string]bool       // nil until there is something in it, as the two below
	expect   map[string]uint64     // LSN an artefact of the scope had when it was read or first written
	saw      map[pageSlot]store.Seen
	stateW   []store.StateRow
	echoes   []Ref // served pages that drafts merely repeat
	bytes    int
	out      Outcome
	reader   store.Ticket    // what it reads stays
	maybe    bool            // a Commit ended without an answer: it may have happened
	unknown  map[string]bool // what is superseded and is not there; nil: nothing
	failed   error           // the first write that failed: nothing of the transaction is committed any more
}

type pageSlot struct {
	scope, id string
	page      int
}

// TxnOption configures Begin, Resume and Update.
type TxnOption func(*txnOptions)

type txnOptions struct {
	id      ulid.ULID
	onStale OnStale
	err     error
}

// WithID makes a transaction idempotent: committed twice under one id, a ULID, it is applied once, and the second
// answer repeats the first. The newest 10,000 ids are remembered for 7 days; a used id that is older gives ErrTxnExpired.
func WithID(id string) TxnOption {
	return func(o *txnOptions) { o.id, o.err = parseBatchID(id) }
}

// WithOnStale says what Commit does when a page the transaction saw has changed since: hold it (the default), fail
// with ErrStaleContext, or allow it.
func WithOnStale(v OnStale) TxnOption { return func(o *txnOptions) { o.onStale = v } }

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
	if s.gated && o.onStale == AllowStale {
		return nil, gatedError("AllowStale", "a draft from a stale context is held; use HoldStale or FailStale")
	}
	if s.db.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	tx := &Txn{s: s, id: o.id, onStale: o.onStale, first: true,
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

// Begin starts a speculative transaction: what it writes is invisible to everybody else until Commit passes the gate.
// It reads committed pages and its own writes. Finish it with Commit or Rollback, for until then gc drops no version that
// was current when it began; a deferred Rollback after Commit is harmless.
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

// end makes the transaction a thing of the past: gc need not spare what it saw.
func (tx *Txn) end() {
	tx.state = txnDone
	tx.s.db.store.Release(tx.reader)
}

// Update runs fn in a transaction the host vouches for, and commits it: there is no gate. If an artefact that fn read
// and wrote has changed meanwhile, fn runs again on the new state, up to 10 times: it must have no effects elsewhere. An
// error of fn, or a panic, rolls back.
func (s *Scope) Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error {
	if err := s.hostOnly("a write without a verdict"); err != nil {
		return err
	}
	for try := 1; ; try++ {
		tx, err := s.newTxn(opts)
		if err != nil {
			return err
		}
		tx.managed = true
		err = tx.run(ctx, fn)
		if !errors.Is(err, ErrConflict) || try == updateTries || ctx.Err() != nil {
			return err
		}
	}
}

// updateTries is how often Update runs its function when others keep winning.
const updateTries = 10

func (tx *Txn) run(ctx context.Context, fn func(tx *Txn) error) error {
	held, err := tx.s.db.hold(ctx)
	if err != nil {
		return err
	}
	tx.reader = held
	defer tx.end() // also when fn panics
	if err := fn(tx); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.whole(); err != nil {
		return err
	}
	b := tx.batch()
	b.OnStale = AllowStale
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, Reason: "vouched by the host"}
	return tx.finish(ctx, b)
}

// ID is the batch id the transaction commits under.
func (tx *Txn) ID() string { return tx.id.String() }

// Trace links the transaction's reads and its end in the manifest.
func (tx *Txn) Trace() string { return tx.trace }

// Outcome is the result of the Commit that ended the transaction.
func (tx *Txn) Outcome() Outcome {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.out
}

// whole refuses to commit a part of what was meant.
func (tx *Txn) whole() error {
	if tx.failed != nil {
		return fmt.Errorf("%w: %w; roll back, and begin again without it or with what it needs", ErrTxnFailed, tx.failed)
	}
	return tx.supersedesNothing()
}

// fails remembers that a write failed, and gives the error on.
func (tx *Txn) fails(err error) error {
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// Put writes an artefact; only this transaction sees it until Commit. With a Source the text is fetched now; a text that
// is given beside it must be the one that is fetched. An error of Put, or of Delete but ErrNotFound, ends what the
// transaction is good for: its Commit is then refused with ErrTxnFailed.
// In a speculative transaction the provenance is at most Validated, whatever the artefact asks for, and a system
// artefact is refused: what the model reads as instructions comes from the host.
func (tx *Txn) Put(ctx context.Context, a Artefact) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return ErrTxnDone
	}
	put, err := tx.makePut(ctx, a)
	if err != nil {
		return tx.fails(err)
	}
	tx.asDraft(&put)
	return tx.fails(tx.add(ctx, put))
}

func (tx *Txn) makePut(ctx context.Context, a Artefact) (store.Put, error) {
	if err := checkPut(&a); err != nil {
		return store.Put{}, err
	}
	if err := checkReserved("id", a.ID); err != nil {
		return store.Put{}, err
	}
	if a.Provenance == HumanVerified && !tx.s.gated { // of a gated handle mayClaim refuses it
		return store.Put{}, fmt.Errorf("%w: %s: human-verified comes from DB.PutVerified or an approval, not from a scope", ErrProvenance, a.ID)
	}
	claimed := a.Provenance
	a.KindDefaults()
	if !tx.managed {
		if err := tx.s.mayDraft(ctx, &a, claimed); err != nil {
			return store.Put{}, err
		}
		if a.Kind == KindSystem || a.Role == "system" || a.Role == store.RoleDeveloper {
			return store.Put{}, fmt.Errorf("%w: %s: a speculative write cannot be of kind or role system", ErrProvenance, a.ID)
		}
		a.Provenance = speculative(a.Provenance)
	}
	if err := tx.supersedable(ctx, &a); err != nil {
		return store.Put{}, err
	}
	if a.TTL > 0 {
		a.ExpiresAt, a.TTL = tx.s.db.opts.Clock().Add(a.TTL), 0
		if y := a.ExpiresAt.UTC().Year(); y < 1 || y > 9999 {
			return store.Put{}, store.Invalid("ttl", fmt.Sprintf("an expiry in the year %d", y), "one up to the year 9999")
		}
	}
	if err := tx.derive(ctx, &a); err != nil {
		return store.Put{}, err
	}
	v, err := tx.s.content(ctx, &a)
	if err != nil {
		return store.Put{}, err
	}
	return tx.s.db.makePut(a, v)
}

// supersedable notes which of the artefacts that a write supersedes the scope has never had: what was deleted counts, and so
// does what the artefact said before. They may be put later in the transaction.
func (tx *Txn) supersedable(ctx context.Context, a *Artefact) error {
	for _, id := range a.Supersedes {
		_, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
		if errors.Is(err, ErrNotFound) {
			_, err = tx.s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: tx.s.chain[:1], ID: id, Limit: 1})
		}
		if errors.Is(err, ErrNotFound) && !tx.s.supersededBefore(ctx, a.ID, id) {
			set(&tx.unknown, id, true)
		} else if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrGone) {
			return err
		}
	}
	return nil
}

// supersedesNothing refuses to supersede what the scope has never had and the transaction does not put: a wrong name would
// leave the old text where it is, beside the new one.
func (tx *Txn) supersedesNothing() error {
	if len(tx.unknown) == 0 {
		return nil
	}
	for _, by := range tx.order {
		for _, id := range tx.writes[by].Artefact.Supersedes {
			if tx.unknown[id] && tx.writes[id] == nil {
				return store.InvalidMissing(ErrNotFound, "supersedes", strconv.Quote(id)+", which scope "+tx.s.name+" has never had",
					"ids of artefacts of the scope itself; put them first, or leave them out of "+strconv.Quote(by))
			}
		}
	}
	return nil
}

// supersededBefore says whether the current version of an artefact names another one already: it may be put again.
func (s *Scope) supersededBefore(ctx context.Context, id, other string) bool {
	page, err := s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: s.chain[:1], ID: id, Limit: 1})
	return err == nil && len(page.Heads) > 0 && slices.Contains(page.Heads[0].Supersedes, other)
}

// speculative is what a write of an agent is worth once the gate let it pass.
func speculative(p Provenance) Provenance {
	return min(p, Validated)
}

// derive fixes the versions of the parents, and takes over the lowest trust among them. Parents must be visible here,
// so the artefact's scope is the narrowest of all.
func (tx *Txn) derive(ctx context.Context, a *Artefact) error {
	if len(a.DerivedFrom) == 0 {
		return nil
	}
	a.DerivedFrom = slices.Clone(a.DerivedFrom)
	for i := range a.DerivedFrom {
		r := &a.DerivedFrom[i]
		l, err := tx.s.db.store.Resolve(ctx, tx.s.chain, *r)
		if err != nil {
			return fmt.Errorf("derived_from %s: %w", r, err)
		}
		r.Scope, r.Version = l.Scope, l.Version
		loaded, err := tx.s.db.store.Load(ctx, tx.s.chain, l.Pages[:1], store.WantHead)
		if err != nil {
			return err
		}
		if loaded[0].Err != nil {
			return loaded[0].Err
		}
		a.Provenance = min(a.Provenance, loaded[0].Head.Provenance)
	}
	return nil
}

// content fetches what has a source, and says what the source is recognised by. A text that is given beside it must be
// what the source holds, as one that was read back is: the first read would replace another.
func (s *Scope) content(ctx context.Context, a *Artefact) (store.Validator, error) {
	if a.Source == "" {
		return store.Validator{}, nil
	}
	if err := s.view.Known(a.Source); err != nil {
		return store.Validator{}, err
	}
	given := a.Text != "" || len(a.Parts) > 0
	f, err := s.view.Fetch(ctx, a.Source)
	if err != nil && given {
		return store.Validator{}, fmt.Errorf("%s: text beside a source must be what the source holds; leave one of them out: %w", a.ID, err)
	}
	if err != nil {
		return store.Validator{}, err
	}
	if f.Trust != 0 {
		a.Provenance = min(a.Provenance, f.Trust)
	}
	if given {
		text, _ := joinParts(a.Parts)
		if a.Text+text != f.Text {
			return store.Validator{}, store.Invalid("text", fmt.Sprintf("one beside source %s, which holds another", strconv.Quote(a.Source)), "text or source: with a source the text is fetched from there")
		}
	} else {
		a.Text = f.Text
	}
	if a.CurrentAsOf.IsZero() {
		a.CurrentAsOf = f.AsOf
	}
	return f.Validator, nil
}

func (tx *Txn) add(ctx context.Context, put store.Put) error {
	id := put.Artefact.ID
	bytes := tx.bytes + putBytes(&put) - putBytes(tx.writes[id])
	if bytes > MaxTxnBytes {
		return store.Invalid("transaction", fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("at most %d; write in several", MaxTxnBytes))
	}
	if tx.writes[id] == nil && !tx.drop[id] && len(tx.writes)+len(tx.drop) >= MaxTxnWrites {
		return store.Invalid("transaction", fmt.Sprintf("more than %d artefacts", MaxTxnWrites), "fewer; write in several")
	}
	if tx.replaced.Leads(put.Artefact.Supersedes, id, tx.writes) {
		return store.Invalid("supersedes", fmt.Sprintf("%q and another artefact of this transaction, each in place of the other", id), "one of them to stay")
	}
	if err := tx.expecting(ctx, id); err != nil {
		return err
	}
	if tx.writes[id] == nil {
		tx.order = append(tx.order, id)
	}
	delete(tx.drop, id)
	tx.replaced.Forget(tx.writes[id])
	tx.replaced.Note(&put)
	tx.writes[id], tx.bytes = &put, bytes
	return nil
}

// putBytes are the bytes of text of a put; none for nil.
func putBytes(p *store.Put) (n int) {
	if p != nil {
		for i := range p.Pages {
			n += len(p.Pages[i].Text)
		}
	}
	return n
}

// expecting notes the version a speculative write replaces, if no read has noted it before. A host-vouched blind put
// expects nothing: the last one wins, and every one makes a version.
func (tx *Txn) expecting(ctx context.Context, id string) error {
	if _, ok := tx.expect[id]; ok || tx.managed {
		return nil
	}
	l, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err != nil {
		l.LSN = 0
	}
	set(&tx.expect, id, l.LSN)
	return nil
}

// Delete writes a tombstone for an artefact of the scope. ErrNotFound when there is none: then what was asked for holds
// already, and the transaction is as good as before.
func (tx *Txn) Delete(ctx context.Context, id string) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return ErrTxnDone
	}
	err := tx.remove(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return err
	}
	return tx.fails(err)
}

func (tx *Txn) remove(ctx context.Context, id string) error {
	if err := store.CheckID("id", id); err != nil {
		return err
	}
	if err := checkReserved("id", id); err != nil {
		return err
	}
	_, err := tx.s.db.store.Resolve(ctx, tx.s.chain[:1], Ref{ID: id})
	if err != nil && (tx.writes[id] == nil || !errors.Is(err, ErrNotFound)) {
		return err
	}
	if err := tx.s.mayReplace(ctx, id); err != nil {
		return err
	}
	if err := tx.expecting(ctx, id); err != nil {
		return err
	}
	if tx.writes[id] == nil && !tx.drop[id] && len(tx.writes)+len(tx.drop) >= MaxTxnWrites {
		return store.Invalid("transaction", fmt.Sprintf("more than %d artefacts", MaxTxnWrites), "fewer; write in several")
	}
	if tx.writes[id] != nil {
		tx.bytes -= putBytes(tx.writes[id])
		tx.replaced.Forget(tx.writes[id])
		delete(tx.writes, id)
		tx.order = slices.DeleteFunc(tx.order, func(x string) bool { return x == id })
	}
	if err == nil {
		set(&tx.drop, id, true)
	}
	return nil
}

// Get reads an artefact as Scope.Get does, the transaction's own writes first. What is read from the scope itself
// must not change before Commit if the transaction writes it too.
func (tx *Txn) Get(ctx context.Context, id string, opts ...ReadOption) (*Version, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return nil, ErrTxnDone
	}
	if err := store.CheckID("id", id); err != nil {
		return nil, err
	}
	if w := tx.writes[id]; w != nil {
		return tx.own(w), nil
	}
	s := tx.s
	if tx.drop[id] { // as it will be after the commit: an ancestor's may stand
		parent := *s
		parent.chain = s.chain[1:]
		s = &parent
	}
	v, leaf, err := s.read(ctx, Ref{ID: id}, readOpts(opts))
	if errors.Is(err, ErrNotFound) && !tx.drop[id] {
		tx.sawNone(id)
	}
	if err != nil {
		return nil, err
	}
	if v.Ref.Scope != tx.s.name && !tx.drop[id] {
		tx.sawNone(id)
	}
	for _, p := range v.Pages {
		tx.see(v.head(), p.Ref.Page, p.Num)
	}
	leaf.Parent = tx.trace
	return v, tx.s.emit(ctx, leaf)
}

// own shows a write of the transaction itself.
func (tx *Txn) own(w *store.Put) *Version {
	h := &store.Head{Artefact: w.Artefact, Scope: tx.s.name, Actor: tx.s.actor, PartBytes: w.PartBytes}
	v := versionOf(h)
	var text strings.Builder
	for i, p := range w.Pages {
		text.WriteString(p.Text)
		v.Tokens += p.Tokens
		v.Pages = append(v.Pages, Page{Ref: Ref{Scope: tx.s.name, ID: v.ID, Page: i + 1}, Tokens: p.Tokens, Digest: p.Digest, Text: p.Text})
	}
	v.Text = text.String()
	v.fillParts(h, true)
	return v
}

func (tx *Txn) batch() store.Batch {
	b := store.Batch{ID: tx.id, Scope: tx.s.name, Actor: tx.s.actor, Now: tx.s.db.opts.Clock(), OnStale: tx.onStale, State: tx.stateW}
	if !tx.managed || !tx.first {
		b.Trace = tx.trace
	}
	b.Puts = tx.beyondGate()
	b.Deletes = slices.Sorted(maps.Keys(tx.drop))
	for _, id := range slices.Sorted(maps.Keys(tx.expect)) {
		if tx.writes[id] != nil || tx.drop[id] {
			b.Expect = append(b.Expect, store.Precondition{Ref: Ref{Scope: tx.s.name, ID: id}, LSN: tx.expect[id]})
		}
	}
	for _, k := range tx.slots() {
		if k.scope == tx.s.name && (tx.writes[k.id] != nil || tx.drop[k.id]) {
			continue // judged as a conflict already
		}
		b.Context = append(b.Context, tx.saw[k])
	}
	return b
}

// ownDocs are the transaction's own pages, analysed, for ranking beside what the store proposes.
func (tx *Txn) ownDocs() []ownPage {
	var out []ownPage
	for _, id := range tx.order {
		w := tx.writes[id]
		for i := range w.Pages {
			p := &w.Pages[i]
			if p.Analysis == nil {
				an := store.Analyse(tx.s.db.lexer, &w.Artefact, p.Text)
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
