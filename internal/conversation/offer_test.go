package conversation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// words counts four bytes as a token.
type words struct{}

func (words) Name() string          { return "words" }
func (words) Count(text string) int { return (len(text) + 3) / 4 }

const longText = "A line of some length that a turn of a conversation may well have, with its point at the end."

// said is the head of a turn as a store gives it.
func said(n int, a store.Artefact) *store.Head {
	if a.ID == "" {
		a.ID = fmt.Sprint("turn-", n)
	}
	if a.Role == "" {
		a.Role = "assistant"
	}
	a.Kind, a.Seq, a.Text = store.KindMessage, int64(n), ""
	return &store.Head{
		Scope: "acme", Artefact: a, Version: 1,
		Rows: []store.PageRow{{Num: uint64(100 + n), Tokens: uint32(words{}.Count(longText)), Hash: uint64(7 * n), Digest: [32]byte{byte(n)}}},
	}
}

// follow takes heads behind those that are there.
func follow(c *Turns, heads ...*store.Head) {
	keys := slices.Clone(c.Keys)
	for _, h := range heads {
		keys = append(keys, store.PageKey{Num: h.Rows[0].Num, Version: h.Version})
		if m, yes := c.Outdated(h); yes {
			c.Remake(m, []string{longText})
		}
	}
	known, fresh := c.Follow(keys, true)
	if len(fresh) != len(heads) {
		panic("members that are known stand as they did")
	}
	c.Take(keys, known, heads)
}

// long is a session of so many turns, of which the newest inside are in the window and the others are cold.
func long(t *testing.T, turns, inside int) *Turns {
	t.Helper()
	c := NewTurns("acme", "chat", words{})
	require.NoError(t, c.Reset(nil))
	c.State.Config = session.Config{Total: 1_000_000}
	heads := make([]*store.Head, turns)
	for i := range heads {
		heads[i] = said(i+1, store.Artefact{})
	}
	follow(c, heads...)
	w := c.Begin()
	for i := range turns - inside {
		c.SetRow(w, i, func(r *TurnRow) { r.Level, r.Because = uint8(session.Cold), "old" })
	}
	return c
}

// What a context asks of a session costs what its budget costs: so many turns are looked at, however long the history is and
// however many turns are in the window. The first question after an append looks at the turns that came in besides.
func TestOfferCostsItsBudget(t *testing.T) {
	looked := func(c *Turns, q Question) int {
		before := c.looked
		o := c.Offer(q)
		require.NotEmpty(t, o.Turns)
		more := 0
		for _, n := range o.More {
			require.GreaterOrEqual(t, n, 0)
			more += n
		}
		require.Equal(t, o.Len, len(o.Turns)+more, "every turn is described or counted")
		return c.looked - before
	}
	ask := Question{Budget: 2000, NoRoom: "over budget"}
	want := 0
	for _, size := range [][2]int{{1_000, 300}, {8_000, 300}, {8_000, 4_000}} {
		c := long(t, size[0], size[1])
		first := looked(c, ask)
		require.GreaterOrEqual(t, first, size[1], "control: the first question lists the window")
		again := looked(c, ask)
		if want == 0 {
			want = again
			require.Less(t, want, 200)
		}
		require.Equal(t, want, again, "%d turns, %d in the window", size[0], size[1])
		follow(c, said(size[0]+1, store.Artefact{}), said(size[0]+2, store.Artefact{}))
		require.Equal(t, want+2, looked(c, ask), "%d turns, %d in the window, and two that came in", size[0], size[1])
		four := ask
		four.Budget *= 4
		require.Greater(t, looked(c, four), 2*want, "control: a larger budget looks at more")
	}
}

// Turns that are pinned, that may have expired or that a transaction hides are described wherever they stand.
func TestOfferNamesExceptions(t *testing.T) {
	c := long(t, 2000, 1500)
	w := c.Begin()
	c.SetRow(w, 600, func(r *TurnRow) { r.Pinned = true })
	follow(c, said(2001, store.Artefact{ExpiresAt: time.Unix(100, 0)}))
	for i := range 300 {
		follow(c, said(2002+i, store.Artefact{}))
	}
	o := c.Offer(Question{Budget: 1000, NoRoom: "over budget", Masked: []string{"turn-700", "nobody"}})
	at := map[string]int{}
	for i, turn := range o.Turns {
		at[turn.ID] = i
	}
	require.True(t, o.Turns[at["turn-601"]].Pinned)
	require.Contains(t, at, "turn-2001")
	require.Contains(t, at, "turn-700")
	require.NotContains(t, at, "turn-701", "control: its neighbour has no room")
	require.Less(t, len(o.Turns), 60)
}

