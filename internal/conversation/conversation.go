package conversation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/oklog/ulid/v2"
)

// Host is the part of a database that its conversations need. The functions may be called concurrently, also while
// the lock of a conversation is held.
type Host struct {
	Store    store.Store
	Counter  token.Counter
	Clock    func() time.Time
	NewID    func() (ulid.ULID, error)
	Logger   *slog.Logger
	ReadOnly bool
	// Summarizer writes the summaries of watchers; nil: they take extracts.
	Summarizer Summarizer
	// Owns reports whether this process decides about the sessions of all processes; with Shared, each host does, and a
	// session has one that holds it. Name names this process for people.
	Owns   func() bool
	Shared bool
	Name   string
	// OnlyStarted leaves sessions alone whose watcher this process did not start. Patience is how long the holder of a
	// session may take for a pass.
	OnlyStarted bool
	Patience    time.Duration
	// Texts reads the texts of pages, in their order, through the working set of the process.
	Texts func(ctx context.Context, scopes store.Scopes, keys []store.PageKey) ([]string, error)
	// AfterTold calls fn when a commit after an LSN wrote a told row that is wanted, see engine.Engine; nil: the store cannot.
	AfterTold func(lsn uint64, want func(store.StateRow) bool, fn func()) (stop func())
	// MakePut splits the text of an artefact into pages and digests them.
	MakePut func(a store.Artefact) (store.Put, error)
	// Shorten asks a summarizer for at most tokens of a text; "" when the answer is not usable.
	Shorten func(ctx context.Context, by Summarizer, text string, tokens int) string
}

// Summarizer is the summarizer of the database, see ctxpage.Summarizer.
type Summarizer interface {
	Name() string
	Summarize(ctx context.Context, text string, maxTokens int) (string, error)
}

// Conversation is a session in the memory of this process: its turns, and its ties to the store.
// Changes of one session happen one at a time. Each is decided on what is stored and committed before the next begins:
//
//	Exclusively  lock ─▶ refresh ─▶ fn: ask, change memory, collect writes ─▶ Commit ─▶ unlock
//	                      │                                                    │
//	                      │ change row unchanged: read new members only        │ success: Committed
//	                      ▼ change row moved, or not loaded: read everything   ▼ failure: Failed, not loaded
//
// Ownership: everything belongs to the holder of lock. The lock comes before all other locks of the
// database (db.go); it is a channel so that the end of a context ends the wait for it.
//
// Other writers are noticed in two ways. A plain put into the group changes the list of members. A commit by another
// process changes the change row, and every commit of a session expects that row unchanged (Guard), so of two processes
// that decide on the same state one is refused and decides again.
//
// Memory changes before the commit, because the window that a change makes must be measured before it is stored. After a
// failed commit memory is therefore wrong and is read again. When the outcome is unknown, the commit may still happen: the
// next read first waits until nothing is in flight (unsure).
type Conversation struct {
	*Turns
	host *Host
	home *Sessions
	lock chan struct{} // capacity 1

	loaded  bool
	unsure  bool   // a failed commit may still happen
	gcs     uint64 // Sessions.gcs when the rows were read
	changed uint64 // LSN of the row ChangeRowKey: the last commit of the session by any process
	LSN     uint64 // of the store when the members were listed
}

func newConversation(t *Sessions, scope, id string) *Conversation {
	return &Conversation{Turns: NewTurns(scope, id, t.Counter), host: &t.Host, home: t, lock: make(chan struct{}, 1)}
}

// Exclusively runs fn on the session as it is stored now. It runs fn again when another process changed the session before
// fn could commit.
func (c *Conversation) Exclusively(ctx context.Context, fn func() error) error {
	return format.Retry(ctx, func() error { return c.once(ctx, fn) })
}

func (c *Conversation) once(ctx context.Context, fn func() error) error {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	returned := false
	defer func() {
		if !returned { // the host's counter panicked: memory may hold half a change
			c.loaded = false
		}
		<-c.lock
	}()
	err := c.refresh(ctx)
	if err == nil {
		err = fn()
	}
	returned = true
	return err
}

// Loaded reports whether memory equals what is stored, as far as this process knows. It waits for the lock.
func (c *Conversation) Loaded() bool {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	return c.loaded
}

// Discard marks memory as wrong: the next use reads everything again. The caller holds the lock.
func (c *Conversation) Discard() { c.loaded = false }

