package engine

import (
	"cmp"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/store"
)

// What keeps versions from gc. Names are collected twice: once from what is stored, and then from every commit while gc
// runs (sequencer.watch), because a batch may name a version between the plan and the drop. enqueueDrops asks for the
// last time at the tail of the log, where no other commit can come in between. So gc needs no lock that keeps commits out
// for as long as it walks.

// names is what names versions, and so keeps them: a reference, the LSN of a commit, or the number of a page.
type names struct {
	kinds []store.StateKind
	mu    sync.Mutex // a leaf
	refs  map[store.Ref]string
	lsns  map[writtenAt]string
	nums  map[uint64]string
	// passed are the pages of dropped versions that later ones have: a reference to such a page leads on to those
	// (locateGone). gc adds what it comes by.
	passed map[store.Ref][]uint64
}

type writtenAt struct {
	scope, id string
	lsn       uint64
}

func newNames(kinds []store.StateKind) *names {
	return &names{kinds: kinds, refs: map[store.Ref]string{}, lsns: map[writtenAt]string{}, nums: map[uint64]string{}, passed: map[store.Ref][]uint64{}}
}

// commit adds what a batch names, held or applied. The sequencer calls it for each while gc runs; nil: it does not.
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
		if k := KindOf(n.kinds, r.Key); k != nil && k.Names != nil && r.Value != nil {
			_ = n.state(k, r.Value) // bytes of just now
		}
	}
}

func (n *names) held(b *store.Batch) {
	for _, c := range b.Context {
		n.nums[c.Num] = store.KeptHeld
	}
	for _, e := range b.Expect {
		n.lsns[writtenAt{e.Ref.Scope, e.Ref.ID, e.LSN}] = store.KeptHeld
	}
}

// lineage adds the versions that an artefact was made from.
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

func (n *names) ref(r store.Ref, why string) {
	n.refs[r] = why
	for _, num := range n.passed[r] {
		n.nums[num] = why
	}
}

// pass adds a dropped version.
func (n *names) pass(h *store.Head, nums []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	n.passed[r] = nums
	if why := n.refs[r]; why != "" {
		n.ref(r, why)
	}
}

// state adds what a state row names.
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
		return store.KeptChanged // nobody looked: gc alone drops
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	why := cmp.Or(n.refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}], n.lsns[writtenAt{h.Scope, h.ID, h.LSN}])
	for i := 0; i < len(h.Rows) && why == ""; i++ {
		why = n.nums[h.Rows[i].Num]
	}
	return why
}
