// Package engine is the state machine of every store: it judges commits, numbers them, and builds from their ordered stream
// what readers ask: the catalogue, the index, and the rows that are not yet in the store's tables. What is durable, and
// where, is the business of the Log and the Rows below it. It knows nothing of sessions, directives or budgets.
package engine
