package lexical

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// machine draws a history of pages and plays it twice: into an index that stays
// in its tail, and into one with checkpoints, merges, failed transactions and
// reopens in between.
type machine struct {
	t       *rapid.T
	world   *world
	removed map[uint64]bool
	plain   *Index
	layered *Index
	store   memStore
	common  uint64
	depth   int
	besides int
}

func newMachine(t *rapid.T) *machine {
	m := &machine{t: t, world: newWorld(), removed: map[uint64]bool{}, store: memStore{}}
	m.common = rapid.SampledFrom([]uint64{1, 4, commonPages}).Draw(t, "common")
	m.plain = memStore{}.open(t)
	m.layered = m.store.open(t)
	m.depth = rapid.SampledFrom([]int{1, 3, stageDepth}).Draw(t, "depth")
	m.besides = rapid.SampledFrom([]int{besides, 3}).Draw(t, "besides")
	m.tune()
	return m
}

func (m *machine) tune() {
	for _, x := range []*Index{m.plain, m.layered} {
		x.commonPages, x.stageDepth = m.common, m.depth
		x.stripePages, x.besides = 64, m.besides // few pages are several stripes
	}
}

func (m *machine) run() {
	for range rapid.IntRange(1, 40).Draw(m.t, "steps") {
		switch rapid.SampledFrom([]string{"add", "add", "add", "flush", "flush", "lose", "race", "remove", "supersede", "hide", "reopen"}).Draw(m.t, "step") {
		case "add":
			m.add()
		case "flush":
			m.store.checkpoint(m.t, m.layered, rapid.Bool().Draw(m.t, "force"))
		case "lose": // a transaction that fails
			m.store.update(func(w Writer) bool {
				_, err := m.layered.Checkpoint(w, true)
				require.NoError(m.t, err)
				return false
			})
		case "race":
			m.race()
		case "remove":
			m.remove()
		case "supersede":
			m.supersede()
		case "hide":
			if n := len(m.world.docs); n > 0 {
				m.world.hidden[rapid.Uint64Range(1, uint64(n)).Draw(m.t, "hidden")] = true
			}
		case "reopen":
			m.reopen()
		}
	}
}

var vocabulary = []string{"a", "bb", "bought", "buy", "ccc", "d", "e", "go", "gone", "went", "z\xff", "é", "猫"} // ascending

// turn draws what makes a page a turn; nil for some.
func (m *machine) turn() *Turn {
	if rapid.Bool().Draw(m.t, "page") {
		return nil
	}
	return &Turn{
		Speaker: rapid.SampledFrom([]string{"", "BB", "d e", "e d bb", "猫", "none"}).Draw(m.t, "speaker"),
		Month:   rapid.SampledFrom([]Month{0, 12*120 + 5, 12*121 + 5, 12*121 + 6}).Draw(m.t, "month"),
	}
}

func (m *machine) add() {
	for range rapid.IntRange(1, 6).Draw(m.t, "pages") {
		d := Doc{
			Num:   uint64(len(m.world.docs) + 1),
			Scope: rapid.SampledFrom([]uint32{1, 2, 1 << 31}).Draw(m.t, "scope"),
		}
		if g := rapid.Uint64Range(0, 3).Draw(m.t, "group"); g != 0 {
			d.Group = g<<40 + uint64(d.Scope)
		}
		for _, w := range vocabulary {
			if n := rapid.SampledFrom([]uint32{0, 0, 0, 1, 1, 2, 300}).Draw(m.t, w); n > 0 {
				d.Analysis.Terms = append(d.Analysis.Terms, TermCount{Term: w, N: n})
				d.Analysis.Length += int(n)
			}
		}
		if d.Turn = m.turn(); d.Turn != nil {
			d.Analysis.Traits = Traits(rapid.IntRange(0, int(allTraits)).Draw(m.t, "traits"))
		}
		m.world.add(d)
		m.plain.Add(d)
		m.layered.Add(d)
	}
}

