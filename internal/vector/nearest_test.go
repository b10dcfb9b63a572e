package vector

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// clustered are vectors as texts have them: some thousand topics, and texts beside each.
func clustered(rng *rand.Rand, n, dims, topics int, spread float64) [][]float32 {
	centres := make([][]float32, topics)
	for i := range centres {
		centres[i] = gauss(rng, dims, nil, 1)
	}
	out := make([][]float32, n)
	for i := range out {
		out[i] = gauss(rng, dims, centres[rng.IntN(topics)], spread)
	}
	return out
}

func gauss(rng *rand.Rand, dims int, around []float32, spread float64) []float32 {
	v := make([]float32, dims)
	for i := range v {
		v[i] = float32(spread * rng.NormFloat64())
		if around != nil {
			v[i] += around[i]
		}
	}
	return v
}

func exact(vecs [][]float32, q []float32, k int, may func(num uint64) bool) (nums []uint64) {
	hits := []Hit{}
	for i, v := range vecs {
		if num := uint64(i + 1); may == nil || may(num) {
			hits = append(hits, Hit{num, cosine(v, q)})
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		if a.Cosine != b.Cosine {
			return map[bool]int{true: -1, false: 1}[a.Cosine > b.Cosine]
		}
		return int(b.Num) - int(a.Num)
	})
	for _, h := range hits[:min(k, len(hits))] {
		nums = append(nums, h.Num)
	}
	return nums
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

func setOf(vecs [][]float32) *Set {
	s := NewSet(len(vecs[0]))
	for i, v := range vecs {
		s.Put(uint64(i+1), v)
	}
	return s
}

func recall(t testing.TB, vecs, questions [][]float32, k int) float64 {
	s, f, found := setOf(vecs), Finder{}, 0
	for _, q := range questions {
		want := exact(vecs, q, k, nil)
		for _, h := range f.Search([]*Set{s}, NewQuestion(q), k, Visible{}) {
			if slices.Contains(want, h.Num) {
				found++
			}
		}
	}
	return float64(found) / float64(k*len(questions))
}

func TestRecall(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{500, exactly + 1, 30_000} {
		vecs := clustered(rng, n+10, 384, 300, .7)
		require.GreaterOrEqual(t, recall(t, vecs[:n], vecs[n:], 50), .98, n)
	}
}

// TestOrderOfComing: the same vectors under the same numbers, put in another order, some of them twice, some removed.
func TestOrderOfComing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	vecs := clustered(rng, 6000, 64, 50, .6)
	a, b := setOf(vecs), NewSet(64)
	for _, i := range rng.Perm(len(vecs)) {
		b.Put(uint64(i+1), vecs[(i+7)%len(vecs)])
		b.Put(uint64(i+10_001), vecs[i])
	}
	for _, i := range rng.Perm(len(vecs)) {
		b.Remove(uint64(i + 10_001))
		b.Put(uint64(i+1), vecs[i])
	}
	require.Equal(t, a.Len(), b.Len())
	var f, g Finder
	for i := range 20 {
		q := NewQuestion(vecs[i*100])
		got := f.Search([]*Set{a}, q, 30, Visible{})
		require.Equal(t, got, g.Search([]*Set{b}, q, 30, Visible{}))
		require.EqualValues(t, i*100+1, got[0].Num)
		c, ok := a.Cosine(q, got[3].Num)
		require.True(t, ok)
		require.Equal(t, got[3].Cosine, c)
	}
	_, ok := a.Cosine(NewQuestion(vecs[0][:32]), 1)
	require.False(t, ok)
	require.Empty(t, f.Search([]*Set{a}, NewQuestion(vecs[0][:32]), 30, Visible{}), "another length")
}

