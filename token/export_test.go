package token

// NewFilter returns the filter of the given tokens, for the test that makes the filters from the vocabularies.
func NewFilter(tokens []string) string {
	bits := make([]byte, (len(tokens)*bitsPerToken/8/block+1)*block)
	for _, t := range tokens {
		x, at := hash(t).place(len(bits))
		for range probesOf(t) {
			bits[at+int(x>>58)] |= 1 << (x >> 55 & 7)
			x *= spread
		}
	}
	return string(bits)
}
