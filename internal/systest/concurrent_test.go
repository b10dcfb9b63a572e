package systest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func numberIn(ctx context.Context, tx *Txn, id string) (n int, err error) {
	v, err := tx.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(v.Text, &n)
	}
	return n, err
}

// checkpointing checkpoints over and over until stop is called.
func checkpointing(t *testing.T, db *DB) (stop func()) {
	quit, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for err == nil {
			select {
			case <-quit:
				done <- nil
				return
			default:
				_, err = db.Admin().Checkpoint(context.Background())
			}
		}
		done <- err
	}()
	return func() {
		close(quit)
		require.NoError(t, <-done)
	}
}

const writers, rounds = 20, 6

// moveOne takes one from a and gives it to b, so that their sum never changes; and counts in c.
func moveOne(ctx context.Context, tx *Txn) error {
	for _, m := range []struct {
		id string
		by int
	}{{"a", -1}, {"b", 1}, {"c", 1}} {
		n, err := numberIn(ctx, tx, m.id)
		if err != nil {
			return err
		}
		if err := tx.Put(ctx, Artefact{ID: m.id, Text: fmt.Sprint(n + m.by)}); err != nil {
			return err
		}
	}
	return nil
}

func verifyCount(t *testing.T, db *DB, want int) {
	for id, n := range map[string]int{"a": -want, "b": want, "c": want} {
		text := must(textOf(db.Scope("acme"), id))(t)
		require.Equal(t, fmt.Sprint(n), text, "artefact %s: an update was lost, or done twice", id)
	}
	hist := must(loop.Collect(db.Scope("acme").Versions(context.Background(), "c", AtMost(1000, "", nil))))(t)
	require.Len(t, hist, want, "versions")
}

// TestNoLostUpdate: 20 goroutines commit to the same artefacts, half of them vouched by the host and retried, half of
// them speculative through the gate; checkpoints run beside, and readers who must never see half a transaction.
func TestNoLostUpdate(t *testing.T) {
	t.Parallel()
	path := dbtest.CheckedPath[store.Problem](t, openChecked)
	db := openTest(t, path, Options{WorkingSet: 1 << 12})
	s := db.Scope("acme", WithActor("writer"))
	stop := checkpointing(t, db)
	readersDone, reading := make(chan error), make(chan struct{})
	go func() { readersDone <- readSums(ctx, db, reading) }()

	var conflicts atomic.Int64
	err := together(writers, func(i int) error {
		for range rounds {
			for {
				var err error
				if i%2 == 0 {
					err = s.Update(ctx, func(tx *Txn) error { return moveOne(ctx, tx) })
				} else {
					err = speculate(ctx, s)
				}
				if errors.Is(err, store.ErrConflict) {
					conflicts.Add(1)
					continue
				}
				if err != nil {
					return err
				}
				break
			}
		}
		return nil
	})
	close(reading)
	require.NoError(t, err)
	require.NoError(t, <-readersDone)
	stop()
	verifyCount(t, db, writers*rounds)
	t.Logf("%d conflicts", conflicts.Load())
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{})
	verifyCount(t, db, writers*rounds)
	require.NoError(t, db.Close())
}

// speculate is a transaction of an agent; what it saw and overwrites is judged at its commit.
func speculate(ctx context.Context, s *Scope) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := moveOne(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx, Verdict{Confidence: .9, By: "checker"})
}

// readSums reads a and b by one query, which is one snapshot, and adds them up: never half a transaction.
func readSums(ctx context.Context, db *DB, stop <-chan struct{}) error {
	return together(3, func(int) error {
		for {
			select {
			case <-stop:
				return nil
			case <-time.After(100 * time.Microsecond): // the writers are what is tested
			}
			if err := readSum(ctx, db); err != nil {
				return err
			}
		}
	})
}

