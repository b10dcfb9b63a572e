package conversation

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// asHead is the head that a put becomes.
func asHead(p *store.Put, num uint64) *store.Head {
	h := &store.Head{Artefact: p.Artefact, Version: 1, Counter: p.Counter, Turn: p.Turn}
	for i := range p.Pages {
		np := &p.Pages[i]
		h.Rows = append(h.Rows, store.PageRow{Num: num + uint64(i), Version: 1, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)), Hash: np.Hash, Digest: np.Digest})
	}
	return h
}

// A turn that its host told nothing of is measured in its head, and read from there as it was; one that it told something of
// has a row. A program with another counter measures it anew and stores a row, which then holds.
func TestTurnInItsHead(t *testing.T) {
	c := long(t, 3, 10)
	put := come(4, store.Artefact{Name: "Eve"})
	put.Counter = c.counter.Name()
	fresh := c.FreshBlock(put, nil)
	require.NotEmpty(t, put.Turn)
	h := asHead(put, 4)

	m, yes := c.Outdated(h)
	require.False(t, yes, "%v", m)
	require.Equal(t, fresh.Row, c.Rows[h.ID])
	require.False(t, c.Unsaved[h.ID])

	bare := *h
	bare.Turn = nil
	delete(c.Rows, h.ID)
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "control: a head without measures")
	bare.Turn = slices.Clone(h.Turn)
	bare.Turn[0] = turnVersion + 1
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "measures of a later release are made again")

	bare.Turn, bare.Counter = h.Turn, "another"
	_, yes = c.Outdated(&bare)
	require.True(t, yes, "another counter")

	told := come(5, store.Artefact{})
	c.FreshBlock(told, &TurnRow{Signals: turnSignals{Keep: true}})
	require.Nil(t, told.Turn)
}

// What was decided of a turn that is measured in its head stands in the row of its place, and comes back with it. A row that a
// program with another counter stored gives way to the head, and is stored anew with its place.
func TestPlaceOfATurnInItsHead(t *testing.T) {
	c := long(t, 3, 10)
	put := come(4, store.Artefact{})
	put.Counter = c.counter.Name()
	measured := c.FreshBlock(put, nil).Row
	h := asHead(put, 4)

	moved := *measured
	moved.Pinned, moved.Level, moved.Because, moved.Made, moved.Signals.LastRead = true, uint8(session.Trimmed), "room", 2, 9
	moved.Sizes[session.Trimmed] = 7
	place := moved.encodePlace()
	require.NoError(t, c.TakePlace(h.ID, place))
	_, yes := c.Outdated(h)
	require.False(t, yes)
	moved.moved = true
	require.Equal(t, &moved, c.Rows[h.ID])
	require.False(t, c.Unsaved[h.ID])

	other := *measured
	other.Counter, other.Sizes = "another", Sizes{1, 2, 3, 4, 5}
	row := other.encode()
	require.NoError(t, c.TakeTurn(h.ID, row))
	require.NoError(t, c.TakePlace(h.ID, place))
	_, yes = c.Outdated(h)
	require.False(t, yes)
	require.Equal(t, measured.Sizes, c.Rows[h.ID].Sizes, "not those of the other counter")
	require.True(t, c.Rows[h.ID].Pinned)
	require.True(t, c.Unsaved[h.ID])

	gone := h.ID // the head leaves: what is stored beside it stays, and nothing else
	c.Rows[gone].filed = false
	stored := c.Rows[gone].place()
	c.forget()
	require.Equal(t, stored, c.Rows[gone])
	require.True(t, c.Rows[gone].bare)
	c.Rows[gone] = measured
	c.forget()
	require.Nil(t, c.Rows[gone])
}
