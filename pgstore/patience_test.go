package pgstore

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A server that is away for longer than Patience: what was not sent did not happen, what was sent is unknown, and the handle goes
// on when the server is back. The same id then gives the outcome, once.
func TestPatience(t *testing.T) {
	srv := ownServer(t)
	ctx := t.Context()
	var lose atomic.Bool
	st := onHost(t, srv.dsn("postgres"), "main", func(o *Options) {
		o.Patience, o.MaxLag = 400*time.Millisecond, -1
		o.hook = func(step string) error { // the answer to a commit is lost, and with it the server
			if step == "written" && lose.CompareAndSwap(true, false) {
				return errors.Join(errors.New("the answer is lost"), srv.stop(syscall.SIGQUIT))
			}
			return nil
		}
	})
	patient := func(b store.Batch) (out store.Outcome) { // a busy server needs longer than Patience; the same id gives the outcome
		require.Eventually(t, func() bool {
			var err error
			out, err = st.Commit(ctx, b)
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		return out
	}
	first := patient(fact(t, st, "first", "words"))
	lose.Store(true)
	sent := fact(t, st, "sent", "words")
	_, err := st.Commit(ctx, sent)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorIs(t, err, ErrUnavailable)

	begun := time.Now()
	notSent := fact(t, st, "not sent", "words")
	_, err = st.Commit(ctx, notSent)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Less(t, time.Since(begun), replyTimeout, "it waited as long as without a Patience")
	_, err = st.Outcome(ctx, sent.ID)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	read := &manifest.Record{Type: manifest.TypeGet, Trace: "read", Scope: "acme", Time: 1}
	require.ErrorIs(t, st.Append(ctx, []*manifest.Record{read}, store.Synced), store.ErrOutcomeUnknown)
	_, err = st.Refresh(ctx, 0)
	require.Error(t, err)
	mustFind(t, st, "first") // without a limit of lag reads go on

	require.NoError(t, srv.start())
	out := patient(sent)
	require.Equal(t, first.LSN+1, out.LSN)
	known, err := st.Outcome(ctx, sent.ID)
	for errors.Is(err, ErrUnavailable) {
		known, err = st.Outcome(ctx, sent.ID)
	}
	require.NoError(t, err)
	require.Equal(t, out.LSN, known.LSN)
	_, err = st.Outcome(ctx, notSent.ID)
	for errors.Is(err, ErrUnavailable) {
		_, err = st.Outcome(ctx, notSent.ID)
	}
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, out.LSN+1, patient(notSent).LSN)
	require.EqualValues(t, 1, mustFind(t, st, "sent").Version)
	require.Eventually(t, func() bool {
		found, err := st.Audit().ByTrace(ctx, "read")
		return err == nil && len(found) == 1
	}, time.Minute, 20*time.Millisecond, "the leaf was kept here")
}
