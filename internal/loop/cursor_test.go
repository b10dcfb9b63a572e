package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/loop"
)

func TestCursorIsBound(t *testing.T) {
	c := loop.Cursor(7, "acme/support", "policy")
	at, ok := loop.At(c, "acme/support", "policy")
	require.True(t, ok)
	require.EqualValues(t, 7, at)
	require.NotEqual(t, c, loop.Cursor(8, "acme/support", "policy"))
	for _, of := range [][]string{{"acme", "policy"}, {"acme/support", "other"}, {"acme/suppor", "tpolicy"}, {"acme/support"}, nil} {
		_, ok = loop.At(c, of...)
		require.False(t, ok, "%q", of)
	}
	for _, odd := range []string{"", "7", "7.", ".", "x", "0" + c, "+" + c, c + "x", " " + c, "4000000000"} {
		_, ok = loop.At(odd, "acme/support", "policy")
		require.False(t, ok, "%q", odd)
	}
}
