package ctxpage

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/store"
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

// The page that was read longest ago is evicted first, whatever the order in which the pages were loaded.
func TestEvictsTheLeastRecentlyRead(t *testing.T) {
	table := newPageTable(oneText{}, 3*oneTextBytes)
	for _, num := range []uint64{0, 1, 2, 1, 2, 0, 3} {
		table.unpin(read(t, table, num))
	}
	require.False(t, resident(table, 1))
	for _, num := range []uint64{0, 2, 3} {
		require.True(t, resident(table, num), num)
	}
}

// The working set evicts the pages that golang-lru evicts, in the same order, for random reads with and without pins.
// An eviction that meets a pinned page passes it over; the page then counts as read when its last pin goes.
func TestEvictionOrderIsThatOfGolangLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		table := newPageTable(oneText{}, int64(size)*oneTextBytes)
		list, err := simplelru.NewLRU[uint64, bool](1<<20, nil)
		require.NoError(t, err)
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

// BenchmarkHit reads resident pages of a working set, by one goroutine and by many.
func BenchmarkHit(b *testing.B) {
	const pages = 1 << 12
	for _, readers := range []int{1, 64} {
		b.Run(fmt.Sprint("readers=", readers), func(b *testing.B) {
			table := newPageTable(oneText{}, 1<<30)
			for num := range uint64(pages) {
				table.unpin(read(b, table, num))
			}
			b.ReportAllocs()
			b.ResetTimer()
			var done sync.WaitGroup
			for g := range readers {
				done.Go(func() {
					out := make([]*frame, 0, 1)
					keys := make([]store.PageKey, 1)
					at := uint64(g) * 7919
					for range b.N / readers {
						at = at*6364136223846793005 + 1442695040888963407
						keys[0] = store.PageKey{Num: at >> 40 % pages, Version: 1}
						frames, _, err := table.load(context.Background(), nil, keys, out)
						if err != nil || frames[0] == nil {
							b.Error(err)
							return
						}
						table.unpin(frames)
					}
				})
			}
			done.Wait()
			b.StopTimer()
			require.Equal(b, int64(pages), table.faults.Load(), "every read of the benchmark was a hit")
		})
	}
}
