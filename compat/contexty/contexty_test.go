package contexty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var ten = &FixedCounter{TokensPerMessage: 10}

// roles makes messages from role initials: u, a, t, s; their text is their index.
func roles(s string) []Message {
	names := map[rune]string{'u': "user", 'a': "assistant", 't': "tool", 's': "system", 'U': "User"}
	var out []Message
	for i, r := range s {
		out = append(out, TextMessage(names[r], fmt.Sprint(i)))
	}
	return out
}

func texts(msgs []Message) string {
	var s []string
	for i := range msgs {
		s = append(s, text(&msgs[i]))
	}
	return strings.Join(s, " ")
}

func TestTruncateOldest(t *testing.T) {
	pairs := KeepUserAssistantPairs(true)
	for _, c := range []struct {
		name, roles string
		limit       int
		opts        []TruncateOption
		want        string
	}{
		{"oldest first", "uaua", 25, nil, "2 3"},
		{"to the token", "uaua", 30, nil, "1 2 3"},
		{"nothing left", "ua", 9, nil, ""},
		{"pairs go together", "uauau", 35, []TruncateOption{pairs}, "2 3 4"},
		{"a pair is user then assistant only", "auua", 35, []TruncateOption{pairs}, "1 2 3"},
		{"option off again", "uaua", 35, []TruncateOption{pairs, KeepUserAssistantPairs(false)}, "1 2 3"},
		{"orphan tool result stays", "uatau", 30, []TruncateOption{pairs}, "2 3 4"},
		{"protected roles", "usus", 20, []TruncateOption{ProtectRole("system")}, "1 3"},
		{"several protected roles", "ustu", 20, []TruncateOption{ProtectRole("system"), ProtectRole("tool"), ProtectRole("tool")}, "1 2"},
		{"roles are compared byte for byte", "Uu", 10, []TruncateOption{ProtectRole("user")}, "1"},
		{"the pair goes although protected", "uau", 15, []TruncateOption{pairs, ProtectRole("assistant")}, "2"},
		{"protected and too big", "sss", 15, []TruncateOption{ProtectRole("system")}, "0 1 2"},
		{"a pair across a protected message is none", "usa", 25, []TruncateOption{pairs, ProtectRole("system")}, "1 2"},
		{"too few left", "uaua", 25, []TruncateOption{MinMessages(3)}, ""},
		{"just enough left", "uaua", 25, []TruncateOption{MinMessages(2)}, "2 3"},
		{"a minimum that is none", "uaua", 15, []TruncateOption{MinMessages(3), MinMessages(0), MinMessages(-1)}, ""},
		{"protected ones count for the minimum", "suu", 25, []TruncateOption{MinMessages(2), ProtectRole("system")}, "0 2"},
	} {
		msgs := roles(c.roles)
		for _, counter := range []TokenCounter{ten, slow{ten}} {
			out, err := NewTruncateOldestStrategy(c.opts...).Apply(context.Background(), msgs, 10*len(msgs), c.limit, counter)
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, texts(out), c.name)
		}
	}
}

// slow hides that a counter is a stock one, so that it is asked for whole lists.
type slow struct{ TokenCounter }

// recounted is truncation as it is defined: the whole rest is counted anew after each removal.
func recounted(s EvictionStrategy, msgs []Message, n, limit int, counter TokenCounter) ([]Message, error) {
	t := s.(*truncate)
	c := t.cuts(msgs, counter)
	k, err := 0, error(nil)
	if n > limit {
		k, err = c.walk(context.Background(), n, limit)
	}
	if err != nil {
		return nil, err
	}
	out, _ := c.rest(k)
	if t.least > 0 && len(out) < t.least {
		return nil, nil
	}
	return out, nil
}

// withoutTools is a strategy of a caller: it removes tool messages, then leaves the rest to a built-in strategy.
type withoutTools struct{ then EvictionStrategy }