// TestVisible: what is excluded takes no place, whether a bit or a call tells it, and nothing of it is found.
func TestVisible(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1000, 9000} {
		vecs := clustered(rng, n, 96, 20, .5)
		sets := []*Set{NewSet(96), NewSet(96), NewSet(32)}
		for i, v := range vecs {
			sets[i%2].Put(uint64(i+1), v)
		}
		sets[2].Put(uint64(n+1), vecs[0][:32])
		live, only := make([]uint64, n/64+2), make([]uint64, n/64+2)
		for num := 1; num <= n; num++ {
			if num%3 > 0 {
				live[num/64] |= 1 << (num % 64)
			}
			if num%5 == 0 {
				only[num/64] |= 1 << (num % 64)
			}
		}
		may := func(num uint64) bool { return num%3 > 0 && num%5 == 0 && num%7 > 2 }
		var f Finder
		for i := range 10 {
			q := vecs[i]
			var got []uint64
			for _, h := range f.Search(sets, NewQuestion(q), 40, Visible{live, only, func(num uint64) bool { return num%7 > 2 }}) {
				require.True(t, may(h.Num))
				got = append(got, h.Num)
			}
			want := exact(vecs, q, 40, may)
			require.Len(t, got, 40)
			missed := 0
			for _, num := range want {
				if !slices.Contains(got, num) {
					missed++
				}
			}
			require.LessOrEqual(t, missed, 2)
		}
		require.Empty(t, f.Search(sets, NewQuestion(vecs[0]), 40, Visible{Shown: func(uint64) bool { return false }}))
		require.Len(t, f.Search(sets, NewQuestion(vecs[0]), 5*n, Visible{}), n)
	}
}

func TestEdges(t *testing.T) {
	s := NewSet(3)
	s.Put(1, []float32{0, 0, 0})
	s.Put(2, []float32{math.MaxFloat32, -math.MaxFloat32, 0})
	s.Put(3, []float32{math.SmallestNonzeroFloat32, 0, 0})
	var f Finder
	got := f.Search([]*Set{s}, NewQuestion([]float32{1, -1, 0}), 9, Visible{})
	require.Len(t, got, 2, "a vector of zeros points nowhere")
	require.True(t, s.Zeros())
	joined := NewSet(3)
	joined.Join(s)
	require.True(t, joined.Zeros())
	joined.Put(1, []float32{1, 0, 0})
	require.False(t, joined.Zeros())
	joined.Put(1, []float32{0, 0, 0})
	require.True(t, joined.Zeros())
	joined.Remove(1)
	require.False(t, joined.Zeros())
	require.EqualValues(t, 2, got[0].Num)
	require.InDelta(t, 1, got[0].Cosine, 1e-6)
	require.Empty(t, f.Search([]*Set{s}, NewQuestion([]float32{0, 0, 0}), 9, Visible{}))
	s.Put(4, []float32{7, -7, 0})
	got = f.Search([]*Set{s}, NewQuestion([]float32{1, -1, 0}), 2, Visible{})
	require.Equal(t, []uint64{4, 2}, []uint64{got[0].Num, got[1].Num}, "of equal ones the later comes first")
	require.Empty(t, f.Search(nil, NewQuestion([]float32{1}), 9, Visible{}))
	require.Empty(t, f.Search([]*Set{s}, NewQuestion([]float32{1, 2, 3}), 0, Visible{}))
	s.Remove(9)
	s.Remove(2)
	require.False(t, s.Has(2))
	require.Equal(t, 3, s.Len())
	wide := NewSet(1 << 16)
	for num := range uint64(4001) {
		if num%1000 == 0 {
			wide.Put(num+1, slices.Repeat([]float32{1, -1}, 1<<15))
		}
	}
	require.Len(t, f.Search([]*Set{wide}, NewQuestion(slices.Repeat([]float32{-1, 1}, 1<<15)), 9, Visible{}), 5)
}

