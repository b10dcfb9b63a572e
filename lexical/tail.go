package lexical

import (
	"cmp"
	"slices"
	"sort"
)

// tail is the part of the index that is not in segments yet.
type tail struct {
	docs  []Doc                           // ascending by number; removed ones stay until the next flush
	lists map[uint32]map[string]*tailList // by scope, then term: one key of both hashes three times as long
}

type termKey struct {
	scope uint32
	term  string
}

type tailList []posting // ascending by number

func newTail() tail { return tail{lists: map[uint32]map[string]*tailList{}} }

func (t *tail) add(d Doc) {
	t.docs = append(t.docs, d)
	lists := t.lists[d.Scope]
	if lists == nil {
		lists = map[string]*tailList{}
		t.lists[d.Scope] = lists
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

// remove takes the postings of a page out; the document stays in docs, because
// a running checkpoint may read that slice.
func (t *tail) remove(num uint64) {
	i := t.find(num)
	if i == len(t.docs) || t.docs[i].Num != num {
		return
	}
	d := t.docs[i]
	for _, c := range d.Analysis.Terms {
		t.lists[d.Scope][c.Term].remove(num)
	}
}

func (l *tailList) remove(num uint64) {
	at, ok := slices.BinarySearchFunc(*l, num, func(p posting, num uint64) int { return cmp.Compare(p.num, num) })
	if ok {
		*l = slices.Delete(*l, at, at+1)
	}
}

// find returns the index of the first document with a number ≥ num.
func (t *tail) find(num uint64) int {
	return sort.Search(len(t.docs), func(i int) bool { return t.docs[i].Num >= num })
}

// after returns a tail of the documents above a number that keep says to keep.
func (t *tail) after(through uint64, keep func(num uint64) bool) tail {
	rest := newTail()
	for _, d := range t.docs[t.find(through+1):] {
		if keep(d.Num) {
			rest.add(d)
		}
	}
	return rest
}
