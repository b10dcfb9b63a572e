package pgstore

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

func read(trace string) []*manifest.Record {
	return []*manifest.Record{{Type: manifest.TypeGet, Trace: trace, Scope: "acme", Time: 1}}
}

// heldTurn locks the turn of all databases of a server, as a host that has it does, until the server stops or the test ends.
func heldTurn(t *testing.T, srv *server) {
	t.Helper()
	conn := connectTo(t, srv)
	_, err := conn.Exec(t.Context(), "BEGIN; SELECT FROM ctxpage_turn FOR UPDATE")
	require.NoError(t, err)
}

// survivor appends a leaf while another host has the turn, cuts the power of the server, and says whether a new host finds the leaf.
func survivor(t *testing.T, srv *server, name string, d store.Durability) bool {
	st := quiet(t, srv.dsn("postgres"), name, nil)
	mustPut(t, st, "first", "words")
	heldTurn(t, srv)
	begun := time.Now()
	require.NoError(t, st.Append(t.Context(), read("read"), d))
	require.Less(t, time.Since(begun), lockTimeout, "it waited for the turn")
	require.NoError(t, srv.stop(syscall.SIGQUIT))
	st.kill() // or it would write the leaf once more
	require.NoError(t, srv.start())
	_, err := onHost(t, srv.dsn("postgres"), name, nil).Audit().ByTrace(t.Context(), "read")
	if err != nil {
		require.ErrorIs(t, err, manifest.ErrNoLeaf)
	}
	return err == nil
}

// A reader who waits for the disk does not wait for the turn, and its leaf is there after a power cut of the server and the end of its
// host. The control: a leaf that nobody waited for is not.
func TestSyncedLeaf(t *testing.T) {
	t.Parallel()
	srv := ownServer(t)
	require.NoError(t, srv.stop(syscall.SIGINT))
	srv.args = []string{"-c", "wal_writer_delay=10s"} // what nobody waits for is not on the disk
	require.NoError(t, srv.start())
	require.False(t, survivor(t, srv, "written", store.Written), "the power cut takes nothing, so the test proves nothing")
	require.True(t, survivor(t, srv, "synced", store.Synced))
}

// Readers whose leaves share a write that fails are not answered before a turn has their leaves: not the one who wrote, and not those
// for whom somebody else wrote.
func TestSharedWriteFails(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	st := quiet(t, onServer(t), ownName(t), func(o *Options) {
		o.hook = func(step string) error {
			if down.Load() && (step == "inbox" || step == "begin") {
				return errors.New("the server is away")
			}
			return nil
		}
	})
	for _, d := range []store.Durability{store.Written, store.Synced} {
		l, answers := st.log, make(chan error, 3)
		l.writing <- struct{}{}
		for _, trace := range []string{"one", "two", "three"} {
			go func() { answers <- st.Append(context.Background(), read(trace), d) }()
		}
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.leaves) == 3
		}, 20*time.Second, time.Millisecond)
		down.Store(true)
		<-l.writing
		select {
		case err := <-answers:
			t.Fatalf("a reader was answered, with %v, and its leaf is nowhere", err)
		case <-time.After(200 * time.Millisecond):
		}
		down.Store(false)
		for range 3 {
			require.NoError(t, <-answers)
		}
		found, err := st.Audit().ByTrace(t.Context(), "three")
		require.NoError(t, err)
		require.Len(t, found, int(d)+1)
	}
}
