package contexty

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/internal/triage"
)

func msg(role, id string) Message {
	m := TextMessage(role, id)
	m.ID = id
	return m
}

func call(id string, calls ...string) Message {
	m := msg("assistant", id)
	for _, c := range calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c, Type: "function", Function: FunctionCall{Name: "f"}})
	}
	return m
}

func outcome(id, call string) Message {
	m := msg("tool", id)
	m.ToolCallID = call
	return m
}

func weights(n, each int) []int { return slices.Repeat([]int{each}, n) }

func ids(messages []Message) string {
	var s []string
	for i := range messages {
		s = append(s, messages[i].ID)
	}
	return strings.Join(s, " ")
}

func compile(t *testing.T, tokens int, blocks ...Block) Compiled {
	t.Helper()
	c, err := Compile(Config{Budget: tokens}, blocks)
	require.NoError(t, err)
	return c
}

// talk is a conversation whose messages weigh 10 each, with two tool turns, one of them answered late.
func talk() Block {
	m := []Message{
		msg("user", "u1"), call("a1", "c1", "c2"), outcome("t1", "c1"), outcome("t2", "c2"), msg("assistant", "a2"),
		msg("user", "u2"), call("a3", "c3"), msg("user", "note"), outcome("t3", "c3"), msg("assistant", "a4"),
		msg("user", "u3"), msg("assistant", "a5"),
	}
	return Block{Key: "talk", Class: triage.History, Messages: m, Weights: weights(len(m), 10), Low: 1}
}

func TestTruncateKeepsTurnsWhole(t *testing.T) {
	for budget, want := range map[int]string{
		120: "u1 a1 t1 t2 a2 u2 a3 note t3 a4 u3 a5",
		119: "a1 t1 t2 a2 u2 a3 note t3 a4 u3 a5",
		109: "a2 u2 a3 note t3 a4 u3 a5",
		70:  "u2 a3 note t3 a4 u3 a5",
		69:  "a3 note t3 a4 u3 a5",
		59:  "note a4 u3 a5",
		39:  "a4 u3 a5",
		20:  "u3 a5",
		10:  "u3",
	} {
		c := compile(t, budget, talk())
		require.Equal(t, want, ids(c.Messages), "budget %d", budget)
		require.Equal(t, len(c.Messages)*10, c.Report.Used)
	}
}

func TestTruncateProtects(t *testing.T) {
	b := talk()
	b.Protect = []string{"tool"}
	require.Equal(t, "a1 t1 t2 a3 t3 u3", ids(compile(t, 60, b).Messages), "a protected outcome keeps its call")
	_, err := Compile(Config{Budget: 59}, []Block{b})
	var e *triage.BudgetError
	require.ErrorAs(t, err, &e)
	require.Equal(t, triage.BudgetError{Block: "talk", Need: 60, Have: 59, Shortfall: 1}, *e)
}

func TestWhatIsIncompleteNeverGoesOut(t *testing.T) {
	b := Block{Key: "h", Class: triage.History, Messages: []Message{
		outcome("orphan", "c0"), call("pending", "c1", "c2"), outcome("half", "c1"), msg("user", "u"),
		call("twice", "c3"), outcome("first", "c3"), outcome("again", "c3"), call("nameless", ""), {ID: "r", Role: "tool"}, {ID: "s", Role: "tool"},
	}}
	b.Weights = weights(len(b.Messages), 1)
	for _, s := range []Strategy{Strict, Drop, Truncate, Choose} {
		b.Strategy = s
		c := compile(t, 100, b)
		require.Equal(t, "u twice first nameless r", ids(c.Messages), s)
		r, _ := c.Report.Block("h")
		require.Equal(t, ActionKept, r.Action)
		require.Len(t, r.Evicted, 5)
		require.Equal(t, Evicted{Index: 0, ID: "orphan", Tokens: 1, Reason: ReasonPair}, r.Evicted[0])
	}
}

// The cut holds until the next overflow, and then moves to the low mark.
func TestHysteresis(t *testing.T) {
	var mark Mark
	var firsts []string
	var all []Message
	for i := range 60 {
		all = append(all, msg("user", fmt.Sprint(i)))
		c := compile(t, 200, Block{Key: "h", Class: triage.History, Messages: all, Weights: weights(len(all), 10), Mark: mark})
		r, _ := c.Report.Block("h")
		mark = r.Mark
		firsts = append(firsts, c.Messages[0].ID)
		require.LessOrEqual(t, r.Used, 200)
		require.GreaterOrEqual(t, len(c.Messages), min(i+1, 17))
	}
	require.Equal(t, 11, len(slices.Compact(slices.Clone(firsts))), "a cut every fourth turn, not every turn")
	require.Equal(t, "40", firsts[59])
}

