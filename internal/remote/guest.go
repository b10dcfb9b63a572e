package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A guest is in one of two roles and changes at most once:
//
// 	client of another process ──(its owner is gone, we got the lock)──▶ owner
//
// A call reads the role once and goes to that store. If it fails because the role changed
// meanwhile, it is made again at the new store (do); what cannot simply be repeated has its own
// way: leaves are looked up in the audit, jobs that may have run end with ErrOutcomeUnknown, and a
// batch has its id.
//
// Holds have numbers of the guest. takeOver takes each of them again in the opened files before
// anybody else may use that store, so gc never drops what a reader of this process still reads.
//
// Locks: taking, then mu. mu is never held while a store is called, except in become, when nobody
// else has that store yet.

// guest is a store that began as a client of another process. When that ends, it may become the
// owner; it never goes back.
type guest struct {
	opts   Options
	client *Client
	ready  chan struct{}  // closed when client and role are there
	ending sync.WaitGroup // the client that is not needed any more
	is     roles
	socket atomic.Value           // string
	owned  atomic.Pointer[func()] // see WhenOwner

	taking sync.Mutex                // one attempt at a time
	late   atomic.Pointer[time.Time] // since when a reader finds nobody; nil: somebody serves
	failed atomic.Pointer[error]     // why the last attempt to take over failed

	mu     sync.Mutex // never held while a store is called
	closed bool
	next   store.Ticket
	holds  map[store.Ticket]*held
}

// held is a hold: at which moment, and its ticket at the store that the guest is.
type held struct {
	at     store.Moment
	role   *role // nil: it is being taken
	ticket store.Ticket
}

func (g *guest) where() string { return g.socket.Load().(string) }

// find notes where the holder of the lock serves, or will.
func (g *guest) find(locked *store.LockedError) {
	where := locked.Socket
	if where == "" {
		where, _ = SocketPath(g.opts.Files.Path)
	}
	g.socket.Store(where)
}

// readerWaits is how long a reader leaves the place of an owner to those that write. The owner it
// then becomes keeps writers out.
const readerWaits = time.Second

