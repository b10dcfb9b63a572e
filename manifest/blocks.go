package manifest

import "sync/atomic"

// blocks keeps what was read of the archive. Each page that is loaded from the file is compared with its leaf, which takes
// one read of the index and one of a segment; pages that were put together have their digests side by side. Archived bytes
// never change, so a block is good for as long as the archive is open. Beyond the last archived leaf a file may hold
// what an interrupted archiving left and the next one overwrites: a block says up to where it may be used.
//
// Readers take no lock. A slot has one block, the last that was read; a large archive read at random reads as often as
// without.
type blocks struct {
	slots [blockSlots]atomic.Pointer[fileBlock]
}

const (
	blockSize  = 4 << 10
	blockSlots = 512 // 2 MiB, when all are in use
)

type fileBlock struct {
	of   uint64 // first leaf of the segment, or ofIndex
	at   int64  // of the first byte
	end  int64  // bytes of the file from here on are not known
	data [blockSize]byte
}

// ofIndex stands for the index where else the first leaf of a segment stands.
const ofIndex = 1<<64 - 1

// readAt fills b with the bytes of a file at off. The caller knows that those before end are archived. What does not lie in
// one block before end is read as it is.
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
	if _, err := f.ReadAt(k.data[:n], at); err != nil { // what was asked for may be whole
		_, err := f.ReadAt(b, off)
		return err
	}
	k.end = at + n
	slot.Store(k)
	copy(b, k.data[off-at:])
	return nil
}
