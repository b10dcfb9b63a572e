package lexical

import (
	"bytes"
	"slices"
)

// The memory of a query is used again for the next one. Its dense arrays are as long as the numbers
// of pages go, so clearing them would cost more than most queries. So each query remembers the
// places that it wrote and clears those on release.
//
// Invariant: between two queries every dense array is all zero. A query that forgets to record a
// place spoils the next one. A work belongs to one goroutine from borrow to release. release drops
// every slice that points into a transaction of the owner, whose memory ends with it.

// work is one query and its scratch memory. The dense arrays are all zero
// between queries; what was touched is remembered and wiped on release.
type work struct {
	x       *Index
	corpus  Corpus
	weights Weights
	k       int
	only    []uint64 // see Query
	turns   bool     // there are some, and they are scored as turns
	asking
	groups bool // some count
	best   top
	heaps  [2]top // two at a time are in use

	lists    []list    // of all terms; starts tells whose
	start    []int     // lists[start[t]:start[t+1]] belong to term t
	tails    []tailRef // the same in the tail
	key      []byte
	unmasked []byte // a word, see rowKey
	reader   blockReader
	starts   [knownStarts]knownStart
	inRow    starts
	sat      saturations
	block    [blockSize]posting

	own     []float64 // by page number − base, from words that are not common
	touched []uint32  // pages with own > 0
	common  []float64 // the same from common words, for candidates
	wanted  []bool    // candidates
	list    []uint32  // the candidates
	slot    []uint32  // for top
	seen    []uint64  // a bit for each of touched: unlike own it stays in the cache

	// The following fields serve turns.
	speaks    []bool           // by speaker: he is named
	where     []uint64         // by page: how often it has the lenders, each in lendBits
	lender    [lenders]float64 // weights
	forms     []float64        // by page: from irregular forms of all words
	mostForms float64
	form      []float64 // the same of the word at hand
	formed    []uint32  // pages with it

	tf         []uint64  // by group, for the term at hand
	hit        []uint32  // groups with the term at hand
	groupScore []float64 // by group
	groupTouch []uint32
}

// knownStart is where a scope starts in a segment, as it was read last; 0: it is not there. Segments never change, so that stays
// true. One row that answers for all words of a question, and for the next question.
type knownStart struct {
	known          bool
	segment, scope uint32
	first          uint64
}

const knownStarts = 64

// startOf returns the first page of a scope in a segment; 0: it has none.
func (w *work) startOf(rows Rows, s segment, scope uint32) (uint64, error) {
	known := &w.starts[(s.id+scope*7)%knownStarts]
	if known.known && known.segment == s.id && known.scope == scope {
		return known.first, nil
	}
	w.key = append(w.key[:0], scopesKey(s.id, scope)...)
	w.inRow = w.inRow[:0]
	if k, v := rows.Next(w.key); bytes.HasPrefix(k, w.key[:segPrefix]) {
		var err error
		if w.inRow, err = decodeStarts(s, k, v, w.inRow); err != nil {
			return 0, err
		}
	}
	*known = knownStart{true, s.id, scope, w.inRow.of(scope)}
	return known.first, nil
}

// tailRef is a term of the question in a part of the tail.
type tailRef struct {
	term int // of the query
	part *part
	at   uint32 // the term in the part
}

// borrow takes the memory of a question from the pool. It is zero in all that release wipes.
func (x *Index) borrow() *work {
	x.invertToRead()
	w, _ := x.work.Get().(*work)
	if w == nil {
		w = &work{}
	}
	w.x = x
	return w
}

// release wipes what the question touched, and nothing else: the slices are as long as the columns,
// and most questions touch little. It keeps no pointer to the rows, the corpus or the
// index.
func (x *Index) release(w *work) {
	for _, v := range w.touched {
		w.own[v], w.seen[v/64] = 0, 0
	}
	if w.turns {
		wipe(w.where, w.touched)
		wipe(w.forms, w.touched)
		wipe(w.form, w.formed)
		wipe(w.speaks, w.named)
		w.formed, w.mostForms = w.formed[:0], 0
	}
	w.turns, w.asking = false, asking{}
	wipe(w.common, w.list)
	wipe(w.wanted, w.list)
	wipe(w.tf, w.hit)
	wipe(w.groupScore, w.groupTouch)
	w.touched, w.list, w.hit, w.groupTouch = w.touched[:0], w.list[:0], w.hit[:0], w.groupTouch[:0]
	clear(w.lists) // they point into the owner's transaction
	w.reader = blockReader{term: w.reader.term}
	clear(w.tails)
	w.lists, w.tails, w.start = w.lists[:0], w.tails[:0], w.start[:0]
	w.x, w.corpus, w.only = nil, nil, nil
	w.heaps[0], w.best = w.best, top{}
	for i := range w.heaps {
		w.heaps[i].slot = nil
	}
	x.work.Put(w)
}

// wipe sets the elements at the given places to zero.
func wipe[T any](dense []T, at []uint32) {
	var zero T
	for _, i := range at {
		dense[i] = zero
	}
}

