package token

// NewFilter is newFilter, for the test that makes the filters from the vocabularies.
func NewFilter(tokens []string) string { return string(newFilter(tokens)) }
