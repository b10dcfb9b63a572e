package lexical

import (
	"slices"
	"sort"
)

// tail holds the pages that are not in segments yet, in parts. A part takes pages until it is full,
// or until others must follow; then it is packed, and never changes again. A checkpoint writes whole
// parts, so that Apply drops whole parts and need not enter anything again: it runs under the owner's
// lock, and pages come while a checkpoint runs.
//
//	open ──full──▶ packed ──written──▶ gone
//	 ├──closed (a forced checkpoint, or a Built behind it)──▶ written as it is
//	 └──folded (the pages of an open)──unfolded by the next page──▶ open
type tail []*part

// What fills a part: flushDocs pages, partPosts postings or partTerms terms. A part is packed and
// joined term by term, so it should have many pages with each; but pages of words that are new each
// time take ten times as much as others do, and wait in memory until their part is written.
const (
	partPosts = 1 << 18
	partTerms = 1 << 16
)

// part is some pages of the tail, in one of two forms.
type part struct {
	docs    []docRow // ascending by number, never empty; removed ones stay until they are written
	removed int      // pages, which readers of lists must leave out
	closed  bool     // takes no more pages
	lists   *lists   // while it takes pages
	packed  *packed  // when it is full, or folded
}

// lists are the postings of an open part.
//
// They also keep the terms of the parts before that the same writer filled: nearly all come
// again, and entering a term and finding its place among the others takes longer than all else. A
// term without pages is not of this part.
//
// A page is entered by noting which terms it uses, which is all that packing needs. A question
// brings posts up to date before it reads them.
type lists struct {
	dictionary
	memo  memo
	df    []uint32   // by term: pages, removed ones too; 0: it is of an earlier part
	used  int        // terms of this part
	uses  []use      // page after page
	ends  []uint32   // by page: where its uses end
	posts [][]uint64 // by term, for readers: indexes in docs, each above its count
	read  int        // pages that are in posts
}

// use says how often a page has a term.
type use struct{ term, n uint32 }

// partWriter enters pages into parts. Its lists are used again for the next part: nothing else
// reads them once a part is packed.
type partWriter struct {
	spare  *lists
	packer packer
}

// add enters a page into the last part, or into a new one.
func (w *partWriter) add(t *tail, d Doc) {
	n := len(*t)
	if n == 0 || (*t)[n-1].closed {
		like := 0
		if n > 0 {
			like = len((*t)[n-1].docs)
		}
		*t = append(*t, &part{docs: make([]docRow, 0, min(like, flushDocs)), lists: w.lists()})
		n++
	}
	p := (*t)[n-1]
	if p.packed != nil {
		w.unfold(p)
	}
	p.docs = append(p.docs, d.row())
	p.lists.add(d.Scope, d.Analysis.Terms)
	if len(p.docs) >= flushDocs || len(p.lists.uses) >= partPosts || p.lists.used >= partTerms {
		w.pack(p)
	}
}

// lists returns empty lists, in the memory of the previous part if it is free.
func (w *partWriter) lists() *lists {
	l := w.spare
	if w.spare = nil; l == nil {
		l = &lists{dictionary: dictionary{table: make(table, 256)}}
	}
	return l
}

// pack ends a part that is in the hands of this writer alone.
func (w *partWriter) pack(p *part) {
	p.docs = clip(p.docs)
	p.packed, p.closed = w.packer.pack(p.lists, p.docs), true
	if len(p.lists.uses) <= 2*partPosts { // otherwise a page was larger than any before or after it is likely to be
		p.lists.reset()
		w.spare = p.lists
	} else {
		w.packer = packer{}
	}
	p.lists = nil
}

// foldedDocs is the most pages of a part that is folded: the page that unfolds it waits.
const foldedDocs = 128

// fold packs a small part that still takes pages, and frees the memory for others: of a database that is opened and only read, as
// most of a process with a thousand are, its lists took more memory than all else.
func (w *partWriter) fold(t tail) {
	if n := len(t); n > 0 && !t[n-1].closed && t[n-1].packed == nil && len(t[n-1].docs) <= foldedDocs {
		p := t[n-1]
		p.docs = clip(p.docs)
		p.packed, p.lists = w.packer.pack(p.lists, p.docs), nil
		*w = partWriter{}
	}
}

