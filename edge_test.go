package ctxpage_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func found(t *testing.T, s *Scope, text string) []string {
	t.Helper()
	hits, err := hitsOf(s.Search(ctx, text, 10))
	require.NoError(t, err)
	return hitIDs(hits)
}

// Of two artefacts that retire a third the later one answers, also after a reopen, whichever was made first.
func TestTheLastSupersederAnswers(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "first", Text: "apples"})
	put(t, s, Artefact{ID: "old", Text: "zebra crossing"})
	put(t, s, Artefact{ID: "second", Text: "pears", Supersedes: []string{"old"}})
	put(t, s, Artefact{ID: "first", Text: "plums", Supersedes: []string{"old"}})
	require.Equal(t, []string{"first"}, found(t, s, "zebra"))
	db = reopen(t, db, Options{})
	require.Equal(t, []string{"first"}, found(t, db.Scope("acme"), "zebra"))
}

// What was put again after it had been retired stands, whatever becomes of the one that had retired it.
func TestWhatStandsAgainStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new.txt")
	for name, after := range map[string]func(s *Scope) error{
		"deleted":   func(s *Scope) error { return s.Delete(ctx, "new") },
		"refetched": func(s *Scope) error { writeFile(t, path, "other words"); _, err := s.Get(ctx, "new"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, Options{FileRoots: []string{dir}})
			s := db.Scope("acme")
			writeFile(t, path, "pears")
			put(t, s, Artefact{ID: "old", Text: "zebra crossing"})
			put(t, s, Artefact{ID: "new", Source: "file:" + path, Supersedes: []string{"old"}})
			put(t, s, Artefact{ID: "old", Text: "zebra crossing again"})
			require.Equal(t, []string{"old"}, found(t, s, "zebra"))
			require.NoError(t, after(s))
			require.Equal(t, []string{"old"}, found(t, s, "zebra"))
			db = reopen(t, db, Options{FileRoots: []string{dir}})
			require.Equal(t, []string{"old"}, found(t, db.Scope("acme"), "zebra"))
		})
	}
}

func TestListingsOfAnyLimit(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range 70 {
		put(t, s, Artefact{ID: strings.Repeat("x", i+1), Text: "t"})
	}
	for _, limit := range []int{math.MinInt, -1, 0, math.MaxInt} {
		list, err := listing.Collect(s.Artefacts(ctx, "", AtMost(limit, "", nil)))
		require.NoError(t, err)
		require.Len(t, list, 70)
		list, err = listing.Collect(s.Versions(ctx, "x", AtMost(limit, "", nil)))
		require.NoError(t, err)
		require.Len(t, list, 1)
		_, err = listing.Collect(s.Versions(ctx, "x", AtMost(limit, "4000000000", nil)))
		require.ErrorIs(t, err, ErrInvalid, "a cursor from elsewhere")
		_, err = listing.Collect(db.Scopes(ctx, "", AtMost(limit, "", nil)))
		require.NoError(t, err)
		_, err = listing.Collect(db.Review().Batches(ctx, "", true, AtMost(limit, "", nil)))
		require.NoError(t, err)
	}
}

// An id from the future would make the database forget the outcomes of the present.
func TestIDsFromTheFuture(t *testing.T) {
	clock := newClock()
	db := open(t, Options{Clock: clock.now})
	s := db.Scope("acme")
	const far = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
	err := s.Update(ctx, func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "a", Text: "t"}) }, WithID(far))
	require.ErrorIs(t, err, ErrInvalid)
	_, err = s.Get(ctx, "a")
	require.ErrorIs(t, err, ErrNotFound)
}

