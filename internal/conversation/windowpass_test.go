package conversation

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// judged is a pass as a test sees it.
type judged struct {
	blocks []PassBlock
	words  []string
	params session.Params
	head   int64
}

func (j judged) run(t require.TestingT) (uint64, []session.Verdict) {
	key, vs, err := Judge(j.blocks, IntentOf(session.PassQuery{Keywords: j.words}), j.params, j.head)
	require.NoError(t, err)
	out := make([]session.Verdict, len(vs))
	for i, v := range vs {
		out[i] = Judged(&j.params, len(j.words), i, j.blocks[i].ID, v)
	}
	return key, out
}

// talk makes a history, one block a turn, from role:text lines.
func talk(lines ...[2]string) []PassBlock {
	var out []PassBlock
	for i, l := range lines {
		out = append(out, PassBlock{ID: fmt.Sprintf("m%d", i), Turn: int64(i), Tokens: 10, Role: l[0], Hashes: prose.TokenSet(l[1])})
	}
	return out
}

func TestPassAgreesWithTheReferenceFormula(t *testing.T) {
	blocks := talk([2]string{"user", "alpha"}, [2]string{"assistant", "beta"}, [2]string{"tool", "alpha beta"}, [2]string{"user", "nothing"})
	_, vs := judged{blocks: blocks, words: []string{"alpha", "BETA"}, params: session.CompatParams()}.run(t)
	want := []session.Action{session.Page, session.Page, session.Retain, session.Page}
	for i, v := range vs {
		require.InDelta(t, 0.7*v.Similarity+0.3*(1/(1+math.Log(1+float64(3-i)))), v.R, 1e-15)
		require.Equal(t, "score", v.Reason)
		require.Equal(t, want[i], v.Action)
	}
}

func TestGuardsOnlyRaise(t *testing.T) {
	var blocks []PassBlock
	for i := range 40 {
		b := PassBlock{ID: fmt.Sprint("m", i), Turn: int64(i), Role: Assistant}
		if i%5 == 0 {
			b.Role = User
		}
		blocks = append(blocks, b)
	}
	blocks[3].Pinned = true
	_, bare := judged{blocks: blocks, params: session.CompatParams()}.run(t)
	p := session.CompatParams()
	p.KeepLast, p.UserFloor, p.MinEvictAge = 3, true, 10
	_, vs := judged{blocks: blocks, params: p}.run(t)
	for i, v := range vs {
		want := session.Evict
		switch {
		case i == 3 || i >= 37 || i == 35: // 35 is the newest user turn
			want = session.Retain
		case i%5 == 0 || i > 29:
			want = session.Page
		}
		if i == 3 {
			require.Equal(t, session.Retain, bare[i].Action, "a pin needs no option")
		}
		require.Equal(t, want, v.Action, "block %d", i)
	}
	require.Equal(t, ByNewest.String(), vs[35].Reason)
	require.Equal(t, ByKeepLast.String(), vs[38].Reason)
	require.Equal(t, ByAge.String(), vs[31].Reason)
	require.Equal(t, ByUserTurn.String(), vs[5].Reason)
}

func TestPassRefusesWholeHistories(t *testing.T) {
	for name, spoil := range map[string]func(*session.Params){
		"NaN":           func(p *session.Params) { p.Alpha = math.NaN() },
		"infinite":      func(p *session.Params) { p.RetainCut = math.Inf(1) },
		"inverted cuts": func(p *session.Params) { p.EvictCut = 0.9 },
		"keep-last":     func(p *session.Params) { p.KeepLast = -1 },
	} {
		p := session.CompatParams()
		spoil(&p)
		_, _, err := Judge(nil, Intent{}, p, 0)
		require.ErrorIs(t, err, ErrParams, name)
	}
	blocks, p := talk([2]string{"user", "apple"}, [2]string{"user", "b c"}), session.CompatParams()
	blocks[1].Turn = 9
	_, _, err := Judge(blocks, Intent{}, p, 8)
	require.ErrorContains(t, err, "head turn 8: expected the newest turn, which is 9, or a later one")
	p.ClampFuture = true
	_, vs := judged{blocks: blocks, params: p, head: 8}.run(t)
	require.Zero(t, vs[1].Delta)
}

