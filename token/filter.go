package token

import "unicode/utf8"

// filter is a Bloom filter of the tokens of a vocabulary. Every token passes, and about one in three hundred other byte
// strings. It is a hundred times smaller than the vocabulary in memory, and takes no time to load. The bits of a
// token are in one block of 64 bytes, a line of the processor's cache.
type filter string

// Bits of the filter for each token, and how many bits a token sets. A wrong answer about a short string counts more, because
// it comes back more often in a text. For characters outside ASCII, and their bytes, there are far more strings than tokens,
// and in a text of a rare script they are all there is.
const (
	block        = 64
	bitsPerToken = 14
	probes       = 7
	shortProbes  = 10 // up to 4 bytes
	charProbes   = 16
)

// has reports whether a string passes. h is its hash.
func (f filter) has(s string, h sum) bool {
	x, at := h.place(len(f))
	bits := f[at : at+block]
	for range probesOf(s) {
		if bits[x>>58]&(1<<(x>>55&7)) == 0 {
			return false
		}
		x *= spread
	}
	return true
}

// place returns where the block of a hash begins in a filter of that size. The high bits of x select the first bit of the
// block, the bits of x times spread the next.
func (h sum) place(size int) (x uint64, at int) {
	x = uint64(h) ^ uint64(h)>>32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x * spread, int(x>>32*uint64(size/block)>>32) * block
}

const spread = 0x9e3779b97f4a7c15

// probesOf returns how many bits a string sets.
func probesOf(s string) int {
	switch {
	case len(s) > utf8.UTFMax:
		return probes
	case s[0] >= utf8.RuneSelf && (!utf8.RuneStart(s[0]) || len(s) <= charLen(s[0])):
		return charProbes
	}
	return shortProbes
}

// charLen returns the length of a character by its first byte.
func charLen(first byte) int {
	switch {
	case first < 0xe0:
		return 2
	case first < 0xf0:
		return 3
	}
	return 4
}

// sum is the hash of a byte string, FNV-1a, which grows with the string.
type sum uint64

// emptySum is the hash of the empty string.
const emptySum sum = 14695981039346656037

// add returns the hash of the string with one byte more.
func (h sum) add(b byte) sum { return (h ^ sum(b)) * 1099511628211 }

// hash returns the hash of a string.
func hash(s string) sum {
	h := emptySum
	for i := range len(s) {
		h = h.add(s[i])
	}
	return h
}