// TestRecallOfReal measures vectors of a real model: VECTORS names a file with a JSON array of numbers a line. Each of its
// texts is spread into SPREAD texts that say something like it (1: none), their cosines with it from .5 to .95, and a question
// has a cosine of .7 with one of all. Instead of a file "clustered" (10,000 topics) and "random" make SPREAD times 10,000
// vectors, and questions of the same kind.
func TestRecallOfReal(t *testing.T) {
	name := os.Getenv("VECTORS")
	if name == "" {
		t.Skip("VECTORS names no file of vectors")
	}
	spread, err := strconv.Atoi(os.Getenv("SPREAD"))
	require.NoError(t, err)
	var vecs, questions [][]float32
	rng := rand.New(rand.NewPCG(9, 10))
	switch made := 10_000*spread + 20; name {
	case "clustered":
		vecs = clustered(rng, made, 384, 10_000, .7)
	case "random":
		for range made {
			vecs = append(vecs, gauss(rng, 384, nil, 1))
		}
	default:
		vecs, questions = spreadOut(t, rng, name, spread)
	}
	if questions == nil {
		vecs, questions = vecs[20:], vecs[:20]
	}
	s, f, found := setOf(vecs), Finder{}, 0
	var took []float64
	for _, v := range questions {
		q, begun := NewQuestion(v), dbtest.CPUTime().Seconds()
		hits := f.Search([]*Set{s}, q, 50, Visible{})
		took = append(took, 1000*(dbtest.CPUTime().Seconds()-begun))
		want := exact(vecs, v, 50, nil)
		for _, h := range hits {
			if slices.Contains(want, h.Num) {
				found++
			}
		}
	}
	slices.Sort(took)
	t.Logf("recall@50 of %d vectors of %d numbers: %.4f; CPU p50 %.2f ms, %d bytes a vector", len(vecs), len(vecs[0]), float64(found)/float64(50*len(questions)), took[len(took)/2], s.Bytes()/len(vecs))
}

// spreadOut reads vectors from a file and spreads each into several.
func spreadOut(t *testing.T, rng *rand.Rand, name string, spread int) (vecs, questions [][]float32) {
	body, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range bytes.Lines(body) {
		var v []float32
		require.NoError(t, json.Unmarshal(line, &v))
		if len(questions) < 20 {
			questions = append(questions, nil)
			continue
		}
		vecs = append(vecs, v)
		for range spread - 1 {
			vecs = append(vecs, beside(rng, v, .5+.45*rng.Float64()))
		}
	}
	for i := range questions {
		questions[i] = beside(rng, vecs[rng.IntN(len(vecs))], .7)
	}
	return vecs, questions
}

// beside is a vector that has a cosine with another.
func beside(rng *rand.Rand, v []float32, cosine float64) []float32 {
	noise := gauss(rng, len(v), nil, math.Sqrt((1/(cosine*cosine)-1)/float64(len(v))))
	for i := range noise {
		noise[i] += v[i]
	}
	return noise
}

func BenchmarkSearch(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"pages=4k", 4_000}, {"pages=100k", 100_000}, {"pages=1M", 1_000_000}} {
		b.Run(c.name, func(b *testing.B) {
			s, f := filled(c.n)
			q := NewQuestion(gauss(rand.New(rand.NewPCG(1, 1)), 384, nil, 1))
			took := make([]float64, 0, b.N)
			for b.Loop() {
				begun := dbtest.CPUTime().Seconds()
				f.Search([]*Set{s}, q, 100, Visible{})
				took = append(took, 1000*(dbtest.CPUTime().Seconds()-begun))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "cpu-ms-p50")
			b.ReportMetric(float64(s.Bytes())/float64(c.n), "B/page")
		})
	}
}

// filled is a set of many vectors, cheaply made.
func filled(n int) (*Set, *Finder) {
	rng := rand.New(rand.NewPCG(7, 8))
	s, v := NewSet(384), make([]float32, 384)
	for i := range n {
		for j := 0; j < len(v); j += 4 {
			x := rng.Uint64()
			for k := range 4 {
				v[j+k] = float32(int16(x >> (16 * k)))
			}
		}
		s.Put(uint64(i+1), v)
	}
	return s, &Finder{}
}

