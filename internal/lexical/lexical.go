// Package lexical finds pages by their words. It analyses text, keeps an inverted index, and scores
// pages by BM25 of their own words, joined with the scores of their neighbours and of their group.
//
// The index is a tail in memory above a list of immutable segments. Segments are rows of a
// key-value store that the owner passes at each call; the package opens no file, starts no goroutine
// and reads no clock. The results of Search depend only on the pages that were added and removed,
// not on when a checkpoint or a merge ran, nor on the order of the batches.
//
// An Index has one owner with one read-write lock: Add, AddBuilt, Remove and Apply run
// under its write lock, Search, Stats and Check under its read lock. Step and Checkpoint
// take a snapshot by themselves; they and Invert may run under no lock at all.
package lexical

import (
	"errors"
)

// AnalyzerVersion names the rules of Analyze. Indexes made by other rules cannot
// be searched: Open returns ErrAnalyzer for them.
const AnalyzerVersion = "en/3"

var (
	// ErrCorrupt is wrapped by every error that reports a damaged row.
	ErrCorrupt = errors.New("lexical: segment row is corrupt; rebuild the index from the pages with Reset and Add")
	// ErrAnalyzer is returned by Open when the segments were made by another
	// analyzer. Reset drops them; the owner then adds its pages again.
	ErrAnalyzer = errors.New("lexical: segments were made by another analyzer; rebuild the index from the pages with Reset and Add")
)

// Rows is the read side of the owner's store, e.g. a read transaction of bbolt.
// Returned slices are valid only during the call that passed the Rows.
type Rows interface {
	// Get returns the value of key, nil when there is none.
	Get(key []byte) []byte
	// Next returns the first row from a key on; nil: there is none.
	Next(key []byte) (k, v []byte)
	// Scan calls fn for every key with the prefix, from a key on (nil: the first),
	// in ascending order until fn returns false.
	Scan(prefix, from []byte, fn func(k, v []byte) bool)
}

// Masked are Rows whose keys do not show the words of the index. Word appends the mask that stands
// for a word of a scope in the key of its list. The mask of a word is always the same; masks need
// not sort like words. The lists of a segment are merged by their masked keys, so the word itself
// is never needed again. Masks reports whether Word appends anything but the word itself.
type Masked interface {
	Word(b []byte, scope uint32, word []byte) []byte
	Masks() bool
}

// Writer is a write transaction of the owner's store. The package never writes
// while it scans.
type Writer interface {
	Rows
	// Put may keep v until the transaction ends, but not k.
	Put(k, v []byte) error
	Delete(k []byte) error
}

// Corpus tells Search about the pages behind the postings. It is called under the owner's read
// lock, many times per query, and must be cheap.
type Corpus interface {
	// Resolve returns the live page that answers for a page version: the page itself, or its
	// successor if it was superseded. ok is false if that page may not be shown: it is deleted,
	// expired, excluded, or of another scope.
	Resolve(num uint64) (live uint64, ok bool)
	// Touch reads what Resolve is going to need of a page version. Pages lie far apart in memory: one by one each waits for it, of
	// some that are touched before they are resolved all wait at once.
	Touch(num uint64)
	// Alone reports whether a page version has no group and so no neighbours. It is called for
	// every page that a word hits, so it must be cheaper than Resolve. It may return false for a
	// page without a group.
	Alone(num uint64) bool
	// Group returns the group of a live page, as in the Doc it was added with, and its position
	// there; group 0: none.
	Group(live uint64) (group uint64, pos int)
	// At returns the live page at a position of a group; ok is false for a gap.
	At(group uint64, pos int) (live uint64, ok bool)
	// Shown reports whether a page that At returned may be shown.
	Shown(live uint64) bool
}

// Doc is one page version. Num is its page number: 1, 2, 3 … in the order of writing, never reused.
type Doc struct {
	Num      uint64
	Scope    uint32   // the owner's number of the scope
	Group    uint64   // the owner's number of the group, 0 for none
	Analysis Analysis // no term twice, as Analyze returns it
	Turn     *Turn    // nil: the page is no turn of a conversation

	// Analyse makes the Analysis when the page is entered; nil: it is there. It may be called by any
	// goroutine and must not call the index. Bytes is the length of the text it reads.
	Analyse func() Analysis
	Bytes   int
}

// analyse makes the analysis of a page if it is not there yet.
func (d *Doc) analyse() {
	if d.Analyse != nil {
		d.Analysis, d.Analyse = d.Analyse(), nil
	}
}

// size is about the work that a page which waits stands for, in bytes of text.
func (d *Doc) size() int { return d.Bytes + bytesOfTerm*len(d.Analysis.Terms) }

const bytesOfTerm = 4

// row returns the fields that the index keeps of a page version beside its terms.
func (d *Doc) row() docRow {
	r := docRow{num: d.Num, scope: d.Scope, group: d.Group, length: uint32(d.Analysis.Length)}
	if d.Turn != nil {
		r.turn, r.traits, r.month, r.speaker = true, d.Analysis.Traits, d.Turn.Month, d.Turn.Speaker
	}
	return r
}

// NoRows are the Rows of an index without segments: all of it is in memory.
type NoRows struct{}

// Get finds nothing.
func (NoRows) Get([]byte) []byte { return nil }

// Next finds nothing.
func (NoRows) Next([]byte) (k, v []byte) { return nil, nil }

// Scan calls nothing.
func (NoRows) Scan(_, _ []byte, _ func(k, v []byte) bool) {}
