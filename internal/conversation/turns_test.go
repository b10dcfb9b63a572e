package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token"
)

// A turn that leaves the session before its row was stored leaves nothing to store: the next batch has no row of it.
func TestForgottenRowIsNotStored(t *testing.T) {
	for _, moved := range []bool{false, true} {
		c := NewTurns("acme", "chat", token.Default())
		require.NoError(t, c.Reset(nil))
		c.Rows = map[string]*TurnRow{"gone": {moved: moved}}
		c.Unsaved["gone"] = true
		c.forget()
		require.Empty(t, c.Begin().Rows)
	}
}
