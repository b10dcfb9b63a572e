package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

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
