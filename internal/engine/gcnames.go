package engine

import (
	"sync"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rules"
	"github.com/ctxpage/ctxpage/store"
)

// names collects the references that keep versions from gc. It collects them twice: from what is
// stored, and then from every commit while gc runs (sequencer.watch), because a batch may name a
// version between the plan and the drop. enqueueDrops asks for the last time, at the tail of the
// log, where no other commit can come in between. So gc needs no lock that keeps commits out for as
// long as it walks.
//
// A name is only ever added during a run. A version whose last name goes away during the run stays
// until the next run.

// names is a set of names that commits and gc fill at the same time.
type names struct {
	kinds []store.StateKind
	mu    sync.Mutex // a leaf; StateKind.Names runs under it and must not call the store
	rules.Names
}

// newNames makes an empty set. kinds are the state rows whose values name pages.
func newNames(kinds []store.StateKind) *names { return &names{kinds: kinds, Names: rules.NewNames()} }

// commit adds what a batch names, held or applied. The sequencer calls it for each batch while gc
// runs. n is nil otherwise.
func (n *names) commit(b *store.Batch, held bool) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if held {
		n.Held(b)
	}
	for i := 0; i < len(b.Puts) && !held; i++ {
		n.Lineage(b.Scope, &b.Puts[i].Artefact)
	}
	for _, r := range b.State {
		if k := format.KindOf(n.kinds, r.Key); k != nil && k.Names != nil && r.Value != nil {
			_ = n.State(k, r.Value) // bytes of just now
		}
	}
}

// followed adds what a commit of another host names. A log has the tail when it calls Follow; nil:
// no gc runs.
func (n *names) followed(c *format.Commit) {
	if n == nil {
		return
	}
	if len(c.Held) > 0 {
		if h, err := format.DecodeHeld(c.Held); err == nil && h.Decided == "" {
			n.commit(&h.Batch, true)
		}
	}
	n.commit(&store.Batch{State: c.State}, false)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range c.Heads {
		if h := c.Heads[i].Head; h != nil {
			n.Lineage(h.Scope, &h.Artefact)
		}
	}
}

// pass is Names.Pass under the lock.
func (n *names) pass(h *store.Head, nums []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Pass(h, nums)
}

// why is Names.Why under the lock.
func (n *names) why(h *store.Head) string {
	if n == nil {
		return store.KeptChanged // gc has ended: without names nothing may be dropped
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Why(h)
}