func (w withoutTools) Apply(ctx context.Context, msgs []Message, _, limit int, counter TokenCounter) ([]Message, error) {
	msgs = slices.DeleteFunc(slices.Clone(msgs), func(m Message) bool { return m.Role == "tool" })
	n, err := counter.Count(ctx, msgs)
	if err != nil {
		return nil, err
	}
	return w.then.Apply(ctx, msgs, n, limit, counter)
}

// A strategy of a caller may hand messages that fit to a built-in strategy, which returns them unchanged. Messages that
// do not fit are treated as always, and a context that has ended is an error.
func TestStrategiesReturnWhatFits(t *testing.T) {
	for name, c := range map[string]struct {
		s       EvictionStrategy
		tooMuch string // what is left of three messages with room for two
	}{
		"strict":   {NewStrictStrategy(), "error"},
		"drop":     {NewDropStrategy(), ""},
		"truncate": {NewTruncateOldestStrategy(), "1 2"},
		"summary":  {NewSummarizeStrategy(summary{m: TextMessage("system", "sum")}), "sum"},
	} {
		t.Run(name, func(t *testing.T) {
			compile := func(roleInitials string) (string, error) {
				b := NewBuilder(AllocatorConfig{MaxTokens: 20, TokenCounter: ten})
				b.AddBlock(MemoryBlock{ID: "b", Messages: roles(roleInitials), Strategy: withoutTools{c.s}})
				out, _, err := b.Compile(t.Context())
				return texts(out), err
			}
			for _, fits := range []string{"utta", "tttua"} { // exactly the limit
				got, err := compile(fits)
				require.NoError(t, err)
				require.Len(t, strings.Fields(got), 2, fits)
			}
			got, err := compile("uat") // fits after the tool message went
			require.NoError(t, err)
			require.Equal(t, "0 1", got)
			if got, err = compile("uau"); c.tooMuch == "error" {
				require.ErrorIs(t, err, ErrBudgetExceeded)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.tooMuch, got)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			_, err = c.s.Apply(ended, roles("ua"), 20, 20, ten)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// The subtraction for stock counters, and the search for all others, give what counting anew would give. A counter that
// is searched must not count more of fewer messages, so its estimates are not negative.
func TestTruncateCountsLikeCountingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := roles(rapid.StringOfN(rapid.SampledFrom([]rune("uats")), 0, 12, -1).Draw(t, "roles"))
		if rapid.Bool().Draw(t, "long") {
			msgs = roles(rapid.StringOfN(rapid.SampledFrom([]rune("uats")), 0, 200, -1).Draw(t, "many roles"))
		}
		for i := range msgs {
			msgs[i].Name = rapid.StringN(0, 9, -1).Draw(t, "name")
			if rapid.Bool().Draw(t, "calls") {
				msgs[i].ToolCalls = []ToolCall{{Function: FunctionCall{Name: "f", Arguments: rapid.StringN(0, 9, -1).Draw(t, "arguments")}}}
			}
		}
		char := &CharFallbackCounter{CharsPerToken: rapid.IntRange(1, 5).Draw(t, "k")}
		n := 0
		if rapid.Bool().Draw(t, "estimator") {
			n = rapid.IntRange(-2, 3).Draw(t, "estimate")
			n := n
			char.EstimateTool = func(ToolCall) int { return n }
		}
		opts := []TruncateOption{KeepUserAssistantPairs(rapid.Bool().Draw(t, "pairs")), MinMessages(rapid.IntRange(0, 3).Draw(t, "min"))}
		if rapid.Bool().Draw(t, "protect") {
			opts = append(opts, ProtectRole("tool"))
		}
		s, limit := NewTruncateOldestStrategy(opts...), rapid.IntRange(0, 40*max(1, len(msgs)/12)).Draw(t, "limit")
		whole, _ := char.Count(context.Background(), msgs)
		want, errWant := recounted(s, msgs, whole, limit, char)
		counters := []TokenCounter{char}
		if n >= 0 {
			counters = append(counters, slow{char})
		}
		for _, counter := range counters {
			got, err := s.Apply(context.Background(), msgs, whole, limit, counter)
			if texts(got) != texts(want) || fmt.Sprint(err) != fmt.Sprint(errWant) {
				t.Fatalf("%T: %s (%v), counting anew %s (%v)", counter, texts(got), err, texts(want), errWant)
			}
		}
	})
}

func TestCharFallbackCounter(t *testing.T) {
	call := ToolCall{ID: "ignored", Function: FunctionCall{Name: "abc", Arguments: "{}"}}
	for _, c := range []struct {
		name    string
		counter CharFallbackCounter
		msgs    []Message
		want    int
	}{
		{"nothing", CharFallbackCounter{CharsPerToken: 4}, nil, 0},
		{"one ceiling for the list", CharFallbackCounter{CharsPerToken: 4}, []Message{TextMessage("u", "a"), TextMessage("u", "b")}, 1},
		{"runes, not bytes", CharFallbackCounter{CharsPerToken: 1}, []Message{TextMessage("u", "日本語")}, 3},
		{"names count, roles and ids do not", CharFallbackCounter{CharsPerToken: 1}, []Message{{Role: "tool", Name: "ab", ToolCallID: "xyz"}}, 2},
		{"other parts weigh 85", CharFallbackCounter{CharsPerToken: 3}, []Message{MultipartMessage("u", ContentPart{Type: "image_url", Text: "not counted"})}, 85},
		{"or what is set", CharFallbackCounter{CharsPerToken: 3, TokensPerNonTextPart: 7}, []Message{MultipartMessage("u", ContentPart{Type: "Text"})}, 7},
		{"a negative setting is none", CharFallbackCounter{CharsPerToken: 3, TokensPerNonTextPart: -7}, []Message{MultipartMessage("u", ContentPart{})}, 85},
		{"tool calls by runes", CharFallbackCounter{CharsPerToken: 4}, []Message{{ToolCalls: []ToolCall{call}}}, 2},
		{"in the same ceiling", CharFallbackCounter{CharsPerToken: 4}, []Message{{Name: "abc", ToolCalls: []ToolCall{call}}}, 2},
		{"an estimator after it", CharFallbackCounter{CharsPerToken: 4, EstimateTool: func(ToolCall) int { return 9 }},
			[]Message{{Name: "abcde", ToolCalls: []ToolCall{call, call}}}, 20},
	} {
		n, err := c.counter.Count(context.Background(), c.msgs)
		require.NoError(t, err)
		require.Equal(t, c.want, n, c.name)
	}
	for _, k := range []int{0, -1} {
		_, err := (&CharFallbackCounter{CharsPerToken: k}).Count(context.Background(), nil)
		require.ErrorIs(t, err, ErrInvalidCharsPerToken)
	}
}

func one(id string, tier Tier, limit int, s EvictionStrategy, roleList string) MemoryBlock {
	return MemoryBlock{ID: id, Tier: tier, MaxTokens: limit, Strategy: s, Messages: roles(roleList)}
}

func run(ctx context.Context, limit int, counter TokenCounter, blocks ...MemoryBlock) ([]Message, CompileReport, error) {
	b := NewBuilder(AllocatorConfig{MaxTokens: limit, TokenCounter: counter})
	for _, x := range blocks {
		b.AddBlock(x)
	}
	return b.Compile(ctx)
}

func TestCompileErrors(t *testing.T) {
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	boom := errors.New("boom")
	fails := apply(func([]Message) ([]Message, error) { return nil, boom })
	for _, c := range []struct {
		name    string
		ctx     context.Context
		limit   int
		counter TokenCounter
		block   MemoryBlock
		is      []error
		not     error
		names   bool // the block
	}{
		{"no budget, before all else", cancelled, 0, ten, one("b", 0, 0, nil, "u"), []error{ErrInvalidConfig}, context.Canceled, false},
		{"no counter", ctx, 5, nil, one("b", 0, 0, nil, "u"), []error{ErrInvalidConfig}, ErrNilStrategy, false},
		{"cancelled, for an empty block too", cancelled, 5, ten, one("b", 0, 0, nil, ""), []error{context.Canceled}, ErrNilStrategy, false},
		{"no strategy although it fits", ctx, 50, ten, one("b", 0, 0, nil, "u"), []error{ErrNilStrategy}, nil, true},
		{"counter", ctx, 50, &CharFallbackCounter{}, one("b", 0, 0, NewDropStrategy(), "u"), []error{ErrTokenCountFailed, ErrInvalidCharsPerToken}, nil, true},
		{"strict", ctx, 9, ten, one("b", 0, 0, NewStrictStrategy(), "u"), []error{ErrBudgetExceeded}, nil, true},
		{"custom", ctx, 9, ten, one("b", 0, 0, fails, "u"), []error{boom}, ErrStrategyExceededBudget, true},
		{"too much returned", ctx, 9, ten, one("b", 0, 0, apply(func(m []Message) ([]Message, error) { return m, nil }), "u"), []error{ErrStrategyExceededBudget}, nil, true},
		{"summarizer", ctx, 9, ten, one("b", 0, 0, NewSummarizeStrategy(summary{err: boom}), "u"), []error{boom}, ErrTokenCountFailed, true},
		{"counter on a part", ctx, 15, &growing{}, one("b", 0, 0, NewTruncateOldestStrategy(), "uuu"), []error{ErrTokenCountFailed}, nil, true},
	} {
		msgs, report, err := run(c.ctx, c.limit, c.counter, c.block)
		require.Error(t, err, c.name)
		for _, e := range c.is {
			require.ErrorIs(t, err, e, c.name)
		}
		if c.not != nil {
			require.NotErrorIs(t, err, c.not, c.name)
		}
		require.Equal(t, c.names, strings.HasPrefix(err.Error(), `block "b": `), "%s: %v", c.name, err)
		require.Empty(t, msgs)
		require.Zero(t, report)
	}
	require.Panics(t, func() { NewSummarizeStrategy(nil) })
}

// growing counts more each time it is asked.
type growing struct{ n int }

func (g *growing) Count(context.Context, []Message) (int, error) {
	g.n += 20
	return g.n, nil
}

type apply func([]Message) ([]Message, error)

func (f apply) Apply(_ context.Context, m []Message, _, _ int, _ TokenCounter) ([]Message, error) {
	return f(m)
}

type summary struct {
	m   Message
	err error
	do  func()
}

func (s summary) Summarize(context.Context, []Message) (Message, error) {
	if s.do != nil {
		s.do()
	}
	return s.m, s.err
}

func TestCompileReport(t *testing.T) {
	identity := apply(func(m []Message) ([]Message, error) { return m, nil })
	drop, truncate := NewDropStrategy(), NewTruncateOldestStrategy()
	for _, c := range []struct {
		name   string
		limit  int
		blocks []MemoryBlock
		want   string
	}{
		{"no blocks", 10, nil, " | 0 0 10 map[] map[] map[] []"},
		{"order of tiers, then of adding", 90, []MemoryBlock{one("h", TierHistory, 0, drop, "u"), one("x", -7, 0, drop, "us"), one("h2", TierHistory, 0, drop, "a")},
			"0 1 0 0 | 40 40 50 map[h:10 h2:10 x:20] map[h:10 h2:10 x:20] map[] []"},
		{"an empty block is nowhere", 10, []MemoryBlock{one("e", 0, 0, nil, ""), one("b", 0, 0, drop, "u")}, "0 | 10 10 0 map[b:10] map[b:10] map[] []"},
		{"a dropped block", 10, []MemoryBlock{one("a", 0, 0, drop, "uu"), one("b", 1, 0, drop, "u")}, "0 | 10 30 0 map[a:20 b:10] map[b:10] map[a:dropped] [a]"},
		{"zero left", 10, []MemoryBlock{one("a", 0, 0, drop, "u"), one("b", 1, 0, truncate, "u")}, "0 | 10 20 0 map[a:10 b:10] map[a:10] map[b:truncated] [b]"},
		{"a cap at or above what is left does nothing", 20, []MemoryBlock{one("a", 0, 20, drop, "uu")}, "0 1 | 20 20 0 map[a:20] map[a:20] map[] []"},
		{"a cap below", 30, []MemoryBlock{one("a", 0, 10, truncate, "uu")}, "1 | 10 20 20 map[a:20] map[a:10] map[a:truncated] []"},
		{"a negative cap is none", 30, []MemoryBlock{one("a", 0, -10, drop, "uu")}, "0 1 | 20 20 10 map[a:20] map[a:20] map[] []"},
		{"over the cap only is accepted", 90, []MemoryBlock{one("a", 0, 5, identity, "uu")}, "0 1 | 20 20 70 map[a:20] map[a:20] map[a:evicted] []"},
		{"the last of one id wins", 60, []MemoryBlock{one("a", 0, 0, drop, "uuu"), one("a", 1, 0, drop, "u")}, "0 1 2 0 | 40 40 20 map[a:10] map[a:10] map[] []"},
		{"an id is dropped twice", 5, []MemoryBlock{one("a", 0, 0, drop, "u"), one("a", 1, 0, drop, "u")}, " | 0 20 5 map[a:10] map[] map[a:dropped] [a a]"},
		{"a summary", 15, []MemoryBlock{one("a", 0, 0, NewSummarizeStrategy(summary{m: TextMessage("system", "S")}), "uu")}, "S | 10 20 5 map[a:20] map[a:10] map[a:summarized] []"},
		{"a summary over the cap", 25, []MemoryBlock{one("a", 0, 5, NewSummarizeStrategy(summary{}), "uu")}, " | 0 20 25 map[a:20] map[] map[a:summarized] [a]"},
	} {
		msgs, r, err := run(context.Background(), c.limit, ten, c.blocks...)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, fmt.Sprintf("%s | %d %d %d %v %v %v %v", texts(msgs), r.TotalTokensUsed, r.OriginalTokens, r.RemainingTokens,
			r.OriginalTokensPerBlock, r.TokensPerBlock, r.Evictions, r.BlocksDropped), c.name)
	}
}

