package engine

import (
	"cmp"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/format"
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

// names is what names versions, and so keeps them: by reference, by the LSN of a commit, or by the
// number of a page. The values are the reasons in the report.
type names struct {
	kinds []store.StateKind
	mu    sync.Mutex // a leaf; StateKind.Names runs under it and must not call the store
	refs  map[store.Ref]string
	lsns  map[writtenAt]string
	nums  map[uint64]string
	// passed has the pages of dropped versions that later versions have: a reference to such a page
	// leads to those (locateGone). gc adds them as it meets dropped versions.
	passed map[store.Ref][]uint64
}

// writtenAt names the version of an artefact that a commit wrote.
type writtenAt struct {
	scope, id string
	lsn       uint64
}

// newNames makes an empty set. kinds are the state rows whose values name pages.
func newNames(kinds []store.StateKind) *names {
	return &names{kinds: kinds, refs: map[store.Ref]string{}, lsns: map[writtenAt]string{}, nums: map[uint64]string{}, passed: map[store.Ref][]uint64{}}
}

// commit adds what a batch names, held or applied. The sequencer calls it for each batch while gc
// runs. n is nil otherwise.
func (n *names) commit(b *store.Batch, held bool) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if held {
		n.held(b)
	}
	for i := range b.Puts {
		n.lineage(b.Scope, &b.Puts[i].Artefact, held)
	}
	for _, r := range b.State {
		if k := format.KindOf(n.kinds, r.Key); k != nil && k.Names != nil && r.Value != nil {
			_ = n.state(k, r.Value) // bytes of just now
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
			n.lineage(h.Scope, &h.Artefact, false)
		}
	}
}

// held adds what a batch that waits for review was written from: the pages of its context, and the
// versions that it expects to find unchanged. Its reviewer must be able to see both.
func (n *names) held(b *store.Batch) {
	for _, c := range b.Context {
		n.nums[c.Num] = store.KeptHeld
	}
	for _, e := range b.Expect {
		n.lsns[writtenAt{e.Ref.Scope, e.Ref.ID, e.LSN}] = store.KeptHeld
	}
}

// lineage adds the versions that an artefact was made from: DerivedFrom, and a "page:" source of a
// fixed version. The source may name no scope; then any scope of the chain can be meant.
func (n *names) lineage(scope string, a *store.Artefact, held bool) {
	why := map[bool]string{false: store.KeptParent, true: store.KeptHeld}[held]
	for _, r := range a.DerivedFrom {
		n.ref(store.Ref{Scope: r.Scope, ID: r.ID, Version: r.Version}, why)
	}
	key, ok := strings.CutPrefix(a.Source, "page:")
	if ref, err := store.SourceRef(key); ok && err == nil && ref.Version != 0 {
		if !held {
			why = store.KeptSource
		}
		for _, s := range store.ScopeChain(scope) {
			n.ref(store.Ref{Scope: cmp.Or(ref.Scope, s), ID: ref.ID, Version: ref.Version}, why)
		}
	}
}

// ref adds a reference, with the pages of later versions that it leads to.
func (n *names) ref(r store.Ref, why string) {
	n.refs[r] = why
	for _, num := range n.passed[r] {
		n.nums[num] = why
	}
}

// pass adds a dropped version whose pages nums later versions still have.
func (n *names) pass(h *store.Head, nums []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	n.passed[r] = nums
	if why := n.refs[r]; why != "" {
		n.ref(r, why)
	}
}

// state adds what a state row names. The caller holds mu.
func (n *names) state(k *store.StateKind, row []byte) error {
	nums, err := k.Names(row)
	for _, num := range nums {
		n.nums[num] = store.KeptSession
	}
	return err
}

// why says what names a version; "": nothing does.
func (n *names) why(h *store.Head) string {
	if n == nil {
		return store.KeptChanged // gc has ended: without names nothing may be dropped
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	why := cmp.Or(n.refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}], n.lsns[writtenAt{h.Scope, h.ID, h.LSN}])
	for i := 0; i < len(h.Rows) && why == ""; i++ {
		why = n.nums[h.Rows[i].Num]
	}
	return why
}
