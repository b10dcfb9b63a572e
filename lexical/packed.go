package lexical

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// packed is a part of the tail that takes no more pages: its lists in the order of scope and term, in the form that
// they have in a segment. A word that occurs once takes about as much of it as of a text, where the lists of an open
// part take four times as much. It never changes.
//
// Its terms lie in blocks of blockTerms. The first of a block is whole, each later one says how many bytes it has in
// common with the one before, and which follow. An entry is: bytes in common, bytes that follow, these, count of
// postings, bytes of the list, the list.
type packed struct {
	pages  segment // number 0: of no segment
	scopes []packedScope
	heads  []uint64 // of the first term of each block; see head
	at     []uint32 // where each block begins in data
	data   []byte
	terms  int
	words  *sketch // its terms, for an estimate
}

// packedScope is a scope of the part; its blocks end where the next one's begin.
type packedScope struct {
	id    uint32
	block int // its first
}

const blockTerms = 16

// pack gives the lists of a part in their order.
func (w *packer) pack(l *lists, docs []docRow) *packed {
	w.p = packed{
		pages: segment{first: docs[0].num, last: docs[len(docs)-1].num, docs: uint64(len(docs))}, terms: len(l.terms), words: new(sketch),
		heads: w.p.heads[:0], at: w.p.at[:0], data: w.p.data[:0],
	}
	w.l, w.docs = l, docs
	w.order = l.sorted(w.order)
	for some := range slices.Chunk(w.order, together) {
		w.read += l.ahead(some)
		for i := range some {
			w.add(&l.terms[some[i].at])
		}
	}
	p := w.p
	p.heads, p.at, p.data = exact(p.heads), exact(p.at), exact(p.data)
	w.p.scopes, w.p.words, w.l, w.docs = nil, nil, nil, nil
	return &p
}

// packer makes packed parts, one after the other, in memory that it uses again.
type packer struct {
	p     packed
	l     *lists
	docs  []docRow
	order []inOrder
	n     int    // terms in the last block
	last  []byte // the term before
	list  postings
	read  uint64 // see ahead
}

func (w *packer) add(t *tailTerm) {
	p, term := &w.p, w.l.bytes(t)
	newScope := len(p.scopes) == 0 || p.scopes[len(p.scopes)-1].id != t.scope
	if newScope {
		p.scopes = append(p.scopes, packedScope{t.scope, len(p.heads)})
	}
	common := 0
	if newScope || w.n == blockTerms {
		w.n = 0
		p.heads, p.at = append(p.heads, t.head), append(p.at, uint32(len(p.data)))
	} else {
		common = inCommon(w.last, term)
	}
	w.n++
	w.last = append(w.last[:0], term...)
	p.words.add(t.scope, term)
	w.list = postings{body: w.list.body[:0], last: p.pages.first}
	w.l.each(t, func(doc, n uint32) { w.list.add(w.docs[doc].num, n) })
	d := binary.AppendUvarint(double(p.data, len(term)+len(w.list.body)+4*binary.MaxVarintLen32), uint64(common))
	d = binary.AppendUvarint(d, uint64(len(term)-common))
	d = append(d, term[common:]...)
	d = binary.AppendUvarint(d, w.list.df)
	d = binary.AppendUvarint(d, uint64(len(w.list.body)))
	p.data = append(d, w.list.body...)
}

// inCommon is how many bytes two terms begin with alike.
func inCommon(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// walk goes through the terms of a packed part, from the first of a block on.
type walk struct {
	p     *packed
	rest  []byte // of data
	block int    // the next
	scope int    // index into scopes
	term  []byte
	list  list
}

func (p *packed) walk(scope, block int) walk {
	return walk{p: p, rest: p.data[p.at[block]:], block: block, scope: scope}
}

// next goes to the next term; false: there is none.
func (w *walk) next() bool {
	if len(w.rest) == 0 {
		return false
	}
	if at := len(w.p.data) - len(w.rest); w.block < len(w.p.at) && at == int(w.p.at[w.block]) {
		for w.scope+1 < len(w.p.scopes) && w.p.scopes[w.scope+1].block <= w.block {
			w.scope++
		}
		w.block++
	}
	r := reader{b: w.rest}
	common := r.uvarint()
	w.term = append(w.term[:common], r.bytes()...)
	df := r.uvarint()
	w.list = list{segment: w.p.pages, df: df, body: r.bytes()}
	w.rest = r.b
	return true
}

// find returns the list of a term.
func (p *packed) find(scope uint32, term string) (list, bool) {
	at, ok := slices.BinarySearchFunc(p.scopes, scope, func(s packedScope, id uint32) int { return cmp.Compare(s.id, id) })
	if !ok {
		return list{}, false
	}
	from, to := p.scopes[at].block, len(p.heads)
	if at+1 < len(p.scopes) {
		to = p.scopes[at+1].block
	}
	first := head(term)
	block := from + sort.Search(to-from, func(i int) bool {
		h := p.heads[from+i]
		return h > first || h == first && string(p.first(from+i)) > term
	}) - 1
	if block < from {
		return list{}, false
	}
	w := p.walk(at, block)
	var room [maxTerm]byte
	w.term = room[:0]
	for w.next() && w.block == block+1 && string(w.term) <= term {
		if string(w.term) == term {
			return w.list, true
		}
	}
	return list{}, false
}

// first is the first term of a block.
func (p *packed) first(block int) []byte {
	r := reader{b: p.data[p.at[block]:]}
	r.uvarint()
	return r.bytes()
}
