package conversation

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

// The roles that mean something to a window. Others are accepted.
const (
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
	System    = "system"
)

// Block is a turn as a pass sees it: metadata and the hashes of its tokens, never its text.
type PassBlock struct {
	ID     string
	Turn   int64 // position in the conversation, not negative
	Tokens int
	Hashes []uint64 // prose.TokenSet of the text: sorted, distinct
	Role   string
	Kind   string
	Pinned bool
	Source uint64 // hash of the content, for the key only
}

// Verdict is the decision on one block: all that is stored of it. Scores are computed from it (Judged), and are the same
// on every machine.
type Verdict struct {
	Action session.Action
	Reason Reason
	Hits   int   // keywords found in the block
	Delta  int64 // turns behind the head
}

// Reason is why a block got its action.
type Reason uint8

// The reasons of a verdict. With ByScore the score decided. The others are guards, which only ever raise what the score
// decided.
const (
	ByScore    Reason = iota // R reached the retain cut, missed the evict cut, or lies between
	ByPin                    // pinned by the caller
	ByKeepLast               // one of the newest blocks
	ByNewest                 // the newest user turn
	ByUserTurn               // a user turn is never below page
	ByAge                    // too young to be evicted
)

var reasonNames = [...]string{"score", "pinned", "keep-last", "newest user turn", "user turn", "too young to evict"}

func (r Reason) String() string { return reasonNames[r] }

// ErrParams is matched by the error of Judge for parameters that are out of range.
var ErrParams = errors.New("session: parameters out of range")

// Judge decides every block of a history, given in the order of the conversation. head is the turn that counts as now, 0
// for the newest. Equal keys mean equal verdicts; a key is an xxhash64, which detects accidents and not an adversary, and
// is never 0. Judge is linear in the blocks and reads no text.
func Judge(blocks []PassBlock, intent Intent, p session.Params, head int64) (key uint64, verdicts []Verdict, err error) {
	if err := checkParams(p); err != nil {
		return 0, nil, err
	}
	newest := int64(0)
	for i := range blocks {
		newest = max(newest, blocks[i].Turn)
	}
	if head == 0 {
		head = newest
	} else if head < newest && !p.ClampFuture {
		return 0, nil, fmt.Errorf("session: head turn %d: expected the newest turn, which is %d, or a later one", head, newest)
	}
	verdicts = make([]Verdict, len(blocks))
	digest, find := xxhash.New(), intent.finder()
	var buf []byte
	for i := range blocks { // the token hashes are most of what a pass touches: it goes over them once
		b, v := &blocks[i], &verdicts[i]
		buf = b.appendTo(buf[:0])
		_, _ = digest.Write(buf)
		v.Hits, v.Delta = find.hits(b.Hashes), max(head-b.Turn, 0)
		_, _, r := scores(&p, intent.Len(), *v)
		v.Action = Classify(r, p.RetainCut, p.EvictCut)
	}
	guard(blocks, p, verdicts)
	return keyOf(digest.Sum64(), intent, p, head), verdicts, nil
}

// checkParams reports every parameter that is out of range.
func checkParams(p session.Params) error {
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

// scores computes the similarity, the recency and the score of a block.
func scores(p *session.Params, keywords int, v Verdict) (similarity, recency, r float64) {
	if keywords > 0 {
		similarity = float64(v.Hits) / float64(keywords)
	}
	recency = recencyOf(v.Delta)
	return similarity, recency, Score(p.Alpha, p.Beta, similarity, recency)
}

// guard raises verdicts; it never lowers one.
func guard(blocks []PassBlock, p session.Params, vs []Verdict) {
	newestUser := -1
	for rank, i := range newestFirst(len(blocks), func(i int) int64 { return blocks[i].Turn }) {
		b := &blocks[i]
		if b.Role == User && newestUser < 0 {
			newestUser = i
		}
		raise := func(to session.Action, why Reason) {
			if v := &vs[i]; v.Action > to {
				v.Action, v.Reason = to, why
			}
		}
		switch {
		case b.Pinned:
			raise(session.Retain, ByPin)
		case rank < p.KeepLast:
			raise(session.Retain, ByKeepLast)
		case p.UserFloor && i == newestUser:
			raise(session.Retain, ByNewest)
		case p.UserFloor && b.Role == User:
			raise(session.Page, ByUserTurn)
		case vs[i].Delta < p.MinEvictAge:
			raise(session.Page, ByAge)
		}
	}
}

// newestFirst orders n items by turn, the later ones first among equals.
func newestFirst(n int, turn func(i int) int64) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	byTurn := func(a, b int) int { return cmp.Compare(turn(b), turn(a)) }
	if !slices.IsSortedFunc(order, byTurn) {
		slices.SortStableFunc(order, byTurn)
	}
	return order
}