// A head before all turns has none behind it, however far before.
func TestPassHeadBeforeAllTurns(t *testing.T) {
	p := session.CompatParams()
	p.ClampFuture = true
	for _, head := range []int64{-1, math.MinInt64 + 100} {
		_, vs := judged{blocks: []PassBlock{{ID: "a", Turn: 7}}, words: []string{"x"}, params: p, head: head}.run(t)
		require.Zero(t, vs[0].Delta, head)
		require.Equal(t, 1.0, vs[0].Recency)
	}
}

func TestPassKeyChangesWithEverythingThatMatters(t *testing.T) {
	base := func() judged {
		return judged{blocks: talk([2]string{"user", "apple"}, [2]string{"tool", "b"}), words: []string{"apple"}, params: session.RecommendedParams()}
	}
	first, verdicts := base().run(t)
	seen := map[uint64]string{first: "base"}
	for name, change := range map[string]func(*judged){
		"id":     func(in *judged) { in.blocks[0].ID = "x" },
		"turn":   func(in *judged) { in.blocks[1].Turn = 5 },
		"tokens": func(in *judged) { in.blocks[0].Tokens = 11 },
		"text":   func(in *judged) { in.blocks[0].Hashes = prose.TokenSet("c") },
		"source": func(in *judged) { in.blocks[0].Source = 1 },
		"role":   func(in *judged) { in.blocks[1].Role = User },
		"pin":    func(in *judged) { in.blocks[1].Pinned = true },
		"order":  func(in *judged) { slices.Reverse(in.blocks) },
		"intent": func(in *judged) { in.words = []string{"b"} },
		"params": func(in *judged) { in.params.KeepLast = 5 },
		"head":   func(in *judged) { in.head = 7 },
	} {
		in := base()
		change(&in)
		key, _ := in.run(t)
		require.Empty(t, seen[key], name)
		seen[key] = name
	}
	again, same := base().run(t)
	require.Equal(t, first, again)
	require.Equal(t, verdicts, same)
}

func TestTokenSetKnowsOtherScripts(t *testing.T) {
	terms := func(texts ...string) []string { words, _ := prose.Terms(texts...); return words }
	hits := func(words []string, texts ...string) int {
		f := IntentOf(session.PassQuery{Keywords: words}).finder()
		return f.hits(prose.TokenSet(texts...))
	}
	words := []string{"Привет", "東京", "CAFÉ", "retention score"}
	require.Equal(t, []string{"café", "retent", "score", "привет", "東京"}, terms(words...))
	require.Equal(t, 1, hits(words, "привет мир"))
	require.Equal(t, 1, hits(words, "今日は東京に行く"))
	require.Equal(t, 1, hits(words, "cafe\u0301")) // decomposed
	require.Equal(t, 2, hits(words, "score of retention"))
	require.Equal(t, 2, hits(words, "retained? no: retentions, scored", "author"))
	require.Equal(t, 1, hits([]string{"Caroline"}, "Caroline", "me too"), "the author counts as text")
	require.Equal(t, []string{"refund"}, terms("what is the refund"))
	require.Equal(t, []string{"is", "who"}, terms("who is who"), "nothing else is there")
}

func TestIntentFromIR(t *testing.T) {
	ir := must(session.ParseIntentIR([]byte(`{"schema":"prosecode.intent.v0","verb":"Fix","slots":{"target":"login form","steps":["retry",{"n":3}],"none":null,"ok":true},"gaps":["who"]}`)))(t)
	_, want := prose.Terms("3", "fix", "form", "login", "retry", "later")
	require.Equal(t, Intent{want}, IntentOf(session.PassQuery{IR: &ir, Keywords: []string{"later"}}))
	for _, raw := range []string{`{"current_turn":1}`, `[1]`, `7`, `{`, ``} {
		require.ErrorContains(t, errOf(session.ParseIntentIR([]byte(raw))), "session: intent: expected", raw)
	}
}

func TestExplainIsOneSentence(t *testing.T) {
	in := judged{blocks: talk([2]string{"user", "alpha"}, [2]string{"tool", "b"}), words: []string{"alpha", "x"}, params: session.RecommendedParams()}
	_, vs := in.run(t)
	pass := &session.StoredPass{Params: in.params, Keywords: 2}
	require.Equal(t, "retain: R 0.5272 = 0.7 × similarity 0.5 (1 of 2 keywords) + 0.3 × recency 0.5906 (1 turns behind); retain from 0.3, evict below 0.1", pass.Explain(vs[0]))
}