// TestAnswersTakeAQuarter: turns that left the window and are found enter with at most a quarter of the budget, the best first,
// and take none of it while the window shows their words.
func TestAnswersTakeAQuarter(t *testing.T) {
	c := long(t, 400, 100)
	hit := func(i int, score float64) store.Candidate {
		b := &c.Blocks[i]
		return store.Candidate{Key: store.PageKey{Num: b.Nums[0]}, Ref: store.Ref{Scope: c.Scope, ID: b.ID}, Lexical: lexical.Hit{Score: score}}
	}
	size, ok := c.returnSize(c.Blocks[0].Unit)
	require.True(t, ok)
	require.Positive(t, size)
	q := Question{Budget: 8 * ReturnShare * size, NoRoom: "over budget"} // room for eight
	for i := range 50 {
		q.Hits = append(q.Hits, hit(i, float64(1+i)))
	}
	found := 0
	for _, turn := range c.Offer(q).Turns {
		if turn.Found {
			found++
			require.Greater(t, turn.Seq, int64(42), "the best eight of fifty")
		}
	}
	require.Equal(t, 8, found)
	words, ok := c.returnSize(c.Blocks[350].Unit)
	require.True(t, ok)
	require.Zero(t, words, "the window shows them")
}

// One revision says what is current: what is derived is made once, again after a change, and follows a change of one unit.
func TestDerivedFollowsRevision(t *testing.T) {
	c := long(t, 50, 20)
	sum, plan := c.Tokens(), c.Window()
	require.Len(t, plan.Sections, 20)
	require.Equal(t, []uint64{c.Rev, c.Rev, c.Rev}, []uint64{c.Sum.At, c.Inside.At, c.Win.At})
	require.Equal(t, c.Rev, plan.Generation)

	c.SetRow(c.Begin(), 49, func(r *TurnRow) { r.Level, r.Because = uint8(session.Cold), "gone" })
	require.Greater(t, c.Rev, plan.Generation, "a plan of before is stale")
	require.Equal(t, []uint64{c.Rev, c.Rev}, []uint64{c.Sum.At, c.Inside.At}, "the sum and the list follow one unit")
	require.Less(t, c.Win.At, c.Rev)
	require.Less(t, c.Tokens(), sum)
	require.Len(t, c.Window().Sections, 19)

	followed := c.Tokens()
	c.Changed()
	require.Less(t, c.Sum.At, c.Rev)
	require.Equal(t, followed, c.Tokens(), "counted anew")
}

// Each turn is written as its id, what it answers and what it calls: "b<x>y" answers x and calls y.
func TestPair(t *testing.T) {
	for name, c := range map[string]struct{ turns, of string }{
		"talk alone":                   {"a b c", ". . ."},
		"a pair":                       {"a>x b<x c", "0 0 ."},
		"a result alone":               {"a b<x c", ". - ."},
		"a call alone":                 {"a>x c", "- ."},
		"a call that waits":            {"a b>x", ". -"},
		"one result of two":            {"a>x,y b<x c", "- - ."},
		"of two calls one is answered": {"a>x b<x c>y d", "0 0 - ."},
		"a result that makes a call":   {"a>x b<x>y c<y", "- - -"},
		"a late result":                {"a>x b c<x", "0 . 0"},
		"one of two results, late":     {"a>x,y b c<x", "- . -"},
		"shuffled results":             {"a>x,y b>z c<z d<y e<x", "0 1 1 0 0"},
		"an id that is used again":     {"a>x b>x c<x", "- 1 1"},
		"a call twice in one turn":     {"a>x,x b<x", "- -"},
		"a result twice":               {"a>x b<x c<x", "0 0 -"},
	} {
		t.Run(name, func(t *testing.T) {
			var of []string
			for _, at := range Pair(headsOf(c.turns)) {
				of = append(of, cmp.Or(map[int]string{NoTools: ".", Refused: "-"}[at], fmt.Sprint(at)))
			}
			require.Equal(t, c.of, strings.Join(of, " "))
		})
	}
}

