package triage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const day = 24 * time.Hour

func ptr(v float64) *float64 { return &v }

func TestRecency(t *testing.T) {
	for _, c := range []struct {
		age, half time.Duration
		want      float64
	}{
		{0, 0, 1}, {7 * day, 0, .5}, {14 * day, 0, .25}, {-time.Hour, 0, 1}, {time.Hour, time.Hour, .5},
		{math.MaxInt64, time.Nanosecond, 0}, {math.MinInt64, 0, 1}, {30 * time.Minute, time.Hour, math.Sqrt2 / 2}, {day, -1, math.Exp2(-1. / 7)},
	} {
		require.InDelta(t, c.want, Recency(c.age, c.half), 1e-15, "%v / %v", c.age, c.half)
	}
}

func TestRecencyFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		age := time.Duration(rapid.Int64Range(0, int64(400*day)).Draw(t, "age"))
		later := age + time.Duration(rapid.Int64Range(0, int64(40*day)).Draw(t, "more"))
		require.InDelta(t, math.Exp2(-float64(age)/float64(HalfLife)), Recency(age, 0), 1e-14)
		require.LessOrEqual(t, Recency(later, 0), Recency(age, 0))
	})
}

func TestProvenance(t *testing.T) {
	want := map[Provenance]float64{Verified: 1, Chunk: .7, Validated: .5, Tool: .4, Scratch: .1}
	for p, trust := range want {
		require.Equal(t, trust, p.Trust())
		back, err := ParseProvenance(p.String())
		require.NoError(t, err)
		require.Equal(t, p, back)
	}
	require.True(t, Verified > Chunk && Chunk > Validated && Validated > Tool && Tool > Scratch && Scratch > 0)
	for _, p := range []Provenance{0, Verified + 1, 255} {
		require.False(t, p.Valid())
		require.Zero(t, p.Trust())
		_, err := ParseProvenance(p.String())
		require.Error(t, err)
	}
}

func TestPresetsSumToOne(t *testing.T) {
	for _, p := range []Preset{Default(), START()} {
		for of := Scratch; of <= Verified; of++ {
			w := p.Weights[of]
			require.InDelta(t, 1, w.Recency+w.Trust+w.Semantic, 1e-12, "%s %s", p.Name, of)
		}
		if w := p.Turns; w != (Weights{}) {
			require.InDelta(t, 1, w.Recency+w.Trust+w.Semantic, 1e-12, "%s turns", p.Name)
		}
	}
	require.Equal(t, Weights{.2, .5, .3}, START().Weights[Verified])
	require.Equal(t, Weights{.4, .2, .4}, START().Weights[Chunk])
	require.Equal(t, Weights{.5, .2, .3}, START().Weights[Tool])
	require.Equal(t, Weights{.3, .2, .5}, START().Weights[Scratch])
}

func byID(out []Scored) map[uint64]Scored {
	m := map[uint64]Scored{}
	for _, s := range out {
		m[s.ID] = s
	}
	return m
}

func TestTags(t *testing.T) {
	got := byID(Rank(Default(), []Candidate{
		{ID: 1, Provenance: Chunk, Lexical: 10},
		{ID: 2, Provenance: Chunk, Lexical: 4},
		{ID: 3, Provenance: Chunk, Lexical: 1},
		{ID: 4, Provenance: Chunk, Lexical: 99, Excluded: Expired},
		{ID: 5, Provenance: Scratch, Lexical: 99},
		{ID: 6, Provenance: Scratch, Lexical: 4, Own: true},
		{ID: 7, Provenance: Chunk, Pinned: true, Age: 900 * day},
		{ID: 8, System: true}, {ID: 9, Directive: true}, {ID: 10, NewestTurn: true},
		{ID: 11, Provenance: Scratch, Pinned: true},
		{ID: 12, Provenance: Chunk, System: true, Excluded: Superseded},
	}))
	for id, want := range map[uint64]Tag{1: Red, 2: Yellow, 3: Green, 4: Black, 5: Black, 6: Yellow, 7: Red, 8: Red, 9: Red, 10: Red, 11: Black, 12: Black} {
		require.Equal(t, want, got[id].Tag, "page %d", id)
	}
	require.Equal(t, Expired, got[4].Reason)
	require.Equal(t, BelowFloor, got[5].Reason)
	require.Equal(t, BelowFloor, got[11].Reason, "a pin is no way around the gate")
	require.Equal(t, 1.0, got[1].Semantic, "an excluded page is not the best")
	require.Equal(t, .4, got[2].Semantic)
	require.Zero(t, got[4].Score)
}

