package lexical

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// maxSpan bounds the distance between the lowest and the highest page number in
// an index: columns are dense, and a query counts pages in 32 bits.
const maxSpan = 1 << 32

// Index is the inverted index of one database. See the package comment for the lock that its owner
// holds.
//
// The way of a page, and under which lock each step runs:
//
//	Add ──▶ fresh ──Invert──▶ cols, open part ──full──▶ packed part ──Step, Apply──▶ segment
//	 │      freshMu           mu                        mu             mu, and the owner's write lock
//	 └────▶ last: at once, under the owner's write lock
//
//	last                    the owner's lock alone
//	manifest, merging       changed under the owner's write lock and mu, so either is enough to read
//	removed, pending        the same
//	cols, tail, parts       mu; loaded and purge too
//	fresh, waiting          freshMu
//
// A crash loses what is in memory only: the rows have a list of segments that is whole, and the
// owner adds the pages above Through again.
type Index struct {
	// mu guards columns and tail against changes without the owner's lock: Checkpoint takes a
	// snapshot of the tail, and Invert enters the pages that Add left. A reader needs it only to
	// finish that: while it holds the owner's lock no page is added, so neither changes once all
	// are entered.
	mu sync.Mutex

	manifest manifest
	cols     *columns
	tail     tail
	parts    partWriter
	last     uint64   // greatest number added
	loaded   uint64   // the last one of the open: after it the part is folded
	merging  *merging // what Step has not finished; nil: nothing

	freshMu sync.Mutex // after mu
	fresh   []Doc      // added, not in columns and tail yet
	waiting int        // their size
	behind  atomic.Bool
	unread  atomic.Bool         // pages of the tail may not be in lists yet
	removed map[uint64]struct{} // not in cols, but still in a segment or in the tail
	pending map[uint32]uint64   // segment id → removed numbers in it
	saved   int                 // numbers in the removed row
	work    sync.Pool           // of *work, the scratch memory of queries

	purge       bool   // every segment with a removed page is written anew
	commonPages uint64 // the constants; tests make them small
	stageDepth  int
	stepTerms   int
	stripePages uint64
	besides     int
}

// Open reads the list of segments and the columns of their pages. The owner then adds the pages
// above Through again. Errors wrap ErrCorrupt or ErrAnalyzer. Its time grows with the number of
// pages, not of words.
func Open(rows Rows) (*Index, error) {
	x, err := openList(rows)
	if err != nil {
		return nil, err
	}
	return x, x.openColumns(rows)
}

// openList is Open without the columns.
func openList(rows Rows) (*Index, error) {
	x := &Index{cols: newColumns(), removed: map[uint64]struct{}{}, pending: map[uint32]uint64{}, commonPages: commonPages, stageDepth: stageDepth, stepTerms: stepTerms, stripePages: stripePages, besides: besides}
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
	return x, x.openRemoved(rows)
}

// openRemoved reads the numbers that were removed and are still in a segment.
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