// race adds and removes between a checkpoint and its Apply.
func (m *machine) race() {
	var swap Swap
	m.store.update(func(w Writer) bool {
		var err error
		swap, err = m.layered.Checkpoint(w, true)
		require.NoError(m.t, err)
		return true
	})
	m.add()
	m.remove()
	m.layered.Apply(swap)
}

func (m *machine) remove() {
	if len(m.world.docs) == 0 {
		return
	}
	num := rapid.Uint64Range(1, uint64(len(m.world.docs))).Draw(m.t, "removed")
	m.removed[num] = true
	m.plain.Remove(num, num, 1<<40)
	m.layered.Remove(num, num, 1<<40)
}

func (m *machine) supersede() {
	if n := uint64(len(m.world.docs)); n > 1 {
		old := rapid.Uint64Range(1, n-1).Draw(m.t, "old")
		m.world.next[old] = rapid.Uint64Range(old+1, n).Draw(m.t, "new")
	}
}

// reopen does what the owner does: removals since the last checkpoint are part
// of a transaction with one; the pages above Through are added again.
func (m *machine) reopen() {
	if len(m.layered.removed) > m.layered.saved {
		m.store.checkpoint(m.t, m.layered, rapid.Bool().Draw(m.t, "force"))
	}
	m.layered = m.store.open(m.t)
	m.tune()
	for num := m.layered.Through() + 1; num <= uint64(len(m.world.docs)); num++ {
		if !m.removed[num] {
			m.layered.Add(m.world.docs[num])
		}
	}
	m.store.view(func(r Rows) { require.NoError(m.t, m.layered.Check(r)) })
}

func (m *machine) query() Query {
	return Query{
		Scopes: rapid.SliceOfN(rapid.SampledFrom([]uint32{1, 2, 1 << 31, 9}), 1, 4).Draw(m.t, "scopes"),
		Terms:  rapid.SliceOfNDistinct(rapid.SampledFrom(append([]string{"none"}, vocabulary...)), 1, 5, rapid.ID).Draw(m.t, "terms"),
		Dates:  rapid.SampledFrom([]Dates{{}, {Months: 1 << 4}, {Months: 3 << 4, Years: []int{2021}}}).Draw(m.t, "dates"),
		K:      rapid.SampledFrom([]int{1, 2, 5, 1000}).Draw(m.t, "k"),
		Weights: rapid.SampledFrom([]Weights{
			{}, DefaultWeights(), lending(), {Near1: 3}, {Group: 2}, {Near1: .1, Near2: 5, Group: .01}, {Near1: .5, Group: 1}, {Near2: .4, Group: 1},
			{Near1: .45, Near2: .4, Group: 1.2, Turns: true, Fill: true}, {Turns: true, Fill: true}, {Group: 1, Turns: true}, {Near1: .45, Near2: .4, Group: 1.2, Turns: true, Spread: true}, {Turns: true, Fill: true, Spread: true},
		}).Draw(m.t, "weights"),
	}
}

// visible hides pages of other scopes, as the owner's catalogue does.
type visible struct {
	*world
	scopes  []uint32
	removed map[uint64]bool
}

func (v visible) see(num uint64, ok bool) (uint64, bool) {
	return num, ok && !v.removed[num] && slices.Contains(v.scopes, v.docs[num].Scope)
}
func (v visible) Resolve(num uint64) (uint64, bool) { return v.see(v.world.Resolve(num)) }
func (v visible) Shown(num uint64) bool {
	_, ok := v.see(num, v.world.Shown(num))
	return ok
}

func TestSearchIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		m.run()
		for range 3 {
			q := m.query()
			c := visible{m.world, q.Scopes, m.removed}
			n := newNaive(m.world, m.removed, q, m.common)
			n.depth = m.depth
			n.world = &world{docs: m.world.docs, next: m.world.next, hidden: m.world.hidden, order: m.world.order}
			want := visibleHits(n, c)
			require.Equal(t, want, memStore{}.search(t, m.plain, c, q))
			require.Equal(t, want, m.store.search(t, m.layered, c, q))
			st := m.store.stats(t, m.layered, q.Scopes, q.Terms)
			n.ask()
			require.Equal(t, n.stats, st)
			require.Equal(t, st, memStore{}.stats(t, m.plain, q.Scopes, q.Terms))
			for _, h := range want {
				if own := n.own[h.Num]; h.Via == 0 && own > 0 && q.Weights.Turns && !q.Weights.Spread { // a draft has no neighbours yet
					d := m.world.docs[h.Num]
					scored := scoreDoc(st, d, q, m.layered.commonPages)
					by := 1.0 // a speaker's mean is not known there
					if d.Turn != nil {
						by = longer(float64(d.Analysis.Length), float64(d.Analysis.Length)) / n.longer(d)
					}
					require.InDeltaSlice(t, []float64{h.Own, h.Speaker, h.Date, h.First, h.Level}, []float64{scored.Own * by, scored.Speaker * by, scored.Date * by, scored.First * by, scored.Level}, 1e-9)
				}
			}
		}
	})
}

// In a scope of pages without neighbours most of them are passed over, by a bar that rises with the words already read.
func TestPassedOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, world: newWorld(), removed: map[uint64]bool{}, store: memStore{}, common: rapid.SampledFrom([]uint64{4, commonPages}).Draw(t, "common")}
		m.plain, m.layered = memStore{}.open(t), m.store.open(t)
		m.depth = rapid.SampledFrom([]int{1, 9}).Draw(t, "depth")
		m.tune()
		turns := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "of four so many are turns")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "pages"), 1))
		grouped := rapid.SampledFrom([]int{0, 0, 12}).Draw(t, "one in so many stands in a group")
		for num := uint64(1); num <= 300; num++ {
			d := Doc{Num: num, Scope: 1}
			if grouped > 0 && r.IntN(grouped) == 0 {
				d.Group = uint64(1 + r.IntN(4))
			}
			for i, w := range vocabulary { // from one page in 90 to one in two
				if r.IntN(90) < 1<<i {
					d.Analysis.Terms = append(d.Analysis.Terms, TermCount{Term: w, N: uint32(1 + r.IntN(9)/6)})
					d.Analysis.Length += int(d.Analysis.Terms[len(d.Analysis.Terms)-1].N)
				}
			}
			d.Analysis.Length += r.IntN(3)
			if r.IntN(4) < turns {
				d.Turn = &Turn{Speaker: []string{"", "bb", "e d", "é", "x"}[r.IntN(5)], Month: Month(12*121 + 5 + r.IntN(3))}
			}
			m.world.add(d)
			m.plain.Add(d)
			m.layered.Add(d)
			if r.IntN(30) == 0 && num > 1 {
				m.world.next[1+r.Uint64N(num-1)] = num
			}
		}
		m.store.checkpoint(t, m.layered, true)
		for range 6 {
			q := m.query()
			q.Scopes, q.K = []uint32{1}, rapid.SampledFrom([]int{1, 2, 5, 20}).Draw(t, "pages asked for")
			q.Terms = rapid.SliceOfNDistinct(rapid.SampledFrom(vocabulary), 2, 6, rapid.ID).Draw(t, "words")
			c := visible{m.world, q.Scopes, m.removed}
			n := newNaive(m.world, m.removed, q, m.common)
			n.depth = m.depth
			n.world = &world{docs: m.world.docs, next: m.world.next, hidden: m.world.hidden, order: m.world.order}
			want := visibleHits(n, c)
			require.Equal(t, want, memStore{}.search(t, m.plain, c, q))
			require.Equal(t, want, m.store.search(t, m.layered, c, q))
		}
	})
}

