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
	now := must(UnsealState(key, sealed))(t)
	require.Equal(t, store.StateRow{Key: "k", Value: []byte("value"), LSN: 7}, now)
	sealed[3] ^= 1
	require.ErrorIs(t, errOf(UnsealState(key, sealed)), codec.ErrMalformed)
	require.ErrorIs(t, errOf(UnsealState(key, codec.Seal(TagState, key, []byte("short")))), codec.ErrMalformed)
	empty := must(UnsealState(key, codec.Seal(TagState, key, StateBody(7, Proof{}, []byte{}))))(t)
	require.NotNil(t, empty.Value, "an empty row is a row")
}
