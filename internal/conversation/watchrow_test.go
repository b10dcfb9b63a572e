package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
)

// A stored watch comes back as it was, and keeps the newest events.
func TestWatchRow(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	row := WatchRow{Holder: "h", Name: "agent (pid 7)", Progress: window.Progress{Phase: window.Blocked, Floor: 5, Warned: true, BackOff: time.Second, Blocked: at, Retry: at.Add(time.Second), Seen: 9, Seq: 40, Counters: session.Counters{Passes: 3}}}
	for n := range uint64(3 * KeptEvents) {
		row.Add([]session.Event{{Seq: n, At: at, Kind: session.EventWarn, Actual: 7, Reason: "r"}})
	}
	require.Len(t, row.Events, KeptEvents)
	raw, err := row.Encode()
	require.NoError(t, err)
	require.Less(t, len(raw), 1500)
	got, err := DecodeWatch(raw)
	require.NoError(t, err)
	require.Equal(t, row, got)
	got, err = DecodeWatch(nil)
	require.NoError(t, err)
	require.Zero(t, got)
	require.True(t, got.Progress.Retry.IsZero())
	_, err = DecodeWatch([]byte{0x93, 1})
	require.Error(t, err)
	of, ok := SessionOf(WatchRowKey, RowKey(WatchRowKey, "acme/a", "chat"))
	require.True(t, ok)
	require.Equal(t, [2]string{"acme/a", "chat"}, of)
}
