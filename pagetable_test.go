package ctxpage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"crypto/rand"
	"testing/iotest"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// What a cut is made from is worked out once for a page in memory, and counted with it.
func TestPartsStayWithTheFrame(t *testing.T) {
	ctx := context.Background()
	const limit = 40 << 10
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{WorkingSet: limit})
	defer db.Close()
	s := db.Scope("acme")
	for i := range 30 {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("policy-", i), Kind: KindChunk, Text: fmt.Sprint(i, " ", strings.Repeat(refundPage, 3))})
		require.NoError(t, err)
	}
	look := func(topK int) *Assembly {
		a, err := s.Assemble(ctx, Query{Text: "refund limit", Budget: 330, TopK: topK})
		require.NoError(t, err)
		return a
	}
	first := look(1)
	require.Equal(t, manifest.FormRange, first.Blocks[0].Form)
	f := db.table.slot(first.Blocks[0].Num).Load()
	made := f.parts.Load()
	require.NotNil(t, made)
	require.Equal(t, int64(len(f.text))+frameOverhead+made.Bytes(), f.bytes)
	require.Equal(t, f.bytes, db.table.stats().Bytes)
	again := look(1)
	require.Equal(t, first.Text(), again.Text())
	require.Same(t, made, f.parts.Load())
	for range 3 {
		look(30) // more than there is room for
		require.LessOrEqual(t, db.table.stats().Bytes, int64(limit))
	}
	require.Positive(t, db.table.stats().Evictions)
}

const refundPage = "# Refunds\n\nThis page tells how refunds are made at the desk. " +
	"Mr. Lund wrote it in May. The coffee machine is on the second floor. " +
	"A refund goes back to the card that was charged. The refund limit for agents is $400 per case. " +
	"Above the limit a manager decides about the refund. Lunch is at noon. " +
	"Please water the plants on Fridays. Refunds are booked the same day. Parking is free on Sundays. " +
	"The printer needs paper of the heavier kind.\n"

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

// A salt is random to its last byte also when the randomness comes a byte at a time.
func TestSaltsAreWhole(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{Rand: iotest.OneByteReader(rand.Reader)})
	require.NoError(t, err)
	defer db.Close()
	put, err := db.makePut(Artefact{ID: "a", Text: "t"}, store.Validator{})
	require.NoError(t, err)
	require.NotEqual(t, make([]byte, store.DigestSaltSize-1), put.Pages[0].Salt[1:])
}

// silentStore answers nothing, and counts how often it was asked.
type silentStore struct {
	store.Store
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

// A reader in flight keeps the versions that were current when it began; a frame that is pinned stays whole whatever gc
// drops.
func TestGCKeepsWhatIsPinned(t *testing.T) {
	ctx := context.Background()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	db := openTest(t, dbtest.MemoryPath(t), Options{Clock: func() time.Time { at = at.Add(time.Second); return at }})
	defer db.Close()
	s := db.Scope("acme")
	_, err := s.Put(ctx, Artefact{ID: "a", Text: "one"})
	require.NoError(t, err)
	frames, _, err := db.table.load(ctx, store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: 1}}, nil)
	require.NoError(t, err)
	reading, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = s.Put(ctx, Artefact{ID: "a", Text: "two"})
	require.NoError(t, err)
	rep, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
	require.NoError(t, err)
	require.Equal(t, store.KeptInUse, rep.Kept[0].Reason)
	require.NoError(t, reading.Rollback())
	rep, err = db.Admin().GC(ctx, GCOptions{KeepFor: -1})
	require.Equal(t, "one", frames[0].text, "what is pinned is in memory")
	db.table.unpin(frames)
	require.NoError(t, err)
	require.Equal(t, 1, rep.Dropped.Versions)
	_, errs, err := db.table.load(ctx, store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: 1}}, nil)
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], ErrGone, "the frame went with the page")
	require.Equal(t, "acme:a#1@1", db.RefOf(ctx, 1))
}
