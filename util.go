package ctxpage

import (
	"fmt"

	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// set enters a value into a map that may still be nil.
func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// parseBatchID reads the id of a batch.
func parseBatchID(s string) (ulid.ULID, error) {
	id, err := ulid.ParseStrict(s)
	if err != nil {
		return id, store.Invalid("batch id", fmt.Sprintf("%q", s), "a ULID of 26 characters")
	}
	return id, nil
}