// takeOver tries to take the place of the owner. It is called while nobody serves.
func (g *guest) takeOver(ctx context.Context) bool {
	<-g.ready
	g.taking.Lock()
	defer g.taking.Unlock()
	if g.is.Load().owns() {
		return true
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed || ctx.Err() != nil || !g.mayRead() {
		return false
	}
	opts := g.opts
	opts.Files.MustExist = true
	st, err := opts.own(opts.settle)
	var locked *store.LockedError
	if errors.As(err, &locked) {
		g.find(locked)
	}
	if err == nil {
		if err = g.become(&role{st}); err != nil {
			_ = st.Close()
		}
	}
	g.failed.Store(&err)
	if then := g.owned.Load(); err == nil && then != nil {
		(*then)()
	}
	return err == nil
}

// mayRead reports whether a reader has waited for writers for long enough. The wait begins anew with each owner that ends,
// however soon after the last.
func (g *guest) mayRead() bool {
	if !g.opts.Files.ReadOnly {
		return true
	}
	now := time.Now()
	g.late.CompareAndSwap(nil, &now)
	since := g.late.Load()
	return since != nil && now.Sub(*since) > readerWaits
}

// met notes that somebody serves.
func (g *guest) met() { g.late.Store(nil) }

func (r *role) owns() bool {
	_, owns := Files(r.st)
	return owns
}

// become makes the guest the owner, with the holds it has.
func (g *guest) become(r *role) error {
	info, err := r.st.Info(context.Background())
	switch {
	case err != nil:
		return err
	case info.ID != g.client.Audit().DB():
		return fmt.Errorf("%w: %s is another database now; open it anew", store.ErrClosed, g.opts.Files.Path)
	case r.st.Mark().LSN < g.client.Mark().LSN:
		return fmt.Errorf("%w: an older copy of %s was put in its place; open it anew", store.ErrClosed, g.opts.Files.Path)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return store.ErrClosed
	}
	for _, h := range g.holds { // nobody else has this store yet
		t, err := r.st.Hold(context.Background(), h.at)
		if err != nil {
			return err
		}
		h.role, h.ticket = r, t
	}
	g.is.Store(r)
	g.ending.Go(func() { _ = g.client.Close() }) // waits for its calls, of which this may be one
	return nil
}

// do calls the current store of the guest. It retries a call that ended because the guest became the
// owner.
func do[A any](g *guest, call func(store.Store) (A, error)) (A, error) {
	for {
		r := g.is.Load()
		a, err := call(r.st)
		if retry, _ := g.moved(r, err); retry {
			continue
		}
		return a, g.explained(err)
	}
}

// moved reports whether a call failed because the guest became the owner meanwhile, so that the
// caller must retry. sent: the previous owner may have carried it out.
func (g *guest) moved(r *role, err error) (retry, sent bool) {
	var taken *TakenError
	if errors.As(err, &taken) {
		return true, taken.Sent
	}
	return errors.Is(err, store.ErrClosed) && g.is.Load() != r, errors.Is(err, store.ErrOutcomeUnknown)
}

// explained adds to an error of a call that nobody answered why this process could not take the
// place of the owner.
func (g *guest) explained(err error) error {
	var un *UnavailableError
	if why := g.failed.Load(); err != nil && errors.As(err, &un) && un.PID == 0 && why != nil && *why != nil {
		return fmt.Errorf("%w; %w", err, *why)
	}
	return err
}

// Hold: see store.Store.
func (g *guest) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	g.mu.Lock()
	g.next++
	own, h := g.next, &held{at: at}
	g.holds[own] = h
	g.mu.Unlock()
	for {
		r := g.is.Load()
		t, err := r.st.Hold(ctx, at)
		g.mu.Lock()
		if h.role != nil { // the guest became the owner, and took it
			g.mu.Unlock()
			return own, nil
		}
		if retry, _ := g.moved(r, err); err != nil && !retry {
			delete(g.holds, own)
			g.mu.Unlock()
			return 0, g.explained(err)
		}
		if err == nil {
			h.role, h.ticket = r, t
			g.mu.Unlock()
			return own, nil
		}
		g.mu.Unlock()
	}
}

// Release: see store.Store.
func (g *guest) Release(own store.Ticket) {
	g.mu.Lock()
	h := g.holds[own]
	delete(g.holds, own)
	g.mu.Unlock()
	if h != nil && h.role == g.is.Load() { // else it ended with the client
		h.role.st.Release(h.ticket)
	}
}

// Close ends the store: as an owner it hands over, as a client it says goodbye.
func (g *guest) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()
	err := g.is.Load().st.Close() // the role is the last: see become
	g.ending.Wait()
	return err
}

// Append: see store.Store.
func (g *guest) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	r := g.is.Load()
	err := r.append(ctx, leaves, d)
	retry, sent := g.moved(r, err)
	if !retry {
		return g.explained(err)
	}
	r = g.is.Load()
	st := r.st
	if sent {
		if leaves, err = Missing(ctx, st, leaves); err != nil || len(leaves) == 0 {
			return err
		}
	}
	return r.append(ctx, leaves, d)
}

// append adds leaves at the store of the role. Only another process compares them with a guess.
func (r *role) append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if err := Guessed(ctx); err != nil && r.owns() {
		return err
	}
	return r.st.Append(ctx, leaves, d)
}

// Maintain: see store.Store. A job that was sent to the owner before, and changes anything, is not run again: that owner may
// have carried it out, and an erase that ran twice would take what was written in between.
func (g *guest) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	r := g.is.Load()
	rep, err := r.st.Maintain(ctx, job, p)
	retry, sent := g.moved(r, err)
	switch {
	case !retry:
		return rep, g.explained(err)
	case sent && format.JobWrites(&job):
		return rep, fmt.Errorf("%w: the process that ran the job ended before it answered; look at its result before you run it again (Erasures, Stats, the file of the backup)", store.ErrOutcomeUnknown)
	}
	return g.is.Load().st.Maintain(ctx, job, p)
}

