package ctxpage

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
)

func (t *conversations) living() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.alive)
}

// However many sessions a process touches, it keeps the newest, and finding one costs the same.
func TestSessionsAreBounded(t *testing.T) {
	db, _ := openTalk(t)
	const sessions = 64_000
	longest := time.Duration(0)
	for i := range sessions {
		at := time.Now()
		db.conversation("acme/agent", fmt.Sprint("session ", i))
		longest = max(longest, time.Since(at))
	}
	t.Logf("longest look: %v", longest)
	require.Equal(t, keptTalks, db.talks.recent.Len())
	require.Eventually(t, func() bool {
		runtime.GC()
		return db.talks.living() <= keptTalks
	}, 20*time.Second, 10*time.Millisecond)
}

// A session that somebody works with is one for all, and so is a watched one, however many others were used since.
func TestSessionsHaveOneLock(t *testing.T) {
	ctx := context.Background()
	db, chat := openTalk(t)
	held := db.conversation("acme/agent", "held")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	w, err := chat.Watch(ctx)
	require.NoError(t, err)
	other := db.conversation("acme/agent", "other")
	other.gcs = 77
	other = nil
	for i := range 3 * keptTalks {
		db.conversation("acme/agent", fmt.Sprint("session ", i))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return db.conversation("acme/agent", "other").gcs != 77 // control: nobody holds this one
	}, 20*time.Second, 10*time.Millisecond)
	require.Same(t, held, db.conversation("acme/agent", "held"))
	again, err := chat.Watch(ctx)
	require.NoError(t, err)
	require.Same(t, w, again)
	runtime.KeepAlive(held)
}

// Many use more sessions than are kept, at the same time, and no turn is lost.
func TestSessionsBesideEachOther(t *testing.T) {
	ctx := context.Background()
	db, _ := openTalk(t)
	const sessions, writers, rounds = 2 * keptTalks, 4, 2
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
		w, err := db.Scope("acme/agent").Session(fmt.Sprint("s", i)).Window(ctx)
		require.NoError(t, err)
		require.Len(t, w.Turns, writers*rounds)
		require.Equal(t, int64(writers*rounds), w.Turns[len(w.Turns)-1].Seq)
	}
}