// TestOnly: a question that names the pages it may find gets those that it would find among all.
func TestOnly(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		w, store := newWorld(), memStore{}
		x := store.open(t)
		for num := uint64(1); num <= 500; num++ {
			d := Doc{Num: num, Scope: 1, Group: uint64(r.IntN(3))}
			for i, v := range vocabulary {
				if r.IntN(90) < 1<<min(i, 5) {
					d.Analysis.Terms = append(d.Analysis.Terms, TermCount{Term: v, N: uint32(1 + r.IntN(4))})
					d.Analysis.Length += int(d.Analysis.Terms[len(d.Analysis.Terms)-1].N)
				}
			}
			w.add(d)
			x.Add(d)
		}
		only := make([]uint64, 501/64+1)
		for i := range only {
			only[i] = r.Uint64() | r.Uint64()
		}
		for range 10 {
			q := Query{Scopes: []uint32{1}, K: 1 + r.IntN(40), Terms: vocabulary[r.IntN(4):][:3]}
			if r.IntN(2) == 0 {
				q.Weights = Weights{Group: 1}
			}
			c := onlyOf{w, only}
			want := store.search(t, x, c, q)
			q.Only = only
			require.Equal(t, want, store.search(t, x, c, q), seed)
		}
	}
}

// onlyOf refuses the pages that Query.Only leaves out.
type onlyOf struct {
	*world
	only []uint64
}

func (o onlyOf) Resolve(num uint64) (uint64, bool) {
	live, ok := o.world.Resolve(num)
	return live, ok && (o.only == nil || o.only[num/64]&(1<<(num%64)) != 0)
}

// visibleHits runs the naive scorer with the catalogue's view of what is shown.
func visibleHits(n *naive, c visible) []Hit {
	hidden := map[uint64]bool{}
	for num := range c.docs {
		if _, ok := c.see(num, true); !ok || n.hidden[num] {
			hidden[num] = true
		}
	}
	n.world.hidden = hidden
	if hits := n.hits(); len(hits) > 0 {
		return hits
	}
	return nil
}

func TestStrangersChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alone, crowd := memStore{}.open(t), memStore{}.open(t)
		w := newWorld()
		for num := uint64(1); num <= 12; num++ {
			d := Doc{Num: num, Scope: rapid.Uint32Range(1, 2).Draw(t, "scope"), Group: 7, Analysis: words("a", 1, "b", 2)}
			if d.Scope == 1 {
				alone.Add(d)
				w.add(d)
			}
			crowd.Add(d)
		}
		q := Query{Scopes: []uint32{1}, Terms: []string{"a", "b"}, K: 20, Weights: lending()}
		require.Equal(t, memStore{}.search(t, alone, w, q), memStore{}.search(t, crowd, w, q))
		q.Scopes = []uint32{1, 2} // the control: statistics of the other scope do matter
		if n := len(w.docs); n > 0 && n < 12 {
			require.NotEqual(t, memStore{}.stats(t, alone, q.Scopes, q.Terms), memStore{}.stats(t, crowd, q.Scopes, q.Terms))
		}
	})
}

