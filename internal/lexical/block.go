package lexical

import (
	"bytes"
	"cmp"
	"encoding/binary"
)

// Most words of a segment are in few pages, so a row for each was three times the postings in it: 16 bytes of the store, a key,
// a checksum. A row therefore has the lists of neighbouring terms of a scope, in a block:
//
//	key      that of the last term
//	value    the count and postings of the last term alone, or
//	         0, how many terms stand before the last, each of these, and the last: count, postings
//	term     16 × bytes in common with the term before (the first: 0) + bytes that follow, or 15 and how many more;
//	         these; 2 × bytes of postings + 1 if there are several; the count then; postings
//
// A list has at least one posting, so the two forms are never confused.
//
// A list is looked for in the first row from its key on. Where a block ends follows from the terms and lists of the
// segment alone, so rows are the same however many steps write them: a step ends where a block does.
//
// The key could not be that of the first term: the store finds the next row from a key, not the one before.

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
	term := b.key[scopeSize:]
	common := commonBytes(term, b.name)
	rest := term[common:]
	b.named = binary.AppendUvarint(b.named, uint64(common)<<4|uint64(min(len(rest), 15)))
	if len(rest) >= 15 {
		b.named = binary.AppendUvarint(b.named, uint64(len(rest)-15))
	}
	b.named = append(b.named, rest...)
	if b.df == 1 {
		b.named = binary.AppendUvarint(b.named, uint64(len(b.body))<<1)
	} else {
		b.named = binary.AppendUvarint(b.named, uint64(len(b.body))<<1|1)
		b.named = binary.AppendUvarint(b.named, b.df)
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
	if b.n > 0 {
		dst = append(dst, 0)
		dst = binary.AppendUvarint(dst, b.n)
		dst = append(dst, b.named...)
	}
	return append(binary.AppendUvarint(dst, b.df), b.body...)
}

// size is about the most that appendTo appends.
func (b *block) size() int { return 3*binary.MaxVarintLen64 + len(b.named) + len(b.body) }

// reset empties the block.
func (b *block) reset() {
	b.some, b.named, b.n, b.name = false, b.named[:0], 0, b.name[:0]
}

// blockReader walks the lists of a row. What it gives is borrowed from the row, but for the terms.
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
	if len(value) > 0 && value[0] == 0 {
		r.b = value[1:]
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

// name reads what a term has in common with the one before, and the rest of it.
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

// postings reads those of a term before the last.
func (r *blockReader) postings() bool {
	size := r.uvarint()
	several := size&1 != 0
	if r.list.df = 1; several {
		r.list.df = r.uvarint()
	}
	if size >>= 1; size > uint64(len(r.b)) || r.list.df == 0 || r.list.df > size {
		r.bad = true
		return false
	}
	r.list.body, r.b = r.b[:size], r.b[size:]
	return !r.bad
}

// find looks for the list of a term; it stands before its first list. It makes no terms: that a term is above the one before,
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

// commonBytes is how many bytes a and b have in common.
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
