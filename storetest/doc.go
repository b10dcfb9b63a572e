// Package storetest checks a store against the contract of store.Store: Run is the suite, Memory is a reference store of
// maps and slices that is the contract in code.
//
// Whoever writes a store gives Run a Factory and starts from the sentence of the test that fails. The suite asks a store
// through the interface only.
package storetest

import (
	"io"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Config is what a store is told when its database is made.
type Config struct {
	Now   func() time.Time // nil: the system's clock
	Rand  io.Reader        // nil: the system's randomness. It is read by one goroutine at a time
	State []store.StateKind
}
