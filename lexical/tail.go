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
// at every commit, under the owner's lock, and the collector has nothing to follow.
// A checkpoint reads all of it but what Remove changes: terms[].df and removed.
type part struct {
	docs    []tailDoc     // ascending by number, never empty; removed ones stay until the flush
	terms   []tailTerm    // in the order of their first page
	hashes  []uint32      // of terms: scope and text
	text    []byte        // of the terms, one behind the other
	slots   []uint32      // hash table: 1 + index into terms, 0: free; a power of two
	posts   []tailPosting // page after page
	removed int           // pages, which readers of posts must leave out
}

type tailDoc struct {
	docRow
	first uint32 // its first posting; the next page's is the end
}

type tailTerm struct {
	scope uint32
	at    uint32 // text[at:at+size]
	size  uint32
	df    uint32 // pages that were not removed
	last  uint32 // newest posting
}

// tailPosting is a term of a page. Those of a term are a ring in the order of
// pages: the newest is followed by the oldest.
type tailPosting struct {
	doc  uint32 // index into docs
	term uint32 // index into terms
	tf   uint32
	next uint32 // index into posts
}

func (t *tail) add(d Doc) {
	n := len(*t)
	switch {
	case n == 0:
		*t = append(*t, newPart(0))
	case len((*t)[n-1].docs) == flushDocs:
		*t = append(*t, newPart(len((*t)[n-1].posts)))
	}
	(*t)[len(*t)-1].add(d)
}

// newPart makes room for so many postings: those of the part before, for the next
// pages are likely to be like the last.
func newPart(posts int) *part {
	return &part{slots: make([]uint32, 256), posts: make([]tailPosting, 0, posts+posts/8)}
}

func (p *part) add(d Doc) {
	doc, at := uint32(len(p.docs)), uint32(len(p.posts))
	row := docRow{num: d.Num, scope: d.Scope, group: d.Group, length: uint32(d.Analysis.Length)}
	p.docs = append(p.docs, tailDoc{row, at})
	p.posts = double(p.posts, len(d.Analysis.Terms))
	for _, c := range d.Analysis.Terms {
		term := p.enter(d.Scope, c.Term, at)
		p.posts = append(p.posts, tailPosting{doc, term, c.N, at})
		t := &p.terms[term]
		if t.last != at {
			last := &p.posts[t.last]
			p.posts[at].next, last.next, t.last = last.next, at, at
		}
		t.df++
		at++
	}
}

// enter returns the index of a term; a new one has its first posting at first.
func (p *part) enter(scope uint32, text string, first uint32) uint32 {
	if len(p.terms) >= len(p.slots)/4*3 {
		p.slots = rehash(p.hashes, 2*len(p.slots))
	}
	h := hash(text) ^ scope*scopeMix
	slot := p.slot(h, scope, text)
	if at := p.slots[slot]; at > 0 {
		return at - 1
	}
	p.hashes = append(double(p.hashes, 1), h)
	p.terms = append(double(p.terms, 1), tailTerm{scope: scope, at: uint32(len(p.text)), size: uint32(len(text)), last: first})
	p.text = append(double(p.text, len(text)), text...)
	p.slots[slot] = uint32(len(p.terms))
	return uint32(len(p.terms)) - 1
}

// find returns the index of a term, if a page of the part has it.
func (p *part) find(scope uint32, text string) (uint32, bool) {
	at := p.slots[p.slot(hash(text)^scope*scopeMix, scope, text)]
	return at - 1, at > 0
}

// slot returns where a term is in the table, or the free slot where it belongs.
func (p *part) slot(hash, scope uint32, text string) uint32 {
	mask := uint32(len(p.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := p.slots[i]
		if at == 0 {
			return i
		}
		if t := &p.terms[at-1]; p.hashes[at-1] == hash && t.scope == scope && string(p.bytes(t)) == text {
			return i
		}
	}
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

// last is the greatest number in the tail, 0 when it is empty.
func (t tail) last() uint64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1].last()
}

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
	for _, e := range p.of(i) {
		p.terms[e.term].df--
	}
}

// from returns the index of the first document with a number ≥ num.
func (p *part) from(num uint64) int {
	return sort.Search(len(p.docs), func(i int) bool { return p.docs[i].num >= num })
}

// of returns the postings of a document.
func (p *part) of(doc int) []tailPosting {
	if doc+1 < len(p.docs) {
		return p.posts[p.docs[doc].first:p.docs[doc+1].first]
	}
	return p.posts[p.docs[doc].first:]
}

// doc gives a document back as it was added.
func (p *part) doc(i int) Doc {
	row := &p.docs[i]
	d := Doc{Num: row.num, Scope: row.scope, Group: row.group, Analysis: Analysis{Length: int(row.length)}}
	for _, e := range p.of(i) {
		d.Analysis.Terms = append(d.Analysis.Terms, TermCount{string(p.bytes(&p.terms[e.term])), e.tf})
	}
	return d
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
		parts = append(parts, &part{docs: slices.Clone(p.docs), terms: slices.Clone(p.terms), text: p.text, posts: slices.Clone(p.posts)})
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
		for i := p.from(through + 1); i < len(p.docs); i++ {
			num := p.docs[i].num
			rest.add(p.doc(i))
			if gone(num) {
				rest.remove(num)
			}
		}
	}
	return rest
}

// ring walks the postings of a term in the order of pages.
type ring struct {
	p        *part
	at, last uint32
	done     bool
}

func (p *part) ring(term uint32) ring {
	last := p.terms[term].last
	return ring{p: p, at: p.posts[last].next, last: last}
}

// next puts up to blockSize postings into buf, of removed pages too.
func (r *ring) next(buf *[blockSize]posting) []posting {
	n := 0
	for ; n < blockSize && !r.done; n++ {
		e := &r.p.posts[r.at]
		buf[n] = posting{r.p.docs[e.doc].num, e.tf}
		r.done, r.at = r.at == r.last, e.next
	}
	return buf[:n]
}
