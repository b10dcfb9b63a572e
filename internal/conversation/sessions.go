package conversation

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Kept is the number of sessions that keep their turns in memory. The turns of other sessions are read again when they are used.
const Kept = 64

// keptSound is the number of scopes that are remembered as readable.
const keptSound = 1024

// Sessions are the conversations of one open database.
//
// The most recently used ones keep their turns in memory (recent). Any other one is found as long as some caller uses it
// (alive): all users of a session must share one lock, so a second Conversation of the same session must not exist. The garbage collector says when nobody uses one any more. A
// count of users was rejected: every handle would have needed a Close.
type Sessions struct {
	Host

	mu      sync.Mutex // guards the maps and lists below; taken under no lock but that of a conversation
	recent  *simplelru.LRU[[2]string, *Conversation]
	watched map[[2]string]*Watcher
	held    map[[2]string]bool // sessions of whose watch row this process is the holder, or was
	keeper  *keeper            // the background work; nil: none yet
	closed  bool               // there will be none
	alive   map[[2]string]weak.Pointer[Conversation]
	sound   *simplelru.LRU[string, struct{}] // scopes whose every row was compared with the audit once

	gcs    atomic.Uint64 // runs of gc that deleted rows of turns
	unsure atomic.Bool   // a failed commit of some session may still happen
	self   func() string // the id of this open database as a holder; made when it is first needed
}

// NewSessions returns the conversations of a database; none is loaded.
func NewSessions(h Host) *Sessions {
	t := &Sessions{Host: h, watched: map[[2]string]*Watcher{}, held: map[[2]string]bool{}, alive: map[[2]string]weak.Pointer[Conversation]{}}
	t.self = sync.OnceValue(func() string {
		id, err := h.NewID()
		if err != nil {
			h.Logger.Error("watcher: no id could be made; it cannot hold sessions", "error", err)
		}
		return id.String()
	})
	t.recent, _ = simplelru.NewLRU(Kept, func(_ [2]string, c *Conversation) { c.release() }) // an error only for a size below 1
	t.sound, _ = simplelru.NewLRU[string, struct{}](keptSound, nil)
	return t
}

// Of returns the conversation of a session. It reads nothing.
func (t *Sessions) Of(scope, id string) *Conversation {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{scope, id}
	if c, ok := t.recent.Get(key); ok {
		return c
	}
	c := t.alive[key].Value()
	if c == nil {
		c = newConversation(t, scope, id)
		c.unsure = t.unsure.Load()
		t.alive[key] = weak.Make(c)
		runtime.AddCleanup(c, collected, collectedKey{weak.Make(t), key})
	}
	t.recent.Add(key, c)
	return c
}

// Swept says that gc deleted rows of turns: every session reads its rows again.
func (t *Sessions) Swept() { t.gcs.Add(1) }

// collectedKey names a conversation that the garbage collector took. It does not keep the database alive.
type collectedKey struct {
	of  weak.Pointer[Sessions]
	key [2]string
}

func collected(g collectedKey) {
	t := g.of.Value()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alive[g.key].Value() == nil { // otherwise Of made a new one since
		delete(t.alive, g.key)
	}
}

// register makes w the watcher of its session, unless there is one. seen is the newest event before it.
func (t *Sessions) register(w *Watcher, seen uint64) *Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.watched[w.c.name()]; old != nil {
		return old
	}
	w.seen.Store(seen)
	t.watched[w.c.name()] = w
	return w
}

// watcherOf returns the watcher of a session; nil: none.
func (t *Sessions) watcherOf(of [2]string) *Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watched[of]
}

// holding notes that this process became the holder of a session.
func (t *Sessions) holding(of [2]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[of] = true
}

// holds returns the sessions that this process may hold.
func (t *Sessions) holds() [][2]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.held))
}

// briefly returns the conversation of a session, and what to call when the look at it is over: turns that were not in
// memory before are released.
func (t *Sessions) briefly(of [2]string) (c *Conversation, done func()) {
	t.mu.Lock()
	known := t.recent.Contains(of)
	t.mu.Unlock()
	c = t.Of(of[0], of[1])
	return c, func() {
		if known {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.recent.Remove(of) // releases it
	}
}

// release frees the turns of a session that was not used for long.
func (c *Conversation) release() {
	select {
	case c.lock <- struct{}{}:
		c.loaded = false
		c.Release()
		<-c.lock
	default: // in use: the garbage collector frees it
	}
}

// Readable reads the newest row of every artefact of a scope, which compares it with the audit. A scope is read once in a
// process.
//
// The catalogue is made of rows that nobody has compared yet. A row that was edited or damaged may name another group, or
// none, and its session then looks as if it had never begun. A row that was moved to another scope is an error there and
// is not found here, nor by Get; Check finds it.
func (t *Sessions) Readable(ctx context.Context, scope string) error {
	t.mu.Lock()
	known := t.sound.Contains(scope)
	t.mu.Unlock()
	if known {
		return nil
	}
	for _, err := range format.Pages(ctx, t.Store, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Limit: 256}) {
		if err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sound.Add(scope, struct{}{})
	return nil
}