// openColumns reads the pages of all segments. The span of their numbers is bounded first, because
// the columns have a place for every number in it. A damaged list of segments could otherwise ask
// for the memory of 2^64 pages.
func (x *Index) openColumns(rows Rows) error {
	m := x.manifest
	if n := len(m.segments); n > 0 && m.segments[n-1].last-m.segments[0].first >= maxSpan {
		return corrupt([]byte{rowList}, "page numbers span more than %d", uint64(maxSpan))
	}
	for _, s := range m.segments {
		err := eachDoc(rows, s, func(d docRow) {
			if _, gone := x.removed[d.num]; !gone {
				x.cols.add(d)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Purge switches purging on or off. While it is on, a single removed page is reason enough to
// rewrite a segment, and Step goes on until no row has a word that only removed pages had.
func (x *Index) Purge(on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.purge = on
}

// Reset deletes every row of the index, whatever made them. The owner opens a
// new Index afterwards and adds all its pages.
func Reset(w Writer) error {
	for _, kind := range []byte{rowList, rowRemoved, rowDocs, rowScopes, rowTerm} {
		if _, err := deletePrefix(w, []byte{kind}, math.MaxInt); err != nil {
			return err
		}
	}
	return nil
}

// Through is the last page number that segments contain. After Open the owner adds the pages above
// it again.
func (x *Index) Through() uint64 { return x.manifest.through }

// mostFresh pages, of mostWaiting bytes, are kept for Invert; more are entered by Add itself: so
// pages that nobody inverts take bounded memory, and a question that comes then waits for little.
// From dueFresh pages or dueWaiting bytes on they are worth a goroutine.
const (
	mostFresh   = 1024
	mostWaiting = 256 << 10
	dueFresh    = 16
	dueWaiting  = 32 << 10
	atOnce      = 8  // pages that are entered before others get a turn
	keptFresh   = 64 // memory for so many stays
)

// Add adds a page version. Numbers come in ascending order; a number that is not above all earlier
// ones is ignored, so adding a page again is harmless. Invert analyses the page and enters it, or
// the next call that needs it does. That is most of the work, and Invert needs no lock of the owner.
func (x *Index) Add(d Doc) {
	if d.Num <= max(x.last, x.manifest.through) {
		return
	}
	x.last = d.Num
	x.freshMu.Lock()
	x.fresh = append(x.fresh, d)
	x.waiting += d.size()
	many := len(x.fresh) >= mostFresh || x.waiting >= mostWaiting
	x.behind.Store(true)
	x.freshMu.Unlock()
	if many {
		x.invertAll()
	}
}

// Loaded tells that the pages above Through were added. They are kept in little memory until others come. Call it before the
// first question.
func (x *Index) Loaded() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded = x.last; !x.behind.Load() {
		x.parts.fold(x.tail)
	}
}

// Due reports whether so many pages wait that the owner should call Invert. Fewer can wait for a
// call that needs them.
func (x *Index) Due() bool {
	x.freshMu.Lock()
	defer x.freshMu.Unlock()
	return len(x.fresh) >= dueFresh || x.waiting >= dueWaiting
}

// Invert analyses and enters a few of the pages that were added, unless another call is doing it.
// It reports whether there may be more. It may be called under no lock, at any time.
func (x *Index) Invert() bool {
	if !x.behind.Load() || !x.mu.TryLock() {
		return false
	}
	defer x.mu.Unlock()
	return x.enter()
}

// invertAll enters what was added before the call.
func (x *Index) invertAll() {
	if x.behind.Load() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.invert()
	}
}

// invertToRead is invertAll for a caller that reads the lists of open parts. Two flags spare most
// questions the mutex: behind says that pages are not in the tail yet, unread that an open part has
// pages that are not in its lists.
func (x *Index) invertToRead() {
	if !x.behind.Load() && !x.unread.Load() { // behind comes first: enter sets unread before it says that nothing is left
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.invert()
	for _, p := range x.tail {
		if p.packed == nil {
			p.lists.forReaders()
		}
	}
	x.unread.Store(false)
}

// invert enters all pages that wait. mu is held.
func (x *Index) invert() {
	for x.enter() {
	}
}

// enter analyses a few of the pages that wait and enters them into columns and tail. mu is held. It
// returns false, and behind is false, only if none waited: until then its pages may not be entered.
func (x *Index) enter() bool {
	var buf [atOnce]Doc
	docs := x.take(buf[:])
	if len(docs) == 0 {
		return false
	}
	x.unread.Store(true)
	for i := range docs {
		d := &docs[i]
		d.analyse()
		x.cols.add(d.row())
		x.parts.add(&x.tail, *d)
		d.Analysis.done()
		if d.Num == x.loaded {
			x.parts.fold(x.tail)
		}
	}
	return true
}

// take moves the oldest pages that wait into buf.
func (x *Index) take(buf []Doc) []Doc {
	x.freshMu.Lock()
	defer x.freshMu.Unlock()
	n := copy(buf, x.fresh)
	for i := range buf[:n] {
		x.waiting -= buf[i].size()
	}
	x.fresh = slices.Delete(x.fresh, 0, n)
	if len(x.fresh) == 0 && cap(x.fresh) > keptFresh {
		x.fresh = nil
	}
	x.behind.Store(n > 0)
	return buf[:n]
}

// Built is a batch of pages that is inverted before it is added to an Index. That needs no lock and
// little memory: the analysis of a page need not be kept while the others are made. The zero value
// is ready. It is not safe for concurrent use.
type Built struct {
	tail  tail
	parts partWriter
}

// Add adds a page to the batch. Numbers must ascend.
func (b *Built) Add(d Doc) {
	d.analyse()
	b.parts.add(&b.tail, d)
	d.Analysis.done()
}

// End ends the batch and frees spare memory. Call it after the last Add.
func (b *Built) End() {
	if n := len(b.tail); n > 0 && !b.tail[n-1].closed {
		b.parts.pack(b.tail[n-1])
	}
	b.parts = partWriter{}
}

// AddBuilt adds a batch after its End. Its numbers must be above all earlier ones, and no page of
// it may be added again. The open part of the tail is closed first, because numbers must ascend
// from part to part.
func (x *Index) AddBuilt(b *Built) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.invert()
	if n := len(x.tail); n > 0 {
		x.tail[n-1].closed = true
	}
	for _, p := range b.tail {
		for _, d := range p.docs {
			x.cols.add(d)
		}
		x.last = p.last()
	}
	x.tail = append(x.tail, b.tail...)
}

// Remove takes page versions out of results and statistics at once. Their postings stay until their
// segment is next rewritten. Until then Checkpoint keeps the numbers; it must run in the
// transaction that deletes the pages or in a later one. Unknown numbers are ignored.
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

// find returns the segment that a page number falls into. Segments lie between others without
// overlap, so one comparison tells; a number between two segments, or in the tail, is in none.
func (m manifest) find(num uint64) (segment, bool) {
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].last >= num })
	if i == len(m.segments) || m.segments[i].first > num {
		return segment{}, false
	}
	return m.segments[i], true
}