func readSum(ctx context.Context, db *DB) error {
	found, err := storeOf(db).Candidates(ctx, store.CandidateQuery{Scopes: store.Scopes{"acme"}, Recent: 10})
	if err != nil {
		return err
	}
	var keys []store.PageKey
	for _, c := range found.Hits {
		if c.Ref.ID == "a" || c.Ref.ID == "b" {
			keys = append(keys, c.Key)
		}
	}
	pages, err := storeOf(db).Load(ctx, store.Scopes{"acme"}, keys, store.WantText)
	if err != nil {
		return err
	}
	sum := 0
	for _, p := range pages {
		n := 0
		if p.Err != nil {
			return p.Err
		}
		if _, err := fmt.Sscan(p.Text, &n); err != nil {
			return err
		}
		sum += n
	}
	if len(pages) != 0 && len(pages) != 2 || sum != 0 {
		return fmt.Errorf("half a transaction at lsn %d: %d pages with sum %d", found.LSN, len(pages), sum)
	}
	return nil
}

// TestNoLostUpdateControl: without the reads that make a transaction expect what it saw, updates are lost, and the count
// shows it; with a transaction in two halves, a reader sees one.
func TestNoLostUpdateControl(t *testing.T) {
	db := openTest(t, dbtest.CheckedPath[store.Problem](t, openChecked), Options{})
	s := db.Scope("acme")
	var read sync.WaitGroup
	read.Add(4)
	require.NoError(t, together(4, func(int) error {
		text, err := textOf(s, "c")
		read.Done()
		read.Wait() // all have read the same
		n := 0
		if text != "" {
			_, err = fmt.Sscan(text, &n)
		}
		if err == nil {
			_, err = s.Put(ctx, Artefact{ID: "c", Text: fmt.Sprint(n + 1)})
		}
		return err
	}))
	require.NotEqual(t, "4", must(textOf(s, "c"))(t))

	must(s.Put(ctx, Artefact{ID: "a", Text: "-1"}))(t)
	require.ErrorContains(t, readSum(ctx, db), "half a transaction")
	must(s.Put(ctx, Artefact{ID: "b", Text: "1"}))(t)
	require.NoError(t, readSum(ctx, db))
}

// TestSameID: 8 goroutines commit under one id at the same time, again and again: it is applied once, and all get the
// same answer, also after a checkpoint and after opening again.
func TestSameID(t *testing.T) {
	path := dbtest.CheckedPath[store.Problem](t, openChecked)
	db := openTest(t, path, Options{})
	commit := func(db *DB, id string) (store.Outcome, error) {
		var out store.Outcome
		tx, err := db.Scope("acme").Begin(ctx, WithID(id), WithOnStale(store.AllowStale))
		if err != nil {
			return out, err
		}
		err = tx.Put(ctx, Artefact{ID: "page-" + id[20:], Text: id})
		if err == nil {
			err = tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"})
		}
		return tx.Outcome(), err
	}
	var ids []string
	var outcomes []store.Outcome
	stop := checkpointing(t, db)
	for range 25 {
		id := must(newID())(t)
		outs := make([]store.Outcome, 8)
		require.NoError(t, together(8, func(i int) (err error) {
			outs[i], err = commit(db, id.String())
			return err
		}))
		for _, o := range outs {
			require.Equal(t, outs[0], o)
		}
		ids, outcomes = append(ids, id.String()), append(outcomes, outs[0])
	}
	stop()
	again := func(db *DB) {
		for i, id := range ids {
			require.Equal(t, outcomes[i], must(commit(db, id))(t))
			require.Equal(t, uint32(1), must(db.Scope("acme").Get(ctx, "page-"+id[20:]))(t).Version, "applied once")
		}
	}
	again(db)
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{})
	again(db)
	require.Equal(t, uint64(len(ids)), must(db.Stats(ctx))(t).LSN)
	require.NoError(t, db.Close())
}

