package lexical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

// Most words of a segment are in few pages, so a row for each was three times the postings in it: 16 bytes of the store, a key,
// a checksum. A row therefore has neighbouring lists, in the order of term and scope, in a block:
//
//	key      term and scope of the last list
//	value    the count and postings of the last list alone, or
//	         0, how many lists stand before the last, the scope of the first, each of these, and the last: count, postings
//	list     of another term than the list before: 16 × bytes in common with that (the first: 0) + bytes that follow, or 15 and
//	         how many more; these; 1 and the scope unless the list before has the same; postings
//	         of the same term: 0, how many such lists follow, and each: distance to the scope before, postings
//	postings one of one occurrence as it is, which is even, or
//	         1 + 2 × (1 if there are several + 2 × bytes of postings); the count if there are several; these
//
// A list has at least one posting, so the two forms of a value are never confused, and 1 is no form of postings. Lists count
// from the first page of their scope (starts): most words of a small scope are in one page, and its distance from the first
// page of a large segment took three bytes.
//
// By term and not by scope: a hundred thousand small scopes have each word many times, and beside each other those take only
// the distances of their scopes. By scope each list took four bytes of its word.
//
// A list is looked for in the first row from its key on. Where a block ends follows from the lists of the segment alone, so
// rows are the same however many steps write them: a step ends where a block does.
//
// The key could not be the first list: the store finds the next row from a key, not the previous one.

// blockBytes of terms and postings end a block; a list of so many stands alone. A search checks the block of each word, and
// mostly reads half of it. Twice as much saves 3 bytes of a hundred.
const blockBytes = 512

// block collects the lists of the next row.
type block struct {
	named []byte // lists before the last, as they are stored
	n     uint64 // how many
	name  []byte // term and scope of the last of those
	scope uint32
	first uint32 // scope of the first list
	run   []byte // the last of those lists, which have one term, but for the first of them
	runs  uint64 // how many
	some  bool   // there is a last list
	key   []byte // its term and scope
	df    uint64
	body  []byte // its postings
}

// add takes the next list. The block before it, if that is complete, was written.
func (b *block) add(key []byte, p *postings) {
	if b.some {
		b.nameLast()
	}
	b.some, b.key, b.df, b.body = true, append(b.key[:0], key...), p.df, append(b.body[:0], p.body...)
}

// nameLast makes the last list one of those before the last.
func (b *block) nameLast() {
	term, scope := termAndScope(b.key)
	if b.n > 0 && bytes.Equal(term, b.name) {
		b.run = b.appendPostings(binary.AppendUvarint(b.run, uint64(scope-b.scope)))
		b.runs++
	} else {
		b.endRun()
		common := commonBytes(term, b.name)
		rest := term[common:]
		b.named = binary.AppendUvarint(b.named, uint64(common)<<4|uint64(min(len(rest), 15)))
		if len(rest) >= 15 {
			b.named = binary.AppendUvarint(b.named, uint64(len(rest)-15))
		}
		b.named = append(b.named, rest...)
		if b.n == 0 {
			b.first = scope
		} else if scope != b.scope {
			b.named = binary.AppendUvarint(append(b.named, 1), uint64(scope))
		}
		b.named = b.appendPostings(b.named)
		b.name = append(b.name[:0], term...)
	}
	b.scope = scope
	b.n++
}

// appendPostings appends the postings of the last list as they stand in a list before the last.
func (b *block) appendPostings(dst []byte) []byte {
	switch {
	case b.df > 1:
		dst = binary.AppendUvarint(dst, uint64(len(b.body))<<2|3)
		dst = binary.AppendUvarint(dst, b.df)
	case b.body[0]&1 != 0: // a count of occurrences follows
		dst = binary.AppendUvarint(dst, uint64(len(b.body))<<2|1)
	}
	return append(dst, b.body...)
}

// endRun ends the lists of one term.
func (b *block) endRun() {
	if b.runs > 0 {
		b.named = append(binary.AppendUvarint(append(b.named, 0), b.runs), b.run...)
		b.run, b.runs = b.run[:0], 0
	}
}

// full reports whether the block is complete, whatever comes next.
func (b *block) full() bool { return len(b.named)+len(b.run)+len(b.body) >= blockBytes }

// appendTo appends the value of the row, without its checksum.
func (b *block) appendTo(dst []byte) []byte {
	if b.endRun(); b.n > 0 {
		dst = append(dst, 0)
		dst = binary.AppendUvarint(dst, b.n)
		dst = binary.AppendUvarint(dst, uint64(b.first))
		dst = append(dst, b.named...)
	}
	return append(binary.AppendUvarint(dst, b.df), b.body...)
}

