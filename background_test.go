package ctxpage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
)

// openBackground opens a database whose owner watches.
func openBackground(t *testing.T, path string, opts Options) *DB {
	t.Helper()
	opts.noSync = true
	db, err := Open(path, opts)
	require.NoError(t, err)
	return db
}

// kindsOf counts the passes of a session by kind.
func kindsOf(t *testing.T, chat *Session) map[string]int {
	t.Helper()
	passes, err := chat.Passes(context.Background())
	require.NoError(t, err)
	out := map[string]int{}
	for _, p := range passes {
		out[p.Kind]++
	}
	return out
}

// Whoever appends, the owner makes room ahead of need, and a session that is at rest costs nothing.
func TestOwnerWatchesAllSessions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := openBackground(t, filepath.Join(dir, "agent.ctx"), Options{Exclusive: true})
		defer func() { require.NoError(t, db.Close()) }()
		r := rand.New(rand.NewPCG(1, 2))
		var chats []*Session
		for i := range 40 {
			chats = append(chats, db.Scope("acme/agent").Session(fmt.Sprint("chat ", i)))
			require.NoError(t, chats[i].SetWindow(ctx, session.Config{Total: 4000, Reserve: 300_000, KeepLast: 2}))
		}
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		for range 60 {
			for _, chat := range chats[:4] {
				_, err := chat.Append(ctx, Turn{Role: "assistant", Text: prose(r, 30)})
				require.NoError(t, err)
			}
			synctest.Wait()
		}
		for _, chat := range chats[:4] {
			kinds := kindsOf(t, chat)
			require.NotZero(t, kinds[session.PassWatcher])
			require.Zero(t, kinds[session.PassBackstop], "commits need not make room themselves")
			w, err := chat.Inspect(ctx)
			require.NoError(t, err)
			require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
			require.Equal(t, 2800, w.Limits.Usable, "a reserve set alone")
		}
		require.Equal(t, goroutines, runtime.NumGoroutine(), "no goroutine for a session")
	})
}

// A process that does not own the files appends; the owner makes room, releases the turns that it loaded for that, and
// the process follows what happened.
func TestOwnerWatchesForClients(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	host := openBackground(t, path, Options{})
	defer func() { require.NoError(t, host.Close()) }()
	client := openBackground(t, path, Options{})
	defer func() { require.NoError(t, client.Close()) }()
	require.True(t, host.owns())
	require.False(t, client.owns())
	chat := client.Scope("acme/agent").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	w, err := chat.Watch(ctx)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[session.EventKind]int{}
	for range 10 {
		fill(t, chat, r, 30)
		for e := range w.Events() { // the owner works while we wait
			seen[e.Kind]++
			if e.Kind == session.EventHeadroomOK {
				break
			}
		}
	}
	kinds := kindsOf(t, chat)
	require.Equal(t, map[string]int{session.PassWatcher: 10}, kinds)
	require.Equal(t, map[session.EventKind]int{session.EventWarn: 10, session.EventPlanned: 10, session.EventApplied: 10, session.EventHeadroomOK: 10}, seen)
	st, err := w.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 10, st.Counters.Passes)
	require.Zero(t, st.Dropped)
	require.False(t, st.Running, "not in this process")
	require.False(t, host.sessions.Of("acme/agent", "chat").Loaded())

	// What was undone is not done again at once.
	fill(t, chat, r, 30)
	for e := range w.Events() {
		if e.Kind == session.EventHeadroomOK {
			break
		}
	}
	_, err = chat.Undo(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, session.EventUndone, (<-w.Events()).Kind)
	_, err = chat.Append(ctx, Turn{Role: "user", Text: "And?"})
	require.NoError(t, err)
	require.Equal(t, session.EventWarn, (<-w.Events()).Kind)
	require.Equal(t, 11, kindsOf(t, chat)[session.PassWatcher])

	// The client that takes the place of the owner goes on.
	require.NoError(t, host.Close())
	later := client.Scope("acme/agent").Session("later")
	require.NoError(t, later.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	require.True(t, client.owns())
	w, err = later.Watch(ctx)
	require.NoError(t, err)
	fill(t, later, r, 30)
	for e := range w.Events() {
		if e.Kind == session.EventHeadroomOK {
			break
		}
	}
	require.Equal(t, map[string]int{session.PassWatcher: 1}, kindsOf(t, later))
}

