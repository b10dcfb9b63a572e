package storetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

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
