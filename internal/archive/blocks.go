package archive

import (
	"math/bits"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/wal"
)

// blocks caches what was read of the archive. Each page that is loaded from the
// file is compared with its leaf, which takes one read of the index and one of
// a segment; pages that were put together have their digests side by side.
//
// Invariant: archived bytes never change, so a block is valid as long as the
// archive is open. Behind the last archived leaf a file may have bytes of an
// interrupted archiving that the next one overwrites, so a block knows up to
// where it may be used.
//
// Readers take no lock. A slot has one block. Another takes its place when it
// is asked for twice in a row; until then only what was asked for is read. So
// blocks that are used again stay, such as the ends of large leaves, and a large
// archive that is read at random reads little more than it would without a
// cache and makes no garbage. Of a small one at most a quarter is in memory, so
// the cache does not outweigh the columns of the few pages that there are.
type blocks struct {
	slots  [blockSlots]atomic.Pointer[fileBlock]
	missed [blockSlots]atomic.Uint32 // the block that was last asked for in vain, by the end of its number
}

const (
	blockSize  = 4<<10 - 32 // with what tells its place, 4 KiB of memory
	blockSlots = 512        // 2 MiB, when all are in use
	leastSlots = 16
)

// slotsOf returns how many slots a file uses that is archived up to end. It is
// a power of two, so half of the blocks keep their slot when the file grows.
// Segments after the first belong to a large archive and use all slots.
func slotsOf(of uint64, end int64) uint64 {
	if of != 0 && of != ofIndex {
		return blockSlots
	}
	quarter := min(uint64(end)/(4*blockSize), blockSlots)
	return max(uint64(1)<<bits.Len64(quarter)>>1, leastSlots)
}

// fileBlock is a block of a file that was read. It does not change after it is in its slot.
type fileBlock struct {
	of   uint64 // first leaf of the segment, or ofIndex
	at   int64  // offset of the first byte
	end  int64  // the block is not valid from this offset on
	data [blockSize]byte
}

// ofIndex stands for the index in fileBlock.of.
const ofIndex = 1<<64 - 1

// readAt fills b with the bytes of a file at off. The caller knows that the
// bytes before end are archived. A range that is not within one block before
// end is read without the cache.
func (c *blocks) readAt(of uint64, f wal.File, b []byte, off, end int64) error {
	at := off - off%blockSize
	if off+int64(len(b)) > min(at+blockSize, end) {
		_, err := f.ReadAt(b, off)
		return err
	}
	number := of*31 + uint64(at/blockSize)
	i := number % slotsOf(of, end)
	slot := &c.slots[i]
	if k := slot.Load(); k != nil {
		switch {
		case k.of != of || k.at != at:
			if c.missed[i].Swap(uint32(number)) != uint32(number) {
				_, err := f.ReadAt(b, off)
				return err
			}
		case off+int64(len(b)) <= k.end:
			copy(b, k.data[off-at:])
			return nil
		}
	}
	k := &fileBlock{of: of, at: at}
	n := min(blockSize, end-at)
	if _, err := f.ReadAt(k.data[:n], at); err != nil { // the range itself may be readable
		_, err := f.ReadAt(b, off)
		return err
	}
	k.end = at + n
	slot.Store(k)
	copy(b, k.data[off-at:])
	return nil
}
