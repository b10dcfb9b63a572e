package format

import (
	"cmp"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// Names is what keeps versions from gc: by reference, by the LSN of the commit that wrote them, or
// by the number of a page. The values are the reasons in the report.
type Names struct {
	Refs map[store.Ref]string
	LSNs map[Written]string
	Nums map[uint64]string
	// passed has the pages of dropped versions that later versions have: a reference to such a page
	// leads to those.
	passed map[store.Ref][]uint64
}

// Written names the version of an artefact that a commit wrote.
type Written struct {
	Scope, ID string
	LSN       uint64
}

// NewNames makes an empty set.
func NewNames() Names {
	return Names{Refs: map[store.Ref]string{}, LSNs: map[Written]string{}, Nums: map[uint64]string{}, passed: map[store.Ref][]uint64{}}
}

// Held adds what a batch that waits for review was written from: the pages of its context, the
// versions that it expects to find unchanged, and the parents of its puts. Its reviewer must be able
// to see them.
func (n Names) Held(b *store.Batch) {
	for _, c := range b.Context {
		n.Nums[c.Num] = KeptHeld
	}
	for _, e := range b.Expect {
		n.LSNs[Written{e.Ref.Scope, e.Ref.ID, e.LSN}] = KeptHeld
	}
	for i := range b.Puts {
		n.lineage(b.Scope, &b.Puts[i].Artefact, KeptHeld, KeptHeld)
	}
}

// Lineage adds the versions that a live artefact of a scope was made from.
func (n Names) Lineage(scope string, a *store.Artefact) {
	n.lineage(scope, a, KeptParent, KeptSource)
}

// lineage adds DerivedFrom, and a "page:" source of a fixed version. The source may name no scope;
// then any scope of the chain can be meant.
func (n Names) lineage(scope string, a *store.Artefact, parent, source string) {
	for _, r := range a.DerivedFrom {
		n.ref(store.Ref{Scope: r.Scope, ID: r.ID, Version: r.Version}, parent)
	}
	key, ok := strings.CutPrefix(a.Source, "page:")
	if ref, err := store.SourceRef(key); ok && err == nil && ref.Version != 0 {
		for _, s := range store.ScopeChain(scope) {
			n.ref(store.Ref{Scope: cmp.Or(ref.Scope, s), ID: ref.ID, Version: ref.Version}, source)
		}
	}
}

// ref adds a reference, with the pages of later versions that it leads to.
func (n Names) ref(r store.Ref, why string) {
	n.Refs[r] = why
	for _, num := range n.passed[r] {
		n.Nums[num] = why
	}
}

// Pass adds a dropped version whose pages nums later versions still have.
func (n Names) Pass(h *store.Head, nums []uint64) {
	r := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	n.passed[r] = nums
	if why := n.Refs[r]; why != "" {
		n.ref(r, why)
	}
}

// State adds what a state row names.
func (n Names) State(k *store.StateKind, row []byte) error {
	nums, err := k.Names(row)
	for _, num := range nums {
		n.Nums[num] = KeptSession
	}
	return err
}

// Why says what names a version; "": nothing does. The order of the three look-ups decides the
// reason in the report, not whether the version stays.
func (n Names) Why(h *store.Head) string {
	why := cmp.Or(n.Refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}], n.LSNs[Written{h.Scope, h.ID, h.LSN}])
	for i := 0; i < len(h.Rows) && why == ""; i++ {
		why = n.Nums[h.Rows[i].Num]
	}
	return why
}