// unfold is the reverse of fold.
func (w *partWriter) unfold(p *part) {
	pages := make([][]TermCount, len(p.docs))
	if p.packed.terms > 0 {
		for of := p.packed.walk(0); of.next(); {
			term := string(of.term)
			of.list.each(func(num uint64, n uint32) {
				i := sort.Search(len(p.docs), func(i int) bool { return p.docs[i].num >= num })
				pages[i] = append(pages[i], TermCount{Term: term, N: n})
			})
		}
	}
	p.packed, p.lists = nil, w.lists()
	for i, terms := range pages {
		p.lists.add(p.docs[i].scope, terms)
	}
}

// reset empties lists and keeps their memory, and their terms unless they are many.
func (l *lists) reset() {
	if len(l.terms) >= partTerms {
		l.terms, l.text, l.sorted, l.df = l.terms[:0], l.text[:0], l.sorted[:0], l.df[:0]
		clear(l.table)
		clear(l.memo)
	}
	clear(l.df)
	l.used, l.uses, l.ends, l.posts, l.read = 0, l.uses[:0], l.ends[:0], nil, 0
}

// clip returns a copy without spare capacity.
func clip[T any](s []T) []T {
	c := make([]T, len(s))
	copy(c, s)
	return c
}

// together is the number of terms that are looked up at once. A part is larger than a cache of the processor:
// of terms that are looked up one by one each waits for memory, of these all wait at once.
const together = 32

// add enters the terms of the next page; each occurs once.
func (l *lists) add(scope uint32, terms []TermCount) {
	for len(l.terms)+len(terms) > len(l.table)/4*3 {
		l.table = l.table.grown()
	}
	if n := min(len(l.table), mostMemo); len(l.memo) < n { // what it knew is forgotten
		l.memo = make(memo, n)
	}
	l.uses = double(l.uses, len(terms))
	for some := range slices.Chunk(terms, together) {
		l.use(scope, some)
	}
	l.ends = append(l.ends, uint32(len(l.uses)))
}

// use enters up to together terms of a page. All are looked up before the first is
// compared, so that the memory they are in is fetched at the same time.
func (l *lists) use(scope uint32, terms []TermCount) {
	var hashes [together]uint32
	var found [together]entry
	known := uint32(0) // by bit: found has the number
	for i := range terms {
		c := &terms[i]
		if m := l.memo.of(c.stem); m.stem == c.stem && m.scope == scope && c.stem != 0 {
			found[i] = newEntry(0, m.term)
			known |= 1 << i
		} else {
			hashes[i] = inScope(c.hashed(), scope)
			found[i] = l.candidate(hashes[i])
		}
	}
	for i := range terms {
		c, at := &terms[i], found[i].at()
		if known&(1<<i) == 0 {
			if found[i] == 0 || !l.is(at, scope, c.Term) {
				at = l.number(hashes[i], scope, c.Term)
			}
			if c.stem != 0 {
				*l.memo.of(c.stem) = remembered{c.stem, scope, at}
			}
		}
		if l.df[at]++; l.df[at] == 1 {
			l.used++
		}
		l.uses = append(l.uses, use{at, c.N})
	}
}

// find returns the number of a term of this part.
func (l *lists) find(scope uint32, text string) (uint32, bool) {
	at, known := l.dictionary.find(scope, text)
	return at, known && l.df[at] > 0
}

// number returns the number of a term, a new one if there is none.
func (l *lists) number(hash, scope uint32, term string) uint32 {
	at := l.enter(hash, scope, term)
	if int(at) == len(l.df) {
		l.df = append(double(l.df, 1), 0)
	}
	return at
}

// memo remembers the numbers that stems have in a part. A look into the dictionary waits for memory
// three times, because of the table, the term and its text, and a part is larger than a cache of the
// processor. Ids of stems are never given twice, so nothing has to be compared but them. Two ids may
// share a place, and words of one stem have different ids; then the dictionary answers.
type memo []remembered

