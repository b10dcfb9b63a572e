package storetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

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

func TestMemory(t *testing.T) { t.Parallel(); storetest.Run(t, newInMemory) }

// onFiles crashes by leaving the old files where they are, their process unaware, and going on with a copy of them.
type onFiles struct {
	path string
	cfg  storetest.Config
	key  []byte
	n    int
}

func (f *onFiles) Open(t testing.TB) store.Store {
	return must(filestore.Open(filestore.Options{Path: f.path, Key: f.key, Now: f.cfg.Now, State: f.cfg.State, Segment: 64 << 10}))(t)
}

func (f *onFiles) Crash(t testing.TB, st store.Store) {
	was := f.path
	f.n++
	f.path = filepath.Join(filepath.Dir(was), "copy-"+string(rune('a'+f.n)))
	require.NoError(t, dbtest.Copy(was, f.path))
	t.Cleanup(func() { _ = st.Close() })
}

func TestFileStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg}
	})
}

// TestEncryptedFileStore is the same over encrypted files.
func TestEncryptedFileStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg, key: []byte("a key of thirty-two bytes: 89012")}
	})
}

func onFilesAt(t testing.TB, cfg storetest.Config) storetest.Database {
	return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg}
}

// A database opened on the reference store does what one on files does: a host puts, an agent assembles and commits, the
// operator asks why, and replays what the agent saw.
func TestPipelineOnMemory(t *testing.T) {
	t.Parallel()
	mem := must(storetest.NewMemory(storetest.Config{State: ctxpage.StateKinds()}))(t)
	pipeline(t, "in memory", func() store.Store { mem = mem.Reopen(); return mem })
}

// pipeline opens a database on handles to one store, which is new, and works with it.
func pipeline(t *testing.T, name string, open func() store.Store) {
	t.Helper()
	ctx := context.Background()
	st := open()
	db := must(ctxpage.Open(name, ctxpage.Options{Store: st}))(t)
	require.Equal(t, name, db.Path())

	host := db.Scope("acme/support")
	must(host.Put(ctx, ctxpage.Artefact{ID: "refund-policy", Text: "Refunds up to $400 are paid within 30 days."}))(t)
	got := must(host.Get(ctx, "refund-policy"))(t)
	require.Contains(t, got.Text, "$400")

	agent := db.Scope("acme/support", ctxpage.Gated())
	a := must(agent.Assemble(ctx, ctxpage.Query{Text: "what refunds are paid?", Budget: 2000}))(t)
	require.Len(t, a.Manifest.Pages, 1)
	tx := must(agent.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "Up to $400."}))
	require.NoError(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.9, By: "checker"}))

	low := must(agent.Resume(ctx, a.Trace))(t)
	require.NoError(t, low.Put(ctx, ctxpage.Artefact{ID: "guess", Text: "Perhaps $500."}))
	require.ErrorIs(t, low.Commit(ctx, ctxpage.Verdict{Confidence: 0.2, By: "checker"}), store.ErrHeld)

	why := must(db.Why(ctx, a.Trace, ctxpage.Ref{Scope: "acme/support", ID: "refund-policy"}))(t)
	require.True(t, why.In)
	replay := must(db.Replay(ctx, a.Trace))(t)
	require.Empty(t, replay.Missing)
	require.Contains(t, replay.Text, "$400")
	verified := must(db.Manifests().Verify(ctx, nil, nil))(t)
	require.Equal(t, dbtest.SizeOf(db.Manifests()), verified.Size)

	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(st.Stat(ctx)), store.ErrClosed, "Close closes the store")

	db = must(ctxpage.Open(name, ctxpage.Options{Store: open()}))(t)
	got = must(db.Scope("acme/support").Get(ctx, "answer"))(t)
	require.Equal(t, "Up to $400.", got.Text)
	require.NoError(t, db.Close())
}

// Options that say how files are opened are refused beside a store, which then is still the caller's.
func TestOptionsBesideStore(t *testing.T) {
	t.Parallel()
	mem := must(storetest.NewMemory(storetest.Config{}))(t)
	for _, o := range []ctxpage.Options{{Exclusive: true}, {MustExist: true}, {LockTimeout: 1}} {
		o.Store = mem
		_, err := ctxpage.Open("in memory", o)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "Options.Store")
	}
	require.Error(t, errOf(ctxpage.Open("in memory", ctxpage.Options{Store: mem, FileRoots: []string{"no/such/root"}})))
	must(mem.Stat(context.Background()))(t)
}