func TestTagEdges(t *testing.T) {
	p := Preset{}
	got := byID(Rank(p, []Candidate{{ID: 1, Lexical: 1}, {ID: 2, Lexical: RedScore}, {ID: 3, Lexical: math.Nextafter(RedScore, 0)},
		{ID: 4, Lexical: YellowScore}, {ID: 5, Lexical: math.Nextafter(YellowScore, 0)}}))
	require.Equal(t, []Tag{Red, Red, Yellow, Yellow, Green}, []Tag{got[1].Tag, got[2].Tag, got[3].Tag, got[4].Tag, got[5].Tag})
}

func TestSTARTKeepsTwenty(t *testing.T) {
	var cs []Candidate
	for i := range 100 {
		cs = append(cs, Candidate{ID: uint64(i + 1), Provenance: Chunk, Age: time.Duration(i) * day, Lexical: float64(i)})
	}
	cs = append(cs, Candidate{ID: 200, Provenance: Verified, Age: 900 * day}, Candidate{ID: 201, System: true, Provenance: Chunk},
		Candidate{ID: 202, Provenance: Scratch}, Candidate{ID: 203, Provenance: Verified, Excluded: Expired})
	short := Shortlist(START(), cs)
	require.Len(t, short, 20)
	require.Contains(t, short, uint64(200), "P .5 outweighs an age of years")
	require.NotContains(t, short, uint64(201))

	scored := 0
	for _, s := range Rank(START(), cs) {
		if s.Semantic > 0 {
			scored++
			require.Contains(t, short, s.ID)
		}
		if s.ID == 100 {
			require.Equal(t, NotKept, s.Reason)
			require.Equal(t, Green, s.Tag)
		}
	}
	require.LessOrEqual(t, scored, 20)
	require.Len(t, Shortlist(Default(), cs), 101, "the control: one pass asks for all")
}

func TestSTARTScore(t *testing.T) {
	s := Rank(START(), []Candidate{{ID: 1, Provenance: Tool, Age: 7 * day, Cosine: ptr(.5)}})[0]
	require.InDelta(t, .5*.5+.2*.4+.3*.75, s.Score, 1e-12)
	require.Equal(t, START().Weights[Tool], s.Weights)
}

func TestWordsAndMeaningJoin(t *testing.T) {
	got := byID(Rank(Preset{}, []Candidate{
		{ID: 1, Lexical: 1000, Cosine: ptr(.2)}, {ID: 2, Lexical: 2, Cosine: ptr(.8)}, {ID: 3, Lexical: 2}, {ID: 4, Cosine: ptr(.8)}, {ID: 5},
		{ID: 6, Cosine: ptr(-.5)}, {ID: 7, Cosine: ptr(math.NaN())}, {ID: 8, Excluded: Expired, Lexical: 9000, Cosine: ptr(1)}, {ID: 9, Cosine: ptr(.8), Long: 2},
	}))
	require.InDelta(t, .7+.3*.03125, got[1].Semantic, 1e-12, "a quarter of the best cosine")
	require.InDelta(t, .7*.002+.3, got[2].Semantic, 1e-12)
	require.InDelta(t, .7*.002, got[3].Semantic, 1e-12)
	require.InDelta(t, .3, got[4].Semantic, 1e-12, "no word in common")
	require.InDelta(t, .15, got[9].Semantic, 1e-12, "a long turn")
	for _, id := range []uint64{5, 6, 7, 8} {
		require.Zero(t, got[id].Semantic, id)
	}
	for _, s := range Rank(Preset{}, []Candidate{{ID: 1, Lexical: 4}, {ID: 2, Lexical: 2}}) { // nothing to join
		require.Equal(t, s.Lexical/4, s.Semantic)
	}
	lent := byID(Rank(Preset{}, []Candidate{{ID: 1, Lexical: 4, Cosine: ptr(.5)}, {ID: 2, Lexical: 2, Cosine: ptr(-.1), Beside: .125}}))
	require.InDelta(t, .35+.3*.03125, lent[2].Semantic, 1e-12, "a neighbour says it")
	apart := byID(Rank(Preset{}, []Candidate{{ID: 1, Lexical: 4, Cosine: ptr(.5)}, {ID: 2, Lexical: 4, Apart: 3, Cosine: ptr(0.)}, {ID: 3, Lexical: 4, Apart: 3, Cosine: ptr(.5)}}))
	require.InDelta(t, .7+.3*.75, apart[2].Semantic, 1e-12, "meaning takes no share of a standing instruction")
	require.EqualValues(t, 1, apart[3].Semantic)
	tags := byID(Rank(Preset{}, []Candidate{{ID: 1, Lexical: 4, Cosine: ptr(.9)}, {ID: 2, Lexical: 3, Cosine: ptr(0.)}, {ID: 3, Cosine: ptr(.9)}, {ID: 4, Lexical: 3, Excluded: Expired}}))
	var byWords []Tag
	for id := range uint64(4) {
		s := tags[id+1]
		byWords = append(byWords, s.TagByWords())
	}
	require.Equal(t, []Tag{Red, Yellow, Yellow, Black}, []Tag{tags[1].Tag, tags[2].Tag, tags[3].Tag, tags[4].Tag})
	require.Equal(t, []Tag{Red, Red, Green, Black}, byWords)
	require.Equal(t, []float64{1, .35, 0}, Relevance([]Candidate{{ID: 9, Lexical: 8, Cosine: ptr(.5)}, {ID: 9, Lexical: 4}, {ID: 9, Lexical: 90, Excluded: Expired}}))
}

