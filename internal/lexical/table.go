package lexical

import "hash/maphash"

// table finds elements of a slice by their hash: open addressing, a power of two long, never full.
// Its owner compares what it finds. It has no pointers in it, and its order is not visible. The
// hash is kept beside the place, so most comparisons with another element never touch it.
type table []entry

// entry is a hash above the index of its element plus one; 0: free.
type entry uint64

func newEntry(hash, at uint32) entry { return entry(hash)<<32 | entry(at+1) }
func (e entry) hash() uint32         { return uint32(e >> 32) }
func (e entry) at() uint32           { return uint32(e) - 1 }

// first is where the search for a hash begins, and next where it goes on.
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