// A backup to a path where something of a database stands is refused, and takes nothing away.
func TestBackupTakesNothingAway(t *testing.T) {
	db := open(t, Options{})
	put(t, db.Scope("acme"), Artefact{ID: "a", Text: "t"})
	for _, suffix := range []string{"", "-wal", "-manifest"} {
		to := filepath.Join(t.TempDir(), "copy.ctx")
		require.NoError(t, os.Mkdir(to+suffix, 0o700))
		writeFile(t, filepath.Join(to+suffix, "mine"), "precious")
		_, err := db.Admin().Backup(ctx, to, nil)
		require.ErrorContains(t, err, to+suffix+" already exists")
		b, err := os.ReadFile(filepath.Join(to+suffix, "mine"))
		require.NoError(t, err)
		require.Equal(t, "precious", string(b))
	}
}

// A reader makes no file, not even a lock, and a writer is kept out all the same.
func TestReadOnlyMakesNoFile(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	put(t, db.Scope("acme"), Artefact{ID: "a", Text: "t"})
	to := filepath.Join(t.TempDir(), "copy.ctx")
	_, err := db.Admin().Backup(ctx, to, nil)
	require.NoError(t, err)
	files := func() (names []string) {
		require.NoError(t, filepath.Walk(filepath.Dir(to), func(path string, _ os.FileInfo, err error) error {
			names = append(names, path)
			return err
		}))
		return names
	}
	before := files()
	ro, err := Open(to, Options{ReadOnly: true})
	require.NoError(t, err)
	get(t, ro.Scope("acme"), "a")
	require.Equal(t, before, files())
	_, err = Open(to, Options{})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, ro.Close())
}

// slowSource answers its first fetch at once, and others when it is let go, or when their caller gives up.
type slowSource struct {
	asked   *atomic.Bool
	fetched chan struct{}
	let     chan struct{}
}

func (s slowSource) Probe(context.Context, string, store.Validator) (store.Validator, error) {
	return store.Validator{Stamp: "new", Hash: 7}, nil
}

func (s slowSource) Fetch(ctx context.Context, _ string) (store.Fetched, error) {
	if s.asked.CompareAndSwap(false, true) {
		return store.Fetched{Text: "old words", Validator: store.Validator{Stamp: "old", Hash: 6}}, nil
	}
	s.fetched <- struct{}{}
	select {
	case <-s.let:
		return store.Fetched{Text: "new words", Validator: store.Validator{Stamp: "new", Hash: 7}}, nil
	case <-ctx.Done():
		return store.Fetched{}, ctx.Err()
	}
}

// One caller who gives up says nothing about the source: whoever waited for his refetch does it again.
func TestRefetchOfACallerWhoGaveUp(t *testing.T) {
	src := slowSource{asked: new(atomic.Bool), fetched: make(chan struct{}), let: make(chan struct{})}
	db := open(t, Options{Sources: map[string]store.Source{"slow": src}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Source: "slow:x"})
	gone, cancel := context.WithCancel(ctx)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Get(gone, "a"); first <- err }()
	<-src.fetched
	go func() {
		v, err := s.Get(ctx, "a")
		if err == nil && v.Text != "new words" {
			err = errors.New(v.Text)
		}
		second <- err
	}()
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	<-src.fetched
	close(src.let)
	require.NoError(t, <-second)
}

func TestVerdictLimits(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for name, v := range map[string]Verdict{
		"by":      {Confidence: 1, By: strings.Repeat("x", store.MaxID+1)},
		"control": {Confidence: 1, By: "a\nb"},
		"note":    {Confidence: 1, By: "checker", Note: strings.Repeat("x", store.MaxNote+1)},
	} {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
		require.ErrorIs(t, tx.Commit(ctx, v), ErrInvalid, name)
		require.NoError(t, tx.Rollback(), "%s: the transaction is still open", name)
	}
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
	var held *HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "  "}), &held)
	require.Equal(t, ReasonNoVerdict, held.Reason, "blanks are nobody")
	_, err := db.Review().Approve(ctx, held.Batch, Approval{By: "anna", Note: strings.Repeat("x", store.MaxNote+1)})
	require.ErrorIs(t, err, ErrInvalid)
	tx = begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "t"}))
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: 1, By: strings.Repeat("x", store.MaxID), Note: strings.Repeat("x", store.MaxNote)}))
}