func drawCandidates(t *rapid.T) []Candidate {
	floats := rapid.SampledFrom([]float64{0, .5, 1, 7, -3, math.NaN(), math.Inf(1), math.Inf(-1), 1e308, 5e-324})
	n := rapid.IntRange(0, 60).Draw(t, "n")
	cs := make([]Candidate, n)
	for i := range cs {
		c := Candidate{ID: uint64(i + 1), Provenance: Provenance(rapid.IntRange(0, 7).Draw(t, "p")),
			Age:     time.Duration(rapid.SampledFrom([]int64{0, 1, -5, int64(day), math.MaxInt64, math.MinInt64}).Draw(t, "age")),
			Lexical: floats.Draw(t, "lexical"), Apart: floats.Draw(t, "apart"), Excluded: rapid.SampledFrom([]Reason{"", "", "", Expired}).Draw(t, "why"),
			Pinned: rapid.IntRange(0, 9).Draw(t, "pin") == 0, Own: rapid.Bool().Draw(t, "own")}
		if rapid.Bool().Draw(t, "vector") {
			c.Cosine = ptr(floats.Draw(t, "cosine"))
		}
		cs[i] = c
	}
	return cs
}

// TestRankerAgain: what a Ranker ranked before does not show.
func TestRankerAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ranker
		for range 3 {
			cs := drawCandidates(t)
			p := rapid.SampledFrom([]Preset{{}, Default(), START(), {Keep: 3}}).Draw(t, "preset")
			require.Equal(t, ids(Rank(p, cs)), ids(r.Rank(p, cs)))
		}
	})
}

// TestRankIsTotal shuffles: the order of the input never shows.
func TestRankIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := drawCandidates(t)
		p := rapid.SampledFrom([]Preset{{}, Default(), START(), {Keep: 3}}).Draw(t, "preset")
		want := Rank(p, cs)
		short := Shortlist(p, cs)
		require.Len(t, want, len(cs))
		for i, s := range want {
			require.False(t, math.IsNaN(s.Score) || s.Score < 0 || s.Score > 1+1e-12, "%+v", s)
			require.Equal(t, s.Tag == Black, s.Excluded != "" || s.Reason == BelowFloor)
			require.NotZero(t, s.Tag)
			if i > 0 {
				require.Equal(t, -1, compareScored(&want[i-1], &s))
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		cs = slices.Clone(cs)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		require.Equal(t, fmt.Sprint(ids(want)), fmt.Sprint(ids(Rank(p, cs))))
		require.Equal(t, short, Shortlist(p, cs))
		if p.Keep > 0 {
			require.LessOrEqual(t, len(short), p.Keep)
		}
	})
}

