package triage

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// chunks are n scored items of the given cost each, with a compressed form of a tenth.
func chunks(n, tokens int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i] = Item{Key: fmt.Sprintf("c%02d", i), Class: RAG, Position: i, Tokens: tokens, Compressed: tokens / 10, Score: 1}
	}
	return items
}

func shape(req Request, r Result) string {
	s := r.Tier.String()
	for _, p := range r.Placed {
		s += fmt.Sprintf(" %s:%s", req.Items[p.Index].Key, p.Form)
	}
	return s
}

// The edges of the ladder are half-open: .80 and .95 belong to the tier above, 1.10 to tier 3.
func TestLadderEdges(t *testing.T) {
	for _, c := range []struct {
		demand, budget int
		want           Tier
	}{
		{0, 0, TierFull}, {0, 100, TierFull}, {1, 0, TierMinimal},
		{79, 100, TierFull}, {7999, 10000, TierFull}, {80, 100, TierSummarised}, {799999, 1000000, TierFull},
		{94, 100, TierSummarised}, {9499, 10000, TierSummarised}, {95, 100, TierCore},
		{110, 100, TierCore}, {111, 100, TierMinimal}, {1100001, 1000000, TierMinimal}, {1100000, 1000000, TierCore},
		{math.MaxInt - 2, math.MaxInt - 1, TierCore}, {math.MaxInt, 1000, TierMinimal},
	} {
		r, err := Fit(Request{Budget: c.budget, Overflow: Ladder, Items: []Item{{Key: "a", Class: RAG, Tokens: c.demand}}})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Tier, "%d of %d", c.demand, c.budget)
		require.Equal(t, c.want == TierMinimal, r.Review)
		require.Equal(t, c.demand, r.Demand)
	}
}

func TestLadderTiers(t *testing.T) {
	base := []Item{
		{Key: "sys", Class: System, Tokens: 10},
		{Key: "pin", Class: Core, Tokens: 10, Pinned: true, Compressed: 1},
		{Key: "core", Class: Core, Tokens: 10, Core: true, Compressed: 1},
		{Key: "new", Class: History, Place: PlaceNewest, Tokens: 10, Compressed: 1},
	}
	for _, c := range []struct {
		chunk int
		want  string
	}{
		{39, "full sys:full pin:full core:full c:full new:full"},
		{40, "summarised sys:full pin:full core:full c:compressed new:full"},
		{54, "summarised sys:full pin:full core:full c:compressed new:full"},
		{55, "core sys:full pin:full core:full new:full"},
		{70, "core sys:full pin:full core:full new:full"},
		{71, "minimal sys:full"},
	} {
		req := Request{Budget: 120, Reserve: 20, Overflow: Ladder,
			Items: append(slices.Clone(base), Item{Key: "c", Class: RAG, Tokens: c.chunk, Compressed: 5, Score: .9})}
		r, err := Fit(req)
		require.NoError(t, err)
		require.Equal(t, c.want, shape(req, r), "chunk %d", c.chunk)
	}
}

// A tier whose strategy still exceeds the room gives way to the next.
func TestLadderFallsThrough(t *testing.T) {
	req := Request{Budget: 100, Overflow: Ladder, Items: []Item{
		{Key: "sys", Class: System, Tokens: 10}, {Key: "pin", Class: Core, Tokens: 95, Pinned: true},
	}}
	r, err := Fit(req)
	require.NoError(t, err)
	require.Equal(t, "minimal sys:full", shape(req, r))
	require.Equal(t, []LeftOut{{1, ReasonTier}}, r.Left)
	require.True(t, r.Review)
}

