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
// at every commit, and the collector has nothing to follow. A checkpoint, which runs
// beside those who change it, reads docs, uses and of terms what never changes.
type part struct {
	docs []tailDoc // ascending by number, never empty; removed ones stay until the flush
	uses []use     // page after page
	dictionary
	posts   []uint64 // pieces of lists; see post
	removed int      // pages, which readers of lists must leave out
}

type tailDoc struct {
	docRow
	first uint32 // its first term in uses; the next page's is the end
}

// use is a term of a page.
type use struct {
	term uint32 // index into terms
	n    uint32 // how often it occurs
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
		*t = append(*t, newPart(&part{dictionary: newDictionary()}))
	case len((*t)[n-1].docs) == flushDocs:
		*t = append(*t, newPart((*t)[n-1]))
	}
	p := (*t)[len(*t)-1]
	if p.add(d); len(p.docs) == flushDocs {
		p.pack()
	}
}

// pack gives a part that is full no more memory than it needs: its arrays have no room left, and its lists no links.
// All are new arrays, for a running checkpoint may read the old ones.
func (p *part) pack() {
	terms := make([]tailTerm, len(p.terms))
	posts := make([]uint64, 0, len(p.uses))
	for i := range p.terms {
		t := p.terms[i]
		first := uint32(len(posts))
		for at := t.first; at != t.end; {
			w := p.posts[at]
			if w&link != 0 {
				at = uint32(w)
				continue
			}
			posts = append(posts, w)
			at++
		}
		t.first, t.end = first, uint32(len(posts))
		terms[i] = t
	}
	p.terms, p.posts = terms, posts
	p.docs, p.uses, p.text = exact(p.docs), exact(p.uses), exact(p.text)
	p.table = p.table.fit(len(terms))
}

// exact returns a copy without room for more.
func exact[T any](s []T) []T {
	c := make([]T, len(s))
	copy(c, s)
	return c
}

// newPart makes as much room as a part took, within reason: the next pages are
// likely to be like the last.
func newPart(like *part) *part {
	const most = 1 << 17
	return &part{
		docs: make([]tailDoc, 0, len(like.docs)), uses: make([]use, 0, min(len(like.uses), most)),
		dictionary: dictionary{
			terms: make([]tailTerm, 0, min(len(like.terms), most)), text: make([]byte, 0, min(len(like.text), 8*most)),
			table: make(table, min(len(like.table), most)),
		},
		posts: make([]uint64, 0, min(len(like.posts), 2*most)),
	}
}

func (p *part) add(d Doc) {
	row := docRow{num: d.Num, scope: d.Scope, group: d.Group, length: uint32(d.Analysis.Length)}
	p.docs = append(p.docs, tailDoc{row, uint32(len(p.uses))})
	terms := d.Analysis.terms()
	p.uses = double(p.uses, len(terms))
	p.room(len(terms))
	for some := range slices.Chunk(terms, together) {
		p.addTerms(d.Scope, some)
	}
}

// together is how many terms are looked up at once. A part is larger than a cache of the processor: of terms that are
// looked up one by one each waits for memory, of these all wait at once.
const together = 32

// addTerms enters terms of the last page; each occurs once.
func (p *part) addTerms(scope uint32, terms []TermCount) {
	var hashes [together]uint32
	var found [together]entry
	var next [together]uint64
	for i := range terms {
		hashes[i] = inScope(terms[i].hashed(), scope)
		found[i] = p.candidate(hashes[i])
	}
	for i := range terms {
		if e := found[i]; e > 0 {
			next[i] = p.posts[p.terms[e.at()].end]
		}
	}
	doc := uint64(len(p.docs)-1) << 32
	for i := range terms {
		c, at := &terms[i], found[i].at()
		if found[i] == 0 || !p.is(at, scope, c.Term) {
			at = p.enter(hashes[i], scope, c.Term)
			next[i] = p.posts[p.terms[at].end]
		}
		p.uses = append(p.uses, use{at, c.N})
		p.post(&p.terms[at], next[i], doc|uint64(c.N))
	}
}

// post appends a posting to the list of a term; next is the word where it goes.
func (p *part) post(t *tailTerm, next, posting uint64) {
	if next&link != 0 {
		piece := p.piece(min(int(next&^link)+1, lastPiece))
		p.posts[t.end] = link | uint64(piece)
		t.end = piece
	}
	p.posts[t.end] = posting
	t.end++
	t.df++
}

// piece returns where a new piece of 1<<power words begins.
func (p *part) piece(power int) uint32 {
	at, size := len(p.posts), 1<<power
	p.posts = double(p.posts, size)[:at+size]
	p.posts[at+size-1] = link | uint64(power)
	return uint32(at)
}

// enter returns the index of a term; the table has room for it.
func (p *part) enter(hash, scope uint32, text string) uint32 {
	at, known := p.dictionary.enter(hash, scope, text)
	if !known {
		first := p.piece(firstPiece)
		p.terms[at].first, p.terms[at].end = first, first
	}
	return at
}

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
	for _, u := range p.of(i) {
		p.terms[u.term].df--
	}
}

// from returns the index of the first document with a number ≥ num.
func (p *part) from(num uint64) int {
	return sort.Search(len(p.docs), func(i int) bool { return p.docs[i].num >= num })
}

// of returns the terms of a document.
func (p *part) of(doc int) []use {
	if doc+1 < len(p.docs) {
		return p.uses[p.docs[doc].first:p.docs[doc+1].first]
	}
	return p.uses[p.docs[doc].first:]
}

// whole returns the parts, without an unfinished one unless all are asked for;
// of that one a view of what is there now, because pages may come to it. It has no
// lists: of them a checkpoint reads nothing.
func (t tail) whole(all bool) []*part {
	n := len(t)
	if n == 0 || len(t[n-1].docs) == flushDocs {
		return slices.Clone(t)
	}
	parts := slices.Clone(t[:n-1])
	if p := t[n-1]; all {
		parts = append(parts, &part{docs: p.docs, uses: p.uses, dictionary: dictionary{terms: p.terms, text: p.text}})
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

// above gives the documents above a number back as they were added.
func (p *part) above(through uint64) []Doc {
	from := p.from(through + 1)
	docs := make([]Doc, 0, len(p.docs)-from)
	for i := from; i < len(p.docs); i++ {
		row := &p.docs[i]
		a := Analysis{Length: int(row.length)}
		for _, u := range p.of(i) {
			a.Terms = append(a.Terms, TermCount{Term: string(p.bytes(&p.terms[u.term])), N: u.n})
		}
		docs = append(docs, Doc{Num: row.num, Scope: row.scope, Group: row.group, Analysis: a})
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
