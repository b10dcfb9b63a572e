package archive

import (
	"errors"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
)

// stubCheck collects, during a Verify, what stubs say of themselves and what prune leaves vouch
// for.
type stubCheck struct {
	groups map[string]*stubGroup       // by the trace of the prune leaf
	prunes map[string]*manifest.Record // likewise; few, because each covers many leaves
}

// stubGroup is the stubs that name one prune leaf.
type stubGroup struct {
	vouching
	leaves []manifest.Span
}

// stub notes a stub under the prune leaf that it names.
func (k *stubCheck) stub(c *verifier, s slot, hash manifest.Hash) {
	trace, _, err := openStub(s.index, s.body)
	if err != nil {
		c.problem(int64(s.index), err)
		return
	}
	if k.groups == nil {
		k.groups = map[string]*stubGroup{}
	}
	g := k.groups[trace]
	if g == nil {
		g = &stubGroup{}
		k.groups[trace] = g
	}
	g.add(s.index, hash, s.body)
	if n := len(g.leaves); n > 0 && g.leaves[n-1][1] == s.index {
		g.leaves[n-1][1]++
	} else {
		g.leaves = append(g.leaves, manifest.Span{s.index, s.index + 1})
	}
}

// leaf notes a prune leaf. It comes after the leaves that it covers.
func (k *stubCheck) leaf(c *verifier, s slot) {
	if s.row.typ != manifest.TypePrune {
		return
	}
	r, err := Decode(s.index, s.body)
	if err != nil {
		c.problem(int64(s.index), err)
		return
	}
	if k.prunes == nil {
		k.prunes = map[string]*manifest.Record{}
	}
	if k.prunes[r.Trace] == nil { // a second one under the same trace vouches for nothing
		k.prunes[r.Trace] = r
	}
}

var (
	errNotVouched = errors.New("a stub that no prune leaf vouches for: its body was removed outside ctxpage")
	errStubEdited = errors.New("the stubs of a prune are not those that its leaf vouches for")
)

// end compares the two.
func (k *stubCheck) end(c *verifier) {
	for _, trace := range slices.Sorted(maps.Keys(k.groups)) {
		g, p := k.groups[trace], k.prunes[trace]
		alien := false
		_ = EachOf(g.leaves, func(i uint64) error {
			if p == nil || i >= p.Index || !Covered(p.Covers, i) {
				alien = true
				c.problem(int64(i), corruptAt(leavesName, 0, int64(i), errNotVouched))
			}
			return nil
		})
		if first := g.leaves[0][0]; !alien && (g.n != p.Size || !slices.Equal(g.sum.Sum(nil), p.Root)) {
			c.problem(int64(first), corruptAt(leavesName, 0, int64(first), errStubEdited))
		}
	}
}