func ids(out []Scored) (all []string) {
	for _, s := range out {
		all = append(all, fmt.Sprintf("%d %x %s %s", s.ID, s.Score, s.Tag, s.Reason))
	}
	return all
}

func TestRankLeavesItsInput(t *testing.T) {
	cs := []Candidate{{ID: 2, Lexical: 1}, {ID: 3, Lexical: 9}, {ID: 1, Lexical: 5}}
	kept := slices.Clone(cs)
	Rank(Default(), cs)
	require.Equal(t, kept, cs)
	require.Equal(t, "untagged", Tag(9).String())
	require.Equal(t, "black", Black.String())
}

// TestOlderTurnsFirst: of turns that words found alike, the older come first, behind pages that score the same. Of other
// pages the newest come first.
func TestOlderTurnsFirst(t *testing.T) {
	var cs []Candidate
	for i := range 6 {
		cs = append(cs, Candidate{ID: uint64(i + 1), Provenance: Chunk, Lexical: 3, Age: time.Duration(i/2) * day, Turn: true})
	}
	cs = append(cs, Candidate{ID: 7, Provenance: Chunk, Lexical: 3, Age: 0}, Candidate{ID: 8, Provenance: Chunk, Lexical: 3, Age: day})
	order := func(p Preset) (ids []uint64) {
		for _, s := range Rank(p, cs) {
			ids = append(ids, s.ID)
		}
		return ids
	}
	require.Equal(t, []uint64{7, 5, 6, 3, 4, 1, 2, 8}, order(Default()), "a turn counts like a page of today")
	require.Equal(t, []uint64{7, 8, 5, 6, 3, 4, 1, 2}, order(Preset{}))
	require.Equal(t, []uint64{7, 1, 2, 8, 3, 4, 5, 6}, order(START()), "the published form weighs recency")
}

// Every reason that this package has is known to counters.
func TestReasonsAreListed(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^\t\w+ +Reason = "(.+?)"`).FindAllSubmatch(source, -1)
	require.Len(t, reasons, len(declared))
	for _, d := range declared {
		require.True(t, Known(string(d[1])), "%s", d[1])
	}
	require.False(t, Known(""))
}

func Rank(p Preset, cs []Candidate) []Scored { return new(Ranker).Rank(p, cs) }

func TestCosine(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 0}, []float32{1, 0}, 1}, {[]float32{1, 0}, []float32{0, 1}, 0}, {[]float32{1, 0}, []float32{-2, 0}, -1},
		{[]float32{1, 1}, []float32{1, 0}, math.Sqrt2 / 2}, {[]float32{3, 4, 0, 0, 5}, []float32{3, 4, 0, 0, 5}, 1},
		{nil, nil, 0}, {[]float32{0, 0}, []float32{1, 0}, 0}, {[]float32{1}, []float32{1, 0}, 0},
		{[]float32{nan}, []float32{1}, 0}, {[]float32{inf}, []float32{1}, 0}, {[]float32{inf, 1}, []float32{inf, 1}, 0},
		{[]float32{math.MaxFloat32, math.MaxFloat32}, []float32{math.MaxFloat32, 0}, math.Sqrt2 / 2},
		{[]float32{math.SmallestNonzeroFloat32}, []float32{math.SmallestNonzeroFloat32}, 1},
	} {
		require.InDelta(t, c.want, Cosine(c.a, c.b), 1e-15, "%v %v", c.a, c.b)
	}
}

func TestCosineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 67).Draw(t, "n")
		vec := rapid.SliceOfN(rapid.Float32Range(-100, 100), n, n)
		a, b := vec.Draw(t, "a"), vec.Draw(t, "b")
		c := Cosine(a, b)
		require.Equal(t, c, Cosine(b, a))
		require.LessOrEqual(t, math.Abs(c), 1.)
		var ab, aa, bb float64
		for i := range a {
			ab += float64(a[i]) * float64(b[i])
			aa += float64(a[i]) * float64(a[i])
			bb += float64(b[i]) * float64(b[i])
		}
		if aa > 1e-20 && bb > 1e-20 {
			require.InDelta(t, ab/math.Sqrt(aa*bb), c, 1e-9)
		}
	})
}