func TestFillTiers(t *testing.T) {
	sys, pin := Item{Key: "sys", Class: System, Tokens: 20}, Item{Key: "pin", Class: Core, Tokens: 20, Pinned: true}
	newest := Item{Key: "new", Class: History, Place: PlaceNewest, Tokens: 30, Compressed: 12}
	huge, large := pin, pin
	huge.Key, huge.Tokens, huge.Position = "huge", 500, -1
	large.Key, large.Tokens, large.Compressed, large.Position = "large", 190, 60, 1
	a := Item{Key: "a", Class: RAG, Position: 1, Tokens: 30, Compressed: 10, Score: .9}
	b := Item{Key: "b", Class: RAG, Position: 2, Tokens: 30, Compressed: 10, Score: .5}
	worst := Item{Key: "worst", Class: RAG, Position: 1, Core: true, Tokens: 30, Score: .1}
	best := Item{Key: "best", Class: RAG, Position: 2, Core: true, Tokens: 30, Score: .9}
	for _, c := range []struct {
		name   string
		budget int
		items  []Item
		want   string
	}{
		{"all fit to the token", 100, []Item{b, a, pin, sys}, "full sys:full pin:full a:full b:full"},
		{"one has to shrink", 99, []Item{b, a, pin, sys}, "summarised sys:full pin:full a:full b:compressed"},
		{"both have to", 79, []Item{b, a, pin, sys}, "summarised sys:full pin:full a:compressed b:compressed"},
		{"compressed to the token", 60, []Item{b, a, pin, sys}, "summarised sys:full pin:full a:compressed b:compressed"},
		{"not even so", 59, []Item{b, a, pin, sys}, "core sys:full pin:full a:compressed"},
		{"only what is protected", 40, []Item{b, a, pin, sys}, "core sys:full pin:full"},
		{"not even that", 39, []Item{b, a, pin, sys}, "minimal sys:full a:compressed"},
		{"the question stays", 69, []Item{b, a, newest, pin, sys}, "minimal sys:full a:compressed new:full"},
		{"the question cut short", 39, []Item{newest, pin, sys}, "minimal sys:full new:compressed"},
		{"the question does not fit", 31, []Item{newest, pin, sys}, "minimal sys:full"},
		{"a page that cannot fit takes nothing from others", 60, []Item{huge, a, newest, pin, sys}, "minimal sys:full a:compressed new:full"},
		{"all that fits of what is protected", 200, []Item{huge, a, pin, sys}, "minimal sys:full pin:full a:full"},
		{"the best of what is protected", 60, []Item{worst, best, sys}, "minimal sys:full best:full"},
		{"pins before it", 80, []Item{worst, best, pin, sys}, "minimal sys:full pin:full best:full"},
		{"protected and cut short", 200, []Item{large, a, pin, sys}, "minimal sys:full pin:full large:compressed a:full"},
	} {
		req := Request{Budget: c.budget, Items: c.items}
		r, err := Fit(req)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, shape(req, r), c.name)
		require.Equal(t, r.Tier == TierMinimal, r.Review, c.name)
		require.Len(t, r.Left, len(c.items)-len(r.Placed), c.name)
	}
}

// Under Fill the tier reports what was lost of the items that are not Minor, whatever else is left out.
func TestFillTierOfWhatMatters(t *testing.T) {
	item := func(key string, tokens, compressed int, score float64, minor bool) Item {
		return Item{Key: key, Class: RAG, Tokens: tokens, Compressed: compressed, StubTokens: 2, Score: score, Minor: minor}
	}
	for _, c := range []struct {
		name   string
		budget int
		items  []Item
		want   Tier
	}{
		{"what is minor is left out", 31, []Item{item("a", 30, 10, 9, false), item("m", 30, 0, .1, true)}, TierFull},
		{"what is minor is cut", 45, []Item{item("a", 30, 10, 9, false), item("m", 30, 10, .1, true)}, TierFull},
		{"a page is cut", 45, []Item{item("a", 30, 10, 9, false), item("b", 30, 10, .1, false)}, TierSummarised},
		{"a page is a stub", 32, []Item{item("a", 30, 10, 9, false), item("b", 30, 0, .1, false)}, TierSummarised},
		{"a page is left out", 31, []Item{item("a", 30, 10, 9, false), item("b", 30, 0, .1, false)}, TierCore},
		{"the group of a page that matters", 31, []Item{item("a", 30, 0, 9, false), {Key: "g", Class: RAG, Tokens: 20, Group: "g", Minor: true}, {Key: "h", Class: RAG, Tokens: 20, Group: "g"}}, TierCore},
		{"a stub is all there is of it", 40, []Item{item("a", 30, 0, 9, false), {Key: "s", Class: RAG, Tokens: 2, StubTokens: 2, MustStub: true}}, TierFull},
	} {
		for _, inOrder := range []bool{false, true} {
			r, err := Fit(Request{Budget: c.budget, Items: c.items, InOrder: inOrder})
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, r.Tier, "%s: %+v", c.name, r)
		}
	}
}

