package lexical

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// uniquePage is a page of words that no other page has, and of one that all have.
func uniquePage(num uint64, words int) Doc {
	a := Analysis{Length: words + 2, Terms: []TermCount{{Term: "all", N: 2}}}
	for i := range words {
		a.Terms = append(a.Terms, TermCount{Term: fmt.Sprintf("w%x", num*uint64(words)+uint64(i)), N: 1})
	}
	return Doc{Num: num, Scope: uint32(1 + num%2), Group: num / 50, Analysis: a}
}

// puts counts the rows and lists that a transaction keeps.
type puts struct {
	Writer
	n *int
}

func (c puts) Put(k, v []byte) error {
	if *c.n++; k[0] == rowTerm {
		*c.n += listsIn(v) - 1
	}
	return c.Writer.Put(k, v)
}

// TestStepsAreSmall: whatever waits is written in steps of bounded size, and neither they nor full parts nor pages
// that were built ahead change an answer. A checkpoint without steps is the negative control: it writes all at once.
func TestStepsAreSmall(t *testing.T) {
	const pages, each = 10*flushDocs + 7, 4
	w := newWorld()
	stepped, whole := memStore{}, memStore{}
	const step = flushDocs*each + 4
	x, y := stepped.open(t), whole.open(t)
	x.stepTerms = step
	const built, builtEnd = 3*flushDocs + 100, 5*flushDocs + 50
	var b Built
	for num := uint64(1); num <= pages; num++ {
		d := uniquePage(num, each)
		y.Add(d)
		w.add(d)
		switch {
		case num < built || num >= builtEnd:
			x.Add(d)
		default:
			b.Add(d)
		}
		if num == builtEnd-1 {
			b.End()
			x.AddBuilt(&b)
		}
	}
	for _, n := range []uint64{5, flushDocs, 3*flushDocs + 1, pages} {
		x.Remove(n)
		y.Remove(n)
	}
	same := func(when string) {
		t.Helper()
		for _, term := range []string{"all", fmt.Sprintf("w%x", 17*each+3), fmt.Sprintf("w%x", (pages-1)*each), fmt.Sprintf("w%x", 5*each), "none"} {
			q := Query{Scopes: []uint32{1, 2}, Terms: []string{term}, K: 50}
			require.Equal(t, whole.search(t, y, w, q), stepped.search(t, x, w, q), "%s %s", when, term)
		}
	}
	same("in memory")
	all := 0
	whole.update(func(w Writer) bool {
		swap, err := y.Checkpoint(puts{w, &all}, true)
		require.NoError(t, err)
		y.Apply(swap)
		return true
	})
	require.Greater(t, all, 8*flushDocs*each)
	steps := 0
	for more := true; more; {
		n := 0
		var swap Swap
		stepped.update(func(w Writer) (done bool) {
			var err error
			swap, done, err = x.Step(puts{w, &n})
			require.NoError(t, err)
			more = done
			return done
		})
		x.Apply(swap)
		require.Less(t, n, step+32+blockBytes/4, "and a few rows of pages, and the rest of a block")
		if more {
			steps++
		}
	}
	require.GreaterOrEqual(t, steps, all/step)
	require.Len(t, x.manifest.segments, 1)
	same("after the steps")
	stepped.checkpoint(t, x, true)
	same("after the checkpoint")
	x, y = stepped.open(t), whole.open(t)
	require.Equal(t, y.Through(), x.Through())
	stepped.view(func(r Rows) { require.NoError(t, x.Check(r)) })
	for num := x.Through() + 1; num < pages; num++ {
		x.Add(uniquePage(num, each))
		y.Add(uniquePage(num, each))
	}
	same("after an open")
}