func TestMark(t *testing.T) {
	b := talk()
	b.Mark = Mark{Index: 1, ID: "u2"} // the ID wins over the index
	require.Equal(t, "u2 a3 note t3 a4 u3 a5", ids(compile(t, 119, b).Messages))
	b.Mark = Mark{Index: 5}
	require.Equal(t, "u2 a3 note t3 a4 u3 a5", ids(compile(t, 119, b).Messages))
	b.Mark = Mark{Index: 5, ID: "gone"}
	require.Equal(t, "a1 t1 t2 a2 u2 a3 note t3 a4 u3 a5", ids(compile(t, 119, b).Messages))
	for _, m := range []Mark{{Index: -4}, {Index: 99}, {}} {
		b.Mark = m
		require.Equal(t, 11, len(compile(t, 119, b).Messages))
	}
	b.Mark = Mark{Index: 12}
	require.Equal(t, "u3", ids(compile(t, 119, b).Messages), "a mark at the end keeps what must stay")
	b.Mark = Mark{Index: 5}
	require.Equal(t, 12, len(compile(t, 120, b).Messages), "everything fits under the low mark again")
}

// A mark handed back to the same block at the same limit changes nothing.
func TestTruncateIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBlock(t, "h")
		b.Strategy, b.Low = Truncate, DefaultLow
		cfg := Config{Budget: rapid.IntRange(0, 200).Draw(t, "budget")}
		a, err := Compile(cfg, []Block{b})
		if err != nil {
			return
		}
		r, _ := a.Report.Block("h")
		b.Mark = r.Mark
		c, err := Compile(cfg, []Block{b})
		if err != nil || ids(c.Messages) != ids(a.Messages) {
			t.Fatalf("%v: %s became %s", err, ids(a.Messages), ids(c.Messages))
		}
	})
}

func TestFloorsAndCaps(t *testing.T) {
	chunks := Block{Key: "rag", Class: triage.RAG, Messages: []Message{msg("system", "x"), msg("system", "y"), msg("system", "z")},
		Weights: []int{50, 30, 20}, Scores: []float64{6, 4, 1}}
	history := Block{Key: "talk", Class: triage.History, Messages: []Message{msg("user", "old"), msg("user", "new")}, Weights: []int{20, 20}, Low: 1}

	c := compile(t, 100, chunks, history)
	require.Equal(t, "new x y", ids(c.Messages), "the newest user message is set aside before the chunks choose")
	history.Min = 40
	c = compile(t, 100, chunks, history)
	require.Equal(t, "old new x", ids(c.Messages))
	r, _ := c.Report.Block("rag")
	require.Equal(t, BlockReport{Key: "rag", Action: ActionChosen, Original: 100, Limit: 60, Used: 50, Kept: 1, Evicted: []Evicted{
		{1, "y", 30, triage.OverBudget}, {2, "z", 20, triage.OverBudget}}}, r)
	chunks.Max = 49
	c = compile(t, 100, chunks, history)
	require.Equal(t, "old new y", ids(c.Messages), "the better chunk within the cap")
	r, _ = c.Report.Block("rag")
	require.LessOrEqual(t, r.Used, chunks.Max)
	history.Strategy, history.Max = Strict, 39
	_, err := Compile(Config{Budget: 100}, []Block{history})
	require.ErrorIs(t, err, triage.ErrBudget, "a cap holds for a strict block too")
}

func TestOrderOfServiceAndPlace(t *testing.T) {
	blocks := []Block{
		{Key: "newest", Class: triage.History, Place: triage.PlaceNewest, Messages: []Message{msg("user", "question")}, Weights: []int{10}},
		{Key: "scratch", Class: triage.Scratchpad, Messages: []Message{msg("assistant", "note")}, Weights: []int{10}},
		{Key: "rag", Class: triage.RAG, Messages: []Message{msg("system", "chunk")}, Weights: []int{10}},
		{Key: "talk", Class: triage.History, Messages: []Message{msg("assistant", "hello")}, Weights: []int{10}},
		{Key: "core", Class: triage.Core, Messages: []Message{msg("system", "fact")}, Weights: []int{10}},
		{Key: "sys", Class: triage.System, Messages: []Message{msg("system", "rules")}, Weights: []int{10}},
	}
	require.Equal(t, "rules fact hello chunk note question", ids(compile(t, 60, blocks...).Messages))
	require.Equal(t, "rules fact hello chunk question", ids(compile(t, 59, blocks...).Messages))
	require.Equal(t, "rules fact chunk question", ids(compile(t, 49, blocks...).Messages))
	require.Equal(t, "rules fact question", ids(compile(t, 39, blocks...).Messages))

	c, err := Compile(Config{Budget: 29}, blocks)
	require.ErrorIs(t, err, triage.ErrBudget)
	require.Empty(t, c.Messages)
	var actions []string
	for _, b := range c.Report.Blocks {
		actions = append(actions, b.Key+":"+b.Action)
	}
	require.Equal(t, []string{"sys:kept", "core:rejected", "talk:not reached", "rag:not reached", "scratch:not reached", "newest:kept"}, actions)
	require.Equal(t, 60, c.Report.Original)
}

