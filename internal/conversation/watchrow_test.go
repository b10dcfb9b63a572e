package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
)

// Every field of a row is stored and comes back as it was; a cut row is an error.
func TestRows(t *testing.T) {
	roundTrip(t, &sessionFields)
	roundTrip(t, &passFields)
	roundTrip(t, &watchFields)
}

func roundTrip[T any](t *testing.T, of *codec.Record[T]) {
	t.Helper()
	var full T
	dbtest.Fill(&full)
	raw := of.Row(rowVersion, &full, 0)
	back := must(readRow(of, raw))(t)
	require.Equal(t, full, back)
	require.ErrorIs(t, errOf(readRow(of, raw[:len(raw)-1])), codec.ErrMalformed)
	require.ErrorIs(t, errOf(readRow(of, append([]byte{rowVersion + 1}, raw[1:]...))), codec.ErrNewer)
}

// A stored watch keeps the newest events.
func TestWatchRow(t *testing.T) {
	row := WatchRow{Holder: "h", Name: "agent (pid 7)"}
	for n := range uint64(3 * KeptEvents) {
		row.Add([]session.Event{{Seq: n, At: time.UnixMilli(1_800_000_000_123).UTC(), Kind: session.EventWarn, Actual: 7, Reason: "r"}})
	}
	require.Len(t, row.Events, KeptEvents)
	raw := row.Encode()
	require.Less(t, len(raw), 1500)
	got := must(DecodeWatch(raw))(t)
	require.Equal(t, row, got)
	got = must(DecodeWatch(nil))(t)
	require.Zero(t, got)
	of, ok := SessionOf(WatchRowKey, RowKey(WatchRowKey, "acme/a", "chat"))
	require.True(t, ok)
	require.Equal(t, [2]string{"acme/a", "chat"}, of)
}