// size is about the most that appendTo appends.
func (b *block) size() int {
	return 5*binary.MaxVarintLen64 + len(b.named) + len(b.run) + len(b.body)
}

// reset empties the block.
func (b *block) reset() {
	b.some, b.named, b.n, b.name, b.run, b.runs = false, b.named[:0], 0, b.name[:0], b.run[:0], 0
}

// blockReader walks the lists of a row. Its results are borrowed from the row, except the terms. It does not know from which
// page a list counts.
type blockReader struct {
	reader
	left  uint64 // lists before the last
	run   uint64 // so many of them have the term that the last one had
	ran   bool   // lists of one term were read since the last name
	last  []byte // term and scope of the last
	ends  uint32
	any   bool   // next gave one
	term  []byte // of the list that next gave, and its scope; before it gave one, the scope of the first
	scope uint32
	list  list
	end   bool
}

// begin checks a row and stands before its first list.
func (r *blockReader) begin(s segment, key, row []byte) error {
	value, err := unseal(key, row)
	switch {
	case err != nil:
		return err
	case len(key) < segPrefix+scopeSize || key[len(key)-scopeSize] != 0:
		return corrupt(key, "key has no term and scope")
	}
	*r = blockReader{reader: reader{b: value}, term: r.term[:0], list: list{segment: s}}
	r.last, r.ends = termAndScope(key[segPrefix:])
	if len(r.b) > 0 && r.b[0] == 0 {
		r.b = r.b[1:]
		r.left = uint64(r.count())
		r.scope = r.uint32()
		r.bad = r.bad || r.left == 0
	}
	return nil
}

// next reads a list; false: there is none, or the row is not sound (bad).
func (r *blockReader) next() bool {
	switch {
	case r.end || r.bad:
		return false
	case r.left > 0:
		r.named()
		r.left--
		r.any = true
		return r.postings()
	}
	r.end = true
	r.list.df = uint64(r.count())
	r.list.body, r.b = r.b, nil
	r.bad = r.bad || r.list.df == 0 || r.any && r.compare(r.last, r.ends) >= 0
	r.term, r.scope = append(r.term[:0], r.last...), r.ends
	return !r.bad
}

// compare compares the list that next gave with a term and scope.
func (r *blockReader) compare(term []byte, scope uint32) int {
	return cmp.Or(bytes.Compare(r.term, term), cmp.Compare(r.scope, scope))
}

// named reads term and scope of a list before the last. Both rise.
func (r *blockReader) named() {
	if r.run == 0 && r.any && len(r.b) > 0 && r.b[0] == 0 {
		r.begins()
	}
	if r.run > 0 {
		r.run--
		r.nextScope()
		return
	}
	common, rest := r.name()
	if r.bad || common > uint64(len(r.term)) || common < uint64(len(r.term)) && rest[0] <= r.term[common] {
		r.bad = true
		return
	}
	r.term = append(r.term[:common], rest...)
	r.otherScope()
}

// begins reads how many lists of one term follow.
func (r *blockReader) begins() {
	r.b = r.b[1:]
	r.run = uint64(r.count())
	r.bad = r.bad || r.run == 0 || r.run > r.left || r.ran
	r.ran = true
}

// nextScope reads the scope of a list of the same term.
func (r *blockReader) nextScope() {
	d := r.uint32()
	r.bad = r.bad || d == 0 || r.scope+d < r.scope
	r.scope += d
}

// otherScope reads the scope of a list of another term, if the list before has another.
func (r *blockReader) otherScope() {
	if len(r.b) > 0 && r.b[0] == 1 {
		r.b = r.b[1:]
		r.scope = r.uint32()
	}
}

// name reads how much a term has in common with the previous one, and the rest of it.
func (r *blockReader) name() (common uint64, rest []byte) {
	r.ran = false
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

// postings reads the postings of a list before the last.
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

// find looks for the list of a term and scope; it stands before its first list. It makes no terms: that a term is above its
// predecessor, and what they have in common, tell how it compares with the one that is looked for.
func (r *blockReader) find(term []byte, scope uint32) bool {
	match, length := 0, uint64(0) // of the term before: how much it has in common with the one, and its bytes
	same := false                 // it is the one
	for r.left > 0 {
		if length > 0 && r.others(scope, same) {
			return r.stop(term, scope)
		}
		if r.left == 0 {
			break
		}
		r.left--
		common, rest := r.name()
		if r.bad = r.bad || common > length; r.bad || same {
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
				same = true
			case n < len(rest) && (match == len(term) || rest[n] > term[match]):
				return r.past(term[:common], rest)
			}
		}
		if r.otherScope(); same {
			if !r.postings() || r.scope >= scope {
				return r.stop(term, scope)
			}
		} else if r.pass(); r.bad {
			return false
		}
	}
	return r.ends == scope && bytes.Equal(r.last, term) && r.next()
}

