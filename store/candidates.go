package store

import (
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
)

// CandidateQuery asks for the pages that may enter a context.
type CandidateQuery struct {
	Scopes  Scopes
	Terms   []string
	Words   []string      // the question as it was typed (lexical.Analyzer.Words), so that words no page has are read as others; nil: they are not
	Dates   lexical.Dates // months and years that the question names
	Kinds   []Kind        // empty: all
	Floor   Provenance    // pages below it are excluded
	Session string        // its own turns are exempt from the floor
	Now     time.Time
	AsOf    uint64           // an LSN; 0: now
	K       int              // lexical hits
	Recent  int              // newest pages that are candidates whatever their words
	Newest  int              // the same for each provenance and scope: two passes by recency and provenance need them
	Mask    []Ref            // artefacts of the nearest scope that a transaction overwrites or deletes
	Weights *lexical.Weights // nil: the zero Weights, a page scores by its own words alone
	// Filter restricts the candidates before the best are chosen; nil: nothing is restricted.
	// System pages and the turns of Session pass it, unless Strict. Excluded.Count of triage.Filtered
	// is the number of live, not superseded pages of the chain that do not pass, whatever other
	// rules say. Pages that do not pass lend no score to neighbours.
	Filter *Filter
	Strict bool
	// Near adds the pages whose vectors are nearest to a vector, under the same rules as pages
	// found by words; nil: none.
	Near *Near
}

// Candidate is a page that may enter a context, with what triage needs to judge it.
type Candidate struct {
	Key        PageKey
	Ref        Ref
	Kind       Kind
	Provenance Provenance
	AsOf       int64 // unix µs
	Tokens     int
	Pages      int // of its artefact's newest version; 0: not known
	Pinned     bool
	Recent     bool
	Group      uint64
	GroupName  string
	Seq        int64
	Lexical    lexical.Hit // zero where the text did not match
	Near       bool        // among the K nearest of CandidateQuery.Near, with a cosine of .2 at least
	Cosine     *float64    // between its vector and that of Near, to about .001; nil: it has no vector or a zero vector, or Near is nil
	// Beside is the score that its neighbours in its group lend it: the greatest of their cosines,
	// times .63 for adjacent pages and .56 for the pages after those. 0: none is above
	// 0. Excluded pages lend nothing.
	Beside   float64
	Excluded string // reason, empty: may enter
}

// Excluded counts the live pages that one rule keeps out. Nearest names the nearest misses: pages
// that match the words. Matched counts such pages, as far as the store looked.
type Excluded struct {
	Reason  string
	Count   int
	Matched int
	Nearest []Candidate
}

// Candidates is one snapshot.
type Candidates struct {
	LSN      uint64
	Hits     []Candidate
	Stats    lexical.Stats // of the terms, as the index is now, when the query has a Mask: drafts are scored with it
	Typed    lexical.Typed // how words of the query were read that no page has; zero: all were searched for as they are
	Excluded []Excluded
}
