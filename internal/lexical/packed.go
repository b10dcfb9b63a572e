package lexical

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// packed is a part of the tail that takes no more pages: its lists in the order of scope and term,
// in the form that they have in a segment. A word that occurs once takes about as much of it as of
// a text, where the lists of an open part take four times as much. It never changes.
//
// Its terms lie in blocks of blockTerms. The first of a block is whole, each later one says how
// many bytes it has in common with the one before, and which follow. An entry is: bytes in common,
// bytes that follow, these, count of postings, if there are several the distance from the first
// page of the part to the last of the list, bytes of the list, the list.
type packed struct {
	pages  segment // number 0: of no segment
	scopes []packedScope
	heads  []uint64 // of the first term of each block; see head
	at     []uint32 // where each block begins in data
	data   []byte
	terms  int
}

// packedScope is a scope of the part; its blocks end where the next one's begin.
type packedScope struct {
	id    uint32
	block int // its first
}

const blockTerms = 16

// packer makes packed parts, one after the other, in memory that it uses again.
type packer struct {
	p      packed
	sorter termSorter
	next   []uint32 // by term: where its next posting goes in posts
	posts  []uint64 // the lists in their order: distance from the first page of the part, above the count
	n      int      // terms in the last block
	last   []byte   // the term before
	list   postings
}

// pack returns the lists of a part in their order.
func (w *packer) pack(l *lists, docs []docRow) *packed {
	w.p = packed{
		pages: segment{first: docs[0].num, last: docs[len(docs)-1].num, docs: uint64(len(docs))}, terms: l.used,
		heads: w.p.heads[:0], at: w.p.at[:0], data: w.p.data[:0],
	}
	terms := l.inOrder(&w.sorter)
	w.invert(l, docs, terms)
	posts := w.posts
	for i := range terms {
		if df := l.df[terms[i].at]; df > 0 {
			t := &l.terms[terms[i].at]
			w.add(t, l.bytes(t), posts[:df])
			posts = posts[df:]
		}
	}
	p := w.p
	p.heads, p.at, p.data = clip(p.heads), clip(p.at), clip(p.data)
	w.p.scopes = nil
	return &p
}

// invert brings what stands page after page into the order of terms.
func (w *packer) invert(l *lists, docs []docRow, terms []inOrder) {
	w.next = slices.Grow(w.next[:0], len(terms))[:len(terms)]
	at := uint32(0)
	for i := range terms {
		t := terms[i].at
		w.next[t] = at
		at += l.df[t]
	}
	w.posts = slices.Grow(w.posts[:0], len(l.uses))[:len(l.uses)]
	from := uint32(0)
	for i, to := range l.ends {
		page := (docs[i].num - docs[0].num) << 32
		for _, u := range l.uses[from:to] {
			next := &w.next[u.term]
			w.posts[*next] = page | uint64(u.n)
			*next++
		}
		from = to
	}
}

// add appends a term and its postings. A term shares the beginning of the one before it in its
// block; the first of a block, and of a scope, is whole, because a search begins there.
func (w *packer) add(t *tailTerm, term []byte, posts []uint64) {
	p := &w.p
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
	w.list = postings{body: w.list.body[:0]}
	for _, x := range posts {
		w.list.add(x>>32, uint32(x))
	}
	d := binary.AppendUvarint(double(p.data, len(term)+len(w.list.body)+5*binary.MaxVarintLen64), uint64(common))
	d = binary.AppendUvarint(d, uint64(len(term)-common))
	d = append(d, term[common:]...)
	d = binary.AppendUvarint(d, w.list.df)
	if w.list.df > 1 {
		d = binary.AppendUvarint(d, w.list.last)
	}
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
	w.list = list{segment: w.p.pages, df: r.uvarint()}
	if w.list.df > 1 {
		w.list.last = w.p.pages.first + r.uvarint()
	}
	w.list.body = r.bytes()
	w.rest = r.b
	return true
}

// find returns the list of a term.
func (p *packed) find(scope uint32, term string) (list, bool) {
	at, ok := p.scope(scope)
	if !ok {
		return list{}, false
	}
	block := p.block(at, term)
	if block < p.scopes[at].block {
		return list{}, false
	}
	w := p.walk(at, block)
	var space [maxTerm]byte
	w.term = space[:0]
	for w.next() && w.block == block+1 && string(w.term) <= term {
		if string(w.term) == term {
			return w.list, true
		}
	}
	return list{}, false
}

// scope returns where a scope is in scopes, or would be.
func (p *packed) scope(id uint32) (at int, known bool) {
	return slices.BinarySearchFunc(p.scopes, id, func(s packedScope, id uint32) int { return cmp.Compare(s.id, id) })
}

// block returns the last block of a scope that begins with a term or with one before it; if none
// does, the one before the scope's first.
func (p *packed) block(at int, term string) int {
	from, to := p.scopes[at].block, len(p.heads)
	if at+1 < len(p.scopes) {
		to = p.scopes[at+1].block
	}
	first := head(term)
	return from + sort.Search(to-from, func(i int) bool {
		h := p.heads[from+i]
		return h > first || h == first && string(p.first(from+i)) > term
	}) - 1
}

// from is a walk that begins at or shortly before a scope and term; nil: at the first. false: all
// terms are before it.
func (p *packed) from(key []byte) (walk, bool) {
	at, block := 0, 0
	if key != nil {
		var known bool
		if at, known = p.scope(binary.BigEndian.Uint32(key)); known {
			block = max(p.scopes[at].block, p.block(at, string(key[scopeSize:])))
		} else if at < len(p.scopes) {
			block = p.scopes[at].block
		}
	}
	if at == len(p.scopes) {
		return walk{}, false
	}
	return p.walk(at, block), true
}

// first is the first term of a block.
func (p *packed) first(block int) []byte {
	r := reader{b: p.data[p.at[block]:]}
	r.uvarint()
	return r.bytes()
}
