// Package engine is the state machine of every store. It judges commits, numbers them, and builds
// what readers ask for from their ordered stream: the catalogue, the index, and the rows that are
// not yet in the store's tables. It knows nothing of sessions, directives or budgets.
//
// The package stands between two interfaces. Above it is store.Store, which Engine implements apart
// from opening, closing and files. Below it are Log, the durable order of commits, and Rows, the
// tables beside it; both belong to the store.
//
// Data flows one way:
//
//	Batch → prepare → judge → build → Log → (durable) → install → catalogue, index, overlay → checkpoint → Rows
//
// A reader sees a commit when install has run, and its caller gets an answer after that. Recovery
// and followers enter the same path at install (Follow), so there is one function that changes what
// readers see.
package engine