// Questions that come together after a page was added bring the lists up to date once, and read them beside each other. The
// race detector is what this test needs.
func TestReadersTogether(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	for num := uint64(1); num <= 200; num++ {
		d := Doc{Num: num, Scope: 1, Analysis: words("zebra", 1)}
		w.add(d)
		x.Add(d)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				hits, err := x.Search(nil, w, Query{Scopes: []uint32{1}, Terms: []string{"zebra"}, K: 300})
				if err != nil || uint64(len(hits)) != num {
					t.Errorf("%d hits of %d: %v", len(hits), num, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestRedirectTakesTheMaximum(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	for num, a := range []Analysis{words("dentist", 1, "gus", 1), words("dentist", 1, "gus", 1), words("now", 1, "wendell", 1), words("other", 2)} {
		d := Doc{Num: uint64(num + 1), Scope: 1, Analysis: a}
		w.add(d)
		x.Add(d)
	}
	w.next[1], w.next[2] = 2, 3
	q := Query{Scopes: []uint32{1}, Terms: []string{"dentist"}, K: 5}
	hits := memStore{}.search(t, x, w, q)
	require.Len(t, hits, 1)
	require.Equal(t, uint64(3), hits[0].Num)
	require.Equal(t, uint64(1), hits[0].Via)

	st := memStore{}.stats(t, x, q.Scopes, q.Terms)
	require.Equal(t, uint64(2), st.DF[0], "a superseded version counts until it is removed")
	require.Equal(t, scoreDoc(st, Doc{Analysis: words("dentist", 1, "gus", 1)}, q, x.commonPages).Score, hits[0].Score, "one version, not the sum of two")
}

// lending is DefaultWeights for pages of any kind.
func lending() Weights { return Weights{Near1: .45, Near2: .4, Group: 1.2} }

// A page that has none of the words, and no neighbour that has, is no hit for standing in a group that is one: neither
// by itself nor through the version that it replaced.
func TestGroupAloneBringsNobodyIn(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	for num := uint64(1); num <= 4; num++ {
		d := Doc{Num: num, Scope: 1, Group: 1, Analysis: words("else", 1)}
		if num == 1 {
			d.Analysis = words("word", 1)
		}
		if num == 4 {
			d.Group = 0
		}
		w.add(d)
		x.Add(d)
	}
	found := func(weights Weights) (nums []uint64) {
		for _, h := range (memStore{}).search(t, x, w, Query{Scopes: []uint32{1}, Terms: []string{"word"}, K: 9, Weights: weights}) {
			nums = append(nums, h.Num)
		}
		return nums
	}
	require.Equal(t, []uint64{1, 2, 3}, found(lending()))
	require.Equal(t, []uint64{1}, found(DefaultWeights()), "no page is a turn")
	require.Equal(t, []uint64{1, 2}, found(Weights{Near1: .5, Group: 1}))
	require.Equal(t, []uint64{1, 3}, found(Weights{Near2: .5, Group: 1}))
	w.next[2] = 4
	require.Equal(t, []uint64{1, 3}, found(lending()))
}

func TestEqualScoresGoToTheLaterPage(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	for num := uint64(1); num <= 30; num++ {
		d := Doc{Num: num, Scope: 1, Analysis: words("same", 1)}
		w.add(d)
		x.Add(d)
	}
	hits := memStore{}.search(t, x, w, Query{Scopes: []uint32{1}, Terms: []string{"same"}, K: 3})
	require.Equal(t, []uint64{30, 29, 28}, []uint64{hits[0].Num, hits[1].Num, hits[2].Num})
}

func TestEmptyQueries(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	x.Add(Doc{Num: 1, Scope: 1, Analysis: words("a", 1)})
	for _, q := range []Query{{}, {K: 5}, {Terms: []string{"a"}}, {K: 5, Terms: []string{"a"}}, {K: 5, Terms: []string{"b"}, Scopes: []uint32{1}}} {
		require.Empty(t, memStore{}.search(t, x, w, q))
	}
}

func TestParallelSearches(t *testing.T) {
	x, w, s := memStore{}.open(t), newWorld(), memStore{}
	for num := uint64(1); num <= 300; num++ {
		d := Doc{Num: num, Scope: 1, Group: num % 9, Analysis: words("a", int(num%5+1), fmt.Sprint("b", num%7), 1)}
		w.add(d)
		x.Add(d)
	}
	s.checkpoint(t, x, true)
	q := Query{Scopes: []uint32{1}, Terms: []string{"a", "b3", "b5"}, K: 10, Weights: lending()}
	want := s.search(t, x, w, q)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got := s.search(t, x, w, q); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestLn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-9, 1e12).Draw(t, "x")
		require.InDelta(t, math.Log(x), ln(x), 1e-15*math.Max(1, math.Abs(math.Log(x)))*4)
	})
}

// TestPagesWait: a page is analysed when a question needs it or when many wait, never for a page alone that nobody asks for.
func TestPagesWait(t *testing.T) {
	s := memStore{}
	x := s.open(t)
	analysed := 0
	add := func(num uint64, bytes int) {
		x.Add(Doc{Num: num, Scope: 1, Bytes: bytes, Analyse: func() Analysis {
			analysed++
			return words("kettle", 1)
		}})
	}
	for num := uint64(1); num < dueFresh; num++ {
		add(num, 1)
	}
	require.Zero(t, analysed)
	require.False(t, x.Due())
	require.EqualValues(t, dueFresh-1, s.stats(t, x, []uint32{1}, []string{"kettle"}).DF[0])
	require.Equal(t, dueFresh-1, analysed)
	add(100, dueWaiting)
	require.True(t, x.Due())
	for x.Invert() {
	}
	require.False(t, x.Due())
	require.Equal(t, dueFresh, analysed)
	add(101, mostWaiting) // Add enters it itself
	require.Equal(t, dueFresh+1, analysed)
	for num := range uint64(mostFresh) {
		add(200+num, 0)
	}
	require.Equal(t, dueFresh+1+mostFresh, analysed)
	require.False(t, x.Invert())
}

// TestInvertBesideSearch: terms are entered under no lock of the owner while others search, checkpoint and add; every
// search counts each page that was added before it.
func TestInvertBesideSearch(t *testing.T) {
	const pages = flushDocs + 200
	s := memStore{}
	x := s.open(t)
	var owner sync.RWMutex
	var added atomic.Uint64
	var others, adding sync.WaitGroup
	done := make(chan struct{})
	until := func(do func()) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					do()
					runtime.Gosched() // all have their turn at each page, and nobody spins while another waits
				}
			}
		})
	}
	for range 2 {
		until(func() {
			owner.RLock()
			defer owner.RUnlock()
			st, err := x.Stats([]uint32{1}, &memTx{rows: s}, []string{"all", "some"})
			if n := added.Load(); err != nil || st.Pages != n || st.DF[0] != n || st.DF[1] != n/2 {
				t.Errorf("%+v after %d pages: %v", st, n, err)
			}
		})
		until(func() { x.Invert() })
	}
	until(func() {
		tx := &memTx{rows: memStore{}} // never applied
		if _, err := x.Checkpoint(tx, true); err != nil {
			t.Error(err)
		}
	})
	adding.Go(func() {
		for num := uint64(1); num <= pages; num++ {
			a := words("all", 1, fmt.Sprint("w", num%500), 2)
			if num%2 == 0 {
				a = words("some", 1, "all", 3)
			}
			d := Doc{Num: num, Scope: 1, Analysis: a}
			if num%3 > 0 { // analysed when it is entered
				d.Analysis, d.Analyse, d.Bytes = Analysis{}, func() Analysis { return a }, 100
			}
			owner.Lock()
			x.Add(d)
			added.Store(num)
			owner.Unlock()
			runtime.Gosched()
		}
	})
	adding.Wait()
	close(done)
	others.Wait()
	require.Equal(t, uint64(pages), s.stats(t, x, []uint32{1}, []string{"all"}).DF[0])
}