// pass passes over the postings of a list before the last.
func (r *blockReader) pass() {
	if len(r.b) > 0 && r.b[0]&0x81 == 0 {
		r.b = r.b[1:]
	} else if len(r.b) > 1 && r.b[0]&1 == 0 && r.b[1] < 0x80 {
		r.b = r.b[2:]
	} else {
		r.postings()
	}
}

// others goes through the other lists of a term, behind one. If the term is the one that is looked for, it stops at the scope
// or the first above it, and returns true; also where the row is not sound.
func (r *blockReader) others(scope uint32, same bool) bool {
	if r.run == 0 && r.left > 0 && len(r.b) > 0 && r.b[0] == 0 {
		r.begins()
	}
	for r.left -= min(r.run, r.left); r.run > 0 && !r.bad; r.run-- {
		if b := r.b; !same && len(b) > 1 && b[0] < 0x80 && b[0] > 0 && b[1]&0x81 == 0 { // three of four
			r.scope, r.b = r.scope+uint32(b[0]), b[2:]
			continue
		}
		if r.nextScope(); !same {
			r.pass()
		} else if r.postings(); r.scope >= scope {
			return true
		}
	}
	return r.bad
}

// stop ends a search at a list of the term, in the scope that is looked for or in the first above it.
func (r *blockReader) stop(term []byte, scope uint32) bool {
	r.bad = r.bad || r.scope >= r.ends && bytes.Equal(r.last, term)
	return !r.bad && r.scope == scope
}