// grown returns a slice of at least n zero elements; s is all zero already.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/8)
	}
	return s[:cap(s)]
}

// gather finds the lists of all terms and sums the statistics.
func (w *work) gather(rows Rows, scopes []uint32, terms []string) (Stats, error) {
	total := w.x.cols.total(scopes)
	st := Stats{Pages: total.pages, Length: total.length, Turns: total.turns, TurnLength: total.turnLength, DF: make([]uint64, len(terms))}
	for t, term := range terms {
		w.start = append(w.start, len(w.lists))
		for _, scope := range scopes {
			df, err := w.find(rows, t, scope, term)
			if err != nil {
				return Stats{}, err
			}
			st.DF[t] += df
		}
	}
	w.start = append(w.start, len(w.lists))
	return st, nil
}

// rowKey is the key of the list of a term in a segment.
func (w *work) rowKey(rows Rows, segment, scope uint32, term string) []byte {
	m, ok := rows.(Masked)
	if !ok || !m.Masks() {
		return appendTermKey(w.key[:0], segment, scope, term)
	}
	w.unmasked = append(w.unmasked[:0], term...)
	return appendScope(m.Word(append(w.key[:0], segmentKey(rowTerm, segment)...), scope, w.unmasked), scope)
}

// find collects the lists of one term in one scope and counts their pages.
func (w *work) find(rows Rows, t int, scope uint32, term string) (uint64, error) {
	if w.x.cols.scopes[w.x.cols.scopeAt[scope]].pages == 0 {
		return 0, nil
	}
	df := uint64(0)
	for _, s := range w.x.manifest.segments {
		from, err := w.startOf(rows, s, scope)
		if err != nil {
			return 0, err
		}
		if from == 0 {
			continue
		}
		w.key = w.rowKey(rows, s.id, scope, term)
		l, ok, err := w.listIn(rows, s)
		if err != nil {
			return 0, err
		}
		if !ok {
			continue
		}
		l.from, l.removed = from, w.x.pending[s.id] > 0
		n, err := w.live(l)
		if err != nil {
			return 0, err
		}
		df += n
		w.lists = append(w.lists, l)
	}
	n, err := w.findTail(t, scope, term)
	return df + n, err
}

// listIn finds the list of the key in a segment: in the first row from the key on.
func (w *work) listIn(rows Rows, s segment) (l list, ok bool, err error) {
	k, v := rows.Next(w.key)
	if !bytes.HasPrefix(k, w.key[:segPrefix]) {
		return l, false, nil
	}
	r := &w.reader
	if err := r.begin(s, k, v); err != nil {
		return l, false, err
	}
	ok = r.find(termAndScope(w.key[segPrefix:]))
	return r.list, ok, r.unsound(k)
}

// findTail is find for pages that are in no segment yet.
func (w *work) findTail(t int, scope uint32, term string) (df uint64, err error) {
	for _, p := range w.x.tail {
		if p.packed == nil {
			if at, ok := p.lists.find(scope, term); ok {
				df += w.liveTail(p, at)
				w.tails = append(w.tails, tailRef{t, p, at})
			}
			continue
		}
		l, ok := p.packed.find(scope, term)
		if !ok {
			continue
		}
		l.removed = p.removed > 0
		n, err := w.live(l)
		if err != nil {
			return 0, err
		}
		df += n
		w.lists = append(w.lists, l)
	}
	return df, nil
}

// liveTail is live for a list of an open part.
func (w *work) liveTail(p *part, term uint32) uint64 {
	n := uint64(p.lists.df[term])
	if p.removed == 0 {
		return n
	}
	p.eachBlock(term, &w.block, func(block []posting) { n -= uint64(len(block) - len(w.present(block))) })
	return n
}

// live counts the postings of a list whose pages were not removed. The stored
// count answers unless the segment waits for being written anew.
func (w *work) live(l list) (uint64, error) {
	if !l.removed {
		return l.df, nil
	}
	n := uint64(0)
	if !l.each(func(num uint64, _ uint32) {
		if w.x.cols.has(num) {
			n++
		}
	}) {
		return 0, corrupt(w.key, "postings are damaged or outside the segment")
	}
	return n, nil
}

// eachBlock calls fn for the postings of a term whose pages were not removed.
func (w *work) eachBlock(t int, fn func(block []posting)) error {
	for _, l := range w.lists[w.start[t]:w.start[t+1]] {
		c := l.cursor()
		for block := c.next(&w.block); len(block) > 0; block = c.next(&w.block) {
			if l.removed {
				block = w.present(block)
			}
			fn(block)
		}
		if !c.end() {
			return corrupt(segmentKey(rowTerm, l.segment.id), "postings are damaged or outside the segment")
		}
	}
	for _, ref := range w.tails {
		if ref.term != t {
			continue
		}
		ref.part.eachBlock(ref.at, &w.block, func(block []posting) {
			if ref.part.removed > 0 {
				block = w.present(block)
			}
			fn(block)
		})
	}
	return nil
}

func (w *work) present(block []posting) []posting {
	return slices.DeleteFunc(block, func(p posting) bool { return !w.x.cols.has(p.num) })
}
