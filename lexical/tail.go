package lexical

import (
	"slices"
	"sort"
)

// tail is what is not in segments yet, in parts of flushDocs pages; only the last
// part may have fewer. A checkpoint writes whole parts, so that Apply lets go of
// them and need not enter anything again: it runs under the owner's lock, and
// pages come while a checkpoint runs.
type tail []*part

// part is the inversion of some pages. It has a handful of arrays without
// pointers in them, however many terms and postings it holds: a page is entered
// at every commit, and the collector has nothing to follow. A checkpoint reads all
// of it but what Remove changes: terms[].df and removed.
type part struct {
	docs    []tailDoc  // ascending by number, never empty; removed ones stay until the flush
	used    []uint32   // indexes into terms, page after page
	terms   []tailTerm // in the order of their first page
	text    []byte     // of the terms, one behind the other
	table   table      // of terms
	posts   []uint64   // pieces of lists; see post
	removed int        // pages, which readers of lists must leave out
}

type tailDoc struct {
	docRow
	first uint32 // its first term in used; the next page's is the end
}

type tailTerm struct {
	scope uint32
	at    uint32 // text[at:at+size]
	size  uint32
	df    uint32 // pages that were not removed
	first uint32 // its list in posts
	end   uint32 // where the next posting goes
}

// A list lies in posts in pieces, each twice as long as the one before up to
// 1<<lastPiece words. A word is a posting, the page's index in docs above its count;
// with the highest bit set it ends the piece: it holds where the next one is,
// and until there is one, which power of two this one is long.
const (
	firstPiece, lastPiece = 1, 7
	link                  = 1 << 63
)

func (t *tail) add(d Doc) {
	n := len(*t)
	switch {
	case n == 0:
		*t = append(*t, newPart(&part{table: make(table, 256)}))
	case len((*t)[n-1].docs) == flushDocs:
		*t = append(*t, newPart((*t)[n-1]))
	}
	(*t)[len(*t)-1].add(d)
}

// newPart makes as much room as a part took, within reason: the next pages are
// likely to be like the last.
func newPart(like *part) *part {
	const most = 1 << 17
	return &part{
		docs: make([]tailDoc, 0, len(like.docs)), used: make([]uint32, 0, min(len(like.used), most)),
		terms: make([]tailTerm, 0, min(len(like.terms), most)), text: make([]byte, 0, min(len(like.text), 8*most)),
		table: make(table, min(len(like.table), most)), posts: make([]uint64, 0, min(len(like.posts), 2*most)),
	}
}

func (p *part) add(d Doc) {
	doc := uint64(len(p.docs)) << 32
	row := docRow{num: d.Num, scope: d.Scope, group: d.Group, length: uint32(d.Analysis.Length)}
	p.docs = append(p.docs, tailDoc{row, uint32(len(p.used))})
	p.used = double(p.used, len(d.Analysis.Terms))
	for _, c := range d.Analysis.Terms {
		term := p.enter(d.Scope, c.Term)
		p.used = append(p.used, term)
		t := &p.terms[term]
		p.post(t, doc|uint64(c.N))
		t.df++
	}
}

// post appends a posting to the list of a term.
func (p *part) post(t *tailTerm, posting uint64) {
	if w := p.posts[t.end]; w&link != 0 {
		next := p.piece(min(int(w&^link)+1, lastPiece))
		p.posts[t.end] = link | uint64(next)
		t.end = next
	}
	p.posts[t.end] = posting
	t.end++
}

// piece returns where a new piece of 1<<power words begins.
func (p *part) piece(power int) uint32 {
	at, size := len(p.posts), 1<<power
	p.posts = double(p.posts, size)[:at+size]
	p.posts[at+size-1] = link | uint64(power)
	return uint32(at)
}

// enter returns the index of a term.
func (p *part) enter(scope uint32, text string) uint32 {
	if len(p.terms) >= len(p.table)/4*3 {
		p.table = p.table.grown()
	}
	h := hash(text) ^ scope*scopeMix
	slot := p.slot(h, scope, text)
	if e := p.table[slot]; e > 0 {
		return e.at()
	}
	at := uint32(len(p.terms))
	first := p.piece(firstPiece)
	p.terms = append(double(p.terms, 1), tailTerm{scope: scope, at: uint32(len(p.text)), size: uint32(len(text)), first: first, end: first})
	p.text = append(double(p.text, len(text)), text...)
	p.table[slot] = newEntry(h, at)
	return at
}