func TestSystemDoesNotFit(t *testing.T) {
	r, err := Fit(Request{Budget: 100, Reserve: 30, Items: []Item{
		{Key: "a", Class: RAG, Tokens: 5}, {Key: "s", Class: System, Tokens: 60}, {Key: "t", Place: PlaceTools, Class: RAG, Tokens: 15},
	}})
	var e *BudgetError
	require.ErrorIs(t, err, ErrBudget)
	require.ErrorAs(t, err, &e)
	require.Equal(t, BudgetError{Need: 75, Have: 70, Shortfall: 5}, *e)
	require.Equal(t, Result{Tier: TierMinimal, Limit: 70, Demand: 80, Review: true,
		Left: []LeftOut{{2, ReasonSystem}, {1, ReasonSystem}, {0, ReasonSystem}}}, r)

	_, err = Fit(Request{Budget: 10, Reserve: 20})
	require.ErrorAs(t, err, &e)
	require.Equal(t, 10, e.Shortfall)
	_, err = Fit(Request{Budget: math.MinInt, Reserve: math.MaxInt, Items: []Item{{Class: System, Tokens: math.MaxInt}}})
	require.ErrorAs(t, err, &e)
	require.Positive(t, e.Shortfall)
	require.Contains(t, (&BudgetError{Block: "b", Need: 3, Have: 1, Shortfall: 2}).Error(), `block "b"`)
}

func TestGroupsGoWhole(t *testing.T) {
	req := Request{Budget: 50, Items: []Item{
		{Key: "call", Class: History, Position: 1, Tokens: 5, Score: .01, Group: "g", MustStub: true, StubTokens: 1},
		{Key: "result", Class: History, Position: 2, Tokens: 40, Score: .9, Group: "g", StubTokens: 1},
		{Key: "other", Class: History, Position: 3, Tokens: 20, Score: .1},
	}}
	r, err := Fit(req)
	require.NoError(t, err)
	require.Equal(t, "core call:full result:full", shape(req, r))

	req.Budget = 30
	r, _ = Fit(req)
	require.Equal(t, "summarised call:stub result:stub other:full", shape(req, r))
	req.Items[0].StubTokens = 0
	r, _ = Fit(req)
	require.Equal(t, "core other:full", shape(req, r))
	require.Equal(t, []LeftOut{{0, ReasonLarge}, {1, ReasonLarge}}, r.Left)

	req.Items[0].Pinned = true
	req.Budget = 45
	r, _ = Fit(req)
	require.Equal(t, "core call:full result:full", shape(req, r), "the pin protects its group")
}

func TestStubsTakeWhatIsLeft(t *testing.T) {
	items := []Item{
		{Key: "a", Class: RAG, Tokens: 50, Score: .9},
		{Key: "g1", Class: RAG, Position: 1, Tokens: 10, StubTokens: 4, Score: .2, MustStub: true},
		{Key: "g2", Class: RAG, Position: 2, Tokens: 10, StubTokens: 4, Score: .3, MustStub: true},
		{Key: "g3", Class: RAG, Position: 3, Tokens: 1, Score: .29, MustStub: true},
	}
	for budget, want := range map[int]string{
		100: "core a:full g1:stub g2:stub", 57: "core a:full g2:stub", 53: "core a:full", 49: "core g1:stub g2:stub",
	} {
		req := Request{Budget: budget, Items: items}
		r, err := Fit(req)
		require.NoError(t, err)
		require.Equal(t, want, shape(req, r), "budget %d", budget)
		require.Equal(t, 50, r.Demand)
		for _, l := range r.Left {
			if l.Index > 0 {
				require.Equal(t, ReasonLow, l.Reason)
			}
		}
	}
}

