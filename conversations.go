package ctxpage

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// keptTalks is how many sessions keep their turns in memory; the others are read again when they are used.
const keptTalks = 64

// conversations are those of this process. The ones used last keep their turns in memory. Of the others nothing stays but
// what somebody still works with: a session must have one lock for all who use it, so it is found as long as it lives, and
// the collector says when it is gone.
type conversations struct {
	mu      sync.Mutex
	recent  *simplelru.LRU[[2]string, *conversation]
	watched map[[2]string]*conversation // a watcher keeps its session
	alive   map[[2]string]weak.Pointer[conversation]

	sound *simplelru.LRU[string, struct{}] // scopes in which every row was compared with the audit once

	gcs    atomic.Uint64 // runs of gc that dropped rows of deleted turns
	unsure atomic.Bool   // a commit of some session failed that may still happen
}

// keptSound is how many scopes are remembered as readable.
const keptSound = 1024

// readable reads the newest row of every artefact of a scope, and so compares it with the audit. The catalogue is made of
// rows that nobody has compared yet: one that was edited or damaged may name another group, or none, and then its session
// looks as if nobody had begun it. A scope is read once in a process. A row that was moved to another scope is an error
// there and is not found here, as by Get; Check finds both.
func (db *DB) readable(ctx context.Context, scope string) error {
	t := &db.talks
	t.mu.Lock()
	if t.sound == nil {
		t.sound, _ = simplelru.NewLRU[string, struct{}](keptSound, nil)
	}
	known := t.sound.Contains(scope)
	t.mu.Unlock()
	if known {
		return nil
	}
	for cursor := ""; ; {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Cursor: cursor, Limit: 256})
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

func (db *DB) conversation(scope, id string) *conversation {
	t := &db.talks
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{scope, id}
	if t.recent == nil {
		t.recent, _ = simplelru.NewLRU(keptTalks, func(_ [2]string, c *conversation) { c.drop() })
		t.alive = map[[2]string]weak.Pointer[conversation]{}
	}
	if c, ok := t.recent.Get(key); ok {
		return c
	}
	c := t.alive[key].Value()
	if c == nil {
		c = newConversation(db, scope, id)
		c.unsure = t.unsure.Load()
		t.alive[key] = weak.Make(c)
		runtime.AddCleanup(c, gone, goneTalk{weak.Make(t), key})
	}
	t.recent.Add(key, c)
	return c
}

// goneTalk is a session that nobody uses any more. It does not keep the database.
type goneTalk struct {
	of  weak.Pointer[conversations]
	key [2]string
}

func gone(g goneTalk) {
	t := g.of.Value()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alive[g.key].Value() == nil { // else it was opened anew since
		delete(t.alive, g.key)
	}
}

// watch keeps a session for its watcher.
func (t *conversations) watch(c *conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set(&t.watched, [2]string{c.Scope, c.ID}, c)
}

// watchers gives those there are.
func (t *conversations) watchers() []*Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*Watcher, 0, len(t.watched))
	for _, c := range t.watched {
		if w := c.watch.Load(); w != nil {
			out = append(out, w)
		}
	}
	return out
}

// drop takes the turns of a session out of memory that was not used for long and is not watched.
func (c *conversation) drop() {
	if c.watch.Load() != nil {
		return
	}
	select {
	case c.lock <- struct{}{}:
		c.loaded = false
		c.Release()
		<-c.lock
	default: // in use: the collector takes it
	}
}
