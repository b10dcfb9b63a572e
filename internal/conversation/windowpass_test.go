package conversation

import (
	"fmt"
	"math"
	"slices"
	"testing"

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
	ir, err := session.ParseIntentIR([]byte(`{"schema":"prosecode.intent.v0","verb":"Fix","slots":{"target":"login form","steps":["retry",{"n":3}],"none":null,"ok":true},"gaps":["who"]}`))
	require.NoError(t, err)
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