func TestBadBlocks(t *testing.T) {
	m := []Message{msg("user", "a")}
	for want, blocks := range map[string][]Block{
		"used twice":      {{Key: "a"}, {Key: "a"}},
		"2 weights for 1": {{Key: "a", Messages: m, Weights: []int{1, 2}}},
		"0 scores for 1":  {{Key: "a", Messages: m, Scores: []float64{}}},
		"Turns has 0":     {{Key: "a", Messages: m, Turns: NewTurns()}},
	} {
		c, err := Compile(Config{Budget: 10}, blocks)
		require.ErrorIs(t, err, ErrBlock)
		require.ErrorContains(t, err, want)
		require.Len(t, c.Report.Blocks, len(blocks))
	}
	_, err := Compile(Config{Budget: 1, Reserve: 2}, nil)
	require.ErrorIs(t, err, triage.ErrBudget)
}

func TestWeigh(t *testing.T) {
	per := fourChars{}
	m := Message{Role: "assistant", Name: "name", Content: []ContentPart{{Type: "text", Text: "12345678"}, {Type: "file", Text: "1234"},
		{Type: "image_url", ImageURL: &ImageURL{Detail: "low"}}}, ToolCalls: []ToolCall{{Function: FunctionCall{Name: "abcd", Arguments: "12345678"}}}}
	require.Equal(t, 4+1+2+1+765+85+8+1+2, Weigh(per, &m), "text in a part of another type counts too")
	c, err := Compile(Config{Budget: 5, Counter: per}, []Block{{Key: "h", Class: triage.Scratchpad, Messages: []Message{TextMessage("user", "12345")}}})
	require.NoError(t, err)
	require.Equal(t, 6, c.Report.Original)
	require.Empty(t, c.Messages)
}

type fourChars struct{}

func (fourChars) Name() string       { return "chars/4" }
func (fourChars) Count(s string) int { return (len(s) + 3) / 4 }

func TestNoAliasing(t *testing.T) {
	m := call("a", "c")
	m.Content = append(m.Content, ContentPart{Type: "image_url", ImageURL: &ImageURL{URL: "u"}})
	m.Metadata = map[string]any{"k": []any{map[string]any{"x": 1}}, "nil": nil}
	in := []Message{m, outcome("t", "c")}
	want, err := json.Marshal(in)
	require.NoError(t, err)
	block := Block{Key: "h", Class: triage.History, Messages: in}
	c, err := Compile(Config{Budget: 10000}, []Block{block})
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(in, c.Messages))

	out := c.Messages[0]
	out.Content[0].Text = "changed"
	out.Content[1].ImageURL.URL = "changed"
	out.ToolCalls[0].Function.Name = "changed"
	out.Metadata["k"].([]any)[0].(map[string]any)["x"] = 2
	_ = append(out.Content, ContentPart{Type: "text", Text: "must not reach the next message"})
	got, err := json.Marshal(in)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
	require.Equal(t, "t", c.Messages[1].Content[0].Text)
}

func TestAllocationsPerKeptMessage(t *testing.T) {
	const n = 2000
	b := Block{Key: "h", Class: triage.History, Weights: weights(n, 10)}
	for i := range n {
		b.Messages = append(b.Messages, msg([]string{"user", "assistant"}[i%2], fmt.Sprint(i)))
	}
	b.Turns = NewTurns()
	for i := range b.Messages {
		b.Turns.Append(&b.Messages[i], 10)
	}
	kept := 0
	allocs := testing.AllocsPerRun(5, func() {
		c, err := Compile(Config{Budget: n * 5}, []Block{b})
		if err != nil {
			t.Fatal(err)
		}
		kept = len(c.Messages)
	})
	t.Logf("%.0f allocations for %d kept messages", allocs, kept)
	require.Greater(t, kept, n/3)
	require.Less(t, allocs, float64(kept))
}