func TestRecentSlice(t *testing.T) {
	items := append(chunks(10, 100), Item{Key: "r1", Class: History, Position: 1, Tokens: 55, Recent: true},
		Item{Key: "r2", Class: History, Position: 2, Tokens: 55, Recent: true},
		Item{Key: "r3", Class: History, Position: 3, Tokens: 400, Recent: true})
	for i := range items {
		items[i].Compressed = 0
	}
	req := Request{Budget: 600, Items: items}
	kept := func(share float64) (keys []string) {
		req.RecentShare = share
		r, err := Fit(req)
		require.NoError(t, err)
		for _, p := range r.Placed {
			if req.Items[p.Index].Recent {
				keys = append(keys, req.Items[p.Index].Key)
			}
		}
		return keys
	}
	require.Empty(t, kept(0), "worth nothing by score")
	require.Equal(t, []string{"r2"}, kept(.10), "the newest that fits 60 tokens")
	require.Equal(t, []string{"r1", "r2"}, kept(.20))
	require.Empty(t, kept(math.NaN()))
	require.Empty(t, kept(-1))
	require.Equal(t, []string{"r1", "r2", "r3"}, kept(math.Inf(1)))
}

func TestWindowOrder(t *testing.T) {
	req := Request{Budget: 1000, Items: []Item{
		{Key: "newest", Place: PlaceNewest, Class: History},
		{Key: "chunk2", Class: RAG, Position: 2}, {Key: "chunk1", Class: RAG, Position: 1},
		{Key: "history", Class: History}, {Key: "summary", Class: History, Place: PlaceSummaries},
		{Key: "core", Class: RAG, Core: true}, {Key: "pinned", Class: RAG, Pinned: true},
		{Key: "directive", Class: System, Place: PlaceDirectives}, {Key: "system", Class: System},
		{Key: "tools", Class: System, Place: PlaceTools}, {Key: "scratch", Class: Scratchpad},
	}}
	r, err := Fit(req)
	require.NoError(t, err)
	var keys []string
	for _, p := range r.Placed {
		keys = append(keys, req.Items[p.Index].Key)
	}
	require.Equal(t, []string{"tools", "system", "directive", "pinned", "core", "summary", "history", "chunk1", "chunk2", "scratch", "newest"}, keys)
}

// Against an exact program over 1,000 random sets.
func TestChunkChoiceIsNearlyOptimal(t *testing.T) {
	r := rand.New(rand.NewSource(42))
	sum, worst := 0.0, 1.0
	for range 1000 {
		req := randomChunks(r)
		res, err := Fit(req)
		require.NoError(t, err)
		got := 0.0
		for _, p := range res.Placed {
			got += req.Items[p.Index].Score
		}
		q := got / optimum(req)
		sum, worst = sum+q, min(worst, q)
	}
	t.Logf("mean %.5f, worst %.5f", sum/1000, worst)
	require.GreaterOrEqual(t, sum/1000, .98)
	require.GreaterOrEqual(t, worst, .90)
}

// randomChunks mixes even and skewed sets, small and large ones, scores with and without relation to size.
func randomChunks(r *rand.Rand) Request {
	req := Request{Budget: 300 + r.Intn(3000)}
	skew, related := r.Intn(2) == 0, r.Intn(3) == 0
	for i := range 4 + r.Intn(80) {
		it := Item{Key: fmt.Sprint(i), Class: RAG, Tokens: 10 + r.Intn(500), Score: .01 + r.Float64()}
		if skew {
			it.Tokens = 10 + int(300*r.ExpFloat64())
		}
		if related {
			it.Score = float64(it.Tokens) * (.5 + .1*r.Float64())
		}
		if it.Tokens <= req.Budget {
			req.Items = append(req.Items, it)
		}
	}
	req.Items = append(req.Items, Item{Key: "one", Class: RAG, Tokens: 1, Score: .001})
	return req
}

func optimum(req Request) float64 {
	best := make([]float64, req.Budget+1)
	for _, it := range req.Items {
		for w := req.Budget; w >= it.Tokens; w-- {
			best[w] = max(best[w], best[w-it.Tokens]+it.Score)
		}
	}
	return best[req.Budget]
}

// The correction matters: plain greedy takes the small dense one and loses the large one.
func TestBestSingleCorrection(t *testing.T) {
	req := Request{Budget: 1000, Items: []Item{
		{Key: "dense", Class: RAG, Tokens: 1, Score: .01}, {Key: "large", Class: RAG, Tokens: 1000, Score: 5},
	}}
	r, err := Fit(req)
	require.NoError(t, err)
	require.Equal(t, "core large:full", shape(req, r))
	opts := []option{newOption(0, 0, 1, .01), newOption(1, 0, 1000, 5)}
	require.Equal(t, []bool{true, false}, greedy(opts, make([]bool, 2), 0, 1000), "what it corrects")
}