// In the notation of TestPair. A turn of two pages is written twice; "-" is a page that is no turn.
func TestBeside(t *testing.T) {
	for name, c := range map[string]struct{ turns, order string }{
		"talk alone":                    {"a b c", ""},
		"a pair":                        {"a>x b<x c", ""},
		"a result without its call":     {"a b<x c", ""},
		"two results":                   {"a>x,y b<x c<y d", ""},
		"a late result":                 {"a>x b c<x d", "a c b d"},
		"the second result comes late":  {"a>x,y b<x c d<y e", "a b d c e"},
		"a late chain":                  {"a>x b c<x>y d<y", "a c d b"},
		"an id that is used again":      {"a>x b<x c>x d e<x", "a b c e d"},
		"turns of two pages":            {"a>x a>x b b c<x c<x d", "a a c c b b d"},
		"pages that are no turns":       {"- a>x b c<x", "- a c b"},
		"both calls are answered late":  {"a>x b>y c d<y e<x", "a e b d c"},
		"an unknown call among others":  {"a>x b<z c<x", "a c b"},
		"the page of a turn of its own": {"a>x b<x b<x c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pages := headsOf(c.turns)
			var order []string
			for _, i := range Beside(pages) {
				order = append(order, strings.Fields(c.turns)[i][:1])
			}
			require.Equal(t, c.order, strings.Join(order, " "))
		})
	}
}

// headsOf reads turns in the notation of TestPair.
func headsOf(line string) (turns []*store.Head) {
	for i, s := range strings.Fields(line) {
		if s == "-" {
			turns = append(turns, nil)
			continue
		}
		h := &store.Head{Artefact: store.Artefact{ID: s[:1], Seq: int64(i), Role: "user"}}
		s, calls, _ := strings.Cut(s[1:], ">")
		if h.ToolCallID = strings.TrimPrefix(s, "<"); h.ToolCallID != "" {
			h.Role = "tool"
		} else if calls != "" {
			h.Role = "assistant"
		}
		for _, id := range strings.FieldsFunc(calls, func(r rune) bool { return r == ',' }) {
			h.ToolCalls = append(h.ToolCalls, store.ToolCall{ID: id})
		}
		turns = append(turns, h)
	}
	return turns
}

// come is a turn on its way in, as the write that will store it.
func come(n int, a store.Artefact) *store.Put {
	h := said(n, a)
	return &store.Put{Artefact: h.Artefact, Pages: []store.NewPage{{Text: longText, Tokens: int(h.Rows[0].Tokens), Hash: h.Rows[0].Hash, Digest: h.Rows[0].Digest}}}
}

// picture is all that a conversation says of its turns.
func picture(c *Turns) (out []any) {
	for i := range c.Blocks {
		out = append(out, c.WindowTurn(i), c.Blocks[i].Nums, c.Blocks[i].Unit, c.Units[c.Blocks[i].Unit].Members)
	}
	return append(out, c.Tokens(), c.MakeWindow().Sections, len(c.Units), c.at, c.open, len(c.Rows))
}

