package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openTest(t *testing.T, path string, opts Options) *DB {
	t.Helper()
	opts = ShortLog(opts)
	opts.NoWatch = true // tests look when they choose to; those of the background open the database themselves
	elsewhere := OwnedElsewhere(t, path, opts)
	db, err := Open(path, opts)
	require.NoError(t, err)
	elsewhere(db)
	return db
}

func TestPutGetReopen(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme/support")
	for i := range 20 {
		ref, err := s.Put(ctx, Artefact{ID: fmt.Sprint("fact-", i%5), Text: fmt.Sprintf("refund policy number %d says %d dollars", i%5, i)})
		require.NoError(t, err)
		require.Equal(t, uint32(i/5+1), ref.Version)
	}
	v, err := s.Get(ctx, "fact-3")
	require.NoError(t, err)
	require.Contains(t, v.Text, "18 dollars")
	hits, err := hitsOf(s.Search(ctx, "refund policy", 3))
	require.NoError(t, err)
	require.Len(t, hits, 3)
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	defer db.Close()
	s = db.Scope("acme/support/agent-1")
	v, err = s.Get(ctx, "fact-3")
	require.NoError(t, err)
	require.Contains(t, v.Text, "18 dollars")
	v, err = s.Recall(ctx, Ref{Scope: "acme/support", ID: "fact-3", Version: 1})
	require.NoError(t, err)
	require.Contains(t, v.Text, "3 dollars")
	again, err := hitsOf(s.Search(ctx, "refund policy", 3))
	require.NoError(t, err)
	require.Equal(t, hits, again)
	_, err = db.Scope("acme").Get(ctx, "fact-3")
	require.ErrorIs(t, err, ErrNotFound)
	problems, err = db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestGate(t *testing.T) {
	ctx := context.Background()
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	defer db.Close()
	s := db.Scope("acme", WithActor("agent"))
	_, err := s.Put(ctx, Artefact{ID: "policy", Text: "refunds up to 400 dollars"})
	require.NoError(t, err)
	a, err := s.Assemble(ctx, Query{Text: "how much may I refund?", Budget: 1000})
	require.NoError(t, err)
	require.Len(t, a.Blocks, 1)
	r, err := db.Replay(ctx, a.Trace)
	require.NoError(t, err)
	require.Equal(t, a.Text(), r.Text)

	tx, err := s.Resume(ctx, a.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "you may refund 400"}))
	err = tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"})
	var held *HeldError
	require.ErrorAs(t, err, &held)
	_, err = s.Get(ctx, "answer")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = db.Review().Approve(ctx, held.Batch, Approval{By: "agent"})
	require.ErrorIs(t, err, ErrSelfCertified)
	out, err := db.Review().Approve(ctx, held.Batch, Approval{By: "anna", HumanVerified: true})
	require.NoError(t, err)
	again, err := db.Review().Approve(ctx, held.Batch, Approval{By: "anna"})
	require.NoError(t, err)
	require.Equal(t, out.LSN, again.LSN)
	v, err := s.Get(ctx, "answer")
	require.NoError(t, err)
	require.Equal(t, HumanVerified, v.Provenance)
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	w, err := db.Why(ctx, a.Trace, Ref{ID: "policy"})
	require.NoError(t, err)
	require.True(t, w.In)
}

func TestLostUpdate(t *testing.T) {
	ctx := context.Background()
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	defer db.Close()
	s := db.Scope("acme")
	errs := make(chan error, 20)
	start := time.Now()
	for range 20 {
		go func() {
			for {
				err := s.Update(ctx, func(tx *Txn) error {
					n := 0
					v, err := tx.Get(ctx, "counter")
					if err == nil {
						fmt.Sscan(v.Text, &n)
					} else if !errors.Is(err, ErrNotFound) {
						return err
					}
					return tx.Put(ctx, Artefact{ID: "counter", Text: fmt.Sprint(n + 1)})
				})
				if errors.Is(err, ErrConflict) {
					continue
				}
				errs <- err
				return
			}
		}()
	}
	for range 20 {
		require.NoError(t, <-errs)
	}
	v, err := s.Get(ctx, "counter")
	require.NoError(t, err)
	require.Equal(t, "20", v.Text)
	t.Log(time.Since(start))
}
