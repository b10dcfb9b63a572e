package filestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// goldenTalk is where the golden conversation is kept.
const goldenTalk = "testdata/golden/talk"

// writeTalk makes a conversation with a turn that its host told something of, a pin, a compaction and a deleted turn.
func writeTalk(t *testing.T, path string) {
	t.Helper()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var seed [32]byte
	db := openTest(t, path, Options{Clock: func() time.Time { now = now.Add(time.Second); return now }, Rand: rand.NewChaCha8(seed)})
	s := db.Scope("acme/support", WithActor("agent"))
	chat := s.Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 1000, Reserve: 100}))
	for i := range 12 {
		turn := Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("Refund %d.\n\n%s", i, strings.Repeat(fmt.Sprint("The desk paid case ", i, " today. "), 4+i%3*6))}
		if i == 3 {
			turn.Signals = session.Signals{Source: "file:desk.md", Keep: true}
		}
		must(chat.Append(ctx, turn))(t)
	}
	require.NoError(t, chat.Pin(ctx, "block-chat-2"))
	require.NoError(t, s.Delete(ctx, "block-chat-7"))
	must(db.Admin().Checkpoint(ctx))(t)
	must(chat.Append(ctx, Turn{Role: "user", Text: "This one is in the log alone."}))(t)
	require.NoError(t, db.Close())
}

// talkShape is the window of a conversation, and the rows of its turns.
func talkShape(t *testing.T, db *DB) (out []string) {
	t.Helper()
	chat := db.Scope("acme/support").Session("chat")
	w := must(chat.Inspect(context.Background()))(t)
	for _, v := range w.Turns {
		out = append(out, fmt.Sprintf("%+v", v))
	}
	return out
}

// turnRows returns the rows of the turns that have one of their own.
func turnRows(t *testing.T, db *DB) (rows []string) {
	t.Helper()
	require.NoError(t, format.Walk(context.Background(), storeOf(db), conversation.TurnRowKey, func(r store.StateRow) error { rows = append(rows, string(r.Value)); return nil }))
	return rows
}

// The golden conversation has a row of its own for the one turn that its host told something of; the others are measured in
// their heads. Its window does not move when it is written to.
func TestGoldenTalk(t *testing.T) {
	if *updateGolden {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		writeTalk(t, path)
		keepGolden(t, path, goldenTalk)
	}
	useGoldenTalk(t, goldenTalk)
}

// useGoldenTalk reads a conversation of dir, appends to a copy of it, and opens it again.
func useGoldenTalk(t *testing.T, dir string) {
	t.Helper()
	path := openGolden(t, dir)
	db := openTest(t, path, Options{ReadOnly: true})
	was := talkShape(t, db)
	require.Len(t, was, 12)
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	require.Equal(t, was, talkShape(t, db))
	told := turnRows(t, db)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "file:desk.md", "what the host told")
	chat := db.Scope("acme/support").Session("chat")
	must(chat.Append(ctx, Turn{Role: "assistant", Text: "Written by this program."}))(t)
	require.Equal(t, told, turnRows(t, db), "the new one is in its head")
	was = talkShape(t, db)
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{})
	require.Equal(t, was, talkShape(t, db))
	require.Equal(t, told, turnRows(t, db))
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}
