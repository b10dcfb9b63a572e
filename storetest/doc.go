// Package storetest checks a store against the contract of store.Store: Run is the suite, Memory is a reference store that
// is the contract in code.
//
// To write a store, pass a Factory to Run and start from the sentence of the test that fails. The suite asks a store
// through the interface only.
//
// Memory has some 1,450 lines, to be read in this order; each file needs only the ones before it.
//
//	memory.go         the handle, and what each call asks; what is current, and what answers for what ended
//	memory_commit.go  how a batch is judged, and what it becomes; leaves and questions
//	memory_scan.go    listings
//	memory_search.go  candidates by words and vectors
//	memory_gc.go      what gc drops, and what an erase takes
//	memory_copy.go    copies of plain data
//
// The engine and Memory share the rules in internal/format. Whatever depends on an index, a catalogue or a log they do each in
// their own way, and tests compare them.
package storetest

import (
	"io"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Config has the settings with which a store makes its database.
type Config struct {
	Now   func() time.Time // nil: the system's clock
	Rand  io.Reader        // nil: the system's randomness. It is read by one goroutine at a time
	State []store.StateKind
}
