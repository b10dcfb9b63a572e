package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// scopesOfFour is a catalogue of scopes with four artefacts each, one of which is deleted, one expires, and one is superseded.
// The second scope has no name.
func scopesOfFour(scopes uint32) *catalogue {
	c := newCatalogue()
	num := uint64(0)
	for scope := uint32(1); scope <= scopes; scope++ {
		if scope == 2 {
			continue
		}
		c.addScope(scope, fmt.Sprint("scope-", scope))
		for i := range 4 {
			num++
			hot := format.Hot{Art: num, Version: 1, Scope: scope, LSN: num, PutAt: int64(1000*num) - int64(scope), ID: []byte(fmt.Sprint("id-", i)), Kind: store.KindFact, Provenance: store.Provenance(1 + i%3)}
			if i == 1 {
				hot.Expires = int64(num)
			}
			c.install(&hot, []store.PageRow{{Num: num, LSN: num, Version: 1, Bytes: 10}})
		}
		hot := format.Hot{Art: num, Version: 2, Scope: scope, LSN: num, Flags: format.FlagDeleted, ID: []byte("id-3"), Kind: store.KindFact, Provenance: store.Tool}
		c.install(&hot, nil)
		c.supersede(num-1, num-2, num)
	}
	return c
}

// imageOf is the snapshot of a catalogue.
func imageOf(t *testing.T, c *catalogue) *Columns {
	out := &Columns{}
	require.True(t, c.image(out, 1, unchanged, func() {}))
	return out
}

// unpacked counts the scopes that were looked at.
func (t *scopeTable) unpacked() (n int) {
	for i := range t.cols {
		if t.cols[i].Load() != nil {
			n++
		}
	}
	return n
}

// TestScopesArePacked: what is asked of all scopes unpacks none, a snapshot of packed scopes is the same to the byte, and
// readers that look at one at the same time see the same one.
func TestScopesArePacked(t *testing.T) {
	c := scopesOfFour(50)
	image := imageOf(t, c)
	have, ok := readColumns(image)
	require.True(t, ok)
	require.Equal(t, c.byName, have.byName)
	named := 0
	for num, name := range have.scopes.named() {
		require.Equal(t, c.scopeName(num), name)
		live, known := have.counts(num)
		require.Equal(t, []int{3, 4}, []int{live, known})
		named++
	}
	require.Equal(t, 49, named)
	require.Equal(t, image, imageOf(t, have))
	require.Zero(t, have.scopes.unpacked())

	found := make([]*scopeCol, 8)
	var readers sync.WaitGroup
	for i := range found {
		readers.Go(func() {
			have.mu.RLock()
			defer have.mu.RUnlock()
			found[i] = have.scope(7)
		})
	}
	readers.Wait()
	for _, s := range found {
		require.Same(t, found[0], s)
	}
	require.Nil(t, have.scope(2), "it has no name")
	require.Equal(t, 1, have.scopes.unpacked())
	require.Equal(t, image, imageOf(t, have))
	require.Equal(t, c.usedBelow("scope-9"), have.usedBelow("scope-9"))
	require.Equal(t, 2, have.scopes.unpacked())
}

// TestPackedScopesChange: commits change a scope that is packed as one that was never.
func TestPackedScopesChange(t *testing.T) {
	c := scopesOfFour(9)
	have, ok := readColumns(imageOf(t, c))
	require.True(t, ok)
	for i, change := range []func(c *catalogue, scope uint32, first uint64){
		func(c *catalogue, scope uint32, first uint64) { // another time and expiry, the page goes on
			hot := format.Hot{Art: first, Version: 2, Scope: scope, LSN: 100, PutAt: 7, Expires: 9, ID: []byte("id-0"), Kind: store.KindFact, Provenance: store.Chunk}
			c.install(&hot, []store.PageRow{{Num: first, LSN: 1, Version: 1, Bytes: 10}})
		},
		func(c *catalogue, _ uint32, first uint64) { c.supersede(first, first+1, 100) },
		func(c *catalogue, scope uint32, first uint64) {
			hot := format.Hot{Art: first + 3, Version: 3, Scope: scope, LSN: 100, Flags: format.FlagForgotten, ID: []byte("id-3")}
			c.install(&hot, nil)
			c.forget(hot.Art)
		},
		func(c *catalogue, scope uint32, _ uint64) { c.sweep([]uint32{scope}, 1<<40) },
		func(c *catalogue, scope uint32, _ uint64) { c.scopes.drop(scope) },
		func(c *catalogue, _ uint32, first uint64) {
			c.unlink(first)
			c.link(first)
		},
	} {
		scope := uint32(3 + i)
		first := 4*uint64(scope-2) + 1
		require.Nil(t, have.scopes.cols[scope-1].Load())
		change(c, scope, first)
		change(have, scope, first)
	}
	require.Equal(t, imageOf(t, c), imageOf(t, have))
	next := scopesOfFour(9)
	next.scope(3).byID.arts = next.scope(3).byID.arts[:3]
	require.NotEqual(t, imageOf(t, c), imageOf(t, next), "the control")
}

// TestBadPackedScope: a scope whose bytes do not decode, although their digest was right, ends the engine with its first read.
func TestBadPackedScope(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	require.NoError(t, m.checkpoint())
	cols := must(m.Columns(m.base.Applied, 1))(t)
	for i := range cols.Parts {
		if p := &cols.Parts[i]; p.Kind == partScopes {
			p.Body = append([]byte(nil), p.Body...)
			p.Body[len(p.Body)-1] |= 0x80 // the last number does not end
		}
	}
	e := New(m.opts)
	e.Attach(m.host)
	require.NoError(t, m.host.Snapshot(t.Context(), func(tx Reader, b Base) error {
		_, _, err := e.LoadColumns(tx, b, cols)
		return err
	}))
	require.NoError(t, e.Failure())
	require.NotNil(t, e.cat.scope(1))
	require.ErrorIs(t, e.Failure(), store.ErrCorrupt)
	require.ErrorIs(t, e.Writable(), store.ErrCorrupt)
	require.NoError(t, e.Readable(t.Context()))
}
