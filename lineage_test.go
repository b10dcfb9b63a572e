package ctxpage

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLineageOfLayers: layers of which each artefact is made from the whole layer before it. The ways through them are
// millions of millions; what they lead by is looked at once for a whole assembly.
func TestLineageOfLayers(t *testing.T) {
	const layers, wide = 6, 64
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	layer := func(i, j int) string { return fmt.Sprintf("layer%d-%d", i, j) }
	for i := range layers {
		require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
			for j := range wide {
				a := Artefact{ID: layer(i, j), Text: fmt.Sprintf("zebra %d %d", i, j)}
				for k := 0; i > 0 && k < wide; k++ {
					a.DerivedFrom = append(a.DerivedFrom, Ref{ID: layer(i-1, k)})
				}
				if err := tx.Put(t.Context(), a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	bound := time.AfterFunc(5*time.Minute, func() { panic("an assembly goes all the ways through the layers") }) // there are 64⁵ of them
	defer bound.Stop()
	q := Query{Text: "zebra", Budget: 100_000, TopK: layers * wide}
	a, err := s.Assemble(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, a.Blocks, layers*wide)
	_, err = s.Put(t.Context(), Artefact{ID: layer(0, 0), Text: "another animal"})
	require.NoError(t, err)
	a, err = s.Assemble(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, a.Blocks, wide, "all that was made from what changed is left out")
	_, err = s.Get(t.Context(), layer(layers-1, 0))
	require.ErrorIs(t, err, ErrDirty)
	require.ErrorContains(t, err, "which changed")
}

// TestLongLineage: what follows from thousands of generations is served, and its error stays short.
func TestLongLineage(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	const n = 4500
	for i := range n {
		a := Artefact{ID: fmt.Sprint("s", i), Text: fmt.Sprint("summary ", i)}
		if i > 0 {
			a.DerivedFrom = []Ref{{ID: fmt.Sprint("s", i-1)}}
		}
		_, err := s.Put(t.Context(), a)
		require.NoError(t, err)
	}
	v, err := s.Get(t.Context(), fmt.Sprint("s", n-1))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("summary ", n-1), v.Text)
	_, err = s.Put(t.Context(), Artefact{ID: "s0", Text: "another"})
	require.NoError(t, err)
	_, err = s.Get(t.Context(), fmt.Sprint("s", n-1))
	require.ErrorIs(t, err, ErrDirty)
	require.Less(t, len(err.Error()), 1000)
	require.ErrorContains(t, err, "derived from acme:s0")
}
