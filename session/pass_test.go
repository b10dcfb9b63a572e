package session

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// talk makes a history, one block a turn, from role:text lines.
func talk(lines ...[2]string) []Block {
	var out []Block
	for i, l := range lines {
		out = append(out, Block{ID: fmt.Sprintf("m%d", i), Turn: int64(i), Tokens: 10, Role: Role(l[0]), Hashes: TokenSet(l[1])})
	}
	return out
}

func actions(r Result) (out []Action) {
	for _, v := range r.Verdicts {
		out = append(out, v.Action)
	}
	return out
}

func TestPassAgreesWithTheReferenceFormula(t *testing.T) {
	blocks := talk([2]string{"user", "alpha"}, [2]string{"assistant", "beta"}, [2]string{"tool", "alpha beta"}, [2]string{"user", "nothing"})
	r, err := Pass(Input{Blocks: blocks, Intent: NewIntent("alpha", "BETA"), Params: CompatParams()})
	require.NoError(t, err)
	for i, v := range r.Verdicts {
		want := 0.7*v.Similarity + 0.3*(1/(1+math.Log(1+float64(3-i))))
		require.InDelta(t, want, v.R, 1e-15)
		require.Equal(t, ByScore, v.Reason)
	}
	require.Equal(t, []Action{Page, Page, Retain, Page}, actions(r))
	require.Equal(t, [3]int{1, 3, 0}, r.Count)
	require.Equal(t, [3]int{10, 30, 0}, r.Tokens)
}

func TestGuardsOnlyRaise(t *testing.T) {
	var blocks []Block
	for i := range 40 {
		b := Block{ID: fmt.Sprint("m", i), Turn: int64(i), Role: Assistant}
		if i%5 == 0 {
			b.Role = User
		}
		blocks = append(blocks, b)
	}
	blocks[3].Pinned = true
	bare, err := Pass(Input{Blocks: blocks, Params: CompatParams()})
	require.NoError(t, err)
	p := CompatParams()
	p.KeepLast, p.UserFloor, p.MinEvictAge = 3, true, 10
	r, err := Pass(Input{Blocks: blocks, Params: p})
	require.NoError(t, err)
	for i, v := range r.Verdicts {
		want := Evict
		switch {
		case i == 3 || i >= 37 || i == 35: // 35 is the newest user turn
			want = Retain
		case i%5 == 0 || i > 29:
			want = Page
		}
		if i == 3 {
			require.Equal(t, Retain, bare.Verdicts[i].Action, "a pin needs no option")
		}
		require.Equal(t, want, v.Action, "block %d", i)
	}
	require.Equal(t, ByNewest, r.Verdicts[35].Reason)
	require.Equal(t, ByKeepLast, r.Verdicts[38].Reason)
	require.Equal(t, ByAge, r.Verdicts[31].Reason)
	require.Equal(t, ByUserTurn, r.Verdicts[5].Reason)
}

func TestPassRefusesWholeHistories(t *testing.T) {
	good := func() []Block { return talk([2]string{"user", "apple"}, [2]string{"user", "b c"}) }
	for _, c := range []struct {
		name  string
		spoil func(*Input)
		want  error
		field string
	}{
		{"duplicate id", func(in *Input) { in.Blocks[1].ID = "m0" }, ErrDuplicateID, "id"},
		{"empty id", func(in *Input) { in.Blocks[1].ID = "" }, ErrID, "id"},
		{"bad UTF-8", func(in *Input) { in.Blocks[1].ID = "\xff" }, ErrID, "id"},
		{"negative turn", func(in *Input) { in.Blocks[1].Turn = -1 }, ErrTurn, "turn"},
		{"future", func(in *Input) { in.Blocks[1].Turn, in.Head = 9, 8 }, ErrFutureTurn, "turn"},
		{"unsorted hashes", func(in *Input) { slices.Reverse(in.Blocks[1].Hashes) }, ErrHashes, "hashes"},
		{"NaN", func(in *Input) { in.Params.Alpha = math.NaN() }, ErrParams, ""},
		{"infinite", func(in *Input) { in.Params.RetainCut = math.Inf(1) }, ErrParams, ""},
		{"inverted cuts", func(in *Input) { in.Params.EvictCut = 0.9 }, ErrParams, ""},
		{"control", func(*Input) {}, nil, ""},
	} {
		in := Input{Blocks: good(), Params: CompatParams()}
		c.spoil(&in)
		_, err := Pass(in)
		require.ErrorIs(t, err, c.want, c.name)
		var be *BlockError
		if c.field != "" {
			require.ErrorAs(t, err, &be, c.name)
			require.Equal(t, [2]any{1, c.field}, [2]any{be.Index, be.Field}, c.name)
		}
	}
	in := Input{Blocks: good(), Params: CompatParams(), Head: 8}
	in.Blocks[1].Turn, in.Params.ClampFuture = 9, true
	r, err := Pass(in)
	require.NoError(t, err)
	require.Zero(t, r.Verdicts[1].Delta)
}

// A head before all turns has none behind it, however far before.
func TestPassHeadBeforeAllTurns(t *testing.T) {
	p := CompatParams()
	p.ClampFuture = true
	for _, head := range []int64{-1, math.MinInt64} {
		r, err := Pass(Input{Blocks: []Block{{ID: "a", Turn: 7}}, Intent: NewIntent("x"), Params: p, Head: head})
		require.NoError(t, err)
		require.Zero(t, r.Verdicts[0].Delta, head)
		require.Equal(t, 1.0, r.Verdicts[0].Recency)
	}
}

