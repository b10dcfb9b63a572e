package ctxpage

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

var updateTalk = flag.Int("update.talk", 0, "write the golden conversation of this format anew")

// talkDir is where the golden conversation of a format is kept.
func talkDir(format int) string { return filepath.Join("testdata/golden", fmt.Sprint("talk", format)) }

// writeTalk makes a conversation with a turn that its host told something of, a pin, a compaction and a deleted turn.
func writeTalk(t *testing.T, path string) {
	t.Helper()
	ctx := context.Background()
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
		_, err := chat.Append(ctx, turn)
		require.NoError(t, err)
	}
	require.NoError(t, chat.Pin(ctx, "block-chat-2"))
	require.NoError(t, s.Delete(ctx, "block-chat-7"))
	_, err := db.Checkpoint(ctx)
	require.NoError(t, err)
	_, err = chat.Append(ctx, Turn{Role: "user", Text: "This one is in the log alone."})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// talkShape is the window of a conversation, and the rows of its turns; salted: with what depends on salts, the size of stubs.
func talkShape(t *testing.T, db *DB, salted bool) (out []string) {
	t.Helper()
	chat := db.Scope("acme/support").Session("chat")
	w, err := chat.Window(context.Background())
	require.NoError(t, err)
	conv, err := chat.conversation()
	require.NoError(t, err)
	for i, v := range w.Turns {
		r := *conv.Blocks[i].Row
		if !salted {
			if r.Sizes[session.Stub] = 0; v.Level == session.Stub {
				v.Tokens = 0
			}
		}
		out = append(out, fmt.Sprintf("%+v %x %x %v %v %v %x %v %v %q %v", v, r.Hash, r.Content, r.Counter, r.Sizes, r.Made, r.Hashes, r.Signals, r.Level, r.Because, r.Pinned))
	}
	return out
}

// oldEstimate goes by the name of the counter of the golden conversations, so that their stored counts hold.
type oldEstimate struct{ token.Counter }

func (oldEstimate) Name() string { return "est/1" }

// turnRows counts the turns that have a row of their own.
func turnRows(t *testing.T, db *DB) (n int) {
	t.Helper()
	require.NoError(t, staterows.Walk(context.Background(), db.store, talk.TurnRowKey, func(store.StateRow) error { n++; return nil }))
	return n
}

// A conversation whose turns have rows of their own, as up to format 4, is read as one whose turns are measured in their
// heads, also after it was written to; its window does not move. A control: the one has those rows, the other has not.
func TestGoldenTalk(t *testing.T) {
	ctx := context.Background()
	if *updateTalk != 0 {
		dir := talkDir(*updateTalk)
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		path := filepath.Join(t.TempDir(), "agent.ctx")
		writeTalk(t, path)
		require.NoError(t, dbtest.Copy(path, filepath.Join(dir, "golden.db")))
		pack(t, filepath.Join(dir, "golden.db"))
		return
	}
	var shapes [][]string
	for format, rows := range map[int]int{4: 13, 5: 1, 6: 1} {
		path := openGoldenAt(t, talkDir(format))
		db := openTest(t, path, Options{ReadOnly: true, Counter: oldEstimate{token.Default()}})
		was := talkShape(t, db, true)
		require.Len(t, was, 12)
		shapes = append(shapes, talkShape(t, db, false))
		require.NoError(t, db.Close())

		db = openTest(t, path, Options{Counter: oldEstimate{token.Default()}})
		require.Equal(t, was, talkShape(t, db, true))
		require.Equal(t, rows, turnRows(t, db))
		chat := db.Scope("acme/support").Session("chat")
		_, err := chat.Append(ctx, Turn{Role: "assistant", Text: "Written by this program."})
		require.NoError(t, err)
		require.Equal(t, rows, turnRows(t, db), "it is in its head")
		was = talkShape(t, db, true)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{Counter: oldEstimate{token.Default()}})
		require.Equal(t, was, talkShape(t, db, true))
		conv, err := db.Scope("acme/support").Session("chat").conversation()
		require.NoError(t, err)
		at := conv.Find("block-chat-4")
		require.True(t, conv.Blocks[at].Row.Signals.Keep, "what the host told")
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	}
	require.Equal(t, shapes[0], shapes[1])
	require.Equal(t, shapes[0], shapes[2])
}
