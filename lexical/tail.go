package lexical

import (
	"slices"
	"sort"
)

// tail is the part of the index that is not in segments yet.
type tail struct {
	docs  []Doc // ascending by number; removed ones stay until the next flush
	lists map[termKey]*tailList
}

type termKey struct {
	scope uint32
	term  string
}

type tailList struct {
	nums []uint64
	tfs  []uint32
}

func newTail() tail { return tail{lists: map[termKey]*tailList{}} }

func (t *tail) add(d Doc) {
	t.docs = append(t.docs, d)
	for _, c := range d.Analysis.Terms {
		key := termKey{d.Scope, c.Term}
		l := t.lists[key]
		if l == nil {
			l = &tailList{}
			t.lists[key] = l
		}
		l.nums = append(l.nums, d.Num)
		l.tfs = append(l.tfs, c.N)
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
		t.lists[termKey{d.Scope, c.Term}].remove(num)
	}
}

func (l *tailList) remove(num uint64) {
	if at, ok := slices.BinarySearch(l.nums, num); ok {
		l.nums = slices.Delete(l.nums, at, at+1)
		l.tfs = slices.Delete(l.tfs, at, at+1)
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
