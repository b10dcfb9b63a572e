package lexical

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Lists that are written in blocks come back in their order and each by its term and scope, and no other is found. A block is no
// longer than it may be, unless it is one list.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfNDistinct(rapid.StringMatching("[a-c]{1,4}(word){0,6}"), 1, 80, rapid.ID).Draw(t, "terms")
		scopes := rapid.SampledFrom([]int{1, 2, 3, 40}).Draw(t, "scopes")
		far := rapid.SampledFrom([]int{1, 5}).Draw(t, "far")
		s := segment{id: 3, first: 1, last: 1 << 20}
		slices.Sort(terms)
		type one struct {
			key  string
			list list
		}
		var want []one
		var at starts
		store := memStore{}
		store.update(func(w Writer) bool {
			c := &checkpoint{w: w}
			for scope := range scopes {
				at = append(at, start{uint32(scope * far), s.first + rapid.SampledFrom([]uint64{0, 1, 300}).Draw(t, "from")})
			}
			for _, term := range terms {
				for _, of := range at {
					if scopes > 1 && rapid.Bool().Draw(t, "not in this scope") {
						continue
					}
					p := &postings{last: of.first}
					for i := range rapid.SampledFrom([]int{1, 1, 2, 5, 700}).Draw(t, "postings") {
						p.add(of.first+uint64(3*i), uint32(1+i%3))
					}
					key := appendScope([]byte(term), of.scope)
					want = append(want, one{string(key), list{segment: s, from: of.first, df: p.df, body: slices.Clone(p.body)}})
					require.NoError(t, c.put(s, key, p))
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
		store.view(func(r Rows) {
			src := s.source(r, at, nil, false)
			for _, o := range want {
				ok, err := src.more(src)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, o, one{string(src.key), src.list})
			}
			ok, err := src.more(src)
			require.NoError(t, err)
			require.False(t, ok)

			if len(want) > 0 {
				behind := rapid.IntRange(0, len(want)-1).Draw(t, "behind")
				src = s.source(r, at, []byte(want[behind].key), false)
				ok, err = src.more(src)
				require.NoError(t, err)
				if require.Equal(t, behind+1 < len(want), ok); ok {
					require.Equal(t, want[behind+1].key, string(src.key))
				}
			}
			w := &work{}
			for scope := range uint32(scopes*far + 1) {
				for _, term := range append(terms, "a", "b", "zz", "aword", "cccc") {
					i := slices.IndexFunc(want, func(o one) bool { return o.key == string(appendScope([]byte(term), scope)) })
					w.key = appendTermKey(nil, s.id, scope, term)
					l, ok, err := w.listIn(r, s)
					require.NoError(t, err)
					if require.Equal(t, i >= 0, ok, term); ok {
						l.from = want[i].list.from
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
	if row[0] != 0 {
		return 1
	}
	n, _ := binary.Uvarint(row[1:])
	return int(n) + 1
}

func drawPostings(t *rapid.T) (segment, []posting) {
	s := segment{id: 3, first: rapid.Uint64Range(1, 1<<40).Draw(t, "first")}
	num := s.first
	var all []posting
	for i := range rapid.IntRange(1, 300).Draw(t, "n") {
		if i > 0 || rapid.Bool().Draw(t, "gap") {
			num += rapid.SampledFrom([]uint64{1, 1, 2, 63, 64, 1 << 20}).Draw(t, "d")
		}
		all = append(all, posting{num, rapid.SampledFrom([]uint32{1, 1, 2, 127, 1<<32 - 1}).Draw(t, "tf")})
	}
	s.last = num
	return s, all
}

func encode(s segment, all []posting) list {
	p := &postings{last: s.first}
	for _, e := range all {
		p.add(e.num, e.tf)
	}
	return list{segment: s, from: s.first, df: p.df, body: p.body}
}

func decode(l list) (all []posting, sound bool) {
	sound = l.each(func(num uint64, tf uint32) { all = append(all, posting{num, tf}) })
	return all, sound
}

func TestPostingsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := drawPostings(t)
		got, sound := decode(encode(s, all))
		require.True(t, sound)
		require.Equal(t, all, got)
	})
}

func TestAppendedListsAreOneList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := drawPostings(t)
		at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
		first := s.first
		if at > 0 {
			first = all[at-1].num + 1
		}
		p := &postings{last: s.first}
		for _, e := range all[:at] {
			p.add(e.num, e.tf)
		}
		require.True(t, p.append(encode(segment{id: 4, first: first, last: s.last}, all[at:])))
		require.Equal(t, encode(s, all), list{segment: s, from: s.first, df: p.df, body: p.body})
	})
}

func FuzzPostings(f *testing.F) {
	f.Add(uint64(1), uint64(200), []byte{2, 0, 6})
	f.Add(uint64(1), uint64(200), []byte{2, 1, 5, 0x80, 1})
	f.Add(uint64(7), uint64(7), []byte{1, 0})
	f.Add(uint64(1), uint64(200), []byte{0, 2, 5, 3, 'o', 'n', 'e', 4, 1, 't', 11, 2, 6, 1, 1, 2})
	f.Add(uint64(1), uint64(200), []byte{0, 5, 5, 3, 'o', 'n', 'e', 4, 0, 2, 3, 11, 2, 6, 1, 9, 4, 1, 't', 1, 2, 4, 0, 1, 7, 8, 1, 2})
	f.Add(uint64(1), uint64(200), []byte{0, 4, 5, 3, 'o', 'n', 'e', 4, 0, 1, 3, 4, 0, 1, 3, 4, 1, 't', 6, 1, 2}) // lists of a term in two runs
	f.Add(uint64(1), ^uint64(0), []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2})
	f.Fuzz(func(t *testing.T, first, last uint64, value []byte) {
		if first == 0 || last < first {
			return
		}
		s := segment{first: first, last: last}
		key := appendTermKey(nil, 1, 1, "term")
		var r blockReader
		row := seal(key, value)
		require.NoError(t, r.begin(s, key, row))
		before, of := "", uint32(0)
		for r.next() {
			require.True(t, string(r.term) > before || string(r.term) == before && r.scope > of)
			before, of = string(r.term), r.scope
			var looks blockReader
			require.NoError(t, looks.begin(s, key, row))
			require.True(t, looks.find(r.term, r.scope))
			require.Equal(t, r.list, looks.list)
			l := r.list
			l.from = first
			all, sound := decode(l)
			require.Equal(t, sound, (&postings{last: first}).append(l))
			if !sound {
				continue
			}
			require.Len(t, all, int(l.df))
			again, sound := decode(encode(s, all))
			require.True(t, sound)
			require.Equal(t, all, again)
		}
		if err := r.unsound(key); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		} else {
			require.Equal(t, "term", before)
		}
	})
}

