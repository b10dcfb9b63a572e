// Package store is the seam between the pipeline, which runs in the agent's process, and the place where pages live: the
// Store interface, the plain data that crosses it, references, limits and errors. The embedded file is one store.
//
// Users of the library meet these names in package ctxpage. Whoever writes another store reads this package.
package store