// A turn that room is made for stands in the window without a page number, and what it changed is undone when it is taken
// back; the commit completes it, and then all is as if it had come by itself.
func TestStagedTurns(t *testing.T) {
	call := store.Artefact{Role: "assistant", ToolCalls: []store.ToolCall{{ID: "c", Name: "look"}}}
	result := store.Artefact{Role: "tool", ToolCallID: "c"}
	made := func() *Turns {
		c := long(t, 30, 10)
		follow(c, said(31, call))
		return c
	}
	stage := func(c *Turns) *Incoming {
		in := c.Incoming()
		id := must(in.Pair("c"))(t)
		require.Equal(t, "c", id)
		in.Bring(0, c.FreshBlock(come(32, result), nil), true)
		require.Error(t, errOf(in.Pair("c")), "control: it is answered")
		in.Bring(1, c.FreshBlock(come(33, call), nil), true)
		for i := range 2 {
			must(in.Stage(i, []string{longText}, time.Unix(0, 0)))(t)
		}
		return in
	}
	c := made()
	before := picture(c)
	in := stage(c)
	require.Equal(t, 2, c.Staged)
	require.Empty(t, c.Blocks[31].Nums, "no number is made up")
	require.Empty(t, c.Blocks[32].Nums)
	require.Equal(t, c.Blocks[30].Unit, c.Blocks[31].Unit, "a result is planned with its call")
	require.Equal(t, c.MakeWindow().Tokens(), c.Tokens())
	require.NotEqual(t, before, picture(c), "control")
	require.True(t, in.TakeBack())
	require.Equal(t, before, picture(c))

	stage(c)
	follow(c, said(32, result), said(33, call))
	want := made()
	follow(want, said(32, result), said(33, call))
	require.Zero(t, c.Staged)
	require.Equal(t, picture(want), picture(c), "completed")

	c = made()
	stage(c)
	other := store.Artefact{ID: "other"}
	follow(c, said(32, other), said(33, result))
	want = made()
	follow(want, said(32, other), said(33, result))
	require.Equal(t, picture(want)[:len(picture(want))-1], picture(c)[:len(picture(c))-1], "something else came")
}

// Turns that older ones were compacted for are not taken back in memory: it is loaded anew.
func TestTakeBackAfterCompaction(t *testing.T) {
	c := long(t, 30, 10)
	in := c.Incoming()
	in.Bring(0, c.FreshBlock(come(31, store.Artefact{}), nil), true)
	c.SetRow(in.Writes, 29, func(r *TurnRow) { r.Level, r.Because = uint8(session.Cold), "made room" })
	require.False(t, in.TakeBack())
}

// How a turn comes in is what Admit says of the window before it. While there is room, no other turn is looked at.
func TestStageAsAdmit(t *testing.T) {
	roles := []string{"user", "assistant", "assistant", "assistant"}
	hows, quick := map[string]int{}, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := long(t, 12, 2+r.IntN(10))
		c.State.Config.Total, c.State.Config.OutputReserve, c.State.Config.UserCap = 250+r.IntN(600), 1, r.IntN(2)*100
		in, calls := c.Incoming(), []string{}
		for i := range 12 {
			art := store.Artefact{ID: fmt.Sprint("fresh-", i), Role: roles[r.IntN(len(roles))]}
			switch art.Role {
			case "user":
				if r.IntN(3) == 0 && len(calls) > 0 {
					art.Role, art.ToolCallID = "tool", calls[0]
					calls = calls[1:]
				}
			case "assistant":
				if r.IntN(2) == 0 {
					calls = append(calls, fmt.Sprint("call-", i))
					art.ToolCalls = []store.ToolCall{{ID: calls[len(calls)-1], Name: "look"}}
				}
			}
			put := come(13+i, art)
			put.Counter, put.Pages[0].Tokens = c.counter.Name(), put.Pages[0].Tokens*(1+r.IntN(1+r.IntN(12)))
			b := c.FreshBlock(put, nil)
			b.Row.Pinned = r.IntN(6) == 0
			in.Bring(i, b, true)
			if i%3 == 0 {
				c.Window()
			}
			rest := c.MakeWindow()
			got, err := in.Stage(i, []string{longText}, time.Unix(9, 0))
			lead := c.Units[c.Blocks[len(c.Blocks)-1].Unit].Members[0]
			if got.How == AdmitWhole && err == nil && !got.Yield && c.Fits() == nil {
				quick++
				require.False(t, c.current(c.Win.At), "nothing had to be looked at")
			}
			if got.How == AdmitStub { // as it was before it became a stub
				c.SetRow(in.Writes, lead, func(r *TurnRow) { r.Level, r.Because = 0, "" })
			}
			sec, _ := c.section(c.Blocks[lead].Unit)
			rest.Sections = slices.DeleteFunc(rest.Sections, func(s Section) bool { return s.ID == sec.ID })
			want, wantErr := rest.Admit(sec, time.Unix(9, 0))
			require.Equal(t, wantErr, err, "seed %d, turn %d", seed, i)
			require.Equal(t, []any{want.How, want.Yield, want.Section}, []any{got.How, got.Yield, got.Section}, "seed %d, turn %d", seed, i)
			hows[fmt.Sprint(got.How, got.Yield, err != nil)]++
			if err != nil {
				break
			}
			if got.How == AdmitStub {
				c.SetRow(in.Writes, lead, func(r *TurnRow) { r.Level, r.Because = uint8(got.Section.Level), got.Section.Because })
			}
			for k := 0; k < lead && c.Fits() != nil; k++ { // room is made
				c.SetRow(in.Writes, k, func(r *TurnRow) { r.Level, r.Because = uint8(session.Cold), "old" })
			}
		}
	}
	require.Greater(t, quick, 500)
	require.GreaterOrEqual(t, len(hows), 4, "%v", hows)
}

