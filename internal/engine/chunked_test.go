package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestChunked: rows are where they were put, whatever grew since, and a block of a snapshot has whole chunks.
func TestChunked(t *testing.T) {
	require.Zero(t, codec.ColumnRows%chunkRows)
	var c chunked[int]
	for range c.all() {
		t.Fatal("there is no row")
	}
	var first *int
	for n := 1; n <= 3*chunkRows+7; n += 1 + n%700 {
		c.grow(n)
		c.grow(n - 1)
		require.Equal(t, n, c.len())
		*c.at(uint64(n - 1)) = n
		if first == nil {
			first = c.at(0)
		}
	}
	require.Same(t, first, c.at(0))
	seen := 0
	for num, row := range c.all() {
		seen++
		require.Equal(t, uint64(seen), num)
		require.Same(t, c.at(num-1), row)
		require.True(t, *row == 0 || *row == int(num))
	}
	require.Equal(t, c.len(), seen)
	require.Len(t, c.block(chunkRows, 2*chunkRows), chunkRows)
	require.Same(t, c.at(chunkRows+3), &c.block(chunkRows+3, chunkRows+4)[0])
	for range c.all() {
		break
	}
}

// TestColumnsAreSmall: a million pages take eight megabytes more for eight bytes more.
func TestColumnsAreSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(artCol{}), uintptr(24))
	require.LessOrEqual(t, unsafe.Sizeof(pageCol{}), uintptr(48))
	require.LessOrEqual(t, unsafe.Sizeof(rareCol{}), uintptr(24))
	require.LessOrEqual(t, unsafe.Sizeof(newestCol{}), uintptr(24))
	require.LessOrEqual(t, unsafe.Sizeof(groupCol{}), uintptr(112))
}

// TestArtMarks: place and length of an id, and the marks, do not touch each other, up to the most ids that there can be.
func TestArtMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Uint64Range(0, mostNumber*store.MaxID).Draw(t, "at")
		n := rapid.IntRange(0, store.MaxID).Draw(t, "length")
		many, retired, newest := rapid.Bool().Draw(t, "many"), rapid.Bool().Draw(t, "retired"), rapid.Bool().Draw(t, "newest")
		a := artCol{}
		for _, do := range rapid.Permutation([]func(){
			func() { a.setIDAt(math.MaxUint64); a.setIDAt(at) }, func() { a.setIDLen(idLenBits); a.setIDLen(n) },
			func() { a.mark(artMany, true); a.mark(artMany, many) }, func() { a.mark(artNewest, true); a.mark(artNewest, newest) },
			func() { a.mark(artRetired, true); a.mark(artRetired, retired) },
		}).Draw(t, "order") {
			do()
		}
		require.Equal(t, at, a.idAt())
		require.Equal(t, n, a.idLen())
		require.Equal(t, many, a.marks&artMany != 0)
		require.Equal(t, retired, a.retired())
		require.Equal(t, newest, a.marks&artNewest != 0)
	})
}