func TestPassKeyChangesWithEverythingThatMatters(t *testing.T) {
	base := func() Input {
		return Input{Blocks: talk([2]string{"user", "apple"}, [2]string{"tool", "b"}), Intent: NewIntent("apple"), Params: RecommendedParams()}
	}
	first, err := Pass(base())
	require.NoError(t, err)
	seen := map[PassKey]string{first.Key: "base"}
	for name, change := range map[string]func(*Input){
		"id":     func(in *Input) { in.Blocks[0].ID = "x" },
		"turn":   func(in *Input) { in.Blocks[1].Turn = 5 },
		"tokens": func(in *Input) { in.Blocks[0].Tokens = 11 },
		"text":   func(in *Input) { in.Blocks[0].Hashes = TokenSet("c") },
		"source": func(in *Input) { in.Blocks[0].Source = 1 },
		"role":   func(in *Input) { in.Blocks[1].Role = User },
		"pin":    func(in *Input) { in.Blocks[1].Pinned = true },
		"order":  func(in *Input) { slices.Reverse(in.Blocks) },
		"intent": func(in *Input) { in.Intent = NewIntent("b") },
		"params": func(in *Input) { in.Params.KeepLast = 5 },
		"head":   func(in *Input) { in.Head = 7 },
	} {
		in := base()
		change(&in)
		r, err := Pass(in)
		require.NoError(t, err)
		require.Empty(t, seen[r.Key], name)
		seen[r.Key] = name
		require.False(t, r.Repeated)
	}
	in := base()
	in.Last = first.Key
	again, err := Pass(in)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, first.Verdicts, again.Verdicts)
}

func TestTokenSetKnowsOtherScripts(t *testing.T) {
	in := NewIntent("Привет", "東京", "CAFÉ", "retention score")
	require.Equal(t, []string{"café", "retent", "score", "привет", "東京"}, in.Words())
	require.Equal(t, 1, in.Hits(TokenSet("привет мир")))
	require.Equal(t, 1, in.Hits(TokenSet("今日は東京に行く")))
	require.Equal(t, 1, in.Hits(TokenSet("cafe\u0301"))) // decomposed
	require.Equal(t, 2, in.Hits(TokenSet("score of retention")))
	require.Equal(t, 2, in.Hits(TokenSet("retained? no: retentions, scored", "author")))
	require.Equal(t, 1, NewIntent("Caroline").Hits(TokenSet("Caroline", "me too")), "the author counts as text")
	require.Equal(t, []string{"refund"}, NewIntent("what is the refund").Words())
	require.Equal(t, []string{"is", "who"}, NewIntent("who is who").Words(), "nothing else is there")
}

func TestIntentFromIR(t *testing.T) {
	ir, err := ParseIntentIR([]byte(`{"schema":"prosecode.intent.v0","verb":"Fix","slots":{"target":"login form","steps":["retry",{"n":3}],"none":null,"ok":true},"gaps":["who"]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"3", "fix", "form", "login", "retri"}, ir.Intent().Words())
	for _, raw := range []string{`{"current_turn":1}`, `[1]`, `7`, `{`, ``} {
		_, err := ParseIntentIR([]byte(raw))
		require.ErrorIs(t, err, ErrIntent, raw)
	}
}

func TestExplainIsOneSentence(t *testing.T) {
	r, err := Pass(Input{Blocks: talk([2]string{"user", "alpha"}, [2]string{"tool", "b"}), Intent: NewIntent("alpha", "x"), Params: RecommendedParams()})
	require.NoError(t, err)
	require.Equal(t, "retain: R 0.5272 = 0.7 × similarity 0.5 (1 of 2 keywords) + 0.3 × recency 0.5906 (1 turns behind); retain from 0.3, evict below 0.1", r.Explain(r.Verdicts[0]))
}

// A pass depends on nothing but its input, and no guard lowers a verdict.
func TestPassProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []Block
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			blocks = append(blocks, Block{
				ID: fmt.Sprint(i), Turn: rapid.Int64Range(0, 60).Draw(t, "turn"), Role: rapid.SampledFrom([]Role{User, Assistant, Tool}).Draw(t, "role"),
				Pinned: rapid.Bool().Draw(t, "pin"), Hashes: TokenSet(rapid.StringMatching(`[b-e ]{0,8}`).Draw(t, "text")),
			})
		}
		guarded := RecommendedParams()
		guarded.MinEvictAge = rapid.Int64Range(0, 20).Draw(t, "age")
		in := Input{Blocks: blocks, Intent: NewIntent("b c e"), Params: guarded}
		got, err := Pass(in)
		require.NoError(t, err)
		again, _ := Pass(in)
		require.Equal(t, got, again)
		for i, v := range got.Verdicts {
			byScore := Classify(v.R, guarded.RetainCut, guarded.EvictCut)
			require.LessOrEqual(t, v.Action, byScore)
			require.Equal(t, v.Reason == ByScore, v.Action == byScore)
			if blocks[i].Pinned {
				require.Equal(t, Retain, v.Action)
			}
			if blocks[i].Role == User {
				require.NotEqual(t, Evict, v.Action)
			}
		}
	})
}
