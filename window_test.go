package ctxpage

import (
	"fmt"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// A question in a session needs no budget where the session has a window: its usable part is taken, and kept to. The
// control is the same question before there is one.
func TestBudgetOfTheWindow(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	defer func() { require.NoError(t, db.Close()) }()
	s := db.Scope("acme")
	chat := s.Session("chat")
	for i := range 60 {
		must(chat.Append(ctx, Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprint("turn ", i, " says many words ", i*i)}))(t)
	}
	require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "many words", Session: "chat"})), store.ErrInvalid)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 400}))
	w := must(chat.Inspect(ctx))(t)
	a := must(s.Assemble(ctx, Query{Text: "many words", Session: "chat"}))(t)
	require.Equal(t, w.Limits.Usable, a.Manifest.Budget)
	require.LessOrEqual(t, a.Tokens, w.Limits.Usable)
	require.NotEmpty(t, a.Blocks)
	b := must(s.Assemble(ctx, Query{Text: "many words", Session: "chat", Budget: 200}))(t)
	require.Equal(t, 200, b.Manifest.Budget, "what is asked for holds")
}