func drawBlock(t *rapid.T, key string) Block {
	b := Block{
		Key: key, Class: triage.Class(rapid.IntRange(0, 5).Draw(t, "class")), Strategy: Strategy(rapid.IntRange(0, 5).Draw(t, "strategy")),
		Place: triage.Place(rapid.SampledFrom([]int{0, 0, 0, 5, 10, -1}).Draw(t, "place")),
		Max:   rapid.SampledFrom([]int{0, 0, 50, -1, 1}).Draw(t, "max"), Min: rapid.SampledFrom([]int{0, 0, 30, -1, math.MaxInt}).Draw(t, "min"),
		Low:  rapid.SampledFrom([]float64{0, .85, .3, 2, -1, math.NaN()}).Draw(t, "low"),
		Mark: Mark{Index: rapid.IntRange(-1, 15).Draw(t, "mark")},
	}
	if rapid.Bool().Draw(t, "protect") {
		b.Protect = []string{"tool"}
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "messages") {
		m := msg(rapid.SampledFrom([]string{"user", "assistant", "tool", "system"}).Draw(t, "role"), fmt.Sprint(key, i))
		switch m.Role {
		case "assistant":
			for _, id := range rapid.SliceOfN(rapid.SampledFrom([]string{"c1", "c2", "c3", ""}), 0, 2).Draw(t, "calls") {
				m.ToolCalls = append(m.ToolCalls, ToolCall{ID: id})
			}
		case "tool":
			m.ToolCallID = rapid.SampledFrom([]string{"c1", "c2", "c3", ""}).Draw(t, "answers")
		}
		b.Messages = append(b.Messages, m)
	}
	n := len(b.Messages)
	b.Weights = rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 30), rapid.SampledFrom([]int{-1, math.MaxInt, math.MinInt})), n, n).Draw(t, "weights")
	if rapid.Bool().Draw(t, "scored") {
		b.Scores = rapid.SliceOfN(rapid.Float64(), n, n).Draw(t, "scores")
	}
	return b
}

// pairs checks the contract of providers: each call is answered by a later message, each outcome answers an open call.
func pairs(messages []Message) error {
	open := map[string]int{}
	for i := range messages {
		m := &messages[i]
		if isResult(m) {
			if open[m.ToolCallID]--; open[m.ToolCallID] < 0 {
				return fmt.Errorf("%s answers no call", m.ID)
			}
		}
		unique := map[string]bool{}
		for _, c := range m.ToolCalls {
			if c.ID == "" || !unique[c.ID] {
				open[c.ID]++
			}
			unique[c.ID] = true
		}
	}
	for id, n := range open {
		if n != 0 {
			return fmt.Errorf("call %q has no outcome", id)
		}
	}
	return nil
}

func TestCompileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []Block
		for i := range rapid.IntRange(0, 4).Draw(t, "blocks") {
			blocks = append(blocks, drawBlock(t, string(rune('a'+i))))
		}
		cfg := Config{Budget: rapid.OneOf(rapid.IntRange(-1, 300), rapid.Just(math.MaxInt)).Draw(t, "budget"), Reserve: rapid.IntRange(-1, 50).Draw(t, "reserve")}
		before, _ := json.Marshal(messagesOf(blocks))
		c, err := Compile(cfg, blocks)
		after, _ := json.Marshal(messagesOf(blocks))
		if string(before) != string(after) {
			t.Fatal("the blocks were changed")
		}
		checkCompiled(t, blocks, c, err)
		again, _ := Compile(cfg, blocks)
		if !reflect.DeepEqual(c, again) {
			t.Fatal("the answers differ")
		}
	})
}

func messagesOf(blocks []Block) (all [][]Message) {
	for _, b := range blocks {
		all = append(all, b.Messages)
	}
	return all
}

func checkCompiled(t *rapid.T, blocks []Block, c Compiled, err error) {
	used := 0
	for i := range blocks {
		b := &blocks[i]
		r, ok := c.Report.Block(b.Key)
		if !ok {
			t.Fatalf("block %s is not in the report", b.Key)
		}
		used += r.Used
		if r.Used > r.Limit || b.Max > 0 && r.Used > b.Max {
			t.Fatalf("block %+v exceeds its limit or cap", r)
		}
		var mine []Message
		for _, m := range c.Messages {
			if strings.HasPrefix(m.ID, b.Key) {
				mine = append(mine, m)
			}
		}
		if err == nil {
			if len(mine) != r.Kept || r.Kept+len(r.Evicted) != len(b.Messages) {
				t.Fatalf("%d of %d messages, report %+v", len(mine), len(b.Messages), r)
			}
			if e := pairs(mine); e != nil {
				t.Fatalf("block %s: %v in %s", b.Key, e, ids(mine))
			}
		}
	}
	if used != c.Report.Used || err == nil && used > c.Report.Limit {
		t.Fatalf("used %d: %+v", used, c.Report)
	}
	if err != nil && len(c.Messages) > 0 {
		t.Fatal("messages with an error")
	}
}