// TestScan: what is listed is what a look at all codes says, at first and then of those that are left.
func TestScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	vecs := clustered(rng, 9000, 128, 40, .7)
	sets := []*Set{setOf(vecs[:5000]), NewSet(64), NewSet(128)}
	for i, v := range vecs[5000:] {
		sets[2].Put(uint64(i+5001), v)
	}
	for i := range 400 {
		sets[i%2*2].Remove(uint64(i%2*5000 + 7*i + 1))
	}
	even := make([]uint64, 9000/64+1)
	for i := range even {
		even[i] = 0x5555555555555555
	}
	var f Finder
	for i := range 20 {
		q, v, n := NewQuestion(vecs[i*300]), Visible{}, 1+rng.IntN(3000)
		if i%2 > 0 {
			v.Only = even
		}
		away := map[place]int{}
		for at, s := range sets {
			for slot, h := range s.held {
				if s.dims == 128 && h.num != 0 && v.may(h.num) {
					away[place{uint32(at), uint32(slot)}] = distance(s, q, slot)
				}
			}
		}
		f.scan(sets, q)
		for left, ok := n, true; len(away) > 0; left *= 2 {
			require.True(t, ok)
			sorted := slices.Sorted(maps.Values(away))
			bound, want := sorted[min(left, len(sorted))-1], map[place]bool{}
			for p, d := range away {
				if d <= bound {
					want[p] = true
					delete(away, p)
				}
			}
			ok = f.list(sets, q, left, &v)
			got := map[place]bool{}
			for _, p := range f.listed {
				got[p] = true
			}
			require.Equal(t, want, got)
		}
		require.False(t, f.list(sets, q, n, &v))
	}
}

// distance is how far a slot is by its codes.
func distance(s *Set, q *Question, slot int) (d int) {
	var tail []code
	codes := s.block(slot/block*block, &tail)
	for i, w := range q.weights {
		for _, some := range w {
			for _, dim := range some {
				low, high := codes[dim.at].low^dim.flip, codes[dim.at].high^dim.flip
				d += (heaviest - i) * int(low>>(slot%block)&1+high>>(slot%block)&1*2)
			}
		}
	}
	return d
}

// TestQuantise: numbers and codes are those of their definition, in full blocks and in the last one.
func TestQuantise(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for i := range 400 {
		v := gauss(rng, 1+rng.IntN(400), nil, 1)
		if i%4 == 0 {
			for j := range v { // halves and equal numbers
				v[j] = float32(rng.IntN(255)-127) / 2
			}
			v[0] = 63.5
		}
		if i%5 == 0 {
			v = slices.Repeat([]float32{1, -1}, 20)
		}
		s := NewSet(len(v))
		others := rng.IntN(2 * block)
		for num := range others {
			s.Put(uint64(num+2), gauss(rng, len(v), nil, 1))
		}
		s.Put(1, v)
		s.Remove(uint64(others + 1))
		row, unit, sum := s.small[others*s.row:], 127/float64(largestOf(v)), 0
		for j, f := range v {
			n := int(math.RoundToEven(float64(f) * unit))
			require.EqualValues(t, n+middle, row[j])
			sum += n + middle
		}
		require.EqualValues(t, sum, s.held[others].sum)
		step := min(127, int(codeStep/(float64(s.held[others].scale)*math.Sqrt(float64(len(v))))))
		var tail []code
		codes, bit := s.block(others/block*block, &tail), others%block
		for j := range v {
			n, want := int(row[j])-middle, uint64(0)
			for _, from := range []int{-step, 0, step} {
				if n >= from {
					want++
				}
			}
			require.True(t, others == 0 || want == codes[j].low>>bit&1+codes[j].high>>bit&1*2, "%d, step %d", n, step)
		}
		require.Equal(t, others > 0, codes[s.row].low>>bit&1 > 0, "it can be found unless it was removed")
	}
}