// Calls and results of one append find each other as if all turns before them were searched.
func TestPairAsSearch(t *testing.T) {
	long := strings.Repeat("long", 12)
	names := []string{"a", "b", "a_t14", "a_t15_t16", long, shortID(long), reusedID(long, 15), "a_t99"}
	paired, refused, renamed := 0, 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := long12(t, r, names)
		in := c.Incoming()
		for i := range 14 {
			art := store.Artefact{ID: fmt.Sprint("fresh-", i), Seq: int64(13 + i)}
			if name := names[r.IntN(len(names))]; r.IntN(2) == 0 {
				want, wantErr := searchPair(in, name)
				got, err := in.Pair(name)
				require.Equal(t, wantErr, err != nil, "seed %d, turn %d: %s", seed, i, name)
				require.Equal(t, want, got, "seed %d, turn %d: %s", seed, i, name)
				if err != nil {
					refused++
					continue
				}
				paired++
				art.Role, art.ToolCallID = "tool", got
			} else {
				calls := []store.ToolCall{{ID: name}, {ID: names[r.IntN(len(names))]}}
				if calls[1].ID == name {
					calls = calls[:1]
				}
				art.ToolCalls = in.UniqueCalls(calls, art.Seq)
				require.Equal(t, searchUnique(in, calls, art.Seq), art.ToolCalls, "seed %d, turn %d", seed, i)
				if art.ToolCalls[0].ID != name {
					renamed++
				}
			}
			in.Bring(i, c.FreshBlock(come(13+i, art), nil), true)
		}
	}
	require.Greater(t, min(paired, refused, renamed), 500)
}

// long12 has twelve turns, some of which call and answer.
func long12(t *testing.T, r *rand.Rand, names []string) *Turns {
	c := long(t, 1, 1)
	for i := range 11 {
		in, art := c.Incoming(), store.Artefact{}
		if name := names[r.IntN(len(names))]; r.IntN(2) == 0 {
			art.ToolCalls = in.UniqueCalls([]store.ToolCall{{ID: name}}, int64(2+i))
		} else if id, err := in.Pair(name); err == nil {
			art.Role, art.ToolCallID = "tool", id
		}
		follow(c, said(2+i, art))
	}
	return c
}

// searchPair is Pair by a search of all turns that come.
func searchPair(a *Incoming, call string) (id string, refused bool) {
	look := func(b *Block) {
		for _, c := range b.calls() {
			if c == call || givenID(c) == shortID(call) && reusedID(shortID(call), b.Seq) == c {
				id = c
			}
		}
		if id != "" && b.answers() == id {
			id = ""
		}
	}
	u, ok := a.of.open[call]
	if !ok {
		u, ok = a.of.open[shortID(call)]
	}
	if ok {
		for _, i := range a.of.Units[u].Members {
			look(&a.of.Blocks[i])
		}
	}
	for i := range a.Fresh {
		look(&a.Fresh[i].Block)
	}
	return id, id == ""
}

func searchUnique(a *Incoming, calls []store.ToolCall, seq int64) []store.ToolCall {
	out := slices.Clone(calls)
	used := func(id string) bool {
		_, ok := a.of.open[id]
		return ok || slices.ContainsFunc(a.Fresh, func(f freshTurn) bool { return slices.Contains(f.Block.callNames(), id) })
	}
	for i, c := range calls {
		if id := c.ID; used(id) {
			for used(id) || slices.ContainsFunc(out, func(o store.ToolCall) bool { return o.ID == id }) {
				id = reusedID(id, seq)
			}
			out[i].ID = id
		}
	}
	return out
}