// find returns the index of a term, if a page of the part has it.
func (p *part) find(scope uint32, text string) (uint32, bool) {
	e := p.table[p.slot(hash(text)^scope*scopeMix, scope, text)]
	return e.at(), e > 0
}

// slot returns where a term is in the table, or the free slot where it belongs.
func (p *part) slot(hash, scope uint32, text string) uint32 {
	i := p.table.first(hash)
	for ; p.table[i] > 0; i = p.table.next(i) {
		if e := p.table[i]; e.hash() == hash {
			if t := &p.terms[e.at()]; t.scope == scope && string(p.bytes(t)) == text {
				return i
			}
		}
	}
	return i
}

func (p *part) bytes(t *tailTerm) []byte { return p.text[t.at : t.at+t.size] }

// scopeMix spreads the numbers of scopes over a hash.
const scopeMix = 0x9e3779b1

// double makes room for n more elements. A large slice grows by append in steps
// of a quarter, and is copied five times over; here once.
func double[T any](s []T, n int) []T {
	if len(s)+n <= cap(s) {
		return s
	}
	return slices.Grow(s, max(n, cap(s)))
}

// last is the greatest number in a part.
func (p *part) last() uint64 { return p.docs[len(p.docs)-1].num }

// remove takes the postings of a page out of the counts. They and the document
// stay where they are, because a running checkpoint may read them.
func (t tail) remove(num uint64) {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() >= num })
	if at == len(t) {
		return
	}
	p := t[at]
	i := p.from(num)
	if p.docs[i].num != num {
		return
	}
	p.removed++
	for _, term := range p.of(i) {
		p.terms[term].df--
	}
}

// from returns the index of the first document with a number ≥ num.
func (p *part) from(num uint64) int {
	return sort.Search(len(p.docs), func(i int) bool { return p.docs[i].num >= num })
}

// of returns the terms of a document.
func (p *part) of(doc int) []uint32 {
	if doc+1 < len(p.docs) {
		return p.used[p.docs[doc].first:p.docs[doc+1].first]
	}
	return p.used[p.docs[doc].first:]
}

// whole returns the parts, without an unfinished one unless all are asked for;
// of that one a copy, because pages may come to it.
func (t tail) whole(all bool) []*part {
	n := len(t)
	if n == 0 || len(t[n-1].docs) == flushDocs {
		return slices.Clone(t)
	}
	parts := slices.Clone(t[:n-1])
	if p := t[n-1]; all {
		parts = append(parts, &part{docs: p.docs, text: p.text, terms: slices.Clone(p.terms), posts: slices.Clone(p.posts)})
	}
	return parts
}

// after returns a tail of the documents above a number.
func (t tail) after(through uint64, gone func(num uint64) bool) tail {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() > through })
	if at == len(t) {
		return nil
	}
	if t[at].docs[0].num > through {
		return slices.Clone(t[at:])
	}
	var rest tail // a forced flush ended inside a part
	for _, p := range t[at:] {
		for _, d := range p.above(through) {
			rest.add(d)
			if gone(d.Num) {
				rest.remove(d.Num)
			}
		}
	}
	return rest
}

// above gives the documents above a number back as they were added, but for the
// order of their terms.
func (p *part) above(through uint64) []Doc {
	from := p.from(through + 1)
	docs := make([]Doc, len(p.docs)-from)
	for i := range docs {
		row := &p.docs[from+i]
		docs[i] = Doc{Num: row.num, Scope: row.scope, Group: row.group, Analysis: Analysis{Length: int(row.length)}}
	}
	var buf [blockSize]posting
	for i := range p.terms {
		text, l := string(p.bytes(&p.terms[i])), p.list(uint32(i))
		for block := l.next(&buf); len(block) > 0; block = l.next(&buf) {
			for _, e := range block {
				if e.num > through {
					a := &docs[p.from(e.num)-from].Analysis
					a.Terms = append(a.Terms, TermCount{text, e.tf})
				}
			}
		}
	}
	return docs
}

// tailList walks the postings of a term in the order of pages.
type tailList struct {
	p       *part
	at, end uint32
}

func (p *part) list(term uint32) tailList {
	t := &p.terms[term]
	return tailList{p: p, at: t.first, end: t.end}
}

// next puts up to blockSize postings into buf, of removed pages too.
func (l *tailList) next(buf *[blockSize]posting) []posting {
	n := 0
	for n < blockSize && l.at != l.end {
		w := l.p.posts[l.at]
		if w&link != 0 {
			l.at = uint32(w)
			continue
		}
		buf[n] = posting{l.p.docs[w>>32].num, uint32(w)}
		n++
		l.at++
	}
	return buf[:n]
}
