package lexical

import (
	"bytes"
	"cmp"
	"encoding/binary"
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
func head(term string) uint64 {
	var b [headSize]byte
	copy(b[:], term)
	return binary.BigEndian.Uint64(b[:])
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

// sorted returns the numbers of the terms in the order of scope and text, in the place of those in order.
func (v *dictionary) sorted(order []uint32) []uint32 {
	order = slices.Grow(order[:0], len(v.terms))
	for i := range v.terms {
		order = append(order, uint32(i))
	}
	slices.SortFunc(order, func(a, b uint32) int {
		s, t := &v.terms[a], &v.terms[b]
		switch {
		case s.scope != t.scope:
			return cmp.Compare(s.scope, t.scope)
		case s.head != t.head:
			return cmp.Compare(s.head, t.head)
		}
		return bytes.Compare(v.bytes(s), v.bytes(t))
	})
	return order
}