// TestPageNumbers: a page has the numbers that it was given, however large, also after a snapshot, and takes a place in wide
// only while one of them has no room in the column.
func TestPageNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, want, rare := newCatalogue(), map[uint64]pageNumbers{}, map[uint64]rareCol{}
		part := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, partRows}).Draw(t, "part") // pages on both sides
		c.pages.grow(part + 20)
		number := rapid.SampledFrom([]uint32{0, 1, 2, math.MaxUint16 - 1, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			num := uint64(max(1, part+rapid.IntRange(-20, 20).Draw(t, "num")))
			p := c.page(num)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				c.setPageCol(p, pageCol{art: uint32(num), flags: format.FlagGone}, pageNumbers{})
				want[num] = pageNumbers{}
				c.clear(map[uint64]uint32{num: 1}, nil)
				require.Equal(t, nothing, *c.rareOf(p))
				delete(rare, num)
			case 1:
				rare[num] = rareCol{end: rapid.Uint64().Draw(t, "end")}
				c.setRare(p, rare[num])
			default:
				n := pageNumbers{
					rapid.SampledFrom([]uint64{0, 1, math.MaxUint32, wide<<32 - 1, wide << 32, math.MaxUint64}).Draw(t, "lsn"),
					rapid.SampledFrom([]int64{0, -1, 1, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, math.MinInt64}).Draw(t, "seq"),
					number.Draw(t, "page"), number.Draw(t, "version"), number.Draw(t, "head"), number.Draw(t, "tokens"), number.Draw(t, "bytes"),
				}
				c.setPageCol(p, pageCol{art: uint32(num), asOf: 7}, n)
				want[num] = n
			}
		}
		out := &Columns{}
		require.True(t, c.image(out, 1, unchanged, func() {}))
		have, ok := readColumns(out)
		require.True(t, ok)
		large := 0
		for num, n := range want {
			if _, ok := n.small(); !ok {
				large++
			}
			for _, c := range []*catalogue{c, have} {
				require.Equal(t, n, c.numbers(c.page(num)))
				require.Equal(t, rare[num], *c.rareOf(c.page(num)))
			}
			require.Equal(t, c.wholePage(num), have.wholePage(num))
		}
		require.Len(t, c.wide, large)
		require.Equal(t, large, len(have.wide))
	})
}

// TestNewestVersion: an artefact has the newest version that was installed, whatever its first page came with, also after a
// snapshot. It takes a place in newest only if the column of the page does not have all of it.
func TestNewestVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, want, rows, own := newCatalogue(), map[uint64]newestCol{}, map[uint64][]store.PageRow{}, map[uint64]bool{}
		c.addScope(1, "acme")
		lsn, num := uint64(0), uint64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			lsn++
			art := min(uint64(len(want))+1, rapid.Uint64Range(1, 12).Draw(t, "art"))
			n := newestCol{lsn, int64(1000 * lsn), want[art].version + 1}
			hot := format.Hot{Art: art, Version: n.version, Scope: 1, LSN: lsn, PutAt: n.putAt, ID: []byte(fmt.Sprint("id-", art)), Kind: store.KindFact, Provenance: store.Tool}
			switch what := rapid.SampledFrom([]string{"put", "dated", "same", "delete", "forget"}).Draw(t, "what"); {
			case want[art].version != 0 && len(rows[art]) == 0 && what == "forget":
				c.forget(art)
				want[art], own[art] = newestCol{}, true
				continue
			case n.version == 1 && own[art]:
				continue // forgotten: its number is not used again
			case what == "delete" && len(rows[art]) > 0:
				hot.Flags, rows[art], own[art] = format.FlagDeleted, nil, true
			case what == "same" && len(rows[art]) > 0:
				own[art] = true
			default:
				num++
				rows[art] = []store.PageRow{{Num: num, LSN: lsn, Version: n.version}}
				if what == "dated" {
					late := rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, math.MaxInt64}).Draw(t, "late")
					hot.AsOf, own[art] = n.putAt-late, own[art] || int64(int32(late)) != late
				}
			}
			c.install(&hot, rows[art])
			c.lsn, want[art] = lsn, n
		}
		require.LessOrEqual(t, c.newest.len(), len(own))
		out := &Columns{}
		require.True(t, c.image(out, 1, unchanged, func() {}))
		have, ok := readColumns(out)
		require.True(t, ok)
		require.LessOrEqual(t, have.newest.len(), c.newest.len())
		for art, n := range want {
			require.Equal(t, n, c.newestOf(c.art(art)), art)
			require.Equal(t, n, have.newestOf(have.art(art)), art)
			require.Equal(t, c.wholeArt(art), have.wholeArt(art))
		}
	})
	c, out := newCatalogue(), &Columns{}
	c.addScope(1, "acme")
	c.install(&format.Hot{Art: 1, Version: 1, Scope: 1, LSN: 1, AsOf: 1 << 40, PutAt: 1, ID: []byte("a"), Provenance: store.Tool}, []store.PageRow{{Num: 1, LSN: 1, Version: 1}})
	require.Equal(t, 1, c.newest.len())
	for first, want := range map[uint32]bool{1: true, 2: false} {
		c.art(1).first, out.Parts = first, nil
		require.True(t, c.image(out, 1, unchanged, func() {}))
		_, ok := readColumns(out)
		require.Equal(t, want, ok, "page %d of 1", first)
	}
}

