package ctxpage

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/session"
)

// A session that somebody works with is one for all, and so is a watched one, however many others were used since.
func TestSessionsHaveOneLock(t *testing.T) {
	ctx := context.Background()
	db, chat := openTalk(t)
	held := db.sessions.Of("acme/agent", "held")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	w, err := chat.Watch(ctx)
	require.NoError(t, err)
	other := weak.Make(db.sessions.Of("acme/agent", "other"))
	for i := range 3 * conversation.Kept {
		db.sessions.Of("acme/agent", fmt.Sprint("session ", i))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return other.Value() == nil // control: nobody holds this one
	}, time.Minute, 10*time.Millisecond)
	require.Same(t, held, db.sessions.Of("acme/agent", "held"))
	again, err := chat.Watch(ctx)
	require.NoError(t, err)
	require.Same(t, w.in, again.in)
	runtime.KeepAlive(held)
}

// Many use more sessions than are kept, at the same time, and no turn is lost.
func TestSessionsBesideEachOther(t *testing.T) {
	ctx := context.Background()
	db, _ := openTalk(t)
	const sessions, writers, rounds = 2 * conversation.Kept, 4, 2
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := range rounds * sessions {
				_, err := db.Scope("acme/agent").Session(fmt.Sprint("s", n%sessions)).Append(ctx, Turn{Role: "user", Text: "hello"})
				require.NoError(t, err)
				if n%50 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
	for i := range sessions {
		w, err := db.Scope("acme/agent").Session(fmt.Sprint("s", i)).Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, w.Turns, writers*rounds)
		require.Equal(t, int64(writers*rounds), w.Turns[len(w.Turns)-1].Seq)
	}
}
