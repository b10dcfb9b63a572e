package live

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Kept is how many sessions keep their turns in memory. The turns of other sessions are read again when they are used.
const Kept = 64

// keptSound is how many scopes are remembered as readable.
const keptSound = 1024

// Sessions are the conversations of one open database.
//
// The most recently used ones keep their turns in memory (recent). A watched one stays as long as the database is open
// (watched). Any other one is found as long as some caller uses it (alive): all users of a session must share one lock, so
// a second Conversation of the same session must not exist. The garbage collector says when nobody uses one any more. A
// count of users was rejected: every handle would have needed a Close.
type Sessions struct {
	Host

	mu      sync.Mutex // guards the maps and lists below; taken under no lock but that of a conversation
	recent  *simplelru.LRU[[2]string, *Conversation]
	watched map[[2]string]*Conversation
	alive   map[[2]string]weak.Pointer[Conversation]
	sound   *simplelru.LRU[string, struct{}] // scopes whose every row was compared with the audit once

	gcs    atomic.Uint64 // runs of gc that deleted rows of turns
	unsure atomic.Bool   // a failed commit of some session may still happen
}

// NewSessions returns the conversations of a database; none is loaded.
func NewSessions(h Host) *Sessions {
	t := &Sessions{Host: h, watched: map[[2]string]*Conversation{}, alive: map[[2]string]weak.Pointer[Conversation]{}}
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

// watch keeps a session in memory for its watcher.
func (t *Sessions) watch(c *Conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched[[2]string{c.Scope, c.ID}] = c
}

// StopWatchers ends the background work of all sessions and waits for it.
func (t *Sessions) StopWatchers() {
	t.mu.Lock()
	var list []*Watcher
	for _, c := range t.watched {
		if w := c.Watcher(); w != nil {
			list = append(list, w)
		}
	}
	t.mu.Unlock()
	for _, w := range list { // without mu: the background work takes it
		w.Stop()
	}
}

// release frees the turns of a session that was not used for long and is not watched.
func (c *Conversation) release() {
	if c.Watcher() != nil {
		return
	}
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
	for cursor := ""; ; {
		page, err := t.Store.Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Cursor: cursor, Limit: 256})
		if err != nil {
			return err
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sound.Add(scope, struct{}{})
	return nil
}