// TestSortedList: a list has what was put in and not taken out, in order, however it is walked.
func TestSortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o sortedList
		var want []entry
		span := rapid.SampledFrom([]int{3, 40, 100_000, 1 << runKeyBits, math.MaxInt64}).Draw(t, "span")
		keys := rapid.OneOf(rapid.IntRange(0, span), rapid.SampledFrom([]int{math.MinInt64, -span, math.MaxInt64}))
		fill := rapid.IntRange(0, 3*sortedChunk).Draw(t, "fill")
		for i := range fill {
			e := entry{int64(i / 3), uint64(i + 1)}
			o.insert(e.key, e.num)
			want = append(want, e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.Equal(t, len(want), o.n)
				var down []entry
				o.descend(func(e entry) bool { down = append(down, e); return true })
				slices.Reverse(down)
				require.True(t, slices.Equal(want, down), "%v, not %v", down, want)
			},
			"put": func(t *rapid.T) {
				e := entry{int64(keys.Draw(t, "key")), rapid.Uint64Range(1, mostNumber).Draw(t, "num")}
				o.insert(e.key, e.num)
				if at, found := slices.BinarySearchFunc(want, e, compareEntries); !found {
					want = slices.Insert(want, at, e)
				}
			},
			"take": func(t *rapid.T) {
				e := entry{int64(keys.Draw(t, "key")), 1}
				if len(want) > 0 && rapid.Bool().Draw(t, "there") {
					e = rapid.SampledFrom(want).Draw(t, "entry")
				}
				o.remove(e.key, e.num)
				if at, found := slices.BinarySearchFunc(want, e, compareEntries); found {
					want = slices.Delete(want, at, at+1)
				}
			},
			"count": func(t *rapid.T) {
				from, to := int64(rapid.IntRange(-1, span).Draw(t, "from")), int64(rapid.IntRange(-1, span).Draw(t, "to"))
				n := 0
				var in, have []uint64
				for _, e := range want {
					if e.key <= to {
						n++
					}
					if from < e.key && e.key <= to {
						in = append(in, e.num)
					}
				}
				require.Equal(t, n, o.upTo(to))
				o.between(from, to, func(num uint64) { have = append(have, num) })
				require.Equal(t, in, have)
			},
			"merge": func(t *rapid.T) {
				other := sortedOf([]entry{{0, 5}, {1, mostNumber}, {int64(span), 7}})
				m := merge{}
				m.add(&o)
				m.add(&other)
				all := append(slices.Clone(want), entry{0, 5}, entry{1, mostNumber}, entry{int64(span), 7})
				slices.SortFunc(all, compareEntries)
				for i := len(all) - 1; i >= 0; i-- {
					e, ok := m.take()
					require.True(t, ok)
					require.Equal(t, all[i], e)
				}
				_, ok := m.take()
				require.False(t, ok)
			},
		})
	})
}

