package lexical

import (
	"cmp"
	"slices"
	"sort"
)

// tail is what is not in segments yet, in parts of flushDocs pages; only the last
// part may have fewer. A checkpoint writes whole parts, so that Apply lets go of
// them and need not enter anything again: it runs under the owner's lock, and
// pages come while a checkpoint runs.
type tail []*part

type part struct {
	docs  []Doc                           // ascending by number, never empty; removed ones stay until the flush
	lists map[uint32]map[string]*tailList // by scope, then term: one key of both hashes three times as long
}

type termKey struct {
	scope uint32
	term  string
}

type tailList []posting // ascending by number

func (t *tail) add(d Doc) {
	if n := len(*t); n == 0 || len((*t)[n-1].docs) == flushDocs {
		*t = append(*t, &part{docs: make([]Doc, 0, 8), lists: map[uint32]map[string]*tailList{}})
	}
	(*t)[len(*t)-1].add(d)
}

func (p *part) add(d Doc) {
	p.docs = append(p.docs, d)
	lists := p.lists[d.Scope]
	if lists == nil {
		lists = map[string]*tailList{}
		p.lists[d.Scope] = lists
	}
	for _, c := range d.Analysis.Terms {
		l := lists[c.Term]
		if l == nil {
			l = &tailList{}
			lists[c.Term] = l
		}
		*l = append(*l, posting{d.Num, c.N})
	}
}

// last is the greatest number in the tail, 0 when it is empty.
func (t tail) last() uint64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1].last()
}

func (p *part) last() uint64 { return p.docs[len(p.docs)-1].Num }

// remove takes the postings of a page out; the document stays in docs, because
// a running checkpoint may read that slice.
func (t tail) remove(num uint64) {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() >= num })
	if at == len(t) {
		return
	}
	p := t[at]
	i := p.find(num)
	if p.docs[i].Num != num {
		return
	}
	d := p.docs[i]
	for _, c := range d.Analysis.Terms {
		p.lists[d.Scope][c.Term].remove(num)
	}
}

func (l *tailList) remove(num uint64) {
	at, ok := slices.BinarySearchFunc(*l, num, func(p posting, num uint64) int { return cmp.Compare(p.num, num) })
	if ok {
		*l = slices.Delete(*l, at, at+1)
	}
}

// find returns the index of the first document with a number ≥ num.
func (p *part) find(num uint64) int {
	return sort.Search(len(p.docs), func(i int) bool { return p.docs[i].Num >= num })
}

// whole returns the documents of the parts, without an unfinished one unless all
// are asked for.
func (t tail) whole(all bool) []Doc {
	var docs []Doc
	for _, p := range t {
		if all || len(p.docs) == flushDocs {
			docs = append(docs, p.docs...)
		}
	}
	return docs
}

// after returns a tail of the documents above a number.
func (t tail) after(through uint64, gone func(num uint64) bool) tail {
	at := sort.Search(len(t), func(i int) bool { return t[i].last() > through })
	if at == len(t) {
		return nil
	}
	if t[at].docs[0].Num > through {
		return slices.Clone(t[at:])
	}
	var rest tail // a forced flush ended inside a part
	for _, p := range t[at:] {
		for _, d := range p.docs[p.find(through+1):] {
			rest.add(d)
			if gone(d.Num) {
				rest.remove(d.Num)
			}
		}
	}
	return rest
}
