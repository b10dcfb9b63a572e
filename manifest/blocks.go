package manifest

import "sync/atomic"

// blocks caches what was read of the archive. Each page that is loaded from the
// file is compared with its leaf, which takes one read of the index and one of
// a segment; pages that were put together have their digests side by side.
//
// Invariant: archived bytes never change, so a block is valid as long as the
// archive is open. Behind the last archived leaf a file may have bytes of an
// interrupted archiving that the next one overwrites, so a block knows up to
// where it may be used.
//
// Readers take no lock. A slot has one block, the last that was read. A large
// archive that is read at random reads as often as without a cache.
type blocks struct {
	slots [blockSlots]atomic.Pointer[fileBlock]
}

const (
	blockSize  = 4 << 10
	blockSlots = 512 // 2 MiB, when all are in use
)

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
func (c *blocks) readAt(of uint64, f File, b []byte, off, end int64) error {
	at := off &^ (blockSize - 1)
	if off+int64(len(b)) > min(at+blockSize, end) {
		_, err := f.ReadAt(b, off)
		return err
	}
	slot := &c.slots[(of*31+uint64(at/blockSize))%blockSlots]
	if k := slot.Load(); k != nil && k.of == of && k.at == at && off+int64(len(b)) <= k.end {
		copy(b, k.data[off-at:])
		return nil
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
