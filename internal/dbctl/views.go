package dbctl

// The JSON of dbctl is its own, apart from the library's types: its fields are pinned by a test, and the library's may grow.
// Pages have the form that all doors share (internal/view).

// nonNil makes an empty list [] in JSON, not null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