// Watcher returns the watcher of the session; nil: none.
func (c *Conversation) Watcher() *Watcher { return c.home.watcherOf(c.name()) }

// name is the scope and the session, by which the maps of Sessions have it.
func (c *Conversation) name() [2]string { return [2]string{c.Scope, c.ID} }

// refreshTries is how often a session is read whose turns go while it is read.
const refreshTries = 5

// refresh makes memory equal to the store. Members may be erased, or taken by gc, after they were listed and before they are read:
// then it reads again.
func (c *Conversation) refresh(ctx context.Context) (err error) {
	for range refreshTries {
		if err = c.refreshOnce(ctx); !errors.Is(err, store.ErrGone) {
			return err
		}
	}
	return err
}

// refreshOnce reads nothing, the new turns, or everything.
func (c *Conversation) refreshOnce(ctx context.Context) error {
	if gcs := c.home.gcs.Load(); gcs != c.gcs { // gc deleted rows of turns
		c.gcs, c.loaded = gcs, false
	}
	change, err := c.host.Store.State(ctx, c.Key(ChangeRowKey))
	if err != nil {
		return err
	}
	if !c.loaded || change.LSN != c.changed { // the latter: another process committed
		c.changed, c.loaded = change.LSN, false // until all of it is read: what is there meanwhile is of two moments
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	page, err := c.host.Store.Scan(ctx, store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{c.Scope}, Group: c.ID, Known: c.LSN})
	if err != nil {
		return err
	}
	keys := page.Keys
	if page.Same {
		keys = append(c.Keys, keys...)
	}
	c.LSN = max(c.LSN, page.LSN)
	if err := c.follow(ctx, keys, page.Same); err != nil {
		c.loaded = false // only some of the members were taken
		return err
	}
	return nil
}

// follow takes the current members of the session. grown says that the known members are the first of keys.
func (c *Conversation) follow(ctx context.Context, keys []store.PageKey, grown bool) error {
	known, fresh := c.Follow(keys, grown)
	if known == len(keys) && known == len(c.Keys) && c.Staged == 0 {
		return nil
	}
	if c.TakeOwn(keys, known, fresh, c.LSN == c.changed) {
		return nil
	}
	heads, err := c.heads(ctx, fresh)
	if err != nil {
		return err
	}
	for _, h := range heads {
		old, yes := c.Outdated(h)
		if !yes {
			continue
		}
		texts, err := c.host.Texts(ctx, store.Scopes{c.Scope}, old.Keys())
		if err != nil {
			return err
		}
		c.Remake(old, texts)
	}
	c.Take(keys, known, heads)
	return nil
}

// heads loads the heads of the turns whose first page is among the keys, in their order.
func (c *Conversation) heads(ctx context.Context, keys []store.PageKey) ([]*store.Head, error) {
	loaded, err := c.host.Store.Load(ctx, store.Scopes{c.Scope}, keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	heads := make([]*store.Head, 0, len(loaded))
	for i := range loaded {
		if l := &loaded[i]; l.Err != nil {
			return nil, l.Err
		} else if l.Page == 1 {
			heads = append(heads, l.Head)
		}
	}
	return heads, nil
}

// load reads the rows. A session without a state row exists when plain puts wrote to its group.
func (c *Conversation) load(ctx context.Context) error {
	if c.unsure { // rows read before that commit becomes visible would stay: nothing reports a changed row later
		if _, err := c.host.Store.Refresh(ctx, 0); err != nil && ctx.Err() != nil {
			return err
		}
		c.unsure = false
	}
	c.LSN = 0
	row, err := c.host.Store.State(ctx, c.Key(SessionRowKey))
	if err != nil {
		return err
	}
	if err := c.Reset(row.Value); err != nil {
		return err
	}
	if err := c.loadRows(ctx, TurnRowKey, c.TakeTurn); err != nil {
		return err
	}
	if err := c.loadRows(ctx, PlaceRowKey, c.TakePlace); err != nil {
		return err
	}
	force, verdicts, err := c.loadForce(ctx, c.State.InForce)
	if err != nil {
		return err
	}
	c.Enforce(force, verdicts)
	c.loaded = true
	return nil
}

// loadRows reads the rows of one kind, one for each turn.
func (c *Conversation) loadRows(ctx context.Context, kind string, take func(id string, raw []byte) error) error {
	prefix := c.TurnKey(kind, "")
	return format.Walk(ctx, c.host.Store, prefix, func(r store.StateRow) error { return take(r.Key[len(prefix):], r.Value) })
}