// TestDot: the product is that of the numbers, the largest included.
func TestDot(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for i := range 400 {
		n := 1 + rng.IntN(300)
		v, w := gauss(rng, n, nil, 1), gauss(rng, n, nil, 1)
		if i%3 == 0 {
			for j := range v {
				v[j], w[j] = 1-2*float32(i%2), 1-2*float32(rng.IntN(2)*(i%4))
			}
		}
		s, q := NewSet(n), NewQuestion(v)
		s.Put(1, w)
		unit, want, ours, theirs := 2047/float64(largestOf(v)), 0, 0, 0
		for j := range v {
			a, b := int(math.RoundToEven(float64(v[j])*unit)), int(s.small[j])-middle
			want, ours, theirs = want+a*b, ours+a*a, theirs+b*b
		}
		got, ok := s.Cosine(q, 1)
		require.True(t, ok)
		require.InDelta(t, float64(want)/math.Sqrt(float64(ours)*float64(theirs)), got, 1e-6)
		require.InDelta(t, cosine(w, v), got, .02)
	}
}

// BenchmarkPut is what a vector costs that is read from the file.
func BenchmarkPut(b *testing.B) {
	v := gauss(rand.New(rand.NewPCG(15, 16)), 384, nil, 1)
	s := NewSet(384)
	num, begun := uint64(0), dbtest.CPUTime().Seconds()
	for b.Loop() {
		if num++; num%10_000 == 0 {
			s.Clear()
		}
		s.Put(1+num%10_000, v)
	}
	b.ReportMetric(1e9*(dbtest.CPUTime().Seconds()-begun)/float64(b.N), "cpu-ns/op")
}

// TestJoin: sets that were filled apart give what one set gives that was filled with all.
func TestJoin(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	vecs := clustered(rng, 7000, 70, 50, .5)
	whole, joined, part := setOf(vecs), NewSet(70), NewSet(70)
	for i, v := range vecs {
		if part.Put(uint64(i+1), v); (i+1)%701 == 0 {
			joined.Join(part)
			part.Clear()
			require.Zero(t, part.Len())
		}
	}
	joined.Join(part)
	require.Equal(t, whole.Len(), joined.Len())
	require.Equal(t, whole.Bytes(), joined.Bytes())
	joined.Remove(6)
	joined.Put(6, vecs[5])
	var a, b Finder
	for _, v := range vecs[:20] {
		q := NewQuestion(v)
		require.Equal(t, a.Search([]*Set{whole}, q, 30, Visible{}), b.Search([]*Set{joined}, q, 30, Visible{}))
	}
}

// TestSlots: the table finds what a map finds, whatever comes and goes.
func TestSlots(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var table slotTable
	want := map[uint64]uint32{}
	for range 20_000 {
		num := rng.Uint64N(400) * (1 + rng.Uint64N(2)*1000)
		at, ok := want[num]
		got, found := table.find(num)
		require.Equal(t, ok, found)
		require.Equal(t, at, got)
		if ok {
			delete(want, num)
			table.remove(num)
		} else {
			want[num] = rng.Uint32N(1000)
			table.put(num, want[num])
		}
		require.Equal(t, len(want), table.n)
	}
	for num := range want {
		table.remove(num)
	}
	require.Empty(t, table.runs, "what is empty takes no memory")
}

// TestCosines: the cosines of many numbers are those of each, in their order, from the first set that has it.
func TestCosines(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	sets := []*Set{NewSet(64), NewSet(32), NewSet(64)}
	for num := uint64(1); num <= 300; num++ {
		for i, s := range sets {
			v := gauss(random, s.dims, nil, 1)
			if num%50 == 0 {
				clear(v)
			}
			if num%(2+uint64(i)) == 0 {
				s.Put(num, v)
			}
		}
	}
	q, f := NewQuestion(gauss(random, 64, nil, 1)), Finder{}
	var nums []uint64
	var want []Hit
	for num := uint64(310); num > 0; num-- {
		nums = append(nums, num)
		for _, s := range sets {
			if c, ok := s.Cosine(q, num); ok {
				want = append(want, Hit{num, c})
				break
			}
		}
	}
	require.Equal(t, want, f.Cosines(sets, q, nums))
	require.Empty(t, f.Cosines(sets, q, nil))
}
