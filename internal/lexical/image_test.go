package lexical

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImage: an index that is opened with an image has the columns it has without one, whatever stands in the tail and was
// removed; with other rows, or a damaged image, it is not opened with it. Names without a turn are not in an image.
func TestImage(t *testing.T) {
	store := memStore{}
	x := store.open(t)
	for num := uint64(1); num <= 3000; num++ {
		d := Doc{Num: num, Scope: uint32(num%3 + 1), Group: num % 7, Analysis: words("kettle", int(num%5+1), fmt.Sprint("w", num%91), 1)}
		if num%2 == 0 {
			d.Turn = &Turn{Speaker: fmt.Sprint("name", num%40), Month: Month(num % 1000)}
		}
		x.Add(d)
		if num == 2500 {
			store.checkpoint(t, x, false)
		}
	}
	x.Remove(10, 400, 2990)
	for num := uint64(2); num <= 3000; num += 40 { // all turns of name2
		x.Remove(num)
	}
	store.checkpoint(t, x, false)
	require.NotEmpty(t, x.tail, "some pages are in no segment")
	for _, rest := range []bool{false, true} {
		if rest {
			x.Add(Doc{Num: x.last + 1, Scope: 2, Analysis: words("kettle", 2)})
			var swap Swap
			store.update(func(w Writer) bool {
				var err error
				swap, err = x.Rest(w)
				return err == nil
			})
			x.Apply(swap)
			require.Empty(t, x.tail)
			require.Equal(t, x.last, x.Through())
		}
		var im Image
		store.view(func(rows Rows) { im = x.Image(rows) })
		require.NotContains(t, string(im.Sums), "\x05name2")
		require.Contains(t, string(im.Sums), "\x05name4", "the control")
		want := store.open(t)
		open := func(im Image) (have *Index, ok bool) {
			store.view(func(rows Rows) {
				var err error
				have, ok, err = OpenImage(rows, im, func(all ...func() bool) bool {
					return !slices.ContainsFunc(all, func(f func() bool) bool { return !f() })
				})
				require.NoError(t, err)
			})
			return have, ok
		}
		have, ok := open(im)
		require.True(t, ok)
		require.Equal(t, want.manifest, have.manifest)
		require.Equal(t, want.removed, have.removed)
		n := len(want.cols.scope)
		for i := range n {
			num := want.cols.base + uint64(i)
			require.Equal(t, want.cols.has(num), have.cols.has(num), num)
			if want.cols.has(num) {
				require.Equal(t, want.cols.describe(i), have.cols.describe(i), num)
			}
		}
		for _, scope := range []uint32{1, 2, 3} {
			require.Equal(t, want.cols.total([]uint32{scope}), have.cols.total([]uint32{scope}))
		}
		cut := im
		cut.Parts = [][]byte{im.Parts[0][:len(im.Parts[0])-1]}
		_, ok = open(cut)
		require.False(t, ok)
		x.Add(Doc{Num: x.last + 1, Scope: 1, Analysis: words("more", 1)})
		store.checkpoint(t, x, true)
		_, ok = open(im)
		require.False(t, ok, "the rows are others")
	}
}

// describe is what the columns say of a page, with names instead of numbers.
func (c *columns) describe(i int) string {
	g, s, when := c.groups[c.groupOf(i)], c.speakers[0], said(0)
	if c.said != nil {
		s, when = c.speakers[c.speaker[i]], c.said[i]
	}
	return fmt.Sprint(c.shape[i], c.scopes[c.scope[i]].id, g.id, g.pages, g.length, g.turns, s.name, s.turns, s.words, when)
}

// TestPlainPagesTakeLess: pages without groups and turns have no columns for them, neither when they were added nor when they
// were opened with an image; those columns come with the first page that needs them, and they are as long as the others.
func TestPlainPagesTakeLess(t *testing.T) {
	store := memStore{}
	x := store.open(t)
	for num := uint64(1); num <= 10; num++ {
		x.Add(Doc{Num: num, Scope: 1, Analysis: words("kettle", int(num))})
	}
	x.Add(Doc{Num: 11, Scope: 1, Analysis: words("spoon", 1), Turn: &Turn{Speaker: "Ann", Month: 7}})
	x.invertAll()
	require.Len(t, x.cols.said, 11)
	require.Len(t, x.cols.speaker, 11)
	x.Remove(11) // of a page that was removed an image may have what nobody needs
	x.Add(Doc{Num: 12, Scope: 1, Analysis: words("kettle", 3)})
	store.checkpoint(t, x, true)
	var im Image
	var have *Index
	store.view(func(rows Rows) {
		im = x.Image(rows)
		var ok bool
		var err error
		have, ok, err = OpenImage(rows, im, func(all ...func() bool) bool {
			return !slices.ContainsFunc(all, func(f func() bool) bool { return !f() })
		})
		require.NoError(t, err)
		require.True(t, ok)
	})
	require.Nil(t, have.cols.group)
	require.Nil(t, have.cols.speaker)
	require.Nil(t, have.cols.said)
	require.Equal(t, x.cols.total([]uint32{1}), have.cols.total([]uint32{1}))
	have.Add(Doc{Num: 13, Scope: 1, Group: 5, Analysis: words("kettle", 3)})
	have.invertAll()
	require.Len(t, have.cols.group, len(have.cols.shape))
	require.Nil(t, have.cols.said)
	have.Add(Doc{Num: 14, Scope: 1, Analysis: words("kettle", 3), Turn: &Turn{Speaker: "Ben", Month: 9}})
	have.invertAll()
	require.Len(t, have.cols.group, len(have.cols.shape))
	require.Len(t, have.cols.said, len(have.cols.shape))
	require.Equal(t, Month(9), have.cols.said[len(have.cols.said)-1].month())
	require.Equal(t, "Ben", have.cols.speakers[have.cols.speaker[len(have.cols.speaker)-1]].name)
	have.Remove(13, 14)
	require.Equal(t, x.cols.total([]uint32{1}), have.cols.total([]uint32{1}))
}
