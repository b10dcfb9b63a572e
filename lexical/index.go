package lexical

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// maxSpan bounds the distance between the lowest and the highest page number in
// an index: columns are dense, and a query counts pages in 32 bits.
const maxSpan = 1 << 32

// Index is the inverted index of one database. See the package comment for the
// lock that its owner holds.
type Index struct {
	// mu guards the tail against those who change it without the owner's lock:
	// Checkpoint takes a snapshot of it, and Invert enters what Add left. A reader
	// needs it for that alone: while it holds the owner's lock nothing is added, so
	// once nothing is left nobody changes the tail.
	mu sync.Mutex

	manifest manifest
	cols     *columns
	tail     tail
	last     uint64 // greatest number added

	freshMu sync.Mutex // after mu
	fresh   []Doc      // added, not in the tail yet
	behind  atomic.Bool
	removed map[uint64]struct{} // not in cols, but still in a segment or in the tail
	pending map[uint32]uint64   // segment id → removed numbers in it
	saved   int                 // numbers in the removed row
	work    sync.Pool           // of *work, the scratch memory of queries

	commonPages  uint64 // the constants; tests make them small
	invertAtOnce uint32
	stepTerms    int
}

// Open reads the list of segments and the columns of their pages. The owner then
// adds the pages above Through again. Errors wrap ErrCorrupt or ErrAnalyzer.
func Open(rows Rows) (*Index, error) {
	x := &Index{cols: newColumns(), removed: map[uint64]struct{}{}, pending: map[uint32]uint64{}, commonPages: commonPages, invertAtOnce: invertAtOnce, stepTerms: stepTerms}
	key := []byte{rowList}
	row := rows.Get(key)
	if row == nil {
		return x, nil
	}
	m, err := decodeManifest(key, row)
	if err != nil {
		return nil, err
	}
	x.manifest = m
	if err := x.openRemoved(rows); err != nil {
		return nil, err
	}
	return x, x.openColumns(rows)
}

func (x *Index) openRemoved(rows Rows) error {
	key := []byte{rowRemoved}
	row := rows.Get(key)
	if row == nil {
		return nil
	}
	nums, err := decodeRemoved(key, row)
	if err != nil {
		return err
	}
	for _, n := range nums {
		x.removed[n] = struct{}{}
	}
	x.saved = len(nums)
	x.countPending()
	return nil
}