// A page that gets nothing from its group may still lend to a turn that does: here it scores less than the turn, and only
// with what it lends is the turn the best. Both stay below the bar by their own words.
func TestLentByADocument(t *testing.T) {
	for _, lends := range []bool{true, false} {
		w := newWorld()
		x := memStore{}.open(t)
		x.stageDepth = 1
		add := func(group uint64, turn *Turn, words ...string) {
			d := Doc{Num: uint64(len(w.docs) + 1), Scope: 1, Group: group, Turn: turn}
			for _, v := range words {
				d.Analysis.Terms = append(d.Analysis.Terms, TermCount{Term: v, N: 1})
			}
			d.Analysis.Length = len(words)
			w.add(d)
			x.Add(d)
		}
		for range 35 {
			add(0, nil, "go", "é")
		}
		for range 5 {
			add(0, nil, "go")
		}
		for g := range uint64(3) {
			add(g+2, &Turn{Speaker: "x"}, "other")
		}
		around := func() {
			for range 2 {
				if lends {
					add(1, nil, "é")
				}
			}
		}
		around()
		add(1, &Turn{Speaker: "é"}, "go")
		turn := uint64(len(w.docs))
		around()
		q := Query{Scopes: []uint32{1}, Terms: []string{"é", "go"}, K: 1, Weights: Weights{Near1: .45, Near2: .4, Group: 1.2, Turns: true}}
		n := newNaive(w, nil, q, commonPages)
		n.depth = 1
		want := visibleHits(n, visible{w, q.Scopes, nil})
		require.Len(t, want, 1)
		require.Equal(t, turn, want[0].Num)
		require.Equal(t, want, memStore{}.search(t, x, visible{w, q.Scopes, nil}, q), "lends: %v", lends)
	}
}
