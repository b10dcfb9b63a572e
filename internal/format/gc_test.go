package format

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Each of these versions shares a page with the next. The time of it grows as they do: in a square this takes minutes.
func TestGCShareMany(t *testing.T) {
	vs := make([]*Version, 200_000)
	for i := range vs {
		vs[i] = &Version{Head: &store.Head{Rows: []store.PageRow{{Num: uint64(i | 1)}, {Num: uint64((i+1)&^1 + 2)}}}}
	}
	last := len(vs) - 1
	vs[last/2].Kept = KeptHeld
	keepShared(vs)
	kept := func(v *Version) bool { return v.Kept != "" }
	require.Equal(t, last/2, slices.IndexFunc(vs, kept))
	require.False(t, slices.ContainsFunc(vs[last/2:], func(v *Version) bool { return v.Kept == "" }))
}
