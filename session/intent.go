package session

// Intent is what the conversation is about now, as a set of token hashes.
// The zero Intent has no keywords: every similarity is 0.
type Intent struct {
	words  []string // sorted, distinct tokens, for texts
	hashes []uint64 // sorted, distinct
}
