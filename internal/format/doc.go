// Package format has the rows and records of a store as they are written, byte for byte as
// FORMAT.md says: heads, held batches, questions, state rows, and the records of the log. It is
// plain encoding and decoding: what is done with a row is the business of package engine, and how a
// damaged file is read without an engine that of filestore.
//
//	head.go       head rows: a fixed part, which an open reads a million times, page rows, tagged fields
//	fields.go     the tagged fields of rows that can grow
//	held.go, question.go, state.go
//	proof.go      the end of a row, its place in the audit; comparing rows with an audit
//	commit.go     the record of a commit; question.go also has that of a leaf
//	same.go       whether a put repeats what is stored, decided by the fields
//
// Decoded values borrow from the row where that is said; a damaged row costs no memory
// (internal/codec).
package format

import ()