type remembered struct{ stem, scope, term uint32 }

// mostMemo bounds the memory of a memo, 400 KB.
const mostMemo = 1 << 15

// of is the place of a stem.
func (m memo) of(stem uint32) *remembered { return &m[stem&uint32(len(m)-1)] }

// forReaders puts the pages into lists that are not in lists yet. If there are none it writes nothing: another reader may be
// reading the lists.
func (l *lists) forReaders() {
	if l.read == len(l.ends) {
		return
	}
	from := uint32(0)
	if l.read > 0 {
		from = l.ends[l.read-1]
	}
	l.posts = append(l.posts, make([][]uint64, len(l.terms)-len(l.posts))...)
	for ; l.read < len(l.ends); l.read++ {
		to := l.ends[l.read]
		for _, u := range l.uses[from:to] {
			l.posts[u.term] = append(l.posts[u.term], uint64(l.read)<<32|uint64(u.n))
		}
		from = to
	}
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

// remove notes that a page is gone. Its postings and the page stay where they are, because a
// running checkpoint may read them.
func (t tail) remove(num uint64) {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() >= num })
	if at == len(t) {
		return
	}
	p := t[at]
	i := sort.Search(len(p.docs), func(i int) bool { return p.docs[i].num >= num })
	if p.docs[i].num == num {
		p.removed++
	}
}

// whole returns the parts that take no more pages. all closes the last part first.
func (t tail) whole(all bool) []*part {
	n := len(t)
	if n == 0 {
		return nil
	}
	if last := t[n-1]; all {
		last.closed = true
	} else if !last.closed {
		n--
	}
	return slices.Clone(t[:n])
}

// after returns a tail of the pages above a number, with which a part ends.
func (t tail) after(through uint64) tail {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() > through })
	if at == len(t) {
		return nil
	}
	return slices.Clone(t[at:])
}

// terms counts the lists of a part.
func (p *part) terms() int {
	if p.packed != nil {
		return p.packed.terms
	}
	return p.lists.used
}

// inOrder returns a closed part in its packed form.
func (p *part) inOrder() *packed {
	if p.packed != nil {
		return p.packed
	}
	var w packer
	return w.pack(p.lists, p.docs)
}

// eachBlock calls fn with the postings of a term of an open part, of removed pages too, in the memory of buf.
func (p *part) eachBlock(term uint32, buf *[blockSize]posting, fn func(block []posting)) {
	for some := range slices.Chunk(p.lists.posts[term], blockSize) {
		fn(p.decode(some, buf))
	}
}

// decode returns up to blockSize postings of an open part, in the memory of buf.
func (p *part) decode(some []uint64, buf *[blockSize]posting) []posting {
	for i, w := range some {
		buf[i] = posting{p.docs[w>>32].num, uint32(w)}
	}
	return buf[:len(some)]
}

// columns holds what a query asks of each page version in the index: its length, its group, and of
// a turn its speaker and when it was said, by page number. Page numbers are dense, so these are
// plain slices of 18 bytes a page, 8 without groups and turns; a number that is not in the index has
// scope 0. The integer statistics of scopes, groups and speakers are kept here too.
//
// Everything in it follows from the pages that are there: add and remove are each other's inverse,
// so the sums do not depend on the order in which pages came. Statistics are integers for the same
// reason. The numbers of scopes, groups and speakers here are this process's own, and no score
// depends on them. A page that was removed leaves its place in the slices, since numbers are never
// used again.
type columns struct {
	base    uint64 // page number of element 0
	shape   []shape
	scope   []uint32 // index into scopes
	group   []uint32 // index into groups; nil before the first page of a group
	speaker []uint32 // index into speakers; nil before the first turn
	said    []said   // likewise

	scopes    []scopeStats // element 0 is unused
	scopeAt   map[uint32]uint32
	groups    []groupStats // element 0: no group
	groupAt   map[groupKey]uint32
	speakers  []speakerStats // element 0 is unused
	speakerAt map[speakerKey]uint32
}

// shape is the length of a text in terms, times two, plus one when it is a turn: a
// score asks for both at once.
type shape uint32

const maxLength = 1<<31 - 1