// Judged returns a verdict with its scores.
func Judged(p *session.Params, keywords, at int, id string, v Verdict) session.Verdict {
	out := session.Verdict{Index: at, ID: id, Action: v.Action, Reason: v.Reason.String(), Hits: v.Hits, Delta: v.Delta}
	out.Similarity, out.Recency, out.R = scores(p, keywords, v)
	return out
}

// appendTo appends everything of the block that a verdict depends on, and the hash of its contents.
func (b *PassBlock) appendTo(buf []byte) []byte {
	for _, s := range [...]string{b.ID, b.Role, b.Kind} {
		buf = append(binary.LittleEndian.AppendUint64(buf, uint64(len(s))), s...)
	}
	buf = appendWords(buf, uint64(b.Turn), uint64(b.Tokens), flag(b.Pinned), b.Source, uint64(len(b.Hashes)))
	return appendWords(buf, b.Hashes...)
}

func keyOf(history uint64, intent Intent, p session.Params, head int64) uint64 {
	b := appendWords(nil, history, xxhash.Sum64(appendWords(nil, intent.hashes...)), uint64(head),
		math.Float64bits(p.Alpha), math.Float64bits(p.Beta), math.Float64bits(p.RetainCut), math.Float64bits(p.EvictCut),
		uint64(p.KeepLast), flag(p.UserFloor), uint64(p.MinEvictAge), flag(p.ClampFuture))
	return max(xxhash.Sum64(b), 1)
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

// Intent is the present subject of the conversation: a set of tokens. The zero Intent has none, and every similarity is 0. It
// is immutable.
type Intent struct{ hashes []uint64 } // sorted, distinct

// IntentOf returns the intent of a query: its keywords, and the verb and the values of the slots of its intent IR. Names
// of slots are no keywords; in the published pager they are, which is a known fault. There keywords are not tokenised
// either, so "retention score" never matches.
func IntentOf(q session.PassQuery) Intent {
	var words []string
	if q.IR != nil {
		words, _ = prose.Terms(append(Flatten(q.IR.Slots), q.IR.Verb)...)
	}
	_, hashes := prose.Terms(append(words, q.Keywords...)...)
	return Intent{hashes}
}

// Len is the number of tokens, the denominator of the similarity.
func (in Intent) Len() int { return len(in.hashes) }

// finder counts the hits of one intent in many blocks. Most tokens of a block are not in the intent: one bit for the low
// end of each of its hashes excludes them, where a walk along both lists mispredicts at every turn.
type finder struct {
	hashes []uint64
	near   [finderBits / 64]uint64
}

const finderBits = 2048

func (in Intent) finder() finder {
	f := finder{hashes: in.hashes}
	for _, h := range in.hashes {
		f.near[h%finderBits/64] |= 1 << (h % 64)
	}
	return f
}

func (f *finder) hits(hashes []uint64) (n int) {
	if len(hashes) > 32*len(f.hashes) { // so long a block is searched
		for _, h := range f.hashes {
			at, found := slices.BinarySearch(hashes, h)
			if found {
				n++
			}
			hashes = hashes[at:]
		}
		return n
	}
	for _, h := range hashes {
		if f.near[h%finderBits/64]&(1<<(h%64)) != 0 {
			if _, found := slices.BinarySearch(f.hashes, h); found {
				n++
			}
		}
	}
	return n
}

// Flatten returns the strings and numbers inside a decoded JSON value, those of objects in the order of their keys.
func Flatten(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case json.Number:
		return []string{v.String()}
	case float64:
		return []string{prose.Short(v)}
	case []any:
		for _, item := range v {
			out = append(out, Flatten(item)...)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, Flatten(v[k])...)
		}
	}
	return out
}

// Recency is 1 / (1 + ln(1+delta)), given lnDelta = ln(1+delta).
func Recency(lnDelta float64) float64 { return 1 / (1 + lnDelta) }

