package conversation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
)

// A pass judges every turn, so its verdicts are one row of a few bytes a turn, by page number; scores are computed again from
// them (PassRow.Verdict), and are the same on every machine. A row for each turn was rejected: a pass would rewrite them all.

// Verdict is what a pass decided about one block, as it is stored.
type Verdict struct {
	Action session.Action
	reason session.Reason
	hits   int
	delta  int64
}

// The verdicts of a pass in one row: a version, their number, then for each in the order of page numbers the number's
// growth, action and reason in a byte, keywords found, turns behind the head.
const verdictVersion = 1

func encodeVerdicts(blocks []Block) []byte {
	at := make([]*Block, 0, len(blocks))
	for i := range blocks {
		if blocks[i].Judged {
			at = append(at, &blocks[i])
		}
	}
	byNum := func(a, b *Block) int { return cmp.Compare(a.Nums[0], b.Nums[0]) }
	if !slices.IsSortedFunc(at, byNum) {
		slices.SortFunc(at, byNum)
	}
	e := codec.Encoder{B: make([]byte, 0, 8*len(at)+8)}
	e.U8(verdictVersion)
	e.Count(len(at))
	last := uint64(0)
	for _, b := range at {
		e.Count(int(b.Nums[0] - last))
		e.U8(uint8(b.Verdict.Action) | uint8(b.Verdict.reason)<<2)
		e.Count(b.Verdict.hits)
		e.Count(int(b.Verdict.delta))
		last = b.Nums[0]
	}
	return e.B
}

// DecodeVerdicts reads the row of a pass: verdicts by the first page numbers of the turns.
func DecodeVerdicts(b []byte) (map[uint64]Verdict, error) {
	d := codec.Decoder{B: b}
	if v := d.U8(); v != verdictVersion {
		return nil, fmt.Errorf("%w: verdicts of version %d, expected %d", codec.ErrMalformed, v, verdictVersion)
	}
	n := d.Count(4)
	out := make(map[uint64]Verdict, n)
	num := uint64(0)
	for range n {
		num += d.Uvarint()
		kind := d.U8()
		out[num] = Verdict{session.Action(kind & 3), session.Reason(kind >> 2), int(d.Uvarint()), int64(d.Uvarint())}
		if kind&3 == 3 {
			d.Fail()
		}
	}
	return out, d.Done()
}

// renumberVerdicts is the row of a pass for a database that has the pages under other numbers.
func renumberVerdicts(row []byte, to map[uint64]uint64) ([]byte, error) {
	of, err := DecodeVerdicts(row)
	if err != nil {
		return nil, err
	}
	blocks := make([]Block, 0, len(of))
	for num, v := range of {
		if to[num] != 0 {
			blocks = append(blocks, Block{Nums: []uint64{to[num]}, Judged: true, Verdict: v})
		}
	}
	slices.SortFunc(blocks, func(a, b Block) int { return cmp.Compare(a.Nums[0], b.Nums[0]) })
	return encodeVerdicts(blocks), nil
}

// levels of the verdicts of a pass.
var verdictLevels = [...]session.Level{session.Retain: session.Raw, session.Page: session.Stub, session.Evict: session.Cold}

// passReasons is what a pass gives as its reasons, written once and not for each turn.
type passReasons struct {
	pass           uint64
	evicted, paged string
}

func (c *Conversation) passed() *passReasons {
	if n := c.State.InForce; c.reasons.pass != n {
		c.reasons = passReasons{n, fmt.Sprintf("evicted by pass %d", n), fmt.Sprintf("paged by pass %d", n)}
	}
	return &c.reasons
}
