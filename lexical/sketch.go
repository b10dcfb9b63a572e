package lexical

import (
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// sketch estimates how many different terms some parts of the tail have together. Parts share most of their words, so
// the sum of their terms is several times the number of rows that they become. A step that went by the sum wrote small
// segments, and a merge wrote them again: of short pages the index cost twice the CPU and wrote twice the bytes.
//
// It is linear counting: each term sets a bit, and the share of bits that are clear tells how many terms there are. Up to
// stepTerms terms the error is about a fiftieth. The hash is the same in every process, and so are the segments.
type sketch [sketchBits / 64]uint64

const sketchBits = 1 << 13

func (d *sketch) add(scope uint32, term []byte) {
	h := xxhash.Sum64(term) ^ uint64(scope)*0x9e3779b97f4a7c15
	h = (h ^ h>>32) % sketchBits
	d[h/64] |= 1 << (h % 64)
}

func (d *sketch) join(o *sketch) {
	for i, w := range o {
		d[i] |= w
	}
}

// estimate returns about how many different terms were added, and never more than most.
func (d *sketch) estimate(most int) int {
	set := 0
	for _, w := range d {
		set += bits.OnesCount64(w)
	}
	if set == sketchBits {
		return most
	}
	return min(most, int(math.Round(-sketchBits*math.Log1p(-float64(set)/sketchBits))))
}