// TestSortedRun: entries take eight bytes while all of their chunk are near each other, up to the farthest that are.
func TestSortedRun(t *testing.T) {
	const keys, nums = 1 << (runKeyBits - 1), 1 << (runNumBits - 1)
	for _, c := range []struct {
		e    entry
		wide bool
	}{
		{entry{1000 + keys - 1, 2 * nums}, false}, {entry{1000 + keys, 2 * nums}, true}, {entry{1000 - keys, 2 * nums}, false}, {entry{999 - keys, 2 * nums}, true},
		{entry{1000, 3*nums - 1}, false}, {entry{1000, 3 * nums}, true}, {entry{1000, nums}, false}, {entry{1000, nums - 1}, true},
		{entry{math.MinInt64, 1}, true}, {entry{math.MaxInt64, mostNumber}, true},
	} {
		first := entry{1000, 2 * nums}
		r := newRun(4)
		r.insert(0, first)
		require.Nil(t, r.nums)
		at, _ := r.search(c.e)
		r.insert(at, c.e)
		require.Equal(t, c.wide, r.nums != nil, c)
		require.ElementsMatch(t, []entry{first, c.e}, []entry{r.at(0), r.at(1)})
		require.Equal(t, c.e, r.at(at))
		r.remove(0, 2)
		r.insert(0, c.e)
		require.Nil(t, r.nums, "an empty chunk begins anew")
		require.Equal(t, c.e, r.at(0))
	}
	require.LessOrEqual(t, unsafe.Sizeof(sortedRun{}), uintptr(64))
}

// imageArts are in two blocks of a snapshot, and their page versions in many.
const imageArts = 1500

// manyKinds is a catalogue with what pages and artefacts can have: several pages, ends, expiries, groups, turns, successors,
// deletions, gaps.
func manyKinds() *catalogue {
	c := newCatalogue()
	c.addScope(1, "acme")
	c.addGroup(1, 1, "talk")
	c.addGroup(2, 1, "\x00doc")
	num, lsn := uint64(0), uint64(0)
	put := func(art uint64, version uint32, pages int, change func(*format.Hot)) {
		lsn++
		hot := format.Hot{Art: art, Version: version, Scope: 1, LSN: lsn, PutAt: int64(1000 * lsn), ID: []byte(fmt.Sprint("id-", art)), Kind: store.KindFact, Provenance: store.Tool}
		if change != nil {
			change(&hot)
		}
		rows := make([]store.PageRow, pages)
		for i := range rows {
			num++
			rows[i] = store.PageRow{Num: num, LSN: lsn, Version: version, Tokens: uint32(num % 91), Bytes: uint32(num % 1013)}
		}
		c.install(&hot, rows)
		c.lsn = lsn
	}
	for art := uint64(1); art <= imageArts; art++ {
		put(art, 1, 1+int(art%5/4), func(h *format.Hot) {
			switch {
			case art%7 == 0:
				h.Expires = int64(art)
			case art%11 == 0:
				h.Group, h.Seq, h.Kind = 1, int64(-art), store.KindMessage
			case art%13 == 0:
				h.Group = 2
			}
			h.Facts = c.facts.number([]byte(fmt.Sprint("facts", art%17)))
		})
	}
	for round := uint32(2); round < 50; round++ { // many ended pages
		for art := uint64(round); art < imageArts; art += 3 * uint64(round) {
			pages := 1 + int(round%3)
			if round%17 == 0 {
				pages = 0
			}
			put(art, c.newestOf(c.art(art)).version+1, pages, func(h *format.Hot) {
				if pages == 0 {
					h.Flags = format.FlagDeleted
				}
				if art%2 == 0 {
					h.Expires = int64(art) * 3
				}
			})
		}
	}
	for art := uint64(3); art < imageArts; art += 19 {
		lsn++
		c.supersede(art, art+1, lsn)
	}
	put(3, c.newestOf(c.art(3)).version+1, 1, nil) // current again
	num += 5                                       // numbers of pages that gc forgot
	put(imageArts+1, 1, 2, nil)
	return c
}

// unchanged is for images that nobody disturbs.
func unchanged(do func()) bool { do(); return true }

