// Package format writes and reads the rows and records of a store byte for byte, as FORMAT.md
// describes them, and has the rules that every store applies alike: how a batch is admitted and
// reviewed, what a deletion is, which versions gc drops. It is plain functions over plain data.
// Package engine decides what happens to an index, a catalogue or a log; filestore reads damaged
// files.
//
//	head.go       head rows: a fixed part, which an open reads a million times, page rows, tagged fields
//	fields.go     the tagged fields of rows that can grow
//	bind.go       the digest that binds a batch to its id
//	held.go, question.go, state.go
//	proof.go      the end of a row, its place in the audit; comparing rows with an audit
//	commit.go     the record of a commit; question.go also has that of a leaf
//	same.go       whether a put repeats what is stored, decided by the fields
//	batch.go, carry.go, gc.go, journal.go, names.go, nameset.go, remains.go    the rules
//
// Decoded values borrow from the row where that is said; a damaged row costs no memory
// (internal/codec).
package format
