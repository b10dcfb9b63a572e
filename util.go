package ctxpage

import (
	"fmt"
	"slices"

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

// sortedKeys returns the keys of a map in order; nil of an empty one. Every commit asks for two, mostly of nothing, and
// slices.Sorted(maps.Keys(m)) allocates for each of its layers.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parseBatchID reads the id of a batch.
func parseBatchID(s string) (ulid.ULID, error) {
	id, err := ulid.ParseStrict(s)
	if err != nil {
		return id, store.Invalid("batch id", fmt.Sprintf("%q", s), "a ULID of 26 characters")
	}
	return id, nil
}