// TestLayoutOfColumns: a snapshot has the layout of version 1, whatever the rows in memory look like. If it is to change, a
// file of another layout must not be read as this one: raise columnsVersion of filestore, or give the part a new kind, then take the new digest.
func TestLayoutOfColumns(t *testing.T) {
	c, out := manyKinds(), &Columns{}
	require.True(t, c.image(out, 1, unchanged, func() {}))
	sum := sha256.New()
	for _, p := range out.Parts {
		fmt.Fprintf(sum, "%d %d ", p.Kind, len(p.Body))
		sum.Write(p.Body)
	}
	require.Equal(t, "75ea10fbe25f0877d430dc8f2540c658f92bf355b2bea895f1b691715e6c644c", hex.EncodeToString(sum.Sum(nil)))
}

// TestImageOfColumns: a catalogue that is read from its snapshot knows what the other one knew, also what few pages have.
func TestImageOfColumns(t *testing.T) {
	c := manyKinds()
	require.Greater(t, c.pages.len(), 3*chunkRows)
	require.NotZero(t, c.rare.len())
	require.NotEmpty(t, c.retired)
	require.NotEmpty(t, c.many)

	out := &Columns{}
	require.True(t, c.image(out, 1, unchanged, func() {}))
	have, ok := readColumns(out)
	require.True(t, ok)
	require.Equal(t, c.arts.len(), have.arts.len())
	require.Equal(t, c.pages.len(), have.pages.len())
	for n := range c.arts.all() {
		require.Equal(t, c.wholeArt(n), have.wholeArt(n), n)
		require.Equal(t, c.nums(n), have.nums(n), n)
		if id := c.id(c.art(n)); id != "" {
			require.Equal(t, n, have.lookup(1, id))
		}
	}
	for n := range c.pages.all() {
		require.Equal(t, c.wholePage(n), have.wholePage(n), n)
	}
	require.Equal(t, c.retired, have.retired)
	require.LessOrEqual(t, have.rare.len(), c.rare.len())
	for i := range c.groups {
		require.Equal(t, c.groups[i].members, have.groups[i].members)
		require.Equal(t, c.groups[i].live, have.groups[i].live)
		require.Equal(t, entriesOf(&c.groups[i].turnsOf()[store.Tool]), entriesOf(&have.groups[i].turnsOf()[store.Tool]))
	}
	require.NotZero(t, c.groups[0].turns[store.Tool])
	require.Nil(t, have.groups[1].recent)
	for i := range c.scope(1).classes {
		x, y := c.scope(1).class(i), have.scope(1).class(i)
		require.Equal(t, entriesOf(&x.recent), entriesOf(&y.recent))
		require.Equal(t, entriesOf(&x.expiry), entriesOf(&y.expiry))
	}
	again := &Columns{}
	require.True(t, have.image(again, 1, unchanged, func() {}))
	require.Equal(t, out, again, "a snapshot of it is the same to the byte")
}

// TestImageOfAChange: a catalogue that changes between two parts of its snapshot has none, whichever part it is.
func TestImageOfAChange(t *testing.T) {
	c := manyKinds()
	for _, workers := range []int{1, 4} {
		var held, through atomic.Int64
		count := func(do func()) bool { held.Add(1); do(); return true }
		require.True(t, c.image(&Columns{}, workers, count, func() { through.Add(1) }))
		require.Greater(t, held.Load(), int64(4))
		require.EqualValues(t, 1, through.Load())
		for last := range held.Load() {
			var n atomic.Int64
			out := &Columns{}
			require.False(t, c.image(out, workers, func(do func()) bool {
				if n.Add(1) > last {
					return false
				}
				do()
				return true
			}, func() { through.Add(1) }))
			require.Empty(t, out.Parts)
		}
		require.EqualValues(t, 1, through.Load())
	}
}