// A context that is done during the last block is not looked at again; between blocks it is.
func TestCancelMidway(t *testing.T) {
	for n, want := range map[int]error{1: nil, 2: context.Canceled} {
		ctx, cancel := context.WithCancel(context.Background())
		s := NewSummarizeStrategy(summary{m: Message{}, do: cancel})
		blocks := []MemoryBlock{one("a", 0, 15, s, "uu"), one("b", 0, 0, nil, "")}[:n]
		_, _, err := run(ctx, 50, ten, blocks...)
		require.ErrorIs(t, err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := run(ctx, 50, ten)
	require.NoError(t, err, "no blocks at all")
	for _, s := range []EvictionStrategy{NewStrictStrategy(), NewDropStrategy(), NewTruncateOldestStrategy(), NewSummarizeStrategy(summary{})} {
		_, err := s.Apply(ctx, roles("u"), 10, 5, ten)
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestBuilderIsReused(t *testing.T) {
	b := NewBuilder(AllocatorConfig{MaxTokens: 25, TokenCounter: ten})
	b.AddBlock(one("a", TierHistory, 0, NewTruncateOldestStrategy(), "uuu"))
	for range 3 {
		msgs, _, err := b.Compile(context.Background())
		require.NoError(t, err)
		require.Equal(t, "1 2", texts(msgs))
	}
	b.AddBlock(one("s", TierSystem, 0, NewStrictStrategy(), "s"))
	msgs, _, err := b.Compile(context.Background())
	require.NoError(t, err)
	require.Equal(t, "0 2", texts(msgs))
}

func TestInjectIntoSystem(t *testing.T) {
	system := Message{Role: "system", Name: "n", ToolCallID: "id", ToolCalls: []ToolCall{{ID: "c"}}, Metadata: map[string]any{"k": 1},
		Content: []ContentPart{{Type: "text", Text: "a<"}, {Type: "image_url", Text: "lost"}, {Type: "text", Text: "b"}}}
	require.Equal(t, system, InjectIntoSystem(system))
	want := system
	want.Content = []ContentPart{{Type: "text", Text: "a<b\n<context>\n  <fact>&lt;&amp;&gt;&#39;&#34;</fact>\n  <fact></fact>\n</context>"}}
	require.Equal(t, want, InjectIntoSystem(system, TextMessage("user", `<&>'"`), Message{}))
	require.Len(t, system.Content, 3)
}

func TestTierNames(t *testing.T) {
	require.Equal(t, "system core rag history scratchpad Tier(5) Tier(-1)",
		fmt.Sprint(TierSystem, " ", TierCore, " ", TierRAG, " ", TierHistory, " ", TierScratchpad, " ", Tier(5), " ", Tier(-1)))
}

// A counter that embeds a stock one may count differently and is asked.
func TestEmbeddedCounterIsAsked(t *testing.T) {
	c := &doubled{FixedCounter: *ten}
	out, err := NewTruncateOldestStrategy().Apply(context.Background(), roles("uuu"), 60, 40, c)
	require.NoError(t, err)
	require.Equal(t, "1 2", texts(out))
	require.Positive(t, c.asked)
}

type doubled struct {
	FixedCounter
	asked int
}

func (d *doubled) Count(ctx context.Context, m []Message) (int, error) {
	d.asked++
	n, err := d.FixedCounter.Count(ctx, m)
	return 2 * n, err
}

// tallied counts the messages that a counter was asked for.
type tallied struct {
	TokenCounter
	messages, lists int
}

func (c *tallied) Count(ctx context.Context, m []Message) (int, error) {
	c.messages += len(m)
	c.lists++
	return c.TokenCounter.Count(ctx, m)
}

// skewed counts a hundred times as much for the newest tenth, so that nothing follows from the texts.
type skewed struct{ from int }

func (c skewed) Count(_ context.Context, m []Message) (n int, _ error) {
	for i := range m {
		n++
		if at, _ := strconv.Atoi(m[i].Content[0].Text); at >= c.from {
			n += 100
		}
	}
	return n, nil
}

// A counter that is not ours is asked for a number of messages that grows with the history, not with its square. The
// control is the walk that defines the answer.
func TestTruncateIsLinear(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{100, 1000, 10_000} {
		msgs := roles(strings.Repeat("ua", n/2))
		for name, counter := range map[string]TokenCounter{"fixed": ten, "chars": &CharFallbackCounter{CharsPerToken: 4}, "skewed": skewed{n - n/10}} {
			whole, err := counter.Count(ctx, msgs)
			require.NoError(t, err)
			for _, opts := range [][]TruncateOption{nil, {KeepUserAssistantPairs(true)}, {ProtectRole("assistant")}} {
				s, asked := NewTruncateOldestStrategy(opts...), &tallied{TokenCounter: counter}
				out, err := s.Apply(ctx, msgs, whole, whole*3/5, asked)
				require.NoError(t, err)
				require.NotEmpty(t, out)
				most := 6 // lists of the whole length
				if name == "skewed" {
					most = 30
				}
				require.Less(t, asked.messages, most*n, "%s of %d, %d lists", name, n, asked.lists)
				if n == 100 {
					walked := &tallied{TokenCounter: counter}
					want, err := recounted(s, msgs, whole, whole*3/5, walked)
					require.NoError(t, err)
					require.Equal(t, texts(want), texts(out), name)
					require.Greater(t, walked.messages, 8*n, "control")
				}
			}
		}
	}
}

// A counter that is seen to count more of fewer messages is walked, as if it had been from the start.
func TestCounterThatGrowsIsWalked(t *testing.T) {
	odd := oddCounter{}
	msgs := roles("uauauauauauauaua")
	s := NewTruncateOldestStrategy()
	want, err := recounted(s, msgs, 1000, 500, odd)
	require.NoError(t, err)
	got, err := s.Apply(context.Background(), msgs, 1000, 500, odd)
	require.NoError(t, err)
	require.Equal(t, texts(want), texts(got))
}

// oddCounter counts more of fewer messages, below 16 of them.
type oddCounter struct{}

func (oddCounter) Count(_ context.Context, m []Message) (int, error) {
	if len(m) == 1 {
		return 10, nil
	}
	return 1000 - len(m), nil
}