// countPending counts the removed pages of each segment: when there are many, the segment is
// merged.
func (x *Index) countPending() {
	clear(x.pending)
	for n := range x.removed {
		if s, ok := x.manifest.find(n); ok {
			x.pending[s.id]++
		}
	}
}

// Stats are the integers behind the scores. They are summed over a chain of scopes, so they say
// nothing about pages of other scopes, and they do not depend on which pages are in the tail. Every
// page version counts until it is removed.
type Stats struct {
	Pages  uint64   // N
	Length uint64   // terms in those pages
	DF     []uint64 // pages with a term, in the order of the terms asked for

	// Turns counts the pages that are turns, TurnLength their terms. If there are any, the rest
	// says which speakers the terms name, ascending, how much a turn by a named speaker scores for that,
	// and which terms are names and so no words of turns.
	Turns, TurnLength uint64
	Named             []string
	Spoken            float64
	Names             []bool
}

// averages are the mean lengths of pages that are no turns, and of turns.
func (st *Stats) averages() [2]float64 {
	return [2]float64{average(st.Length-st.TurnLength, st.Pages-st.Turns), average(st.TurnLength, st.Turns)}
}

// Stats reads the statistics of terms in a chain of scopes. Errors wrap ErrCorrupt.
func (x *Index) Stats(scopes []uint32, rows Rows, terms []string) (Stats, error) {
	w := x.borrow()
	defer x.release(w)
	scopes = distinct(scopes)
	st, err := w.gather(rows, scopes, terms)
	a := x.cols.understand(scopes, x.cols.total(scopes), terms, Dates{})
	st.Spoken, st.Names = a.spoken, a.name
	for _, n := range a.named {
		st.Named = append(st.Named, x.cols.speakers[n].name)
	}
	slices.Sort(st.Named)
	st.Named = slices.Compact(st.Named) // one may speak in several scopes
	return st, err
}

// ScoreDoc scores a page that is not in the index, e.g. a transaction's own write, with the
// statistics that Stats returned for the terms of the query, maybe in another process: its own
// words, its speaker and its date. For a page that is no turn Own equals the Own of its Hit. A turn
// counts as one whose speaker always speaks at such length. Neighbours, groups and forms do not count.
func ScoreDoc(st Stats, d Doc, q Query) Hit { return scoreDoc(st, d, q, commonPages) }

// scoreDoc adds up what Search would: rarer words and common words apart and in the order of the
// plan, so that the sums are the same to the last bit.
func scoreDoc(st Stats, d Doc, q Query, common uint64) Hit {
	sat := saturations{average: st.averages()}
	p := newPlan(st, common)
	row := d.row()
	text := shapeOf(row.length, row.turn)
	part := [2]float64{} // in the order of Search: words that are not common, common words
	for i, t := range p.order {
		at := slices.IndexFunc(d.Analysis.Terms, func(c TermCount) bool { return c.Term == q.Terms[t] })
		if at < 0 || row.turn && t < len(st.Names) && st.Names[t] {
			continue
		}
		v := float64(p.weight[t] * sat.ask(d.Analysis.Terms[at].N, text))
		if i < p.strong {
			part[0] += v
		} else {
			part[1] += v
		}
	}
	h := Hit{Own: part[0] + part[1]}
	h.Score = h.Own
	switch {
	case !q.Weights.Turns || st.Turns == 0:
	case !row.turn:
		h.Level = levelOf(st.Spoken, q.Dates)
		h.Score += h.Level
	default:
		spoken := 0.
		if slices.Contains(st.Named, row.speaker) {
			spoken = st.Spoken
		}
		h.turn(spoken, q.Dates.match(row.month), row.traits, 0)
		h.divide(longer(float64(row.length), float64(row.length)))
	}
	if h.Own == 0 {
		h = Hit{}
	}
	return h
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

// checkSegment takes the occurrences in all lists of a segment off the lengths of its pages:
// nothing may be left of any, no list may name a page of another scope, and each scope starts at its
// first page. It keeps two numbers
// for each page of the segment while it runs, and subtracts: a page with a posting too many wraps
// around and is not zero in the end, just as one with too few.
func checkSegment(rows Rows, s segment) error {
	left := make(map[uint64]uint64, s.docs)
	scope := make(map[uint64]uint32, s.docs)
	first := map[uint32]uint64{}
	err := eachDoc(rows, s, func(d docRow) {
		left[d.num], scope[d.num] = uint64(d.length), d.scope
		if _, ok := first[d.scope]; !ok {
			first[d.scope] = d.num
		}
	})
	if err != nil {
		return err
	}
	at, err := s.starts(rows)
	if err != nil {
		return err
	}
	if len(at) != len(first) || slices.ContainsFunc(at, func(x start) bool { return first[x.scope] != x.first }) {
		return corrupt(segmentKey(rowScopes, s.id), "scopes of the segment are not those of its pages")
	}
	err = eachList(rows, s, at, func(of uint32, l list) bool {
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
