package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// set enters a value into a map that may not be made yet.
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

// whileConflicting calls fn until it ends otherwise than with a conflict, at most stateTries times. fn reads anew what it
// decides on. Others that are nearer to the store would win every time, so it waits a little longer after each loss, by
// chance: two that wait alike collide again. Chance decides when something is tried, never what is written.
func whileConflicting(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !errors.Is(err, store.ErrConflict) || try == stateTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(min(try, 20)) * time.Millisecond)):
		}
	}
}

// stateTries is how often a change of a session, of directives or of recorded roots is tried when others keep winning: a
// call that appends must not fail because somebody else is busy. It takes about a second.
const stateTries = 100