// TestTailTakesLittle: a word that occurs once takes less than twenty bytes of the tail (it took eighty, and before that
// up to 150), however few pages it has; while a page waits to be added it takes more than forty, the negative control,
// so a large batch is built page by page.
func TestTailTakesLittle(t *testing.T) {
	if dbtest.Race {
		t.Skip("it measures the memory that one goroutine takes, which the race detector changes")
	}
	const pages, each = 8 * flushDocs, 256
	live := func() int64 {
		runtime.GC()
		runtime.GC() // the first leaves what was in a pool
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	took := func(fill func() any) float64 {
		before := live()
		kept := fill()
		n := live() - before
		runtime.KeepAlive(kept)
		return float64(n) / (pages * each)
	}
	const open = 70 * partTerms // bytes, of the part that takes pages
	added := took(func() any {
		x := memStore{}.open(t)
		for num := uint64(1); num <= pages; num++ {
			x.Add(uniquePage(num, each))
		}
		x.invertAll()
		return x
	})
	t.Logf("%.1f bytes a word in the tail", added)
	require.Less(t, added, 20.0+float64(open)/(pages*each))
	built := took(func() any {
		x := memStore{}.open(t)
		var b Built
		for num := uint64(1); num <= pages; num++ {
			b.Add(uniquePage(num, each))
		}
		b.End()
		x.AddBuilt(&b)
		return x
	})
	require.Less(t, built, 20.0)
	require.Greater(t, took(func() any {
		var waiting []Analysis
		for num := uint64(1); num <= pages; num++ {
			waiting = append(waiting, uniquePage(num, each).Analysis)
		}
		return waiting
	}), 40.0, "the negative control")
}

// TestTailInSteps: a segment of the tail that takes several steps may be disturbed between any two of them. Its parts answer
// until it is whole, and nothing is lost or found twice.
func TestTailInSteps(t *testing.T) {
	const pages, each, more = 3 * flushDocs, 4, 2 * flushDocs
	disturb := map[string]func(s *memStore, x, y *Index, w *world) *Index{
		"nothing": func(_ *memStore, x, _ *Index, _ *world) *Index { return x },
		"a step fails": func(s *memStore, x, _ *Index, _ *world) *Index {
			left := 5
			s.update(func(w Writer) bool {
				_, _, err := x.Step(failing{w, &left})
				require.ErrorIs(t, err, errReadOnly)
				return false
			})
			return x
		},
		"pages are removed": func(_ *memStore, x, y *Index, _ *world) *Index {
			x.Remove(3, flushDocs, pages)
			y.Remove(3, flushDocs, pages)
			return x
		},
		"pages come, and a checkpoint": func(s *memStore, x, y *Index, w *world) *Index {
			for num := uint64(pages + 1); num <= pages+more; num++ {
				d := uniquePage(num, each)
				x.Add(d)
				y.Add(d)
				w.add(d)
			}
			s.update(func(w Writer) bool {
				swap, err := x.Checkpoint(w, false)
				require.NoError(t, err)
				x.Apply(swap)
				return true
			})
			require.NotNil(t, x.merging, "it goes on")
			return x
		},
		"the owner ends": func(s *memStore, x, _ *Index, _ *world) *Index {
			s.update(func(w Writer) bool {
				swap, err := x.Rest(w)
				require.NoError(t, err)
				x.Apply(swap)
				return true
			})
			require.Nil(t, x.merging)
			require.Equal(t, uint64(pages), s.open(t).Through())
			return x
		},
		"a crash": func(s *memStore, _, _ *Index, w *world) *Index {
			x := s.open(t)
			require.Zero(t, x.Through())
			require.NotEmpty(t, x.manifest.dead)
			for num := uint64(1); num <= pages; num++ {
				x.Add(w.docs[num])
			}
			return x
		},
	}
	for name, disturb := range disturb {
		t.Run(name, func(t *testing.T) {
			s, none, w := memStore{}, memStore{}, newWorld()
			x, y := s.open(t), none.open(t)
			addUnique(w, pages, each, x, y)
			same := func(when string) {
				t.Helper()
				for _, term := range []string{"all", "w1", fmt.Sprintf("w%x", 17*each+3), fmt.Sprintf("w%x", 3*each), fmt.Sprintf("w%x", pages*each+1)} {
					q := Query{Scopes: []uint32{1, 2}, Terms: []string{term}, K: 50}
					require.Equal(t, none.search(t, y, w, q), s.search(t, x, w, q), "%s %s", when, term)
				}
			}
			x.stepTerms = flushDocs
			for n := 0; s.step(t, x); n++ {
				same("between steps")
				if n == 2 {
					require.NotNil(t, x.merging)
					x = disturb(&s, x, y, w)
					x.stepTerms = flushDocs
					same("after " + name)
				}
			}
			s.checkpoint(t, x, true)
			s.checkpoint(t, x, true)
			same("at the end")
			require.Empty(t, x.manifest.dead)
			require.Equal(t, y.last, x.Through())
			s.view(func(r Rows) { require.NoError(t, x.Check(r)) })
			x = s.open(t)
			same("opened")
		})
	}
}

// addUnique adds the same pages to a world and to indexes.
func addUnique(w *world, pages uint64, each int, to ...*Index) {
	for num := uint64(1); num <= pages; num++ {
		d := uniquePage(num, each)
		w.add(d)
		for _, x := range to {
			x.Add(d)
		}
	}
}

// masking is a transaction whose keys do not show words, in another order than theirs.
type masking struct{ Writer }

func (masking) Masks() bool { return true }

func (masking) Word(b []byte, scope uint32, word []byte) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, scope, " ", string(word))
	return h.Sum(b)
}

// TestMaskedTailInSteps: a segment of the tail goes on behind the word that was written last, also where its key says
// something else. The index without masks is the control.
func TestMaskedTailInSteps(t *testing.T) {
	const pages, each = 5 * flushDocs, 4
	s, none, w := memStore{}, memStore{}, newWorld()
	x, y := s.open(t), none.open(t)
	addUnique(w, pages, each, x, y)
	x.stepTerms = flushDocs
	steps := 0
	mask := func(do func(w Writer) (Swap, bool, error)) (more bool) {
		var swap Swap
		s.update(func(w Writer) bool {
			var err error
			swap, more, err = do(masking{w})
			require.NoError(t, err)
			return true
		})
		x.Apply(swap)
		return more
	}
	for mask(x.Step) {
		steps++
	}
	none.checkpoint(t, y, true)
	require.Greater(t, steps, each)
	segments := len(x.manifest.segments)
	require.Greater(t, segments, 1, "they do not take memory for all of them at once")
	require.Equal(t, none.lists()+2*(segments-1), s.lists(), "the word of all is in each segment, in two scopes")
	require.Less(t, s.count("T"), s.lists()/10, "they are in blocks")
	x.Purge(true)
	x.Remove(18)
	y.Remove(18)
	for range 2 {
		mask(func(w Writer) (Swap, bool, error) {
			swap, err := x.Checkpoint(w, true)
			return swap, false, err
		})
	}
	require.Empty(t, x.removed)
	s.view(func(r Rows) { require.NoError(t, x.Check(r)) })
	for _, term := range []string{"all", fmt.Sprintf("w%x", each), fmt.Sprintf("w%x", 17*each+3), fmt.Sprintf("w%x", pages*each+1)} {
		q := Query{Scopes: []uint32{1, 2}, Terms: []string{term}, K: 50}
		var got []Hit
		s.update(func(r Writer) bool {
			require.Nil(t, r.Get(appendTermKey(nil, 0, 1, term)))
			var err error
			got, err = x.Search(masking{r}, w, q)
			require.NoError(t, err)
			return false
		})
		require.NotEmpty(t, got)
		require.Equal(t, none.search(t, y, w, q), got, term)
	}
}
