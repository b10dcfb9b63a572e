package lexical

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
)

// dictionary numbers terms, each in its scope, in the order in which they came.
type dictionary struct {
	terms  []tailTerm
	text   []byte    // of the terms, one behind the other
	table  table     // of terms
	sorted []inOrder // the terms, but for the newest; see inOrder
}

// tailTerm is a term.
type tailTerm struct {
	head  uint64 // see head
	scope uint32
	at    uint32 // text[at:at+size]
	size  uint32
}

// head is the first headSize bytes of a term. They tell most terms apart, and sort as the terms do.
func head(term string) (h uint64) {
	switch n := len(term); {
	case n >= headSize:
		return uint64(firstFour(term))<<32 | uint64(firstFour(term[4:]))
	case n >= 4:
		return uint64(firstFour(term))<<32 | uint64(firstFour(term[n-4:])<<(8*(headSize-n)))
	default:
		for i := range n {
			h |= uint64(term[i]) << (56 - 8*i)
		}
		return h
	}
}

// firstFour are the first four bytes of a text, the first the highest.
func firstFour(s string) uint32 {
	_ = s[3]
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}

const headSize = 8

// inScope is the hash of a term in a scope.
func inScope(hash, scope uint32) uint32 { return hash ^ scope*0x9e3779b1 }

// enter returns the number of a term; there is room for it.
func (v *dictionary) enter(hash, scope uint32, text string) (at uint32) {
	slot := v.slot(hash, scope, text)
	if e := v.table[slot]; e > 0 {
		return e.at()
	}
	at = uint32(len(v.terms))
	v.terms = append(double(v.terms, 1), tailTerm{head: head(text), scope: scope, at: uint32(len(v.text)), size: uint32(len(text))})
	v.text = append(double(v.text, len(text)), text...)
	v.table[slot] = newEntry(hash, at)
	return at
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

// is reports whether a term has a text and a scope.
func (v *dictionary) is(at, scope uint32, text string) bool {
	t := &v.terms[at]
	return t.scope == scope && t.size == uint32(len(text)) && t.head == head(text) && (t.size <= headSize || string(v.bytes(t)) == text)
}

func (v *dictionary) bytes(t *tailTerm) []byte { return v.text[t.at : t.at+t.size] }

// inOrder has the bytes that nearly always decide the order of terms, beside each other in memory.
type inOrder struct {
	head      uint64
	scope, at uint32 // at: the number of the term
}

// inOrder returns all terms in the order of text and scope. Those that came since the last call are
// sorted in the memory of spare and then merged, from the end on, with the others.
func (v *dictionary) inOrder(spare *[]inOrder) []inOrder {
	old := len(v.sorted)
	*spare = double((*spare)[:0], len(v.terms)-old)
	added := *spare
	for i := old; i < len(v.terms); i++ {
		added = append(added, inOrder{v.terms[i].head, v.terms[i].scope, uint32(i)})
	}
	slices.SortFunc(added, v.compare)
	v.sorted = double(v.sorted, len(added))[:old+len(added)]
	for to := len(v.sorted) - 1; len(added) > 0; to-- {
		if last := added[len(added)-1]; old == 0 || v.compare(v.sorted[old-1], last) < 0 {
			v.sorted[to], added = last, added[:len(added)-1]
		} else {
			old--
			v.sorted[to] = v.sorted[old]
		}
	}
	return v.sorted
}

// compare compares two terms by text and scope.
func (v *dictionary) compare(a, b inOrder) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	if a.head&0xff != 0 { // there may be more of them
		if c := bytes.Compare(v.bytes(&v.terms[a.at]), v.bytes(&v.terms[b.at])); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.scope, b.scope)
}

// table finds elements of a slice by their hash: open addressing, a power of two long, never full.
// Its owner compares what it finds. It has no pointers in it, and its order is not visible. The
// hash is kept beside the place, so most comparisons with another element never touch it.
type table []entry

// entry is a hash above the index of its element plus one; 0: free.
type entry uint64

func newEntry(hash, at uint32) entry { return entry(hash)<<32 | entry(at+1) }
func (e entry) hash() uint32         { return uint32(e >> 32) }
func (e entry) at() uint32           { return uint32(e) - 1 }

// first returns the place where the search for a hash begins, and next the place where it goes on.
func (t table) first(hash uint32) uint32 { return hash & uint32(len(t)-1) }
func (t table) next(i uint32) uint32     { return (i + 1) & uint32(len(t)-1) }

// grown returns a table of twice the size.
func (t table) grown() table {
	g := make(table, 2*len(t))
	for _, e := range t {
		if e > 0 {
			g.put(e)
		}
	}
	return g
}

// put enters an element that is not there, into the first free place. The table has one: its owner
// keeps it from getting full.
func (t table) put(e entry) {
	i := t.first(e.hash())
	for t[i] > 0 {
		i = t.next(i)
	}
	t[i] = e
}

// hashSeed: an attacker cannot choose words that all fall into one place of a table.
var hashSeed = maphash.MakeSeed()

func hash(s string) uint32 { return uint32(maphash.String(hashSeed, s)) }
