package engine

import (
	"bytes"
	"iter"

	"github.com/ctxpage/ctxpage/internal/lexical"
)

// The rows of a store, as the engine sees them: eight tables of bytes by key, read in snapshots and
// written by checkpoints. Keys are in the order of their bytes; numbers in keys are big-endian, so
// that this is the order of the numbers too. FORMAT.md has the keys and the values of each table.
//
// Each value ends with a checksum over the tag of its table, its key and itself (codec.Seal), so a
// row that is found under another key, or in another table, does not verify. The engine seals and
// unseals; Rows moves bytes. Only the rows of the index are sealed by package lexical.

// Table is a set of rows, ordered by key. A store keeps each table where it likes; bbolt has a
// bucket for each.
type Table uint8

// The tables.
const (
	TableMeta     Table = iota // scopes, groups, heads
	TableContent               // texts of pages
	TableSeg                   // segments of the index
	TableHeld                  // held batches
	TableTxn                   // outcomes
	TableState                 // state rows
	TableVec                   // vectors; may be absent
	TableQuestion              // texts of questions; may be absent
)

// String is the name of the table in errors and in the file: bbolt's buckets have these names.
func (t Table) String() string {
	return [...]string{"meta", "content", "seg", "held", "txn", "state", "vec", "question"}[t]
}

// Rows are the rows of a store beside its log: the effect of all commits up to some LSN. They may
// be newer than what the engine loaded, never older: a checkpoint only moves them forward.
type Rows interface {
	// View shows fn one snapshot. The rows that fn reads are borrowed and are valid until fn
	// returns. fn must take no lock of the engine except a leaf, because the snapshot may block a
	// writer that the lock's holder waits for; for the same reason it must not call View.
	View(fn func(Reader) error) error
}

// Reader reads a snapshot. Everything that it returns is borrowed: it must be copied to outlive the
// snapshot, and must not be changed.
type Reader interface {
	// Get returns the row of a key; nil: there is none.
	Get(t Table, key []byte) []byte
	// From yields the rows from a key on, in rising order.
	From(t Table, key []byte) iter.Seq2[[]byte, []byte]
	// Next returns the first row from a key on; nil: there is none.
	Next(t Table, key []byte) (k, v []byte)
	// Before returns the greatest key below another one; nil: there is none.
	Before(t Table, key []byte) []byte
	// Last returns the greatest key; nil: the table is empty.
	Last(t Table) []byte
	// Len returns about how many rows a table has.
	Len(t Table) int
}

// Writer changes rows, all or nothing. A value that was put must not change before the transaction
// ends. The caller may reuse a key once Put or Delete has returned. A row that was read before its
// table changed is no longer valid.
type Writer interface {
	Reader
	Put(t Table, key, value []byte) error
	Delete(t Table, key []byte) error
}

// SegRows shows the lexical index its segments.
type SegRows struct{ Reader }

// Get returns the row of a key; nil: there is none.
func (r SegRows) Get(key []byte) []byte { return r.Reader.Get(TableSeg, key) }

// Scan calls fn for the rows whose keys begin with prefix, from a key on (nil: from the first),
// until it returns false.
func (r SegRows) Scan(prefix, from []byte, fn func(k, v []byte) bool) {
	if from == nil {
		from = prefix
	}
	for k, v := range r.From(TableSeg, from) {
		if !bytes.HasPrefix(k, prefix) || !fn(k, v) {
			return
		}
	}
}

// Next returns the first row from a key on; nil: there is none.
func (r SegRows) Next(key []byte) (k, v []byte) { return r.Reader.Next(TableSeg, key) }

// Word appends to b what stands for a word in the key of its list: the word itself, or its mask
// (Masks).
func (r SegRows) Word(b []byte, scope uint32, word []byte) []byte {
	if m, ok := r.Reader.(lexical.Masked); ok {
		return m.Word(b, scope, word)
	}
	return append(b, word...)
}

// Masks reports whether the store masks words: an encrypted one keeps a keyed digest in place of
// each word.
func (r SegRows) Masks() bool {
	m, ok := r.Reader.(lexical.Masked)
	return ok && m.Masks()
}

// Put writes a row. It works in a checkpoint only, where the Reader is a Writer.
func (r SegRows) Put(k, v []byte) error { return r.Reader.(Writer).Put(TableSeg, k, v) }

// Delete removes a row, in a checkpoint only, as Put.
func (r SegRows) Delete(k []byte) error { return r.Reader.(Writer).Delete(TableSeg, k) }
