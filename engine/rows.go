package engine

import (
	"bytes"
	"iter"
)

// Table is a set of rows, ordered by key.
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

func (t Table) String() string {
	return [...]string{"meta", "content", "seg", "held", "txn", "state", "vec", "question"}[t]
}

// Rows are the rows of a store beside its log: what commits up to some LSN made, or later ones.
type Rows interface {
	// View shows fn one snapshot. What fn reads is borrowed and ends with it; fn must take no lock of the engine but a
	// leaf: the snapshot may hold back a writer who waits for that lock.
	View(fn func(Reader) error) error
}

// Reader reads a snapshot.
type Reader interface {
	// Get gives the row of a key, nil where there is none.
	Get(t Table, key []byte) []byte
	// From gives the rows from a key on, rising.
	From(t Table, key []byte) iter.Seq2[[]byte, []byte]
	// Before gives the greatest key below another one, nil where there is none.
	Before(t Table, key []byte) []byte
	// Last gives the greatest key, nil in an empty table.
	Last(t Table) []byte
	// Len counts the rows of a table, about.
	Len(t Table) int
}

// Writer changes rows, all or nothing.
type Writer interface {
	Reader
	Put(t Table, key, value []byte) error
	Delete(t Table, key []byte) error
}

// SegRows shows the lexical index its segments.
type SegRows struct{ Reader }

func (r SegRows) Get(key []byte) []byte { return r.Reader.Get(TableSeg, key) }

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

// Put and Delete are for a checkpoint, whose Reader is a Writer.
func (r SegRows) Put(k, v []byte) error { return r.Reader.(Writer).Put(TableSeg, k, v) }
func (r SegRows) Delete(k []byte) error { return r.Reader.(Writer).Delete(TableSeg, k) }
