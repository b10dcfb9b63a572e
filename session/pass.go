package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Role is the speaker of a block.
type Role string

// The roles a block may have; others are accepted and mean nothing special.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
	System    Role = "system"
)

// Block is what a pass needs of one message: metadata and the hashes of its
// tokens, never its text.
type Block struct {
	ID     string // caller's key, unique in the history
	Turn   int64  // position in the conversation, not negative
	Tokens int
	Hashes []uint64 // TokenSet of the text: sorted, distinct
	Role   Role
	Kind   string
	Pinned bool
	Source uint64 // hash of the content; enters the idempotence key only
}

// Params are the weights, the cuts and the guards of a pass. CompatParams and RecommendedParams are the two presets.
type Params struct {
	Alpha, Beta         float64 // weights of similarity and recency
	RetainCut, EvictCut float64 // R ≥ RetainCut retains, R < EvictCut evicts
	KeepLast            int     // the newest blocks, always retained
	UserFloor           bool    // user turns are never below page, the newest one is retained
	MinEvictAge         int64   // turns a block must be behind the head to be evicted
	ClampFuture         bool    // a block newer than the head counts as being at the head
}

// CompatParams are the defaults of the reference pager, without guards.
func CompatParams() Params { return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.55, EvictCut: 0.20} }

// RecommendedParams have lower cuts, and the guards on.
func RecommendedParams() Params {
	return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.30, EvictCut: 0.10, KeepLast: 6, UserFloor: true}
}

// Input is one pass: the blocks in the order of the conversation, the intent,
// the parameters.
type Input struct {
	Blocks []Block
	Intent Intent
	Params Params
	Head   int64   // head turn; 0 means the highest turn of the blocks
	Last   PassKey // key of the last pass that was recorded; 0 means none
}

// PassKey identifies history, intent and parameters of a pass: equal keys, equal verdicts. It is an xxhash64, which
// detects accidents, not an adversary. Zero is never a key.
type PassKey uint64

// Verdict is the decision of a pass on one block, and why.
type Verdict struct {
	Index      int
	ID         string
	Action     Action
	Reason     Reason
	R          float64 // unrounded
	Similarity float64
	Recency    float64
	Hits       int   // keywords found in the block
	Delta      int64 // turns behind the head
}

// Result is the outcome of a pass. Verdicts is in the order of the blocks.
type Result struct {
	Key      PassKey
	History  uint64 // hash of the blocks
	Intent   uint64 // hash of the intent
	Keywords int
	Params   Params
	Repeated bool // Key equals Input.Last: nothing new to record
	Verdicts []Verdict
	Count    [3]int // blocks by Action
	Tokens   [3]int // tokens by Action
}

// Validate reports every parameter that is out of range. The error matches ErrParams.
func (p Params) Validate() error {
	var faults []error
	for _, f := range []struct {
		name  string
		value float64
	}{{"Alpha", p.Alpha}, {"Beta", p.Beta}, {"RetainCut", p.RetainCut}, {"EvictCut", p.EvictCut}} {
		if math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			faults = append(faults, fmt.Errorf("%w: %s must be finite", ErrParams, f.name))
		}
	}
	if p.EvictCut > p.RetainCut {
		faults = append(faults, fmt.Errorf("%w: EvictCut is above RetainCut", ErrParams))
	}
	if p.KeepLast < 0 || p.MinEvictAge < 0 {
		faults = append(faults, fmt.Errorf("%w: KeepLast and MinEvictAge must not be negative", ErrParams))
	}
	return errors.Join(faults...)
}

// Pass decides every block of a history, or refuses the whole of it with a
// *BlockError or ErrParams. It is linear in the blocks and reads no text.
func Pass(in Input) (Result, error) {
	if err := in.Params.Validate(); err != nil {
		return Result{}, err
	}
	head, err := in.check()
	if err != nil {
		return Result{}, err
	}
	r := Result{Intent: in.intentHash(), Keywords: in.Intent.Len(), Params: in.Params, Verdicts: make([]Verdict, len(in.Blocks))}
	if r.History, err = in.read(r.Verdicts); err != nil {
		return Result{}, err
	}
	r.Key = in.key(r, head)
	r.Repeated = r.Key == in.Last
	for i := range r.Verdicts {
		in.score(i, head, &r.Verdicts[i])
	}
	in.guard(r.Verdicts)
	for i := range r.Verdicts {
		a := r.Verdicts[i].Action
		r.Count[a]++
		r.Tokens[a] += in.Blocks[i].Tokens
	}
	return r, nil
}

// read goes once over the token hashes, which are most of what a pass touches:
// it refuses those out of order, counts the hits, and hashes the history.
func (in *Input) read(vs []Verdict) (history uint64, err error) {
	digest, find := xxhash.New(), in.Intent.finder()
	var buf []byte
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if !ascending(b.Hashes) {
			return 0, &BlockError{Index: i, ID: b.ID, Field: "hashes", Err: ErrHashes}
		}
		vs[i].Hits = find.hits(b.Hashes)
		buf = b.appendTo(buf[:0])
		_, _ = digest.Write(buf)
	}
	return digest.Sum64(), nil
}