// A pass depends on nothing but its input, and no guard lowers a verdict.
func TestPassProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []PassBlock
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			blocks = append(blocks, PassBlock{
				ID: fmt.Sprint(i), Turn: rapid.Int64Range(0, 60).Draw(t, "turn"), Role: rapid.SampledFrom([]string{User, Assistant, Tool}).Draw(t, "role"),
				Pinned: rapid.Bool().Draw(t, "pin"), Hashes: prose.TokenSet(rapid.StringMatching(`[b-e ]{0,8}`).Draw(t, "text")),
			})
		}
		guarded := session.RecommendedParams()
		guarded.MinEvictAge = rapid.Int64Range(0, 20).Draw(t, "age")
		in := judged{blocks: blocks, words: []string{"b", "c", "e"}, params: guarded}
		_, got := in.run(t)
		_, again := in.run(t)
		require.Equal(t, got, again)
		for i, v := range got {
			byScore := Classify(v.R, guarded.RetainCut, guarded.EvictCut)
			require.LessOrEqual(t, v.Action, byScore)
			require.Equal(t, v.Reason == "score", v.Action == byScore)
			if blocks[i].Pinned {
				require.Equal(t, session.Retain, v.Action)
			}
			if blocks[i].Role == User {
				require.NotEqual(t, session.Evict, v.Action)
			}
		}
	})
}

// Each detector, with a twin that differs in the one thing that counts.
func TestLowValueDetectors(t *testing.T) {
	tool := func(g session.Signals, traits prose.Traits, tokens int) Section {
		return Section{Role: Tool, Kind: "tool", Sizes: EstimateSizes(tokens), Signals: g, Traits: traits, Turn: 50}
	}
	for _, c := range []struct {
		want         LowValue
		goal         session.Level
		sec, newer   Section
		twin, newer2 Section
	}{
		{want: Expired, goal: session.Cold, sec: tool(session.Signals{ExpiresAt: noon}, 0, 50), twin: tool(session.Signals{ExpiresAt: noon.Add(1)}, 0, 50)},
		{want: Duplicate, goal: session.Stub, sec: tool(session.Signals{Digest: 7}, 0, 50), newer: tool(session.Signals{Digest: 7}, 0, 50), twin: tool(session.Signals{Digest: 7}, 0, 50), newer2: tool(session.Signals{Digest: 8}, 0, 50)},
		{want: Superseded, goal: session.Stub, sec: tool(session.Signals{Source: "a", Version: 1}, 0, 50), newer: tool(session.Signals{Source: "a", Version: 2}, 0, 50), twin: tool(session.Signals{Source: "a", Version: 2}, 0, 50), newer2: tool(session.Signals{Source: "a", Version: 2}, 0, 50)},
		{want: StaleRead, goal: session.Stub, sec: tool(session.Signals{Source: "a", Stale: true}, 0, 50), twin: tool(session.Signals{Source: "a"}, 0, 50)},
		{want: Resolved, goal: session.Stub, sec: tool(session.Signals{Call: "make", Failed: true}, prose.TraitError, 50), newer: tool(session.Signals{Call: "make"}, 0, 50), twin: tool(session.Signals{Call: "make", Failed: true}, prose.TraitError, 50), newer2: tool(session.Signals{Call: "make", Failed: true}, 0, 50)},
		{want: OldDiff, goal: session.Stub, sec: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), newer: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), twin: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), newer2: tool(session.Signals{Source: "b"}, prose.TraitDiff, 50)},
		{want: Encoded, goal: session.Stub, sec: tool(session.Signals{}, prose.TraitBinary, 50), twin: tool(session.Signals{}, prose.TraitBinary|prose.TraitError, 50)},
		{want: RawLog, goal: session.Stub, sec: tool(session.Signals{Finding: true}, prose.TraitLog, 50), twin: tool(session.Signals{}, prose.TraitLog, 50)},
		{want: Refetch, goal: session.Stub, sec: tool(session.Signals{Refetchable: true}, 0, 257), twin: tool(session.Signals{Refetchable: true}, 0, 256)},
		{want: ClosedTask, goal: session.Summary, sec: tool(session.Signals{Closed: true}, 0, 50), twin: tool(session.Signals{}, 0, 50)},
		{want: Chatter, goal: session.Cold, sec: Section{Role: Assistant, Sizes: Sizes{7}, Traits: prose.TraitAck}, twin: Section{Role: Assistant, Sizes: Sizes{8}, Traits: prose.TraitAck}},
		{want: Unread, goal: session.Raw, sec: Section{Role: Tool, Sizes: Sizes{50}, Signals: session.Signals{LastRead: 30}}, twin: Section{Role: Tool, Sizes: Sizes{50}, Signals: session.Signals{LastRead: 31}}},
	} {
		t.Run(c.want.String(), func(t *testing.T) {
			find := func(secs ...Section) LowValue {
				s := State{Config: session.Config{Total: 10_000, KeepLast: -1}, Turn: 50, Sections: secs}
				return s.lowValues(noon, s.Protections())[0]
			}
			require.Equal(t, c.want, find(c.sec, c.newer))
			require.Equal(t, c.goal, c.want.goal())
			require.Equal(t, Worth, find(c.twin, c.newer2), "the twin")
			for _, guard := range []func(*Section){
				func(s *Section) { s.Role = User }, func(s *Section) { s.Pinned = true }, func(s *Section) { s.Priority = Critical }, func(s *Section) { s.Signals.Keep = true },
			} {
				sec := c.sec
				guard(&sec)
				require.Equal(t, Worth, find(sec, c.newer), "never what is protected")
			}
		})
	}
}

