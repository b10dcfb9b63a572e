package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

// silent is a summarizer that never answers: its host looks alive and does no pass.
type silent struct{}

func (silent) Name() string { return "silent" }

func (silent) Summarize(ctx context.Context, _ string, _ int) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// text is an answer of which nothing repeats, so only a summary shortens it.
func text(n int) string {
	var b strings.Builder
	for i := range 150 {
		fmt.Fprintf(&b, "w%d is w%d\n", n*31+i*17, n*29+i*13)
	}
	return b.String()
}

// Every host follows all commits, and one of them holds each session: it makes the passes. A host that ends lets go, and from
// one that does nothing another one takes the session over.
func TestOneHostHoldsASession(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := onServer(t)
	host := func(name string, o ctxpage.Options) *ctxpage.DB {
		o.Store = onHost(t, dsn, ownName(t), func(p *Options) { p.Host = name })
		db, err := ctxpage.Open("main", o)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	// However slow the machine is, no host takes a session over from one that is at work.
	one, two := host("one", ctxpage.Options{SummarizeTimeout: time.Hour}), host("two", ctxpage.Options{SummarizeTimeout: time.Hour})
	chat, beside := one.Scope("acme").Session("chat"), two.Scope("acme").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 60_000, KeepLast: 2}))
	_, err := two.Scope("acme").Session("chat").Inspect(ctx)
	require.NoError(t, err)
	watch := func(c *ctxpage.Session) *ctxpage.Watcher {
		require.Eventually(t, func() bool { w, err := c.Watch(ctx); return err == nil && w != nil }, time.Minute, time.Millisecond)
		w, err := c.Watch(ctx)
		require.NoError(t, err)
		return w
	}
	here, there := watch(chat), watch(beside)
	n := 0
	made := func(w *ctxpage.Watcher, passes int) bool {
		st, err := w.Stats(ctx)
		return err == nil && st.Counters.Passes >= passes
	}
	passes := 0
	fill := func(c *ctxpage.Session, w *ctxpage.Watcher) {
		require.Eventually(t, func() bool { return made(w, passes) }, time.Minute, time.Millisecond, "it follows the pass before")
		passes++
		for {
			before, err := c.Inspect(ctx)
			require.NoError(t, err)
			n++
			_, err = c.Append(ctx, ctxpage.Turn{Role: "assistant", Text: text(n)})
			require.NoError(t, err)
			after, err := c.Inspect(ctx)
			require.NoError(t, err)
			if before.Tokens+after.Stored-before.Stored > before.Limits.Trigger {
				break
			}
		}
		for range w.Events() { // some may be of earlier passes
			if made(w, passes) {
				return
			}
		}
	}
	fill(chat, here)
	for e := range there.Events() { // the other host follows
		if e.Kind == session.EventHeadroomOK {
			break
		}
	}
	st, err := here.Stats(ctx)
	require.NoError(t, err)
	first := st.Holder
	require.Contains(t, first, "pid")
	fill(chat, here)
	st, err = here.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, first, st.Holder, "it keeps the session")
	require.Equal(t, 2, st.Counters.Passes)
	all, err := chat.Passes(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2, "one host makes each pass")

	// The holder ends, and the other host goes on.
	require.NoError(t, one.Close())
	fill(beside, there)
	st, err = there.Stats(ctx)
	require.NoError(t, err)
	require.Contains(t, st.Holder, "two")

	// A host is asked and does nothing: one that waits less takes the session over.
	three := host("three", ctxpage.Options{Summarizer: silent{}, SummarizeTimeout: time.Hour})
	four := host("four", ctxpage.Options{SummarizeTimeout: 100 * time.Millisecond})
	asked, over := watch(three.Scope("acme").Session("chat")), watch(four.Scope("acme").Session("chat"))
	require.NoError(t, asked.Start(ctx))
	st, err = asked.Stats(ctx)
	require.NoError(t, err)
	require.Contains(t, st.Holder, "three")
	_, err = three.Scope("acme").Session("chat").Inspect(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { st, err := over.Stats(ctx); return err == nil && strings.Contains(st.Holder, "three") }, time.Minute, time.Millisecond)
	fill(four.Scope("acme").Session("chat"), over)
	st, err = over.Stats(ctx)
	require.NoError(t, err)
	require.Contains(t, st.Holder, "four")
}
