package lexical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// Most words of a segment are in few pages, so a row for each was three times the postings in it: 16 bytes of the store, a key,
// a checksum. A row therefore has the lists of neighbouring terms of a scope, in a block:
//
//	key      the key of the last term
//	value    from which page of the segment the lists count; then
//	         the count and postings of the last term alone, or
//	         0, how many terms stand before the last, each of these, and the last: count, postings
//	term     16 × bytes in common with the term before (the first: 0) + bytes that follow, or 15 and how many more;
//	         these; then a posting of one occurrence as it is, which is even, or
//	         1 + 2 × (1 if there are several + 2 × bytes of postings); the count if there are several; postings
//
// A list has at least one posting, so the two forms are never confused. Lists count from the first page of their scope: most
// words of a small scope are in one page, and its distance from the first page of a large segment took three bytes.
//
// A list is looked for in the first row from its key on. Where a block ends follows from the terms and lists of the
// segment alone, so rows are the same however many steps write them: a step ends where a block does.
//
// The key could not be the first term: the store finds the next row from a key, not the previous one.

// blockBytes of terms and postings end a block; a list of so many stands alone. A search checks the block of each word, and
// mostly reads half of it. Twice as much saves 3 bytes of a hundred.
const blockBytes = 512

// block collects the lists of the next row.
type block struct {
	named []byte // terms before the last, as they are stored
	n     uint64 // how many
	name  []byte // the last of those
	some  bool   // there is a last list
	key   []byte // its scope and term
	from  uint64 // of its scope: distance from the segment's first page
	df    uint64
	body  []byte // its postings
}

// add takes the next list. The block before it, if that is complete, was written.
func (b *block) add(key []byte, from uint64, p *postings) {
	if b.some {
		b.nameLast()
	}
	b.some, b.key, b.from, b.df, b.body = true, append(b.key[:0], key...), from, p.df, append(b.body[:0], p.body...)
}

// nameLast makes the last list one of those before the last.
func (b *block) nameLast() {
	term := b.key[scopeSize:]
	common := commonBytes(term, b.name)
	rest := term[common:]
	b.named = binary.AppendUvarint(b.named, uint64(common)<<4|uint64(min(len(rest), 15)))
	if len(rest) >= 15 {
		b.named = binary.AppendUvarint(b.named, uint64(len(rest)-15))
	}
	b.named = append(b.named, rest...)
	switch {
	case b.df > 1:
		b.named = binary.AppendUvarint(b.named, uint64(len(b.body))<<2|3)
		b.named = binary.AppendUvarint(b.named, b.df)
	case b.body[0]&1 != 0: // a count of occurrences follows
		b.named = binary.AppendUvarint(b.named, uint64(len(b.body))<<2|1)
	}
	b.named = append(b.named, b.body...)
	b.name = append(b.name[:0], term...)
	b.n++
}

// full reports whether the block is complete, whatever comes next.
func (b *block) full() bool { return len(b.named)+len(b.body) >= blockBytes }

// closes reports whether the block is complete without a list that comes next: one of another scope, or one that stands alone.
func (b *block) closes(key []byte, p *postings) bool {
	return b.some && (len(p.body) >= blockBytes || !bytes.Equal(b.key[:scopeSize], key[:scopeSize]))
}

// appendTo appends the value of the row, without its checksum.
func (b *block) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, b.from)
	if b.n > 0 {
		dst = append(dst, 0)
		dst = binary.AppendUvarint(dst, b.n)
		dst = append(dst, b.named...)
	}
	return append(binary.AppendUvarint(dst, b.df), b.body...)
}

// size is about the most that appendTo appends.
func (b *block) size() int { return 4*binary.MaxVarintLen64 + len(b.named) + len(b.body) }

// reset empties the block.
func (b *block) reset() {
	b.some, b.named, b.n, b.name = false, b.named[:0], 0, b.name[:0]
}

// blockReader walks the lists of a row. Its results are borrowed from the row, except the terms.
type blockReader struct {
	reader
	left uint64 // terms before the last
	last []byte // the last
	any  bool   // next gave one
	term []byte // of the list that next gave
	list list
	end  bool
}

// begin checks a row and stands before its first list.
func (r *blockReader) begin(s segment, key, row []byte) error {
	value, err := unseal(key, row)
	switch {
	case err != nil:
		return err
	case len(key) < termPrefix:
		return corrupt(key, "key has %d bytes, want at least %d", len(key), termPrefix)
	}
	*r = blockReader{reader: reader{b: value}, last: key[termPrefix:], term: r.term[:0], list: list{segment: s}}
	from := r.uvarint()
	r.bad = r.bad || from > s.last-s.first
	r.list.from = s.first + from
	if len(r.b) > 0 && r.b[0] == 0 {
		r.b = r.b[1:]
		r.left = uint64(r.count())
		r.bad = r.bad || r.left == 0
	}
	return nil
}