// The index gives the same cut whether it grew with the conversation or was built at once.
func TestTurnsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBlock(t, "h")
		b.Strategy = Truncate
		cfg := Config{Budget: rapid.IntRange(0, 200).Draw(t, "budget")}
		grown := NewTurns(b.Protect...)
		for i := range b.Messages {
			grown.Append(&b.Messages[i], b.Weights[i])
			part := b
			part.Messages, part.Weights, part.Scores, part.Turns = b.Messages[:i+1], b.Weights[:i+1], nil, grown
			got, errGot := Compile(cfg, []Block{part})
			part.Turns = nil
			want, errWant := Compile(cfg, []Block{part})
			if (errGot == nil) != (errWant == nil) || !reflect.DeepEqual(got, want) {
				t.Fatalf("after %d messages: %s, want %s", i+1, ids(got.Messages), ids(want.Messages))
			}
		}
	})
}

// Cut and Compile decide alike.
func TestCutIsCompile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBlock(t, "h")
		b.Strategy, b.Class, b.Place, b.Max, b.Scores = Truncate, triage.History, triage.PlaceAuto, 0, nil
		b.Mark.Index = rapid.IntRange(0, len(b.Messages)).Draw(t, "marked")
		limit := rapid.IntRange(0, 200).Draw(t, "limit")
		h := NewTurns(b.Protect...)
		for i := range b.Messages {
			h.Append(&b.Messages[i], b.Weights[i])
		}
		cut, ok := h.Cut(limit, b.Low, b.Mark.Index)
		c, err := Compile(Config{Budget: limit}, []Block{b})
		if ok != (err == nil) {
			t.Fatalf("cut %v, compile %v", ok, err)
		}
		var got []Message
		for i := range cut.All() {
			got = append(got, b.Messages[i])
		}
		r, _ := c.Report.Block("h")
		if ids(got) != ids(c.Messages) || cut.Tokens != r.Used || ok && cut.First != r.Mark.Index {
			t.Fatalf("cut keeps %s from %d, compile %s from %d", ids(got), cut.First, ids(c.Messages), r.Mark.Index)
		}
	})
}

// Over 400 turns with the window full, most of each prompt is the start of the one before. A sliding window, which
// gives up just enough each turn, moves its start every turn.
func TestPrefixHoldsStill(t *testing.T) {
	held, sliding := unchangedPrefix(t, DefaultLow, true), unchangedPrefix(t, 1, false)
	t.Logf("unchanged prefix: %.1f %% of the input, sliding window %.1f %%", 100*held, 100*sliding)
	require.GreaterOrEqual(t, held, .80)
	require.Less(t, sliding, .50)
}

func unchangedPrefix(t *testing.T, low float64, marked bool) float64 {
	system := Block{Key: "sys", Class: triage.System, Messages: []Message{msg("system", "s")}, Weights: []int{1500}}
	talk := Block{Key: "talk", Class: triage.History, Low: low}
	same, total := 0, 0
	var last []Message
	for turn := range 400 {
		for i, role := range []string{"user", "assistant"} {
			id := fmt.Sprint(turn, role)
			talk.Messages = append(talk.Messages, msg(role, id))
			talk.Weights = append(talk.Weights, 40+(turn*7919+i*104729)%260)
		}
		c := compile(t, 16000, system, talk)
		if r, _ := c.Report.Block("talk"); marked {
			talk.Mark = r.Mark
		}
		if c.Report.Original > 16000 {
			n, sum := commonPrefix(last, c.Messages), 0
			for i, m := range c.Messages {
				w := 1500
				if i > 0 {
					w = weightOf(talk, m.ID)
				}
				if sum += w; i < n {
					same += w
				}
			}
			total += sum
		}
		last = c.Messages
	}
	return float64(same) / float64(total)
}

func weightOf(b Block, id string) int {
	return b.Weights[slices.IndexFunc(b.Messages, func(m Message) bool { return m.ID == id })]
}

func commonPrefix(a, b []Message) int {
	n := 0
	for n < min(len(a), len(b)) && a[n].ID == b[n].ID {
		n++
	}
	return n
}