// shapeOf is the shape of a text. A length beyond 2^31 counts as that.
func shapeOf(length uint32, turn bool) shape {
	s := shape(min(length, maxLength)) << 1
	if turn {
		s++
	}
	return s
}

func (s shape) turn() bool     { return s&1 == 1 }
func (s shape) length() uint32 { return uint32(s >> 1) }

// said is the month of a turn, and above it what its author says about themselves.
type said uint16

func (s said) month() Month   { return Month(s & (1<<monthBits - 1)) }
func (s said) traits() Traits { return Traits(s >> monthBits) }

// scopeStats sums the pages of a scope. The sums of a chain of scopes are added for each question
// (total), so that a score depends on nothing that the question may not see.
type scopeStats struct {
	id                uint32
	pages, length     uint64
	turns, turnLength uint64 // of them, those that are turns
	groups            uint64 // groups with a page
	groupLength       uint64 // length of the pages in them

	called map[string][]uint32 // word of a name → speakers with a turn, in no order
}

// groupStats counts the pages of a group: all versions, as they are scored as one text. Removed
// pages no longer count; a group without pages keeps its place.
type groupStats struct {
	scope         uint32 // index into scopes
	id            uint64 // the owner's number
	pages, length uint64
	turns         uint64
}

// speakerStats counts the turns of one speaker in a scope. The name is kept when the last turn of
// the speaker is gone; an image leaves it out (image.go).
type speakerStats struct {
	name          string
	words         []string // of the name, analysed
	turns, length uint64   // the length of his turns, in terms
}

// speakerKey names a speaker. The same name in another scope is another speaker.
type speakerKey struct {
	scope uint32 // index into scopes
	name  string
}

// A group belongs to one scope: the same number in another scope is another
// group, so a length never tells about pages of strangers.
type groupKey struct {
	scope uint32
	group uint64
}

// newColumns makes empty columns. Places of scopes, groups and speakers begin at 1: 0 stands for
// none.
func newColumns() *columns {
	return &columns{
		scopes: make([]scopeStats, 1), scopeAt: map[uint32]uint32{},
		groups: make([]groupStats, 1), groupAt: map[groupKey]uint32{},
		speakers: make([]speakerStats, 1), speakerAt: map[speakerKey]uint32{},
	}
}

// add takes a page version; its number must be above all before.
func (c *columns) add(d docRow) {
	if len(c.scope) == 0 {
		c.base = d.num
	}
	at := int(d.num - c.base)
	c.shape, c.scope = grow(c.shape, at+1), grow(c.scope, at+1)
	s := c.scopeIndex(d.scope)
	g := uint32(0)
	if d.group != 0 {
		g = c.groupIndex(s, d.group)
	}
	c.shape[at], c.scope[at] = shapeOf(d.length, d.turn), s
	if g != 0 || c.group != nil {
		c.group = grow(c.group, at+1)
		c.group[at] = g
	}
	if d.turn || c.said != nil {
		c.speaker, c.said = grow(c.speaker, at+1), grow(c.said, at+1)
	}
	c.scopes[s].pages++
	c.scopes[s].length += uint64(d.length)
	if d.turn {
		c.addTurn(at, s, d)
	}
	if g == 0 {
		return
	}
	if c.groups[g].pages == 0 {
		c.scopes[s].groups++
	}
	c.groups[g].pages++
	c.groups[g].length += uint64(d.length)
	c.scopes[s].groupLength += uint64(d.length)
	if d.turn {
		c.groups[g].turns++
	}
}

// addTurn notes what only turns have. The first turn of a speaker makes the words of his name mean
// him.
func (c *columns) addTurn(at int, scope uint32, d docRow) {
	c.scopes[scope].turns++
	c.scopes[scope].turnLength += uint64(d.length)
	c.said[at] = said(d.month) | said(d.traits)<<monthBits
	n := c.speakerIndex(scope, d.speaker)
	if c.speaker[at] = n; n == 0 {
		return
	}
	c.speakers[n].length += uint64(d.length)
	if c.speakers[n].turns++; c.speakers[n].turns == 1 {
		for _, w := range c.speakers[n].words {
			c.scopes[scope].called[w] = append(c.scopes[scope].called[w], n)
		}
	}
}