func ascending(hashes []uint64) bool {
	for i := 1; i < len(hashes); i++ {
		if hashes[i-1] >= hashes[i] {
			return false
		}
	}
	return true
}

// check refuses malformed blocks and finds the head turn.
func (in *Input) check() (head int64, err error) {
	seen := make(map[string]struct{}, len(in.Blocks))
	for i := range in.Blocks {
		b := &in.Blocks[i]
		field, err := b.check()
		if seen[b.ID] = struct{}{}; err == nil && len(seen) <= i {
			field, err = "id", ErrDuplicateID
		}
		if err != nil {
			return 0, &BlockError{Index: i, ID: b.ID, Field: field, Err: err}
		}
		head = max(head, b.Turn)
	}
	if in.Head == 0 {
		return head, nil
	}
	if in.Head < head && !in.Params.ClampFuture {
		i := slices.IndexFunc(in.Blocks, func(b Block) bool { return b.Turn > in.Head })
		return 0, &BlockError{Index: i, ID: in.Blocks[i].ID, Field: "turn", Err: ErrFutureTurn}
	}
	return in.Head, nil
}

func (b *Block) check() (field string, err error) {
	switch {
	case b.ID == "" || !utf8.ValidString(b.ID):
		return "id", ErrID
	case b.Turn < 0:
		return "turn", ErrTurn
	case b.Tokens < 0:
		return "tokens", ErrParams
	}
	return "", nil
}

// score decides one block by its score alone; its hits are counted already.
func (in *Input) score(i int, head int64, v *Verdict) {
	b := &in.Blocks[i]
	v.Index, v.ID = i, b.ID
	if head > b.Turn { // a negative head is before all turns
		v.Delta = head - b.Turn
	}
	if k := in.Intent.Len(); k > 0 {
		v.Similarity = float64(v.Hits) / float64(k)
	}
	v.Recency = RecencyOf(v.Delta)
	v.R = Score(in.Params.Alpha, in.Params.Beta, v.Similarity, v.Recency)
	v.Action = Classify(v.R, in.Params.RetainCut, in.Params.EvictCut)
}

// guard raises verdicts; it never lowers one.
func (in *Input) guard(vs []Verdict) {
	order := in.newestFirst()
	newestUser := -1
	for rank, i := range order {
		b := &in.Blocks[i]
		if b.Role == User && newestUser < 0 {
			newestUser = i
		}
		switch v := &vs[i]; {
		case b.Pinned:
			v.raise(Retain, ByPin)
		case rank < in.Params.KeepLast:
			v.raise(Retain, ByKeepLast)
		case in.Params.UserFloor && i == newestUser:
			v.raise(Retain, ByNewest)
		case in.Params.UserFloor && b.Role == User:
			v.raise(Page, ByUserTurn)
		case v.Delta < in.Params.MinEvictAge:
			v.raise(Page, ByAge)
		}
	}
}

func (v *Verdict) raise(to Action, why Reason) {
	if v.Action > to {
		v.Action, v.Reason = to, why
	}
}

// newestFirst orders the blocks by turn, later ones in the history first among
// equals.
func (in *Input) newestFirst() []int {
	order := make([]int, len(in.Blocks))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := in.Blocks[a].Turn, in.Blocks[b].Turn; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return order
}

// appendTo appends everything of the block that a verdict depends on, and the
// hash of its contents.
func (b *Block) appendTo(buf []byte) []byte {
	buf = appendText(buf, b.ID)
	buf = appendText(buf, string(b.Role))
	buf = appendText(buf, b.Kind)
	buf = appendWords(buf, uint64(b.Turn), uint64(b.Tokens), flag(b.Pinned), b.Source, uint64(len(b.Hashes)))
	return appendWords(buf, b.Hashes...)
}

func (in *Input) intentHash() uint64 {
	return xxhash.Sum64(appendWords(nil, in.Intent.hashes...))
}

func (in *Input) key(r Result, head int64) PassKey {
	p := in.Params
	b := appendWords(nil, r.History, r.Intent, uint64(head),
		math.Float64bits(p.Alpha), math.Float64bits(p.Beta), math.Float64bits(p.RetainCut), math.Float64bits(p.EvictCut),
		uint64(p.KeepLast), flag(p.UserFloor), uint64(p.MinEvictAge), flag(p.ClampFuture))
	return PassKey(max(xxhash.Sum64(b), 1))
}

func (k PassKey) String() string { return fmt.Sprintf("%016x", uint64(k)) }

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendWords(b []byte, words ...uint64) []byte {
	b = slices.Grow(b, 8*len(words))
	at := b[len(b) : len(b)+8*len(words)]
	for i, w := range words {
		binary.LittleEndian.PutUint64(at[8*i:], w)
	}
	return b[:len(b)+len(at)]
}

func flag(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}
