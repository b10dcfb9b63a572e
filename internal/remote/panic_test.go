package remote_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// faulty is a store with a fault: a listing of one scope panics, and may leave a lock behind.
type faulty struct {
	store.Store
	lock  chan struct{} // capacity 1; a channel, because only that lets synthetic time go on
	keeps bool
}

func (f *faulty) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	f.lock <- struct{}{}
	if len(q.Scopes) > 0 && q.Scopes[0] == "fault" {
		if !f.keeps {
			<-f.lock
		}
		var none []int
		_ = none[len(q.Scopes)]
	}
	defer func() { <-f.lock }()
	return f.Store.Scan(ctx, q)
}

func (f *faulty) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	panic("a fault in Commit")
}

// A call that panics ends in an error; the server and its other calls go on.
func TestPanicEndsTheCall(t *testing.T) {
	ctx := t.Context()
	st := &faulty{Store: newMemory(t), lock: make(chan struct{}, 1)}
	path := socket(t)
	serve(t, st, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	for range 3 {
		require.ErrorContains(t, errOf(c.Scan(ctx, store.ScanQuery{Scopes: store.Scopes{"fault"}})), "call Scan panicked")
		must(c.Scan(ctx, store.ScanQuery{Scopes: store.Scopes{"acme"}}))(t)
	}
	require.Error(t, errOf(c.Commit(ctx, store.Batch{Scope: "acme", Now: time.Now()})))
}

// A store that does not answer after a panic holds a lock: the process ends, so that another one takes over.
func TestPanicUnderALockIsFatal(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			died := make(chan string, 1)
			st := &faulty{Store: newMemory(t), lock: make(chan struct{}, 1), keeps: keeps}
			srv := must(remote.NewServer(t.Context(), st, remote.Dying(remote.ServerOptions{}, func(why string) { died <- why })))(t)
			require.ErrorContains(t, srv.Panicking("Scan", func() { _, _ = st.Scan(t.Context(), store.ScanQuery{Scopes: store.Scopes{"fault"}}) }), "panicked")
			time.Sleep(time.Minute)
			require.Equal(t, keeps, len(died) == 1)
			if keeps {
				<-st.lock
			}
			require.NoError(t, srv.Close())
		})
	}
}