// TestImageOfParts: parts of a snapshot are read at the same time, and each has ends and successions of its own.
func TestImageOfParts(t *testing.T) {
	c := newCatalogue()
	c.addScope(1, "acme")
	const arts = 2*partRows + 100
	for art := uint64(1); art <= arts; art++ {
		hot := format.Hot{Art: art, Version: 1, Scope: 1, LSN: art, PutAt: int64(art), ID: []byte(fmt.Sprint("id-", art)), Kind: store.KindFact, Provenance: store.Tool}
		if art%3 == 0 {
			hot.Expires = int64(7 * art)
		}
		c.install(&hot, []store.PageRow{{Num: art, LSN: art, Version: 1}})
		if art%5 == 0 {
			c.supersede(art-1, art, art)
		}
	}
	out := &Columns{}
	require.True(t, c.image(out, 1, unchanged, func() {}))
	require.Len(t, out.of(partPages), 3)
	for _, workers := range []int{2, 3, 16} {
		again := &Columns{}
		require.True(t, c.image(again, workers, unchanged, func() {}))
		require.Equal(t, len(out.Parts), len(again.Parts))
		for i := range out.Parts {
			require.True(t, out.Parts[i].Kind == again.Parts[i].Kind && bytes.Equal(out.Parts[i].Body, again.Parts[i].Body), "%d workers, part %d", workers, i)
		}
	}
	have, ok := readColumns(out)
	require.True(t, ok)
	for n := range c.pages.all() {
		if c.wholePage(n) != have.wholePage(n) || c.wholeArt(n) != have.wholeArt(n) {
			require.Equal(t, c.wholePage(n), have.wholePage(n), n)
			require.Equal(t, c.wholeArt(n), have.wholeArt(n), n)
		}
	}
	require.Equal(t, c.retired, have.retired)
	require.Equal(t, c.rare.len(), have.rare.len())
}

func entriesOf(o *sortedList) (all []entry) {
	o.descend(func(e entry) bool { all = append(all, e); return true })
	return all
}

// TestMostNumber: a batch that needs a number above the highest is refused and changes nothing; one that needs the highest
// is not. A head with such a number is no head.
func TestMostNumber(t *testing.T) {
	for _, of := range []func(*Counters) *uint64{
		func(c *Counters) *uint64 { return &c.Art }, func(c *Counters) *uint64 { return &c.Num }, func(c *Counters) *uint64 { return &c.Group },
	} {
		m := newMemory(t, time.Now)
		m.fill("acme", 3, func(i int) store.Artefact { return store.Artefact{ID: fmt.Sprint("a", i), Text: "text"} })
		before := m.next
		*of(&m.next) = mostNumber + 1
		_, err := m.Commit(t.Context(), m.batch("acme", store.Artefact{ID: "b", Text: "text", Group: "g"}))
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "4294967295")
		require.Equal(t, 3, m.cat.arts.len())
		require.Equal(t, 3, m.cat.pages.len())
		require.Empty(t, m.cat.groups)
		m.next = before // the control
		must(m.Commit(t.Context(), m.batch("acme", store.Artefact{ID: "b", Text: "text", Group: "g"})))(t)
		require.Equal(t, 4, m.cat.pages.len())
	}
	n := numbering{next: Counters{Art: mostNumber + 1, Num: mostNumber + 1, Group: mostNumber + 1}} // the highest were given
	require.NoError(t, n.possible())

	s := newMemory(t, time.Now)
	s.fill("acme", 1, func(int) store.Artefact { return store.Artefact{ID: "a", Text: "text"} })
	hot := format.Hot{Art: 1, Scope: 1, ID: []byte("a"), Provenance: store.Tool}
	require.NoError(t, s.validateHot(&hot, []store.PageRow{{Num: mostNumber}}))
	require.ErrorIs(t, s.validateHot(&hot, []store.PageRow{{Num: mostNumber + 1}}), codec.ErrMalformed)
	require.Error(t, s.pad(highest{num: mostNumber + 1}))
	require.Error(t, s.pad(highest{group: mostNumber + 1}))
}
