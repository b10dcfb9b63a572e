package directive

import (
	"cmp"
	"iter"
	"slices"
)

// chunkMax bounds the policies copied by one change. Measured on 1,000 items:
// 32 to 64 are equal, one flat slice costs four times as much.
const chunkMax = 64

// policySet is a persistent sorted set of policies, cut into chunks.
// No chunk, and no slice of chunks, is modified once a set holds it: a change
// copies the slice of chunks and the one chunk it touches. No chunk is empty.
type policySet struct {
	chunks [][]Policy
	n      int
}

// policySetOf takes over sorted, which has no item twice.
func policySetOf(sorted []Policy) policySet {
	return policySet{slices.Collect(slices.Chunk(sorted, chunkMax/2)), len(sorted)}
}

// find returns the chunk where key is or would be, and its place in there.
func (p policySet) find(key string) (chunk, at int, ok bool) {
	lo, hi := 0, len(p.chunks) // the last chunk that does not begin after key
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if p.chunks[mid][0].Item <= key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, 0, false
	}
	at, ok = slices.BinarySearchFunc(p.chunks[lo-1], key, func(q Policy, key string) int { return cmp.Compare(q.Item, key) })
	return lo - 1, at, ok
}

func (p policySet) get(key string) Polarity {
	chunk, at, ok := p.find(key)
	if !ok {
		return 0
	}
	return p.chunks[chunk][at].Polarity
}

// with returns the set in which key has the polarity.
func (p policySet) with(key string, polarity Polarity) policySet {
	if len(p.chunks) == 0 {
		return policySetOf([]Policy{{key, polarity}})
	}
	c, at, ok := p.find(key)
	old := p.chunks[c]
	if ok {
		if old[at].Polarity == polarity {
			return p
		}
		changed := slices.Clone(old)
		changed[at].Polarity = polarity
		return p.replace(c, 1, p.n, changed)
	}
	grown := make([]Policy, 0, len(old)+1)
	grown = append(append(append(grown, old[:at]...), Policy{key, polarity}), old[at:]...)
	if half := len(grown) / 2; len(grown) > chunkMax {
		return p.replace(c, 1, p.n+1, grown[:half:half], grown[half:])
	}
	return p.replace(c, 1, p.n+1, grown)
}

// without returns the set without key.
func (p policySet) without(key string) policySet {
	c, at, ok := p.find(key)
	if !ok {
		return p
	}
	first, count := p.withNeighbour(c)
	shrunk := make([]Policy, 0, chunkMax)
	for i, chunk := range p.chunks[first : first+count] {
		if first+i != c {
			shrunk = append(shrunk, chunk...)
			continue
		}
		shrunk = append(append(shrunk, chunk[:at]...), chunk[at+1:]...)
	}
	if len(shrunk) == 0 {
		return p.replace(first, count, p.n-1)
	}
	return p.replace(first, count, p.n-1, shrunk)
}

// withNeighbour returns the run of chunks to write as one when chunk c shrinks:
// c alone, or with a neighbour when both are small. So the chunks stay few.
func (p policySet) withNeighbour(c int) (first, count int) {
	for _, first := range [...]int{c, c - 1} {
		if first >= 0 && first+1 < len(p.chunks) && len(p.chunks[first])+len(p.chunks[first+1]) <= chunkMax/2 {
			return first, 2
		}
	}
	return c, 1
}

// replace returns the set of n policies that has new chunks in place of count
// chunks from first on.
func (p policySet) replace(first, count, n int, chunks ...[]Policy) policySet {
	next := make([][]Policy, 0, len(p.chunks)-count+len(chunks))
	next = append(append(append(next, p.chunks[:first]...), chunks...), p.chunks[first+count:]...)
	return policySet{next, n}
}

func (p policySet) all() iter.Seq[Policy] {
	return func(yield func(Policy) bool) {
		for _, chunk := range p.chunks {
			for _, q := range chunk {
				if !yield(q) {
					return
				}
			}
		}
	}
}