// next reads a list; false: there is none, or the row is not sound (bad).
func (r *blockReader) next() bool {
	if r.end || r.bad {
		return false
	}
	if r.left > 0 {
		r.left--
		return r.named()
	}
	r.end = true
	r.list.df = uint64(r.count())
	r.list.body, r.b = r.b, nil
	r.bad = r.bad || r.list.df == 0 || r.any && bytes.Compare(r.term, r.last) >= 0
	r.term = append(r.term[:0], r.last...)
	return !r.bad
}

// named reads a list before the last.
func (r *blockReader) named() bool {
	common, rest := r.name()
	if r.bad || common > uint64(len(r.term)) || common < uint64(len(r.term)) && rest[0] <= r.term[common] { // terms rise
		r.bad = true
		return false
	}
	r.any, r.term = true, append(r.term[:common], rest...)
	return r.postings()
}

// name reads how much a term has in common with the previous one, and the rest of it.
func (r *blockReader) name() (common uint64, rest []byte) {
	head := r.uvarint()
	n := head & 15
	if n == 15 {
		n += r.uvarint()
	}
	if n == 0 || n > uint64(len(r.b)) {
		r.bad = true
		return 0, nil
	}
	rest, r.b = r.b[:n], r.b[n:]
	return head >> 4, rest
}

// postings reads the postings of a term before the last.
func (r *blockReader) postings() bool {
	r.list.df = 1
	one := r.b
	size := r.uvarint()
	if size&1 == 0 { // the posting itself
		r.list.body = one[:len(one)-len(r.b)]
		return !r.bad
	}
	if size>>1&1 != 0 {
		r.list.df = r.uvarint()
	}
	if size >>= 2; size > uint64(len(r.b)) || r.list.df == 0 || r.list.df > size {
		r.bad = true
		return false
	}
	r.list.body, r.b = r.b[:size], r.b[size:]
	return !r.bad
}

// find looks for the list of a term; it stands before its first list. It makes no terms: that a term is above its predecessor,
// and what they have in common, tell how it compares with the one that is looked for.
func (r *blockReader) find(term []byte) bool {
	match, length := 0, uint64(0) // of the term before, which is below: how much it has in common with the one, and its bytes
	for i := r.left; i > 0; i-- {
		common, rest := r.name()
		if r.bad = r.bad || common > length; r.bad {
			return false
		}
		switch length = common + uint64(len(rest)); {
		case common < uint64(match):
			r.bad = rest[0] <= term[common]
			return r.past(term[:common], rest)
		case common == uint64(match):
			n := commonBytes(rest, term[match:])
			match += n
			switch {
			case n == len(rest) && match == len(term):
				return r.postings()
			case n < len(rest) && (match == len(term) || rest[n] > term[match]):
				return r.past(term[:common], rest)
			}
		}
		if !r.postings() {
			return false
		}
	}
	r.left = 0
	return bytes.Equal(r.last, term) && r.next()
}

// past ends a search at a term, in two parts, above the one that is looked for. The terms behind it are not read.
func (r *blockReader) past(common, rest []byte) bool {
	r.bad = r.bad || cmp.Or(bytes.Compare(common, r.last[:min(len(common), len(r.last))]), bytes.Compare(rest, r.last[min(len(common), len(r.last)):])) >= 0
	return false
}

// commonBytes returns how many bytes a and b have in common.
func commonBytes(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// unsound is the error of a row that is not sound.
func (r *blockReader) unsound(key []byte) error {
	if r.bad {
		return corrupt(key, "terms and counts do not fit the row")
	}
	return nil
}

// packed is a part of the tail that takes no more pages: its lists in the order of scope and term,
// in the form that they have in a segment. A word that occurs once takes about as much of it as of
// a text, where the lists of an open part take four times as much. It never changes.
//
// Its terms lie in blocks of blockTerms. The first of a block is whole, each later one says how
// many bytes it has in common with its predecessor, and which follow. An entry is: bytes in common,
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
	p     packed
	spare []inOrder
	next  []uint32 // by term: where its next posting goes in posts
	posts []uint64 // the lists in their order: distance from the first page of the part, above the count
	n     int      // terms in the last block
	last  []byte   // the term before
	list  postings
}

// pack returns the lists of a part in their order.
func (w *packer) pack(l *lists, docs []docRow) *packed {
	w.p = packed{
		pages: segment{first: docs[0].num, last: docs[len(docs)-1].num, docs: uint64(len(docs))}, terms: l.used,
		heads: w.p.heads[:0], at: w.p.at[:0], data: w.p.data[:0],
	}
	terms := l.inOrder(&w.spare)
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

// add appends a term and its postings. A term shares the beginning of the previous one in its
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

// inCommon returns how many bytes two terms begin with alike.
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
	w.list = list{segment: w.p.pages, from: w.p.pages.first, df: r.uvarint()}
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
// does, the block before the scope's first.
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