func drawItems(t *rapid.T) []Item {
	tokens := rapid.OneOf(rapid.IntRange(0, 60), rapid.SampledFrom([]int{-1, 0, 1, math.MaxInt, math.MinInt, math.MaxInt - 1}))
	score := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 0, math.MaxFloat64}))
	rare := rapid.Map(rapid.IntRange(0, 9), func(i int) bool { return i == 9 })
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Item {
		return Item{
			Key: rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f"}).Draw(t, "key"), Class: Class(rapid.IntRange(-1, 6).Draw(t, "class")),
			Place: Place(rapid.SampledFrom([]int{0, 0, 0, -1, 1, 3, 6, 7, 10, 99}).Draw(t, "place")), Position: rapid.IntRange(-3, 9).Draw(t, "position"),
			Tokens: tokens.Draw(t, "tokens"), Compressed: tokens.Draw(t, "compressed"), StubTokens: tokens.Draw(t, "stub"),
			Score: score.Draw(t, "score"), Group: rapid.SampledFrom([]string{"", "", "", "g", "h"}).Draw(t, "group"),
			Pinned: rare.Draw(t, "pinned"), Core: rare.Draw(t, "core"), Recent: rare.Draw(t, "recent"), MustStub: rare.Draw(t, "muststub"),
		}
	}), 0, 14).Draw(t, "items")
}

func drawRequest(t *rapid.T) Request {
	return Request{
		Budget:      rapid.OneOf(rapid.IntRange(0, 400), rapid.SampledFrom([]int{-5, math.MaxInt, math.MinInt})).Draw(t, "budget"),
		Reserve:     rapid.SampledFrom([]int{0, 0, 7, 100, -1, math.MaxInt}).Draw(t, "reserve"),
		Overflow:    Overflow(rapid.IntRange(0, 2).Draw(t, "overflow")),
		RecentShare: rapid.SampledFrom([]float64{0, .1, .5, 1, 7, -1, math.NaN(), math.Inf(1)}).Draw(t, "share"),
		Items:       drawItems(t),
	}
}

// checkResult holds for every request: within the room, every item accounted for once, groups whole, protected kept,
// forms and costs as the items say, window order.
func checkResult(t *rapid.T, req Request, r Result, err error) {
	seen := make([]int, len(req.Items))
	fates := map[string]string{}
	used, placed := 0, map[int]Form{}
	for _, p := range r.Placed {
		it := &req.Items[p.Index]
		seen[p.Index]++
		placed[p.Index] = p.Form
		if form, tokens := it.form(map[Form]pick{Full: inFull, Compressed: inSmall, Stub: inStub}[p.Form]); form != p.Form || tokens != p.Tokens {
			t.Fatalf("%+v placed as %+v", it, p)
		}
		used = addSat(used, p.Tokens)
	}
	for _, l := range r.Left {
		seen[l.Index]++
		if l.Reason == "" {
			t.Fatalf("no reason for %+v", req.Items[l.Index])
		}
	}
	for i, n := range seen {
		if n != 1 {
			t.Fatalf("item %d is accounted for %d times", i, n)
		}
	}
	if used != r.Used || err == nil && (r.Used > r.Limit || r.Limit > addSat(max(req.Budget, 0), 0)) {
		t.Fatalf("used %d (%d), limit %d of %d", r.Used, used, r.Limit, req.Budget)
	}
	if (err != nil) != (len(r.Placed) == 0 && errors.Is(err, ErrBudget)) {
		t.Fatalf("error %v with %d placed", err, len(r.Placed))
	}
	for i := range req.Items {
		it := &req.Items[i]
		form, in := placed[i]
		fate := "out"
		if in && form == Stub {
			fate = "stub"
		} else if in {
			fate = "in"
		}
		if g := it.Group; g != "" && fates[g] != "" && fates[g] != fate {
			t.Fatalf("group %s is split: %s and %s", g, fates[g], fate)
		}
		fates[it.Group] = fate
		if !in && err == nil && (it.rank() == rankSystem || it.rank() >= rankProtected && r.Tier < TierMinimal) {
			t.Fatalf("%+v is protected and was left out in tier %v", it, r.Tier)
		}
	}
	if !slices.IsSortedFunc(r.Placed, func(a, b Placed) int { return int(req.Items[a.Index].place() - req.Items[b.Index].place()) }) {
		t.Fatalf("not in window order")
	}
}

func TestFitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		before := slices.Clone(req.Items)
		r, err := Fit(req)
		if !slices.EqualFunc(before, req.Items, func(a, b Item) bool { return a.compare(&b) == 0 }) {
			t.Fatal("the items were changed")
		}
		checkResult(t, req, r, err)
	})
}

// outcome is a result by what items are, not by where they stood in the request.
func outcome(req Request, r Result) []string {
	var s []string
	for _, p := range r.Placed {
		s = append(s, fmt.Sprintf("%+v %v %d", req.Items[p.Index], p.Form, p.Tokens))
	}
	for _, l := range r.Left {
		s = append(s, fmt.Sprintf("%+v %s", req.Items[l.Index], l.Reason))
	}
	return s
}

func TestFitIgnoresTheOrderOfItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		a, errA := Fit(req)
		other := req
		other.Items = rapid.Permutation(req.Items).Draw(t, "permutation")
		b, errB := Fit(other)
		if (errA == nil) != (errB == nil) || a.Tier != b.Tier || a.Used != b.Used || !slices.Equal(outcome(req, a), outcome(other, b)) {
			t.Fatalf("%v\n%v", outcome(req, a), outcome(other, b))
		}
	})
}

func TestLargerBudgetKeepsPins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		small, err := Fit(req)
		if err != nil {
			return
		}
		req.Budget = addSat(max(req.Budget, 0), rapid.IntRange(0, 500).Draw(t, "more"))
		large, err := Fit(req)
		worst := small.Tier
		if slices.ContainsFunc(small.Placed, func(p Placed) bool { return p.Form == Stub }) {
			worst = max(worst, TierCore) // the stub may become a whole item, which takes the room of another
		}
		if err != nil || large.Tier > worst {
			t.Fatalf("%v: tier %v became %v", err, small.Tier, large.Tier)
		}
		for _, p := range small.Placed {
			it := &req.Items[p.Index]
			if it.Pinned && !slices.ContainsFunc(large.Placed, func(q Placed) bool { return q.Index == p.Index }) {
				t.Fatalf("%+v was dropped by a larger budget", it)
			}
		}
	})
}

func TestNames(t *testing.T) {
	require.Equal(t, "system core rag history scratchpad Class(9) Class(-1)",
		fmt.Sprint(System, " ", Core, " ", RAG, " ", History, " ", Scratchpad, " ", Class(9), " ", Class(-1)))
	require.Equal(t, "full summarised core minimal Tier(0) Tier(7)",
		fmt.Sprint(TierFull, " ", TierSummarised, " ", TierCore, " ", TierMinimal, " ", Tier(0), " ", Tier(7)))
	require.Equal(t, "fill ladder full compressed stub newest",
		fmt.Sprint(Fill, " ", Ladder, " ", Full, " ", Compressed, " ", Stub, " ", PlaceNewest))
}

// TestShortShare: short items leave a share of the limit and enter it compressed, so that more of them have a place. Without
// the share, or where they may not be short, they are taken whole.
func TestShortShare(t *testing.T) {
	items := func(short bool) (out []Item) {
		for i := range 20 {
			out = append(out, Item{Key: fmt.Sprintf("%02d", i), Class: RAG, Position: -i, Tokens: 100, Compressed: 30, Score: float64(100 * (20 - i)), Short: short})
		}
		return out
	}
	forms := func(share float64, short bool) (full, compressed int) {
		r, err := Fit(Request{Budget: 400, ShortShare: share, InOrder: true, Items: items(short)})
		require.NoError(t, err)
		require.LessOrEqual(t, r.Used, 400)
		require.Equal(t, TierCore, r.Tier)
		for _, p := range r.Placed {
			if p.Form == Compressed {
				compressed++
				require.GreaterOrEqual(t, p.Index, int(4*(1-share)), "the best are whole")
			} else {
				full++
			}
		}
		return full, compressed
	}
	for _, c := range []struct {
		share            float64
		short            bool
		full, compressed int
	}{{.25, true, 3, 3}, {.5, true, 2, 6}, {1, true, 0, 13}, {0, true, 4, 0}, {.25, false, 4, 0}} {
		full, compressed := forms(c.share, c.short)
		require.Equal(t, []int{c.full, c.compressed}, []int{full, compressed}, "%+v", c)
	}
	protected := items(true)
	protected[19].Core = true
	r, err := Fit(Request{Budget: 400, ShortShare: 1, InOrder: true, Items: protected})
	require.NoError(t, err)
	at := slices.IndexFunc(r.Placed, func(p Placed) bool { return p.Index == 19 })
	require.Equal(t, Full, r.Placed[at].Form, "what is protected is whole")
}