func (x *Index) openColumns(rows Rows) error {
	m := x.manifest
	if n := len(m.segments); n > 0 && m.segments[n-1].last-m.segments[0].first >= maxSpan {
		return corrupt([]byte{rowList}, "page numbers span more than %d", uint64(maxSpan))
	}
	for _, s := range m.segments {
		err := eachDoc(rows, s, func(d docRow) {
			if _, gone := x.removed[d.num]; !gone {
				x.cols.add(d.num, d.scope, d.group, d.length)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Reset deletes every row of the index, whatever made them. The owner opens a
// new Index afterwards and adds all its pages.
func Reset(w Writer) error {
	for _, kind := range []byte{rowList, rowRemoved, rowDocs, rowTerm} {
		if err := deletePrefix(w, []byte{kind}); err != nil {
			return err
		}
	}
	return nil
}

// Through is the last page number that segments answer for. The owner adds the
// pages above it again after Open.
func (x *Index) Through() uint64 { return x.manifest.through }

// mostFresh pages are kept for Invert; more are entered by Add.
const mostFresh = 256

// Add takes a page version. Numbers come in ascending order; one that is not above
// all before is ignored, so adding again is harmless. The page's terms are entered
// by Invert, or by the next call that needs them: they are most of the work, and
// the owner need not hold its lock for it.
func (x *Index) Add(d Doc) {
	if d.Num <= max(x.last, x.manifest.through) {
		return
	}
	x.last = d.Num
	x.cols.add(d.Num, d.Scope, d.Group, uint32(d.Analysis.Length))
	x.freshMu.Lock()
	x.fresh = append(x.fresh, d)
	n := len(x.fresh)
	x.behind.Store(true)
	x.freshMu.Unlock()
	if n >= mostFresh {
		x.settle()
	}
}

// Invert enters the terms of pages that were added, unless somebody is at it. It
// may be called under no lock, at any time.
func (x *Index) Invert() {
	if x.behind.Load() && x.mu.TryLock() {
		defer x.mu.Unlock()
		x.invert()
	}
}

// settle enters what was added before the call.
func (x *Index) settle() {
	if x.behind.Load() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.invert()
	}
}

// invert is called with mu held.
func (x *Index) invert() {
	for {
		x.freshMu.Lock()
		docs := x.fresh
		x.fresh = nil
		x.behind.Store(len(docs) > 0) // only when they are in the tail is nothing left
		x.freshMu.Unlock()
		if len(docs) == 0 {
			return
		}
		for _, d := range docs {
			x.tail.add(d)
		}
	}
}

// Remove takes page versions out of results and statistics at once. Their
// postings go when their segment is next written; until then the numbers are
// kept by Checkpoint, which must run in the transaction that deletes the pages
// or in a later one. Unknown numbers are ignored.
func (x *Index) Remove(nums ...uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.invert()
	for _, n := range nums {
		if !x.cols.remove(n) {
			continue
		}
		x.removed[n] = struct{}{}
		if s, ok := x.manifest.find(n); ok {
			x.pending[s.id]++
			continue
		}
		x.tail.remove(n)
	}
}

// find returns the segment that a page number falls into.
func (m manifest) find(num uint64) (segment, bool) {
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].last >= num })
	if i == len(m.segments) || m.segments[i].first > num {
		return segment{}, false
	}
	return m.segments[i], true
}

func (x *Index) countPending() {
	clear(x.pending)
	for n := range x.removed {
		if s, ok := x.manifest.find(n); ok {
			x.pending[s.id]++
		}
	}
}

// Stats are the integers behind the scores, summed over a chain of scopes only:
// they say nothing about pages of strangers and do not depend on what lies in
// the tail. Every page version counts until it is removed.
type Stats struct {
	Pages  uint64   // N
	Length uint64   // terms in those pages
	DF     []uint64 // pages with a term, in the order of the terms asked for
}

// Stats reads the statistics of terms in a chain of scopes. Errors wrap
// ErrCorrupt.
func (x *Index) Stats(scopes []uint32, rows Rows, terms []string) (Stats, error) {
	w := x.borrow()
	defer x.release(w)
	return w.gather(rows, distinct(scopes), terms)
}

// ScoreDoc scores a page that is not in the index, e.g. a transaction's own
// write, with the statistics that Stats returned for the same terms. For a page
// that is in the index it gives exactly Hit.Own.
func (x *Index) ScoreDoc(st Stats, a Analysis, terms []string) float64 {
	return x.ScoreDocBy(DefaultRanker(), st, a, terms)
}

// ScoreDocBy is ScoreDoc with a Ranker.
func (x *Index) ScoreDocBy(r Ranker, st Stats, a Analysis, terms []string) float64 {
	return scoreDoc(newPlan(r, st, x.commonPages), r, st, a, terms)
}

// ScoreDoc is Index.ScoreDoc for those who have the statistics and not the index: it
// may stand in another process.
func ScoreDoc(st Stats, a Analysis, terms []string) float64 {
	r := DefaultRanker()
	return scoreDoc(newPlan(r, st, commonPages), r, st, a, terms)
}

func scoreDoc(p plan, r Ranker, st Stats, a Analysis, terms []string) float64 {
	avg := average(st.Length, st.Pages)
	part := [2]float64{} // in the order of Search: words that are not common, common words
	for i, t := range p.order {
		at := slices.IndexFunc(a.Terms, func(c TermCount) bool { return c.Term == terms[t] })
		if at < 0 {
			continue
		}
		v := float64(p.weight[t] * positive(r.Saturation(uint64(a.Terms[at].N), uint64(a.Length), avg)))
		if i < p.strong {
			part[0] += v
		} else {
			part[1] += v
		}
	}
	return part[0] + part[1]
}

// distinct drops repeated scopes, which would be counted twice.
func distinct(scopes []uint32) []uint32 {
	out := slices.Clone(scopes)
	slices.Sort(out)
	return slices.Compact(out)
}

// Check walks every row and compares it with the columns: postings of a page
// must sum up to its length. Errors wrap ErrCorrupt. It is slow.
func (x *Index) Check(rows Rows) error {
	for _, s := range x.manifest.segments {
		if err := checkSegment(rows, s); err != nil {
			return err
		}
	}
	return nil
}

func checkSegment(rows Rows, s segment) error {
	left := make(map[uint64]uint64, s.docs)
	scope := make(map[uint64]uint32, s.docs)
	err := eachDoc(rows, s, func(d docRow) { left[d.num], scope[d.num] = uint64(d.length), d.scope })
	if err != nil {
		return err
	}
	err = eachList(rows, segmentKey(rowTerm, s.id), s, func(of uint32, _ string, l list) bool {
		known := true
		sound := l.each(func(num uint64, tf uint32) {
			at, ok := scope[num]
			known = known && ok && at == of
			left[num] -= uint64(tf)
		})
		return sound && known
	})
	if err != nil {
		return err
	}
	for num, n := range left {
		if n != 0 {
			return fmt.Errorf("%w: segment %d: postings of page %d do not add up to its length", ErrCorrupt, s.id, num)
		}
	}
	return nil
}