func TestLowValuesLookAtTheClockGiven(t *testing.T) {
	s := State{Config: session.Config{Total: 1000, KeepLast: -1}, Sections: []Section{{ID: "a", Signals: session.Signals{ExpiresAt: noon}}}}
	require.Equal(t, Worth, s.lowValues(noon.Add(-time.Nanosecond), s.Protections())[0])
	require.Equal(t, Expired, s.lowValues(noon, s.Protections())[0])
}

// exactLn is ln x with 300 bits: ln x = 2 atanh((x-1)/(x+1)) after halving.
func exactLn(x float64) float64 {
	const prec = 300
	f := func(v float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(v) }
	atanh2 := func(y *big.Float) *big.Float { // 2 atanh((y-1)/(y+1))
		s := new(big.Float).SetPrec(prec).Quo(f(0).Sub(y, f(1)), f(0).Add(y, f(1)))
		z, sum, term := f(0).Mul(s, s), f(0), f(0).Set(s)
		for k := 1.0; k < 280; k += 2 {
			sum.Add(sum, f(0).Quo(term, f(k)))
			term.Mul(term, z)
		}
		return sum.Mul(sum, f(2))
	}
	m, e := math.Frexp(x)
	r := f(0).Mul(atanh2(f(2)), f(float64(e)))
	out, _ := r.Add(r, atanh2(f(m))).Float64()
	return out
}

func TestLnIsCorrectlyRounded(t *testing.T) {
	require.Equal(t, 0.0, Ln(1))
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(
			rapid.Map(rapid.IntRange(1, 2_000_001), func(i int) float64 { return float64(i) }),
			rapid.Float64Range(0.5, 2), rapid.Float64Range(1e-300, math.MaxFloat64),
		).Draw(t, "x")
		require.Equal(t, exactLn(x), Ln(x))
	})
	differs := 0
	for i := 2.0; i < 3000; i++ {
		if math.Log(i) != Ln(i) {
			differs++
		}
	}
	t.Logf("math.Log differs for %d of 3,000 on this platform", differs)
}

func TestScoreIsNotFused(t *testing.T) {
	// With a fused multiply-add the last bit of the sum would be another.
	a, s, b, r := 0.7, 1.0/3, 0.3, 0.41906169866 // an arbitrary pair for which it matters
	for i := 0; i < 1000; i++ {
		r = math.Nextafter(r, 1)
		p, q := a*s, b*r
		require.Equal(t, p+q, Score(a, b, s, r))
	}
}

func TestClassifyComparesUnrounded(t *testing.T) {
	require.Equal(t, session.Retain, Classify(0.55, 0.55, 0.2))
	require.Equal(t, session.Page, Classify(math.Nextafter(0.55, 0), 0.55, 0.2))
	require.Equal(t, session.Page, Classify(0.2, 0.55, 0.2))
	require.Equal(t, session.Evict, Classify(math.Nextafter(0.2, 0), 0.55, 0.2))
	require.Equal(t, session.Retain, Classify(0.4, 0.3, 0.5), "inverted cuts retain")
	require.Equal(t, session.Page, Classify(math.NaN(), 0.55, 0.2))
}
