package foreign

import (
	"crypto/sha256"
	"encoding/binary"
)

// repeats finds, in a first reading of a file, the ids that come more than once in it. Of those only the last item counts: if each
// were written, every import of the file would write them again.
//
// An id marks a bit of a fixed table. Only of ids whose bit was marked before, which are those that repeat and a few others, is the
// place of the last item kept, so the memory does not grow with a file without repeats.
type repeats struct {
	marked []uint64
	last   map[uint64]int // by digest of the id: the index of the last item that has it
}

const repeatBits = 1 << 26 // 8 MiB

func newRepeats() *repeats {
	return &repeats{marked: make([]uint64, repeatBits/64), last: map[uint64]int{}}
}

func idDigest(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.LittleEndian.Uint64(sum[:])
}

// note takes the id of the item with an index, in the order of the file.
func (r *repeats) note(id string, index int) {
	d := idDigest(id)
	word, bit := &r.marked[d%repeatBits/64], uint64(1)<<(d%64)
	if *word&bit != 0 {
		r.last[d] = index
	}
	*word |= bit
}

// repeated reports whether the id of an item occurs again later in the file. A nil *repeats knows of
// none.
func (r *repeats) repeated(id string, index int) bool {
	return r != nil && r.last[idDigest(id)] > index
}