// past ends a search at a term, in two parts, above the one that is looked for. The terms behind it are not read.
func (r *blockReader) past(common, rest []byte) bool {
	r.bad = r.bad || cmp.Or(bytes.Compare(common, r.last[:min(len(common), len(r.last))]), bytes.Compare(rest, r.last[min(len(common), len(r.last)):])) > 0
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

// packed is a part of the tail that takes no more pages: its lists in the order of term and scope,
// in the form that they have in a segment. A word that occurs once takes about as much of it as of
// a text, where the lists of an open part take four times as much. It never changes.
//
// Its lists lie in blocks of blockTerms. The term of the first of a block is whole, each later one says
// how many bytes it has in common with its predecessor, and which follow. An entry is: bytes in common,
// bytes that follow, these, scope, count of postings, if there are several the distance from the first
// page of the part to the last of the list, bytes of the list, the list.
type packed struct {
	pages segment  // number 0: of no segment
	heads []uint64 // of the first term of each block; see head
	at    []uint32 // where each block begins in data
	data  []byte
	terms int
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
// block; the first of a block is whole, because a search begins there.
func (w *packer) add(t *tailTerm, term []byte, posts []uint64) {
	p := &w.p
	common := 0
	if len(p.heads) == 0 || w.n == blockTerms {
		w.n = 0
		p.heads, p.at = append(p.heads, t.head), append(p.at, uint32(len(p.data)))
	} else {
		common = commonBytes(w.last, term)
	}
	w.n++
	w.last = append(w.last[:0], term...)
	w.list = postings{body: w.list.body[:0]}
	for _, x := range posts {
		w.list.add(x>>32, uint32(x))
	}
	d := binary.AppendUvarint(double(p.data, len(term)+len(w.list.body)+6*binary.MaxVarintLen64), uint64(common))
	d = binary.AppendUvarint(d, uint64(len(term)-common))
	d = append(d, term[common:]...)
	d = binary.AppendUvarint(d, uint64(t.scope))
	d = binary.AppendUvarint(d, w.list.df)
	if w.list.df > 1 {
		d = binary.AppendUvarint(d, w.list.last)
	}
	d = binary.AppendUvarint(d, uint64(len(w.list.body)))
	p.data = append(d, w.list.body...)
}

// walk goes through the lists of a packed part, from the first of a block on.
type walk struct {
	p     *packed
	rest  []byte // of data
	block int    // the next
	term  []byte
	scope uint32
	at    int // in data: where list is
	list  list
}

func (p *packed) walk(block int) walk { return walk{p: p, rest: p.data[p.at[block]:], block: block} }

// next goes to the next list; false: there is none.
func (w *walk) next() bool {
	if len(w.rest) == 0 {
		return false
	}
	if at := len(w.p.data) - len(w.rest); w.block < len(w.p.at) && at == int(w.p.at[w.block]) {
		w.block++
	}
	r := reader{b: w.rest}
	common := r.uvarint()
	w.term = append(w.term[:common], r.bytes()...)
	w.scope = uint32(r.uvarint())
	w.at = len(w.p.data) - len(r.b)
	w.list = w.p.list(&r)
	w.rest = r.b
	return true
}

// list reads a list of the part.
func (p *packed) list(r *reader) list {
	l := list{segment: p.pages, from: p.pages.first, df: r.uvarint()}
	if l.df > 1 {
		l.last = p.pages.first + r.uvarint()
	}
	l.body = r.bytes()
	return l
}

// find returns the list of a term in a scope.
func (p *packed) find(scope uint32, term string) (list, bool) {
	block := p.block(term, scope)
	if block < 0 {
		return list{}, false
	}
	w := p.walk(block)
	var space [maxTerm]byte
	w.term = space[:0]
	for w.next() && w.block == block+1 && string(w.term) <= term {
		if string(w.term) == term && w.scope >= scope {
			return w.list, w.scope == scope
		}
	}
	return list{}, false
}

// block returns the last block that begins with a term and scope or before them; -1: none does.
func (p *packed) block(term string, scope uint32) int {
	first := head(term)
	return sort.Search(len(p.heads), func(i int) bool {
		if p.heads[i] != first {
			return p.heads[i] > first
		}
		r := reader{b: p.data[p.at[i]:]}
		r.uvarint()
		begins := string(r.bytes())
		return begins > term || begins == term && uint32(r.uvarint()) > scope
	}) - 1
}

// from is a walk that begins at or shortly before a term and scope; nil: at the first. false: there is none.
func (p *packed) from(key []byte) (walk, bool) {
	block := 0
	if key != nil {
		term, scope := termAndScope(key)
		block = max(block, p.block(string(term), scope))
	}
	if len(p.heads) == 0 {
		return walk{}, false
	}
	return p.walk(block), true
}

// start is the first page of a scope in a segment: from it the lists of the scope count.
type start struct {
	scope uint32
	first uint64
}

// starts has every start of a segment, by scope. A row has up to scopesInRow of them, and the last scope in its key: each
// distance to the scope before, the first to 0, and distance to the first page before, the first to that of the segment.
type starts []start

// of returns the first page of a scope; 0: the segment has none of it. Scopes that were made one after the other are mostly in
// one segment: then its number tells the place.
func (t starts) of(scope uint32) uint64 {
	if len(t) == 0 || scope < t[0].scope {
		return 0
	}
	at := int(scope - t[0].scope)
	if at >= len(t) || t[at].scope != scope {
		var ok bool
		if at, ok = slices.BinarySearchFunc(t, scope, func(s start, scope uint32) int { return cmp.Compare(s.scope, scope) }); !ok {
			return 0
		}
	}
	return t[at].first
}

// encode makes the value of a row, without its checksum.
func (t starts) encode(s segment) (b []byte) {
	last := start{first: s.first}
	for _, x := range t {
		b = binary.AppendUvarint(b, uint64(x.scope-last.scope))
		b = binary.AppendVarint(b, int64(x.first-last.first))
		last = x
	}
	return b
}

// decodeStarts appends the starts of a row.
func decodeStarts(s segment, key, row []byte, t starts) (starts, error) {
	value, err := unseal(key, row)
	if err != nil {
		return nil, err
	}
	r, last, n := reader{b: value}, start{first: s.first}, len(t)
	for len(r.b) > 0 {
		d := r.uint32()
		x := start{last.scope + d, last.first + uint64(r.varint())}
		if r.bad || x.scope < last.scope || d == 0 && len(t) > n || x.first < s.first || x.first > s.last {
			return nil, corrupt(key, "scopes do not rise, or a page is outside the segment")
		}
		t, last = append(t, x), x
	}
	if len(t) == n || !bytes.Equal(key, scopesKey(s.id, last.scope)) {
		return nil, corrupt(key, "the last scope is not that of the key")
	}
	return t, nil
}

// starts reads those of a segment.
func (s segment) starts(rows Rows) (t starts, err error) {
	rows.Scan(segmentKey(rowScopes, s.id), nil, func(k, v []byte) bool {
		t, err = decodeStarts(s, k, v, t)
		return err == nil
	})
	return t, err
}
