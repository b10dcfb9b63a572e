package pgstore

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// behindSocket returns a follower as the agents of its host have it: through a socket. end ends the serving, once.
func behindSocket(t testing.TB, st *Store) (client *remote.Client, end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgstore-agents-") // a socket's path is short
	require.NoError(t, err)
	srv, err := remote.NewServer(t.Context(), st, remote.ServerOptions{})
	require.NoError(t, err)
	socket := filepath.Join(dir, "s")
	l, err := remote.Listen(socket)
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	client, err = remote.Dial(t.Context(), socket, remote.ClientOptions{})
	require.NoError(t, err)
	end = sync.OnceFunc(func() {
		_ = l.Close()
		_ = srv.Close()
		<-served
		_ = os.RemoveAll(dir)
	})
	return client, end
}

// agentOn returns what an agent of a host has: a database through a socket of the host's follower.
func agentOn(t *testing.T, st *Store, roots ...string) *ctxpage.DB {
	t.Helper()
	client, end := behindSocket(t, st)
	t.Cleanup(end)
	db, err := ctxpage.Open("agents", ctxpage.Options{Store: client, FileRoots: roots})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Agents of two hosts, each through the socket of its follower: the file of a page is asked on the host that read it alone. On the
// other host, which has another file at that path, the page is served as it is, and says so.
func TestFilesBelongToHosts(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	root := t.TempDir()
	path := filepath.Join(root, "policy.md")
	require.NoError(t, os.WriteFile(path, []byte("Refunds are paid within 30 days."), 0o600))
	var stores []*Store
	var agents []*ctxpage.Scope
	for _, name := range []string{"a", "b"} {
		st := onHost(t, dsn, ownName(t), func(o *Options) { o.Host = name })
		stores = append(stores, st)
		agents = append(agents, agentOn(t, st, root).Scope("acme"))
	}
	_, err := agents[0].Put(ctx, ctxpage.Artefact{ID: "policy", Source: "file:" + path})
	require.NoError(t, err)
	refresh(t, stores[1])
	require.NoError(t, os.WriteFile(path, []byte("Refunds are never paid."), 0o600))
	got, err := agents[1].Get(ctx, "policy")
	require.NoError(t, err)
	require.Contains(t, got.Text, "30 days")
	require.Equal(t, "a", got.Elsewhere)
	require.Equal(t, "a", format.SourceHost(mustHead(t, stores[1], "policy")))
	got, err = agents[0].Get(ctx, "policy")
	require.NoError(t, err)
	require.Contains(t, got.Text, "never", "the control: its own host fetches it")
	require.Empty(t, got.Elsewhere)
}

func mustHead(t *testing.T, st *Store, id string) *store.Head {
	t.Helper()
	got, err := st.Load(context.Background(), acme, mustFind(t, st, id).Pages, store.WantHead)
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	return got[0].Head
}
