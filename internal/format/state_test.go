package format

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// A state row is read as it was written; a damaged or short one is refused.
func TestStateRow(t *testing.T) {
	t.Parallel()
	key := []byte("k")
	sealed := codec.Seal(TagState, key, StateBody(7, Proof{}, []byte("value")))
	now, err := UnsealState(key, sealed)
	require.NoError(t, err)
	require.Equal(t, store.StateRow{Key: "k", Value: []byte("value"), LSN: 7}, now)
	sealed[3] ^= 1
	_, err = UnsealState(key, sealed)
	require.ErrorIs(t, err, codec.ErrMalformed)
	_, err = UnsealState(key, codec.Seal(TagState, key, []byte("short")))
	require.ErrorIs(t, err, codec.ErrMalformed)
	empty, err := UnsealState(key, codec.Seal(TagState, key, StateBody(7, Proof{}, []byte{})))
	require.NoError(t, err)
	require.NotNil(t, empty.Value, "an empty row is a row")
}
