package ctxpage

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oneText is a store whose pages all have texts of one length.
type oneText struct{ store.Store }

const oneTextBytes = 488 + frameOverhead // a frame of oneText

func (oneText) Mark() store.Mark { return store.Mark{LSN: 1} }

func (oneText) Load(_ context.Context, _ store.Scopes, keys []store.PageKey, _ store.Want) ([]store.Loaded, error) {
	out := make([]store.Loaded, len(keys))
	for i, k := range keys {
		out[i] = store.Loaded{Key: k, Page: 1, Head: &store.Head{Version: k.Version, Rows: make([]store.PageRow, 1)}, Text: fmt.Sprintf("%-488d", k.Num)}
	}
	return out, nil
}

// read pins one page of a table, and fails the test unless it is there.
func read(t require.TestingT, table *pageTable, num uint64) []*frame {
	frames, _, err := table.load(context.Background(), nil, []store.PageKey{{Num: num, Version: 1}}, nil)
	require.NoError(t, err)
	require.Equal(t, num, frames[0].num)
	return frames
}

// resident reports whether a page has a frame, without reading it.
func resident(table *pageTable, num uint64) bool {
	s := table.slot(num)
	return s != nil && s.Load() != nil
}

// The working set evicts the pages that golang-lru evicts, in the same order, for random reads with and without pins.
// An eviction that meets a pinned page passes it over; the page then counts as read when its last pin goes.
func TestEvictionOrderIsThatOfGolangLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		table := newPageTable(oneText{}, int64(size)*oneTextBytes)
		list := must(simplelru.NewLRU[uint64, bool](1<<20, nil))(t)
		pins, off := map[uint64][][]*frame{}, map[uint64]bool{}
		var gone []uint64 // by the model, in order
		trim := func() {
			for list.Len()+len(off) > size {
				num, _, ok := list.RemoveOldest()
				if !ok {
					return
				}
				if len(pins[num]) > 0 {
					off[num] = true
				} else {
					gone = append(gone, num)
				}
			}
		}
		release := func(num uint64) {
			last := len(pins[num]) - 1
			frames := pins[num][last]
			if pins[num] = pins[num][:last]; last == 0 && off[num] {
				delete(off, num)
				list.Add(num, true)
				trim()
			}
			table.unpin(frames)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			num := rapid.Uint64Range(0, 11).Draw(t, "page")
			if held := len(pins[num]); held > 0 && rapid.Bool().Draw(t, "release") {
				release(num)
			} else {
				frames := read(t, table, num)
				pins[num] = append(pins[num], frames)
				if !off[num] {
					list.Add(num, true)
					trim()
				}
				if rapid.IntRange(0, 3).Draw(t, "keep") > 0 {
					release(num)
				}
			}
			for num := range uint64(12) {
				require.Equal(t, list.Contains(num) || off[num], resident(table, num), "page %d of %v, evicted so far %v", num, list.Keys(), gone)
			}
			require.Equal(t, int64(len(gone)), table.evictions.Load())
			require.Equal(t, list.Keys(), table.order(), "the order of what may be evicted next")
		}
	})
}

// order lists the pages that eviction would take, the next one first.
func (t *pageTable) order() []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frames.settle()
	return t.frames.list.Keys()
}

// Readers on many goroutines leave no frame uncounted, unlisted or pinned, and what all of them read last stays.
func TestConcurrentHitsAreOrdered(t *testing.T) {
	const size = 64
	table := newPageTable(oneText{}, size*oneTextBytes)
	var readers sync.WaitGroup
	for g := range 8 {
		readers.Go(func() {
			for i := range 4000 {
				table.unpin(read(t, table, uint64((i*(g+1)+i/7)%(size+size/4))))
			}
		})
	}
	readers.Wait()
	for num := range uint64(size) {
		table.unpin(read(t, table, num))
	}
	want := make([]uint64, size)
	for i := range want {
		want[i] = uint64(i)
	}
	require.Equal(t, want, table.order())
	st := table.stats()
	require.Zero(t, st.Pinned)
	require.Equal(t, int64(size*oneTextBytes), st.Bytes)
}

