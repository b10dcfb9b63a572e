package lexical

// NoRows are the Rows of an index without segments: all of it is in memory.
type NoRows struct{}

// Get finds nothing.
func (NoRows) Get([]byte) []byte { return nil }

// Next finds nothing.
func (NoRows) Next([]byte) (k, v []byte) { return nil, nil }

// Scan calls nothing.
func (NoRows) Scan(_, _ []byte, _ func(k, v []byte) bool) {}