// owner has a file open and serves it, as the process that holds its lock does. It ends with the test, or when it is told.
func owner(t *testing.T, path, socket string) (end func()) {
	t.Helper()
	st := must(filestore.Open(filestore.Options{Path: path, State: ctxpage.StateKinds()}))(t)
	srv := must(remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "owner"}))(t)
	l := must(remote.Listen(socket))(t)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	ended := false
	end = func() {
		if !ended {
			ended = true
			if err := errors.Join(srv.Close(), <-done, st.Close()); err != nil {
				t.Errorf("owner: %v", err)
			}
		}
	}
	t.Cleanup(end)
	return end
}

// socketPath is a path for a socket, short enough for every system.
func socketPath(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "ctxpage"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// connect opens a database that another process has open.
func connect(t *testing.T, name, socket string) *ctxpage.DB {
	t.Helper()
	c := must(remote.Dial(context.Background(), socket, remote.ClientOptions{}))(t)
	db := must(ctxpage.Open(name, ctxpage.Options{Store: c}))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A database opened on a client does what one on files does, and the file that its owner closes has all of it.
func TestPipelineOverSocket(t *testing.T) {
	t.Parallel()
	path, socket := dbtest.MemoryPath(t), socketPath(t)
	end := owner(t, path, socket)
	pipeline(t, "over a socket", func() store.Store {
		return must(remote.Dial(context.Background(), socket, remote.ClientOptions{}))(t)
	})
	end()
	db := must(ctxpage.Open(path, ctxpage.Options{}))(t)
	defer db.Close()
	got := must(db.Scope("acme/support").Get(context.Background(), "answer"))(t)
	require.Equal(t, "Up to $400.", got.Text)
	problems := must(db.Admin().Check(context.Background(), nil))(t)
	require.Empty(t, problems)
}

// twoOverSocket opens two databases as clients of a third process that has the file.
func twoOverSocket(t *testing.T) (dbs [2]*ctxpage.DB) {
	socket := socketPath(t)
	owner(t, dbtest.MemoryPath(t), socket)
	for i := range dbs {
		dbs[i] = connect(t, "client "+strconv.Itoa(i), socket)
	}
	return dbs
}

// Two clients step the directives of one scope: no acknowledged step is lost.
func TestTwoStepDirectivesOverSocket(t *testing.T) {
	t.Parallel()
	acknowledged, kept := stepBoth(t, twoOverSocket(t))
	require.Equal(t, acknowledged, kept)
}

// Two clients write one session: every acknowledged change is there, in an order that both see.
func TestTwoWriteSessionOverSocket(t *testing.T) {
	t.Parallel()
	dbs := twoOverSocket(t)
	require.Empty(t, talkBoth(t, dbs))
	ctx := context.Background()
	var seen [2][]string
	for i, db := range dbs {
		w := must(db.Scope("acme").Session("case").Inspect(ctx))(t)
		for _, turn := range w.Turns {
			seen[i] = append(seen[i], turn.ID)
		}
	}
	require.Equal(t, seen[0], seen[1])
}

// The owner ends and another one begins, while a client has a transaction open: the transaction goes on.
func TestTransactionGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path, socket := dbtest.MemoryPath(t), socketPath(t)
	end := owner(t, path, socket)
	db := connect(t, "client", socket)
	s := db.Scope("acme")
	must(s.Put(ctx, ctxpage.Artefact{ID: "rule", Text: "one"}))(t)
	tx := must(s.Begin(ctx))(t)
	must(tx.Get(ctx, "rule"))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "of the rule"}))
	end()
	owner(t, path, socket)
	require.NoError(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.9, By: "checker"}))
	got := must(s.Get(ctx, "answer"))(t)
	require.Equal(t, "of the rule", got.Text)
	require.ErrorIs(t, errOf(s.Get(ctx, "nothing")), store.ErrNotFound)
	stats := must(db.Stats(ctx))(t)
	require.Equal(t, uint64(2), stats.LSN)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