// What a cut is made from is worked out once for a page in memory, and counted with it.
func TestPartsStayWithTheFrame(t *testing.T) {
	const limit = 40 << 10
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{WorkingSet: limit})
	s := db.Scope("acme")
	for i := range 30 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("policy-", i), Kind: store.KindChunk, Text: fmt.Sprint(i, " ", strings.Repeat(refundPage, 3))}))(t)
	}
	look := func(topK int) *Assembly {
		return must(s.Assemble(ctx, Query{Text: "refund limit", Budget: 260, TopK: topK}))(t)
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

// TestTailsStayWithTheFrame: what a text comes to in a context is counted once for a page in memory, for each form that a turn has in
// one, and is part of the count of the context.
func TestTailsStayWithTheFrame(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme")
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Name: "Ana", Text: "Ana: the refund limit is $400"}, Turn{Role: "user", Text: "what is the refund limit?"}))(t)
	must(s.Put(ctx, Artefact{ID: "policy", Kind: store.KindFact, Text: "The refund limit is $400."}))(t)
	for _, session := range []string{"", "chat", ""} {
		look := func() *Assembly {
			a := must(s.Assemble(ctx, Query{Text: "refund limit", Budget: 4000, Session: session}))(t)
			require.Equal(t, db.opts.Counter.Count(a.Text()), a.Tokens)
			return a
		}
		first := look()
		require.Equal(t, first.Text(), look().Text())
		for _, b := range first.Blocks {
			f := db.table.slot(b.Num).Load()
			kept := f.tail.Load()
			require.NotZero(t, kept, b.Ref)
			f.tail.Store(kept + 1)
			require.Equal(t, first.Tokens+1, must(s.Assemble(ctx, Query{Text: "refund limit", Budget: 4000, Session: session}))(t).Tokens, "the control")
			f.tail.Store(kept)
		}
	}
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
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("page", i), Text: fmt.Sprintf("zebra %d", i)}))(t)
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
				require.ErrorIs(t, err, store.ErrBudget)
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
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{Rand: iotest.OneByteReader(rand.Reader)}))(t)
	defer db.Close()
	put := must(db.makePut(Artefact{ID: "a", Text: "t"}, store.Validator{}))(t)
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
	at := dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	db := openTest(t, dbtest.MemoryPath(t), Options{Clock: func() time.Time { return at.Add(time.Second) }})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "a", Text: "one"}))(t)
	frames, _, err := db.table.load(ctx, store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: 1}}, nil)
	require.NoError(t, err)
	reading := must(s.Begin(ctx))(t)
	must(s.Put(ctx, Artefact{ID: "a", Text: "two"}))(t)
	rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.Equal(t, format.KeptInUse, rep.Kept[0].Reason)
	require.NoError(t, reading.Rollback())
	rep, err = db.Admin().GC(ctx, GCOptions{KeepFor: -1})
	require.Equal(t, "one", frames[0].text, "what is pinned is in memory")
	db.table.unpin(frames)
	require.NoError(t, err)
	require.Equal(t, 1, rep.Dropped.Versions)
	_, errs, err := db.table.load(ctx, store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: 1}}, nil)
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], store.ErrGone, "the frame went with the page")
	require.Equal(t, "acme:a#1@1", db.RefOf(ctx, 1))
}

// TestOwnParts: what others may write is theirs no more once a writer opened it; a reader refuses it.
func TestOwnParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(Open(path, Options{}))(t)
	must(db.Scope("acme").Put(t.Context(), Artefact{ID: "x", Text: "text"}))(t)
	require.NoError(t, db.Close())
	parts := []string{path, path + ".lock", path + "-wal", path + "-manifest"}
	for _, dir := range parts[2:] {
		for _, e := range must(os.ReadDir(dir))(t) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	require.Greater(t, len(parts), 4)
	for _, part := range parts {
		for _, mode := range []os.FileMode{0o777, 0o666, 0o620} {
			if st, err := os.Stat(part); err != nil {
				continue // a segment of before
			} else if st.IsDir() {
				mode |= 0o700
			}
			require.NoError(t, os.Chmod(part, mode))
			reader, err := Open(path, Options{ReadOnly: true})
			if mode&0o002 != 0 {
				require.ErrorIs(t, err, store.ErrInvalid, part)
				require.ErrorContains(t, err, "chmod go-w", part)
			} else {
				require.NoError(t, err, part)
				require.NoError(t, reader.Close())
			}
			db, err := Open(path, Options{})
			require.NoError(t, err, part)
			require.Zero(t, must(os.Stat(part))(t).Mode().Perm()&0o022, part)
			require.NoError(t, db.Close())
		}
	}
	db, err := Open(path, Options{ReadOnly: true})
	require.NoError(t, err, "the control")
	must(db.Scope("acme").Get(t.Context(), "x"))(t)
	require.NoError(t, db.Close())
}