// fill appends to a session at rest until a turn takes its window above the trigger, whatever the owner does then.
func fill(t *testing.T, chat *Session, r *rand.Rand, words int) {
	t.Helper()
	ctx := context.Background()
	for {
		before, err := chat.Inspect(ctx)
		require.NoError(t, err)
		_, err = chat.Append(ctx, Turn{Role: "assistant", Text: prose(r, words)})
		require.NoError(t, err)
		after, err := chat.Inspect(ctx)
		require.NoError(t, err)
		if before.Tokens+after.Stored-before.Stored > before.Limits.Trigger {
			return
		}
	}
}

// hung is a summarizer that does not answer.
type hung struct{ shorter }

func (h *hung) Summarize(ctx context.Context, _ string, _ int) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A process that starts a watcher is asked, so its summarizer writes the summaries. When it does nothing, or ends, the owner
// does the work.
func TestOwnerAsksTheHolder(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	host := openBackground(t, path, Options{SummarizeTimeout: 50 * time.Millisecond})
	defer func() { require.NoError(t, host.Close()) }()
	by := &shorter{}
	client := openBackground(t, path, Options{Summarizer: by})
	defer func() { _ = client.Close() }()
	idle := openBackground(t, path, Options{Summarizer: &hung{}})
	defer func() { _ = idle.Close() }()
	r := rand.New(rand.NewPCG(1, 2))
	pass := func(by *DB, chat *Session) (events []session.Event) {
		t.Helper()
		w, err := chat.Watch(ctx)
		require.NoError(t, err)
		if by != nil {
			started, err := by.Scope("acme/agent").Session(chat.ID()).Watch(ctx)
			require.NoError(t, err)
			require.NoError(t, started.Start(ctx))
			st, err := w.Stats(ctx)
			require.NoError(t, err)
			require.NotEmpty(t, st.Holder)
		}
		passes := kindsOf(t, chat)[session.PassWatcher]
		fill(t, chat, r, 300) // long enough for a summary
		for e := range w.Events() {
			// An event of the pass before may come late.
			if events = append(events, e); e.Kind == session.EventHeadroomOK && kindsOf(t, chat)[session.PassWatcher] > passes {
				return events
			}
		}
		return nil
	}
	chat := func(id string) *Session {
		c := host.Scope("acme/agent").Session(id)
		require.NoError(t, c.SetWindow(ctx, session.Config{Total: 60_000, KeepLast: 2}))
		return c
	}
	one := chat("one")
	pass(client, one)
	require.NotZero(t, by.calls)
	_ = pass(idle, chat("two")) // ends only because the owner takes over
	w, err := one.Watch(ctx)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	st, err := w.Stats(ctx)
	require.NoError(t, err)
	require.Empty(t, st.Holder, "a process that ends lets go")
	calls := by.calls
	pass(nil, one)
	require.Equal(t, calls, by.calls)
	require.Equal(t, map[string]int{session.PassWatcher: 2}, kindsOf(t, one))
}

// A process that lives for one append makes the pass that is due before it ends.
func TestCloseMakesThePassThatIsDue(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		db := openBackground(t, path, Options{})
		chat := db.Scope("acme/agent").Session("chat")
		if n == 0 {
			require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
		}
		_, err := chat.Append(ctx, Turn{Role: "assistant", Text: prose(r, 30)})
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	db := openBackground(t, path, Options{NoWatch: true})
	defer func() { require.NoError(t, db.Close()) }()
	kinds := kindsOf(t, db.Scope("acme/agent").Session("chat"))
	require.NotZero(t, kinds[session.PassWatcher])
	require.Zero(t, kinds[session.PassBackstop])
}