// Mark: see store.Store.
func (g *guest) Mark() store.Mark { return g.is.Load().st.Mark() }

// Commit: see store.Store. Its id keeps it from being applied twice.
func (g *guest) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return do(g, func(st store.Store) (store.Outcome, error) { return st.Commit(ctx, b) })
}

// Info: see store.Store.
func (g *guest) Info(ctx context.Context) (store.Info, error) {
	return do(g, func(st store.Store) (store.Info, error) { return st.Info(ctx) })
}

// Resolve: see store.Store.
func (g *guest) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	return do(g, func(st store.Store) (store.Located, error) { return st.Resolve(ctx, scopes, ref) })
}

// Load: see store.Store.
func (g *guest) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	return do(g, func(st store.Store) ([]store.Loaded, error) { return st.Load(ctx, scopes, pages, want) })
}

// Candidates: see store.Store.
func (g *guest) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	return do(g, func(st store.Store) (store.Candidates, error) { return st.Candidates(ctx, q) })
}

// Scan: see store.Store.
func (g *guest) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	return do(g, func(st store.Store) (store.ScanPage, error) { return st.Scan(ctx, q) })
}

// Held: see store.Store.
func (g *guest) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	return do(g, func(st store.Store) (store.HeldBatch, error) { return st.Held(ctx, id) })
}

// Vectors: see store.Store.
func (g *guest) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	return do(g, func(st store.Store) ([][]float32, error) { return st.Vectors(ctx, scopes, model, nums) })
}

// PutVectors: see store.Store.
func (g *guest) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	_, err := do(g, func(st store.Store) (struct{}, error) { return struct{}{}, st.PutVectors(ctx, model, nums, vecs) })
	return err
}

// State: see store.Store.
func (g *guest) State(ctx context.Context, key string) (store.StateRow, error) {
	return do(g, func(st store.Store) (store.StateRow, error) { return st.State(ctx, key) })
}

// Outcome: see store.Store.
func (g *guest) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	return do(g, func(st store.Store) (store.Outcome, error) { return st.Outcome(ctx, id) })
}

// Refresh: see store.Store.
func (g *guest) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	return do(g, func(st store.Store) (store.Mark, error) { return st.Refresh(ctx, atLeast) })
}

// Changes: see store.Store.
func (g *guest) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	return do(g, func(st store.Store) (store.Changes, error) { return st.Changes(ctx, after, wait) })
}

// Head: see store.Store.
func (g *guest) Head(ctx context.Context) (manifest.Head, error) {
	return do(g, func(st store.Store) (manifest.Head, error) { return st.Head(ctx) })
}

// Stat: see store.Store.
func (g *guest) Stat(ctx context.Context) (store.StoreStats, error) {
	return do(g, func(st store.Store) (store.StoreStats, error) { return st.Stat(ctx) })
}

// Audit: see store.Store.
func (g *guest) Audit() store.Audit { return guestAudit{g} }

// sealed is a guest of a database opened read-only: it asks, and changes nothing, and its reads are
// not in the audit.
type sealed struct{ *guest }

// Commit refuses.
func (s sealed) Commit(context.Context, store.Batch) (store.Outcome, error) {
	return store.Outcome{}, store.ErrReadOnly
}

// Append keeps no leaves: a read-only database logs nothing.
func (s sealed) Append(context.Context, []*manifest.Record, store.Durability) error { return nil }

// PutVectors keeps none.
func (s sealed) PutVectors(ctx context.Context, _ string, _ []uint64, _ [][]float32) error {
	return ctx.Err()
}

// Maintain does what writes nothing into the database.
func (s sealed) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	if job.Kind == store.JobCheckpoint || format.JobWrites(&job) && job.Kind != store.JobBackup {
		return store.JobReport{}, store.ErrReadOnly
	}
	return s.guest.Maintain(ctx, job, p)
}

var _, _, _ store.Store = (*Host)(nil), (*guest)(nil), sealed{}