// removeTurn takes back what addTurn counted.
func (c *columns) removeTurn(at uint64, scope uint32) {
	c.scopes[scope].turns--
	c.scopes[scope].turnLength -= uint64(c.shape[at].length())
	n := c.speaker[at]
	if n == 0 {
		return
	}
	c.speakers[n].length -= uint64(c.shape[at].length())
	if c.speakers[n].turns--; c.speakers[n].turns == 0 {
		called := c.scopes[scope].called
		for _, w := range c.speakers[n].words {
			called[w] = slices.DeleteFunc(called[w], func(o uint32) bool { return o == n })
		}
	}
}

// names analyses the names of speakers.
var names = NewAnalyzer()

// speakerIndex returns the number of a speaker, a new one if there is none; 0 is no speaker.
func (c *columns) speakerIndex(scope uint32, name string) uint32 {
	if name == "" {
		return 0
	}
	key := speakerKey{scope, name}
	at, ok := c.speakerAt[key]
	if !ok {
		at = uint32(len(c.speakers))
		words := names.Terms(name)
		c.speakers = append(c.speakers, speakerStats{name: name, words: words[:min(len(words), wordsOfName)]})
		c.speakerAt[key] = at
		if c.scopes[scope].called == nil {
			c.scopes[scope].called = map[string][]uint32{}
		}
	}
	return at
}

// wordsOfName bounds the words by which a speaker can be named.
const wordsOfName = 8

// grow extends a slice with zeros, in amortised constant time an element.
func grow[T any](s []T, n int) []T {
	old := len(s)
	s = slices.Grow(s, n-old)[:n]
	clear(s[old:])
	return s
}

// remove forgets a page version; it reports whether it was there.
func (c *columns) remove(num uint64) bool {
	if !c.has(num) {
		return false
	}
	at := num - c.base
	length, s, g := uint64(c.shape[at].length()), c.scope[at], c.groupOf(int(at))
	c.scope[at] = 0
	c.scopes[s].pages--
	c.scopes[s].length -= length
	turn := c.shape[at].turn()
	if turn {
		c.removeTurn(at, s)
	}
	if g == 0 {
		return true
	}
	c.groups[g].pages--
	c.groups[g].length -= length
	c.scopes[s].groupLength -= length
	if turn {
		c.groups[g].turns--
	}
	if c.groups[g].pages == 0 {
		c.scopes[s].groups--
	}
	return true
}

// groupOf returns the group of a place; 0: none.
func (c *columns) groupOf(at int) uint32 {
	if c.group == nil {
		return 0
	}
	return c.group[at]
}

// has reports whether a page version is in the index and was not removed.
func (c *columns) has(num uint64) bool {
	return num >= c.base && num-c.base < uint64(len(c.scope)) && c.scope[num-c.base] != 0
}

// scopeIndex returns the number of a scope here, a new one if there is none.
func (c *columns) scopeIndex(id uint32) uint32 {
	at, ok := c.scopeAt[id]
	if !ok {
		at = uint32(len(c.scopes))
		c.scopes = append(c.scopes, scopeStats{id: id})
		c.scopeAt[id] = at
	}
	return at
}

// groupIndex returns the number of a group here, a new one if there is none; 0 is no group.
func (c *columns) groupIndex(scope uint32, group uint64) uint32 {
	key := groupKey{scope, group}
	at, ok := c.groupAt[key]
	if !ok {
		at = uint32(len(c.groups))
		c.groups = append(c.groups, groupStats{scope: scope, id: group})
		c.groupAt[key] = at
	}
	return at
}

// total sums the statistics of a chain of scopes.
func (c *columns) total(scopes []uint32) scopeStats {
	var t scopeStats
	for _, id := range scopes {
		s := c.scopes[c.scopeAt[id]] // element 0 is all zero
		t.pages += s.pages
		t.length += s.length
		t.turns += s.turns
		t.turnLength += s.turnLength
		t.groups += s.groups
		t.groupLength += s.groupLength
	}
	return t
}
