package ctxpage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// A page that a version does not have is gone, whatever a manifest says.
func TestLoadOfAVersionWithoutThePage(t *testing.T) {
	ctx := context.Background()
	db, _ := openInternal(t)
	scope := db.Scope("acme")
	for _, text := range []string{"one", "two"} {
		_, err := scope.Put(ctx, Artefact{ID: "a", Text: text})
		require.NoError(t, err)
	}
	for range 2 { // from the overlay, then from the file
		out, err := db.store.Load(ctx, nil, []store.PageKey{{Num: 1, Version: 1}, {Num: 1, Version: 2}, {Num: 2, Version: 1}, {Num: 2, Version: 2}, {Num: 2, Version: 9}}, store.WantHead)
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		require.NoError(t, out[3].Err)
		for _, i := range []int{1, 2, 4} {
			require.ErrorIs(t, out[i].Err, ErrGone)
		}
		_, err = db.Admin().Checkpoint(ctx)
		require.NoError(t, err)
	}
}

// A salt is random to its last byte also when the randomness comes a byte at a time.
func TestSaltsAreWhole(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true, Rand: iotest.OneByteReader(rand.Reader)})
	require.NoError(t, err)
	defer db.Close()
	put, err := db.makePut(Artefact{ID: "a", Text: "t"}, store.Validator{})
	require.NoError(t, err)
	require.NotEqual(t, make([]byte, store.DigestSaltSize-1), put.Pages[0].Salt[1:])
}

// After a Commit nobody knows the end of, Rollback does not claim one.
func TestRollbackOfAnUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	db, _ := openInternal(t)
	s := db.inside().Engine
	tx, err := db.Scope("acme").Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
	_ = s.Fail(errors.New("the disk died"))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), ErrOutcomeUnknown)
	leaves := dbtest.SizeOf(db.store.Audit())
	require.ErrorIs(t, tx.Rollback(), ErrOutcomeUnknown)
	require.Equal(t, leaves, dbtest.SizeOf(db.store.Audit()))
	require.ErrorIs(t, tx.Rollback(), ErrTxnDone)
	require.ErrorContains(t, db.Close(), "the disk died")
}

// Numbers in a forged file, with right checksums, are refused before anything as long as them is made.
func TestForgedNumbers(t *testing.T) {
	ctx := context.Background()
	for name, forge := range map[string]func(meta *bbolt.Bucket) error{
		"page": func(meta *bbolt.Bucket) error {
			key := headKey(1, 1)
			row, err := codec.Unseal('m', key, slices.Clone(meta.Get(key)))
			if err != nil {
				return err
			}
			at := len(row) - len(bytes.SplitN(row, []byte("forged-id"), 2)[1]) + 1 // after the number of the page
			require.EqualValues(t, 1, row[at], "the tokens of the page")
			return meta.Put(key, codec.Seal('m', key, slices.Replace(row, at, at+1, binary.AppendVarint(nil, 1<<39)...)))
		},
		"artefact": func(meta *bbolt.Bucket) error {
			key := headKey(1, 1)
			row, err := codec.Unseal('m', key, slices.Clone(meta.Get(key)))
			if err != nil {
				return err
			}
			at := 7 // after version, kind, provenance, priority, flags, what is implied, and the scope
			require.EqualValues(t, 1, row[at])
			return meta.Put(key, codec.Seal('m', key, slices.Replace(row, at, at+1, binary.AppendUvarint(nil, 1<<31)...)))
		},
		"scope": func(meta *bbolt.Bucket) error {
			if err := meta.Delete(scopeKey(1)); err != nil {
				return err
			}
			return meta.Put(scopeKey(1<<31), codec.Seal('m', scopeKey(1<<31), []byte("acme")))
		},
		"group": func(meta *bbolt.Bucket) error {
			if err := meta.Delete(groupKey(1)); err != nil {
				return err
			}
			return meta.Put(groupKey(1<<39), codec.Seal('m', groupKey(1<<39), append([]byte{0, 0, 0, 1}, "talk"...)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := openInternal(t)
			_, err := db.Scope("acme").Put(ctx, Artefact{ID: "forged-id", Text: "t", Group: "talk"})
			require.NoError(t, err)
			require.NoError(t, db.Close())
			b, err := bbolt.Open(db.Path(), 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, b.Update(func(tx *bbolt.Tx) error { return forge(tx.Bucket(names.Meta)) }))
			require.NoError(t, b.Close())
			for _, ro := range []bool{true, false} {
				_, err = Open(db.Path(), Options{ReadOnly: ro})
				require.ErrorIs(t, err, ErrCorrupt)
			}
		})
	}
}

// The memory that assemblies use again holds no page after one, whatever the next one overwrites.
func TestScratchHoldsNoPage(t *testing.T) {
	ctx := t.Context()
	db, _ := openInternal(t)
	s := db.Scope("acme")
	for i := range 40 {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("page", i), Text: fmt.Sprintf("zebra %d", i)})
		require.NoError(t, err)
	}
	large := func() error { _, err := s.Assemble(ctx, Query{Text: "zebra", Budget: 10_000}); return err }
	for _, call := range []func() error{
		large,
		func() error { _, err := s.Search(ctx, "zebra", 40); return err },
		func() error { _, err := s.Assemble(ctx, Query{Text: "zebra", Budget: 10}); return err },
	} {
		var room *scratch
		for room == nil || cap(room.items) == 0 { // a pool may drop what it is given
			require.NoError(t, large())
			if err := call(); err != nil {
				require.ErrorIs(t, err, ErrBudget)
			}
			room, _ = db.scratches.Get().(*scratch)
		}
		for _, it := range room.items[:cap(room.items)] {
			require.Nil(t, it.frame)
			require.Nil(t, it.head)
			require.Empty(t, it.text)
		}
		for _, p := range room.pages[:cap(room.pages)] {
			require.Empty(t, p.Text)
		}
	}
}

// silentStore answers nothing, and counts how often it was asked.
type silentStore struct {
	Store
	asked int
}

func (s *silentStore) Mark() store.Mark { return store.Mark{LSN: 7} }

func (s *silentStore) Changes(context.Context, uint64, time.Duration) (store.Changes, error) {
	s.asked++
	return store.Changes{}, store.ErrLocked
}

func (s *silentStore) Load(context.Context, store.Scopes, []store.PageKey, store.Want) ([]store.Loaded, error) {
	s.asked++
	return nil, store.ErrLocked
}

// A fault asks a store that is silent once: each question costs its caller the whole time that a store may be silent.
func TestFaultOfASilentStore(t *testing.T) {
	silent := &silentStore{}
	table := newPageTable(silent, 1<<20)
	table.seen.Store(3)
	_, _, err := table.load(context.Background(), store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: 1}}, nil)
	require.ErrorIs(t, err, store.ErrLocked)
	require.Equal(t, 1, silent.asked)
}
