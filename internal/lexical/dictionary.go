package lexical

import (
	"bytes"
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

// tailTerm is a term; to whom it matters which pages have it notes that in the lower half.
type tailTerm struct {
	head  uint64 // see head
	scope uint32
	at    uint32 // text[at:at+size]
	size  uint32

	first uint32 // its list; see post
	end   uint32 // where the next posting goes; 0: there is none yet
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

func newDictionary() dictionary { return dictionary{table: make(table, 256)} }

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

// inOrder returns all terms in the order of scope and text. Those that came since the last call are
// sorted and then merged, from the end on, with the others.
func (v *dictionary) inOrder(o *termSorter) []inOrder {
	old := len(v.sorted)
	added := o.sort(v, old)
	v.sorted = double(v.sorted, len(added))[:old+len(added)]
	for to := len(v.sorted) - 1; len(added) > 0; to-- {
		if last := added[len(added)-1]; old == 0 || v.less(v.sorted[old-1], last) {
			v.sorted[to], added = last, added[:len(added)-1]
		} else {
			old--
			v.sorted[to] = v.sorted[old]
		}
	}
	return v.sorted
}

// less reports whether a term comes before another one.
func (v *dictionary) less(a, b inOrder) bool {
	switch {
	case a.scope != b.scope:
		return a.scope < b.scope
	case a.head != b.head:
		return a.head < b.head
	}
	return v.compare(a, b) < 0
}

// compare compares the texts of two terms.
func (v *dictionary) compare(a, b inOrder) int {
	return bytes.Compare(v.bytes(&v.terms[a.at]), v.bytes(&v.terms[b.at]))
}

// termSorter sorts terms. The zero value is ready.
type termSorter struct{ terms, spare []inOrder }

// sort returns the terms from one on in the order of scope and text. They are sorted by the bytes of
// head and scope, from the last on; a byte that is the same in all of them is passed over. Then only
// terms are left to compare that are alike so far.
func (o *termSorter) sort(v *dictionary, from int) []inOrder {
	n := len(v.terms) - from
	o.terms, o.spare = slices.Grow(o.terms[:0], n), slices.Grow(o.spare[:0], n)[:n]
	if n == 0 {
		return nil
	}
	var count [headSize + scopeSize][256]uint32
	for i := from; i < len(v.terms); i++ {
		t := &v.terms[i]
		o.terms = append(o.terms, inOrder{t.head, t.scope, uint32(i)})
		for d := range headSize {
			count[d][byte(t.head>>(8*d))]++
		}
		for d := range scopeSize {
			count[headSize+d][byte(t.scope>>(8*d))]++
		}
	}
	for d := range count {
		o.by(d, &count[d])
	}
	for from, to := 0, 0; from < len(o.terms); from = to {
		for to = from + 1; to < len(o.terms) && o.terms[from].like(o.terms[to]); to++ {
		}
		if to > from+1 {
			slices.SortFunc(o.terms[from:to], v.compare)
		}
	}
	return o.terms
}

func (a inOrder) like(b inOrder) bool { return a.head == b.head && a.scope == b.scope }

// byte is the digit of the radix sort: those of the head first, from the least significant, then
// those of the scope.
func (a inOrder) byte(d int) byte {
	if d < headSize {
		return byte(a.head >> (8 * d))
	}
	return byte(a.scope >> (8 * (d - headSize)))
}

// by sorts the terms by one byte, of which count says how often it has which value. Terms that have
// the same keep their order.
func (o *termSorter) by(d int, count *[256]uint32) {
	if count[o.terms[0].byte(d)] == uint32(len(o.terms)) {
		return
	}
	sum := uint32(0)
	for i, n := range count {
		count[i], sum = sum, sum+n
	}
	for _, t := range o.terms {
		at := &count[t.byte(d)]
		o.spare[*at] = t
		*at++
	}
	o.terms, o.spare = o.spare, o.terms
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
