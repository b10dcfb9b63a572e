package ctxpage

import (
	"fmt"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/triage"
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

// TestLeftNamesATurnOnce: a turn that the store and the window exclude by the same rule is named and counted once.
func TestLeftNamesATurnOnce(t *testing.T) {
	now := talkOptions().Clock()
	db := openTest(t, dbtest.MemoryPath(t), Options{Clock: func() time.Time { return now }})
	defer func() { require.NoError(t, db.Close()) }()
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "code", Text: "The code of the door is 4711.", TTL: time.Minute}))(t)
	chat := s.Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	must(chat.Append(ctx, Turn{Role: "user", Text: "The code is 4711.", ExpiresAt: now.Add(time.Minute)}, Turn{Role: "user", Text: "So it is.", ExpiresAt: now.Add(time.Minute)},
		Turn{Role: "user", Text: "Which code?"}))(t)
	now = now.Add(time.Hour)
	for reason, q := range map[string]Query{triage.Expired: {}, triage.OtherKind: {Kinds: []store.Kind{store.KindFact}}} {
		q.Text, q.Budget, q.Session = "code", 2000, "chat"
		a := must(s.Assemble(ctx, q))(t)
		named := map[string]int{}
		for _, l := range a.Left {
			named[l.Ref.ID+" "+l.Reason]++
		}
		want := map[string]int{"code expired": 1, "block-chat-1 expired": 1, "block-chat-2 expired": 1}
		counts := map[string]int{triage.Expired: 3}
		if reason == triage.OtherKind {
			want["block-chat-3 "+reason], counts[reason] = 1, 1
		}
		require.Equal(t, want, named)
		for _, e := range a.Manifest.Excluded {
			require.Equal(t, counts[e.Reason], e.Count, e.Reason)
		}
	}
}
