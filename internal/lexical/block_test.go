package lexical

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Lists that are written in blocks come back in their order and each by its term, and no other term is found; so are those that
// stand alone. A block is no longer than it may be, unless it is one list.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfNDistinct(rapid.StringMatching("[a-c]{1,4}(word){0,6}"), 1, 80, rapid.ID).Draw(t, "terms")
		scopes := rapid.IntRange(1, 3).Draw(t, "scopes")
		alone := rapid.Bool().Draw(t, "alone")
		s := segment{id: 3, first: 1, last: 1 << 20}
		slices.Sort(terms)
		type one struct {
			key  string
			list list
		}
		var want []one
		store := memStore{}
		store.update(func(w Writer) bool {
			c := &checkpoint{w: w}
			for scope := range scopes {
				from := rapid.SampledFrom([]uint64{0, 1, 300}).Draw(t, "from")
				for _, term := range terms {
					p := &postings{last: s.first + from}
					for i := range rapid.SampledFrom([]int{1, 1, 2, 5, 700}).Draw(t, "postings") {
						p.add(s.first+from+uint64(3*i), uint32(1+i%3))
					}
					key := appendTermKey(nil, s.id, uint32(scope), term)[segPrefix:]
					want = append(want, one{string(key), list{segment: s, from: s.first + from, df: p.df, body: slices.Clone(p.body)}})
					require.NoError(t, c.put(s, key, from, p, alone))
				}
			}
			require.NoError(t, c.endBlock(s))
			return true
		})
		for k, v := range store {
			if len(v) > blockBytes+100 {
				require.Equal(t, 1, listsIn(v), "%q", k)
			}
		}
		require.Equal(t, len(want), store.lists())
		require.True(t, len(store) == len(want) || !alone)
		store.view(func(r Rows) {
			src := s.source(r, nil, false)
			for _, o := range want {
				ok, err := src.more(src)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, o, one{string(src.key), src.list})
			}
			ok, err := src.more(src)
			require.NoError(t, err)
			require.False(t, ok)

			at := rapid.IntRange(0, len(want)-1).Draw(t, "behind")
			src = s.source(r, []byte(want[at].key), false)
			ok, err = src.more(src)
			require.NoError(t, err)
			if require.Equal(t, at+1 < len(want), ok); ok {
				require.Equal(t, want[at+1].key, string(src.key))
			}
			w := &work{}
			for scope := range uint32(scopes + 1) {
				for _, term := range append(terms, "a", "b", "zz", "aword", "cccc") {
					i := slices.IndexFunc(want, func(o one) bool { return o.key == string(appendTermKey(nil, 0, scope, term)[segPrefix:]) })
					w.key = appendTermKey(nil, s.id, scope, term)
					l, ok, err := w.listIn(r, s)
					require.NoError(t, err)
					if require.Equal(t, i >= 0, ok, term); ok {
						require.Equal(t, want[i].list, l)
					}
				}
			}
		})
	})
}

// lists counts the lists in the rows of a store.
func (s memStore) lists() (n int) {
	for k, v := range s {
		if k[0] == rowTerm {
			n += listsIn(v)
		}
	}
	return n
}

// listsIn counts those of a row.
func listsIn(row []byte) int {
	_, from := binary.Uvarint(row)
	if row = row[from:]; row[0] != 0 {
		return 1
	}
	n, _ := binary.Uvarint(row[1:])
	return int(n) + 1
}