// TestUnasked: what matches the question becomes whole before anything else enters, even where all would fit once the
// former is cut. The control is the same set in which everything matches.
func TestUnasked(t *testing.T) {
	for _, c := range []struct {
		others                      int
		unasked                     bool
		full, compressed, unrelated int
	}{{10, true, 5, 0, 1}, {10, false, 4, 1, 2}, {6, true, 5, 0, 1}, {6, false, 1, 4, 6}} {
		var items []Item
		for i := range 5 + c.others {
			it := Item{Key: fmt.Sprintf("%02d", i), Class: RAG, Position: -i, Tokens: 100, Compressed: 30, Short: true}
			if i >= 5 {
				it.Tokens, it.Compressed, it.Unasked = 60, 0, c.unasked
			}
			it.Score = float64(it.Tokens * (20 - i))
			items = append(items, it)
		}
		r, err := Fit(Request{Budget: 580, ShortShare: .25, InOrder: true, Items: items})
		require.NoError(t, err)
		full, compressed, unrelated := 0, 0, 0
		for _, p := range r.Placed {
			switch {
			case p.Index >= 5:
				unrelated++
			case p.Form == Compressed:
				compressed++
			default:
				full++
			}
		}
		require.Equal(t, []int{c.full, c.compressed, c.unrelated}, []int{full, compressed, unrelated}, "%+v", c)
	}
}

// TestFitAsksForFewCosts: with estimates that are at most twice the costs Fit places what it places with the costs. It does not
// ask for the cost of what cannot enter.
func TestFitAsksForFewCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exact := drawRequest(t)
		exact.InOrder, exact.ShortShare = rapid.Bool().Draw(t, "in order"), rapid.SampledFrom([]float64{0, .25, .5}).Draw(t, "short share")
		rough := exact
		rough.Items = slices.Clone(exact.Items)
		for i := range exact.Items {
			it := &exact.Items[i]
			it.Key, it.Short = fmt.Sprint(i), rapid.Bool().Draw(t, "short")
			rough.Items[i] = *it
			if full, small, _ := it.costs(); full > 1 && small > 0 {
				most := full - 1
				if small < full {
					most = min(most, addSat(small, small))
				}
				rough.Items[i].Compressed, rough.Items[i].Rough = rapid.IntRange(1, most).Draw(t, "estimate"), true
			}
		}
		rough.Exact = func(i int) {
			if !rough.Items[i].Rough {
				t.Fatalf("asked twice for %d", i)
			}
			rough.Items[i].Compressed, rough.Items[i].Rough = exact.Items[i].Compressed, false
		}
		want, wantErr := Fit(exact)
		got, err := Fit(rough)
		if !slices.Equal(want.Placed, got.Placed) || want.Tier != got.Tier || (err == nil) != (wantErr == nil) {
			t.Fatalf("by costs %+v, by estimates %+v", want, got)
		}
	})
	items, asked := chunks(100, 300), 0
	for i := range items {
		items[i].Score, items[i].Short, items[i].Rough, items[i].Compressed = float64(300*(200-i)), true, true, 100
	}
	req := Request{Budget: 991, InOrder: true, ShortShare: .25, Items: items}
	req.Exact = func(i int) {
		asked++
		items[i].Compressed, items[i].Rough = 90, false
	}
	r, err := Fit(req)
	require.NoError(t, err)
	require.Len(t, r.Placed, 6, "two whole, four in part")
	require.Equal(t, 4, asked, "what is left is less than half of an estimate")
}