// Score is alpha*similarity + beta*recency, each operation rounded on its own:
// the conversions forbid the compiler a fused multiply-add, which would change
// the last bit on some processors.
func Score(alpha, beta, similarity, recency float64) float64 {
	return float64(alpha*similarity) + float64(beta*recency)
}

// Classify compares the unrounded score with the cuts. Retain is tested first,
// so inverted cuts retain; a NaN score is neither and pages.
func Classify(score, retainCut, evictCut float64) session.Action {
	switch {
	case score >= retainCut:
		return session.Retain
	case score < evictCut:
		return session.Evict
	}
	return session.Page
}

// Ln is the natural logarithm of a positive finite x, correctly rounded, the
// same on every platform. math.Log is assembly on some and differs in the last
// bit from the C library for about one integer in a hundred, which moves a
// score off a cut it should sit on. The series is summed in pairs of floats
// (about 106 bits); against glibc it differs for 54 of the first 2,000,000
// integers, and each time the rounding of glibc is wrong.
func Ln(x float64) float64 {
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = f*2, e-1
	}
	s := quotient(f-1, twoSum(f, 1)) // atanh argument; f−1 is exact here
	z := s.times(s)
	sum := lnTail(z.hi)
	for k := lnPaired - 1; k >= 0; k-- {
		sum = lnCoef[k].plusSmaller(z.times(sum))
	}
	r := s.times(sum)
	return pair{2 * r.hi, 2 * r.lo}.plus(ln2.times(pair{float64(e), 0})).hi
}

// pair is hi+lo with |lo| at most half a unit in the last place of hi.
type pair struct{ hi, lo float64 }

const (
	lnPaired = 10 // terms of the series that need both halves
	lnTerms  = 21
)

var (
	ln2    = pair{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
	lnCoef = lnCoefficients()
)

// lnCoefficients returns 1/(2k+1) for the terms of atanh.
func lnCoefficients() (c [lnTerms]pair) {
	for k := range c {
		c[k] = quotient(1, pair{float64(2*k + 1), 0})
	}
	return c
}

// lnTail sums the terms from lnPaired on; they are below 2^-55 of the whole, so
// one float is enough.
func lnTail(z float64) pair {
	t := 0.0
	for k := lnTerms - 1; k >= lnPaired; k-- {
		t = math.FMA(t, z, lnCoef[k].hi)
	}
	return pair{t, 0}
}

func twoSum(a, b float64) pair {
	s := a + b
	t := s - a
	return pair{s, (a - (s - t)) + (b - t)}
}

func (p pair) plus(q pair) pair {
	s := twoSum(p.hi, q.hi)
	t := twoSum(p.lo, q.lo)
	s = twoSum(s.hi, s.lo+t.hi)
	return twoSum(s.hi, s.lo+t.lo)
}

// plusSmaller adds a smaller pair of the same sign.
func (p pair) plusSmaller(q pair) pair {
	s := orderedSum(p.hi, q.hi)
	return orderedSum(s.hi, s.lo+(p.lo+q.lo))
}

// orderedSum is twoSum for |a| ≥ |b|.
func orderedSum(a, b float64) pair {
	s := a + b
	return pair{s, b - (s - a)}
}

func (p pair) times(q pair) pair {
	hi := float64(p.hi * q.hi)
	lo := math.FMA(p.hi, q.hi, -hi)
	lo += float64(p.hi*q.lo) + float64(p.lo*q.hi)
	return orderedSum(hi, lo)
}

// quotient divides a float by a pair.
func quotient(a float64, d pair) pair {
	q := a / d.hi
	r := math.FMA(-q, d.hi, a) - float64(q*d.lo)
	return twoSum(q, r/d.hi)
}

// recencies remembers what recencyOf computed, as bits; 0: not yet. It takes the
// logarithms, a third of a pass, out of all passes but the first.
var recencies [1 << 14]atomic.Uint64

// recencyOf is Recency at a distance of delta turns behind the head.
func recencyOf(delta int64) float64 {
	if uint64(delta) >= uint64(len(recencies)) {
		return Recency(Ln(1 + float64(delta)))
	}
	known := &recencies[delta]
	bits := known.Load()
	if bits == 0 {
		bits = math.Float64bits(Recency(Ln(1 + float64(delta))))
		known.Store(bits)
	}
	return math.Float64frombits(bits)
}
