package lexical

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// uniquePage is a page of words that no other page has, and of one that all have.
func uniquePage(num uint64, words int) Doc {
	a := Analysis{Length: words + 2, Terms: []TermCount{{Term: "all", N: 2}}}
	for i := range words {
		a.Terms = append(a.Terms, TermCount{Term: fmt.Sprintf("w%x", num*uint64(words)+uint64(i)), N: 1})
	}
	return Doc{Num: num, Scope: uint32(1 + num%2), Group: num / 50, Analysis: a}
}

// puts counts the rows that a transaction keeps.
type puts struct {
	Writer
	n *int
}

func (c puts) Put(k, v []byte) error {
	*c.n++
	return c.Writer.Put(k, v)
}

// TestStepsAreSmall: whatever waits is written in steps of bounded size, and neither they nor packed analyses nor full
// parts change an answer. A checkpoint without steps is the negative control: it writes all at once.
func TestStepsAreSmall(t *testing.T) {
	const pages, each = 10*flushDocs + 7, 4
	w := newWorld()
	stepped, whole := memStore{}, memStore{}
	const step = flushDocs * (each + 1)
	x, y := stepped.open(t), whole.open(t)
	x.stepTerms = step
	for num := uint64(1); num <= pages; num++ {
		d := uniquePage(num, each)
		y.Add(d)
		d.Analysis = d.Analysis.Pack()
		require.Nil(t, d.Analysis.Terms)
		x.Add(d)
		w.add(d)
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
		swap, err := y.Checkpoint(puts{w, &all}, false)
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
		if merged := len(x.manifest.dead) > 0; !merged { // a merge writes what eight steps wrote
			require.Less(t, n, step)
		}
		if more {
			steps++
		}
	}
	require.Equal(t, 10, steps, "nine parts and a merge; the tenth is left to the checkpoint")
	same("after the steps")
	stepped.checkpoint(t, x, false)
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

// TestTailTakesLittle: a word that occurs once takes less than eighty bytes of the tail (it took up to 150), and less than
// thirty while its page waits to be added (it took more than fifty).
func TestTailTakesLittle(t *testing.T) {
	const pages, each = 8 * flushDocs, 64
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	x := memStore{}.open(t)
	before := live()
	for num := uint64(1); num <= pages; num++ {
		x.Add(uniquePage(num, each))
	}
	x.settle()
	took := float64(live()-before) / (pages * each)
	t.Logf("%.1f bytes a word in the tail", took)
	require.Less(t, took, 80.0)
	runtime.KeepAlive(x)

	wait := func(make func(num uint64) Analysis) float64 {
		before := live()
		var waiting []Analysis
		for num := uint64(1); num <= flushDocs; num++ {
			waiting = append(waiting, make(num))
		}
		took := float64(live()-before) / (flushDocs * each)
		runtime.KeepAlive(waiting)
		return took
	}
	require.Less(t, wait(func(num uint64) Analysis { return uniquePage(num, each).Analysis.Pack() }), 30.0)
	require.Greater(t, wait(func(num uint64) Analysis { return uniquePage(num, each).Analysis }), 40.0, "the negative control")
}