// TestCloseBeside closes a database while others write, read, search, assemble and checkpoint: each of them ends with
// ErrClosed, nothing that was answered is lost, and nothing hangs.
func TestCloseBeside(t *testing.T) {
	t.Parallel()
	for round := range 32 {
		path := dbtest.CheckedMemoryPath[store.Problem](t, openChecked)
		db := openTest(t, path, Options{WorkingSet: int64(round%2) - 1})
		s := db.Scope("acme")
		must(s.Put(ctx, Artefact{ID: "page", Text: "a text to be found"}))(t)
		var answered [4]atomic.Int64
		started := make(chan struct{}, 64)
		work := []func(w int) error{
			func(w int) error {
				n := answered[w].Load() + 1
				_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("w", w), Text: fmt.Sprint(n)})
				if err == nil {
					answered[w].Store(n)
				}
				return err
			},
			func(int) error { _, err := s.Get(ctx, "page"); return err },
			func(int) error { _, err := s.Search(ctx, "text", 3); return err },
			func(int) error { _, err := s.Assemble(ctx, Query{Text: "text", Budget: 500}); return err },
			func(int) error { _, err := db.Admin().Checkpoint(ctx); return err },
			func(int) error { _, err := db.Head(ctx); return err },
			func(int) error { _, err := db.Admin().Check(ctx, nil); return err },
			func(int) error { _, err := loop.Collect(s.Artefacts(ctx, "", AtMost(10, "", nil))); return err },
			func(int) error { _, err := db.Stats(ctx); return err },
		}
		done := make(chan error)
		go func() {
			done <- together(len(work)+3, func(i int) error {
				w, do := 0, work[0]
				if i < len(work) {
					do = work[i]
				} else {
					w = i - len(work) + 1
				}
				for n := 0; ; n++ {
					if err := do(w); err != nil {
						if errors.Is(err, store.ErrClosed) {
							return nil
						}
						return fmt.Errorf("worker %d: %w", i, err)
					}
					if n == 0 {
						started <- struct{}{}
					}
					time.Sleep(100 * time.Microsecond) // or those that only read memory keep all processors from those that wait for a disk
				}
			})
		}()
		for range len(work) + 3 {
			<-started
		}
		require.NoError(t, db.Close())
		require.NoError(t, <-done)
		db = openTest(t, path, Options{})
		for w := range answered {
			require.Equal(t, fmt.Sprint(answered[w].Load()), must(textOf(db.Scope("acme"), fmt.Sprint("w", w)))(t))
		}
		require.NoError(t, db.Close())
	}
}

// TestContextEnds: a context that ends gives up waiting, not the commit: it is there or not, and its id tells.
func TestContextEnds(t *testing.T) {
	path := dbtest.CheckedPath[store.Problem](t, openChecked)
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	require.NoError(t, together(8, func(i int) error {
		for n := range 30 {
			id, err := newID()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			put := func(ctx context.Context) error {
				return s.Update(ctx, func(tx *Txn) error {
					return tx.Put(ctx, Artefact{ID: fmt.Sprintf("page-%d-%d", i, n), Text: id.String()})
				}, WithID(id.String()))
			}
			if err := put(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			cancel()
			for range 2 {
				if err := put(context.Background()); err != nil {
					return err
				}
			}
			v, err := s.Get(context.Background(), fmt.Sprintf("page-%d-%d", i, n))
			if err != nil || v.Version != 1 || v.Text != id.String() {
				return fmt.Errorf("page %d of %d: %+v, %w", n, i, v, err)
			}
		}
		return nil
	}))
}

// Every leaf comes once and in order, also when checkpoints cut the log under the follower.
func TestFollowManifests(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	const puts = 60
	written := make(chan struct{})
	defer func() { <-written }()
	go func() {
		defer close(written)
		for i := range puts {
			if _, err := s.Put(context.Background(), Artefact{ID: fmt.Sprint(i), Text: "what is followed"}); err != nil { // ctx may end before the answer
				t.Error(err)
				cancel()
				return
			}
			if i%7 == 0 {
				if _, err := db.Admin().Checkpoint(ctx); err != nil {
					t.Error(err)
					cancel()
				}
			}
		}
	}()
	var next uint64
	require.ErrorIs(t, filestore.FollowManifests(ctx, path, nil, "", 0, time.Millisecond, func(r *manifest.Record) error {
		require.Equal(t, next, r.Index)
		if next++; next == puts {
			cancel()
		}
		return nil
	}), context.Canceled)
	require.EqualValues(t, puts, next)
}
