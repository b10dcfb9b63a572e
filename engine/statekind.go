package engine

import (
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// KindOf is the registered kind of a state row, nil when there is none.
func KindOf(kinds []store.StateKind, key string) *store.StateKind {
	for i := range kinds {
		if strings.HasPrefix(key, kinds[i].Prefix) {
			return &kinds[i]
		}
	}
	return nil
}
