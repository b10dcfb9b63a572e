package lexical

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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
	f.Add(uint64(1), uint64(200), []byte{0, 2, 0, 6})
	f.Add(uint64(1), uint64(200), []byte{9, 2, 1, 5, 0x80, 1})
	f.Add(uint64(7), uint64(7), []byte{0, 1, 0})
	f.Add(uint64(1), uint64(200), []byte{3, 0, 2, 3, 'o', 'n', 'e', 4, 1, 't', 11, 2, 6, 1, 1, 2})
	f.Add(uint64(1), ^uint64(0), []byte{0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2})
	f.Fuzz(func(t *testing.T, first, last uint64, value []byte) {
		if first == 0 || last < first {
			return
		}
		s := segment{first: first, last: last}
		key := appendTermKey(nil, 1, 1, "term")
		var r blockReader
		require.NoError(t, r.begin(s, key, seal(key, value)))
		before := ""
		for r.next() {
			require.Greater(t, string(r.term), before)
			before = string(r.term)
			all, sound := decode(r.list)
			require.Equal(t, sound, (&postings{last: first}).append(r.list))
			if !sound {
				continue
			}
			require.Len(t, all, int(r.list.df))
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
	f.Add(appendDoc(appendDoc([]byte{1, 3, 'A', 'n', 'n'}, 5, docRow{num: 5, scope: 1, length: 9}, 0), 5, docRow{num: 7, scope: 1, group: 3, turn: true, traits: FirstPerson, month: MonthOf(time.Unix(0, 0))}, 1))
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
		last := uint64(0)
		_ = decodeDocs(segment{first: 5, last: 1 << 40}, key, row, func(d docRow) {
			require.Greater(t, d.num, last)
			last = d.num
		})
	})
}
