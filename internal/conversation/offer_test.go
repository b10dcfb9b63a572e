package conversation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
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
