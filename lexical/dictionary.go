package lexical

import (
	"bytes"
	"cmp"
	"slices"
)

// dictionary numbers terms, each in its scope, in the order in which they came.
type dictionary struct {
	terms []tailTerm
	text  []byte // of the terms, one behind the other
	table table  // of terms
}

// tailTerm is a term; to whom it matters which pages have it notes that in the lower half.
type tailTerm struct {
	head  uint64 // see head
	scope uint32
	at    uint32 // text[at:at+size]
	size  uint32

	df    uint32 // pages, removed ones too
	first uint32 // its list
	end   uint32 // where the next posting goes
}

// head is the first headSize bytes of a term. They tell most terms apart, and sort as the terms do.
func head(term string) (h uint64) {
	switch n := len(term); {
	case n >= headSize:
		return uint64(four(term))<<32 | uint64(four(term[4:]))
	case n >= 4:
		return uint64(four(term))<<32 | uint64(four(term[n-4:])<<(8*(headSize-n)))
	default:
		for i := range n {
			h |= uint64(term[i]) << (56 - 8*i)
		}
		return h
	}
}

// four are the first four bytes of a text, the first the highest.
func four(s string) uint32 {
	_ = s[3]
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}

const headSize = 8

func newDictionary() dictionary { return dictionary{table: make(table, 256)} }

// inScope is the hash of a term in a scope.
func inScope(hash, scope uint32) uint32 { return hash ^ scope*0x9e3779b1 }

// room makes room in the table for n more terms.
func (v *dictionary) room(n int) {
	for len(v.terms)+n > len(v.table)/4*3 {
		v.table = v.table.grown()
	}
}

// enter returns the number of a term and whether it was known; there is room for it.
func (v *dictionary) enter(hash, scope uint32, text string) (at uint32, known bool) {
	slot := v.slot(hash, scope, text)
	if e := v.table[slot]; e > 0 {
		return e.at(), true
	}
	at = uint32(len(v.terms))
	v.terms = append(double(v.terms, 1), tailTerm{head: head(text), scope: scope, at: uint32(len(v.text)), size: uint32(len(text))})
	v.text = append(double(v.text, len(text)), text...)
	v.table[slot] = newEntry(hash, at)
	return at, false
}

// find returns the number of a term that is known.
func (v *dictionary) find(scope uint32, text string) (uint32, bool) {
	e := v.table[v.slot(inScope(hash(text), scope), scope, text)]
	return e.at(), e > 0
}

// slot returns where a term is in the table, or the free slot where it belongs.
func (v *dictionary) slot(hash, scope uint32, text string) uint32 {
	i := v.table.first(hash)
	for ; v.table[i] > 0; i = v.table.next(i) {
		if e := v.table[i]; e.hash() == hash && v.is(e.at(), scope, text) {
			return i
		}
	}
	return i
}

// candidate returns the first entry with a hash; 0: none.
func (v *dictionary) candidate(hash uint32) entry {
	i := v.table.first(hash)
	for v.table[i] > 0 && v.table[i].hash() != hash {
		i = v.table.next(i)
	}
	return v.table[i]
}

// is tells whether a term has a text and a scope.
func (v *dictionary) is(at, scope uint32, text string) bool {
	t := &v.terms[at]
	return t.scope == scope && t.size == uint32(len(text)) && t.head == head(text) && (t.size <= headSize || string(v.bytes(t)) == text)
}

func (v *dictionary) bytes(t *tailTerm) []byte { return v.text[t.at : t.at+t.size] }

// inOrder is what the order of terms nearly always depends on, beside each other in memory.
type inOrder struct {
	head      uint64
	scope, at uint32 // at: the number of the term
}

// sorted returns the terms in the order of scope and text, in the place of those in order.
func (v *dictionary) sorted(order []inOrder) []inOrder {
	order = slices.Grow(order[:0], len(v.terms))
	for i := range v.terms {
		order = append(order, inOrder{v.terms[i].head, v.terms[i].scope, uint32(i)})
	}
	slices.SortFunc(order, func(a, b inOrder) int {
		switch {
		case a.scope != b.scope:
			return cmp.Compare(a.scope, b.scope)
		case a.head != b.head:
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(v.bytes(&v.terms[a.at]), v.bytes(&v.terms[b.at]))
	})
	return order
}
