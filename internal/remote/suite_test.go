package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// socket is a path for a socket, short enough for every system.
func socket(t testing.TB) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "ctxpage"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve offers a store at a socket until the test, or what it returns, ends it.
func serve(t testing.TB, st store.Store, path string, opts remote.ServerOptions) (end func()) {
	t.Helper()
	srv := must(remote.NewServer(context.Background(), st, opts))(t)
	l := must(remote.Listen(path))(t)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	var ended bool
	end = func() {
		if ended {
			return
		}
		ended = true
		if err := errors.Join(srv.Close(), <-done); err != nil {
			t.Errorf("server: %v", err)
		}
	}
	t.Cleanup(end)
	return end
}

// dial connects. A test that says nothing of it waits for long: the machine may be busy with others.
func dial(t testing.TB, path string, opts remote.ClientOptions) *remote.Client {
	t.Helper()
	if opts.Answer == 0 {
		opts.Answer = time.Minute
	}
	c := must(remote.Dial(context.Background(), path, opts))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// served is a handle to a store over a socket: closing it closes the client, the server, and the store.
type served struct {
	*remote.Client
	end   func()
	store store.Store
}

func (s *served) Close() error {
	err := s.Client.Close()
	s.end()
	return errors.Join(err, s.store.Close())
}

// overSocket serves what another database opens.
type overSocket struct {
	storetest.Database
	path string
	opts remote.ClientOptions
}

func (o *overSocket) Open(t testing.TB) store.Store {
	st := o.Database.Open(t)
	end := serve(t, st, o.path, remote.ServerOptions{Program: "suite"})
	return &served{dial(t, o.path, o.opts), end, st}
}

func (o *overSocket) Crash(t testing.TB, st store.Store) {
	s := st.(*served)
	s.Client.Abandon()
	s.end()
	o.Database.Crash(t, s.store)
}

func overSocketTo(f storetest.Factory, opts remote.ClientOptions) storetest.Factory {
	return func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &overSocket{f(t, cfg), socket(t), opts}
	}
}

// inMemory opens a reference store again and again.
type inMemory struct{ *storetest.Memory }

func (m *inMemory) Open(testing.TB) store.Store {
	m.Memory = m.Reopen()
	return m.Memory
}

func (m *inMemory) Crash(testing.TB, store.Store) {}

func newInMemory(t testing.TB, cfg storetest.Config) storetest.Database {
	m := must(storetest.NewMemory(cfg))(t)
	return &inMemory{m}
}

// onFiles crashes by leaving the old files where they are and going on with a copy of them.
type onFiles struct {
	path string
	cfg  storetest.Config
	n    int
}

func (f *onFiles) Open(t testing.TB) store.Store {
	return must(filestore.Open(filestore.Options{Path: f.path, Now: f.cfg.Now, Rand: f.cfg.Rand, State: f.cfg.State, Segment: 64 << 10}))(t)
}

func (f *onFiles) Crash(t testing.TB, st store.Store) {
	was := f.path
	f.n++
	f.path = filepath.Join(filepath.Dir(was), "copy-"+string(rune('a'+f.n)))
	require.NoError(t, dbtest.Copy(was, f.path))
	t.Cleanup(func() { _ = st.Close() })
}

// The contract of store.Store holds over a socket to the reference store.
func TestSuiteOverMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, overSocketTo(newInMemory, remote.ClientOptions{}))
}

// The contract of store.Store holds over a socket to the embedded store.
func TestSuiteOverFiles(t *testing.T) {
	t.Parallel()
	storetest.Run(t, overSocketTo(func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg}
	}, remote.ClientOptions{}))
}