func FuzzRows(f *testing.F) {
	m := manifest{next: 4, through: 90, segments: []segment{{1, 1, 50, 50}, {3, 51, 90, 2}}, dead: []uint32{2}}
	f.Add(m.encode())
	f.Add(starts{{3, 9}, {4, 5}, {1 << 31, 1 << 40}}.encode(segment{first: 5}))
	f.Add(appendDoc(appendDoc([]byte{1, 3, 'A', 'n', 'n'}, 5, 0, docRow{num: 5, scope: 1, length: 9}, 0), 5, 1, docRow{num: 7, scope: 1, group: 3, turn: true, traits: FirstPerson, month: MonthOf(time.Unix(0, 0))}, 1))
	f.Add(encodeRemoved([]uint64{1, 2, 1 << 50}))
	f.Fuzz(func(t *testing.T, value []byte) {
		key := docsKey(1, 5)
		row := seal(key, bytes.Clone(value))
		if got, err := decodeManifest(key, row); err == nil {
			again, err := decodeManifest(key, seal(key, got.encode()))
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
		if nums, err := decodeRemoved(key, row); err == nil {
			again, err := decodeRemoved(key, seal(key, encodeRemoved(nums)))
			require.NoError(t, err)
			require.Equal(t, nums, again)
		}
		s := segment{id: 1, first: 5, last: 1 << 40}
		key = scopesKey(1, 4)
		if at, err := decodeStarts(s, key, seal(key, bytes.Clone(value)), nil); err == nil {
			require.Equal(t, uint32(4), at[len(at)-1].scope)
			again, err := decodeStarts(s, key, seal(key, at.encode(s)), nil)
			require.NoError(t, err)
			require.Equal(t, at, again)
		}
		key = docsKey(1, 5)
		last := uint64(0)
		_ = decodeDocs(segment{first: 5, last: 1 << 40}, key, row, func(d docRow) {
			require.Greater(t, d.num, last)
			last = d.num
		})
	})
}

func TestPageBits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{0, 1, 63, 1 << 40}).Draw(t, "base")
		pages := map[uint64]struct{}{}
		for _, d := range rapid.SliceOf(rapid.Uint64Range(0, 300)).Draw(t, "pages") {
			pages[base+d] = struct{}{}
		}
		b := newPageBits(pages)
		for num := base - min(base, 70); num < base+400; num++ {
			_, want := pages[num]
			require.Equal(t, want, b.has(num), "%d", num)
		}
		require.False(t, b.has(1<<63))
	})
}
