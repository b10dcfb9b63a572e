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

// Near asks for the pages whose vectors are nearest to a vector of the same model. Superseded pages
// and pages that a rule excludes are not found. Vectors of another length are skipped.
type Near struct {
	Model  string
	Vector []float32
	K      int // how many
}

// ScanKind says what a scan lists.
type ScanKind uint8

// What can be listed.
const (
	ScanArtefacts ScanKind = iota // of a scope, by id
	ScanHistory                   // versions of one artefact, newest first
	ScanGroup                     // pages of a group, in order
	ScanHeld                      // held batches, oldest first
	ScanSummaries                 // live summaries that derive from one artefact and nothing else, newest first
	ScanScopes                    // all scopes, by name
	ScanMembers                   // keys of the live pages of a group, in order, all at once
	ScanState                     // state rows whose keys have Prefix, by key
	ScanSourced                   // first page of each live artefact of a scope that has a source, by id, all at once
	// ScanUnembedded lists the live pages of a chain that have no vector by Model yet, by number:
	// those that no other artefact supersedes, without system pages and without what is trusted
	// less than Tool. Cursor is the number of a page.
	ScanUnembedded
)

// ScanQuery asks for the page of a listing after Cursor, which is opaque and comes from the
// previous page. A cursor of ScanHistory is bound to its artefact: the list continues with that
// artefact even if a nearer scope has the id by then, and a query that cannot mean that artefact is
// rejected.
type ScanQuery struct {
	What    ScanKind
	Scopes  Scopes
	ID      string
	Of      Ref // summaries: scope and id of the artefact they derive from
	Group   string
	Known   uint64 // members, sourced: the LSN of an earlier listing; unchanged entries are not listed again (ScanPage.Same)
	Prefix  string
	Deleted bool
	Filter  *Filter // artefacts: only those that pass it; nil: all
	Newest  bool    // artefacts: by the commit of their newest version, latest first; within a commit by id
	Brief   bool    // artefacts: of a live one, Scope, ID, Art, Version, LSN, PutAt and the number of its first page suffice; a store may omit the rest
	Ever    *Ever   // artefacts: only those that an erase must look at; nil: all
	Model   string  // without vector: the model
	Numbers int     // without vector: a vector of another length is none; 0: any length will do
	Zeros   bool    // without vector: a vector of zeros is none
	All     bool    // held: decided ones too
	Space   bool    // scopes: with ScopeInfo.Space and Bodies
	Cursor  string
	Limit   int // 0: as many as the store likes
}

// Ever restricts a listing for an erase to artefacts of which any version, current or past, has the
// subject, is in the group, or was made from another artefact (DerivedFrom, a page: source, a
// received packet). A store may list more artefacts, or ignore Ever and list all. A page of such a
// listing may have fewer than Limit entries, or none, and still have a Next.
type Ever struct {
	Subject  string // "": none
	Group    string // of the scope that is listed; "": none
	Replaces bool   // also artefacts with a version that supersedes others
}

// ScanPage is a page of a listing. Next is empty at the end.
type ScanPage struct {
	LSN   uint64
	Heads []*Head
	Held  []HeldBatch
	Names []ScopeInfo
	Keys  []PageKey  // ScanMembers, ScanSourced, ScanUnembedded
	Count int        // ScanUnembedded: how many there are, on this page and others
	Same  bool       // nothing of Known has changed. ScanMembers: Keys lists only later members; ScanSourced: Keys is empty
	State []StateRow // ScanState
	Next  string
}

// ScopeInfo is a scope that something was written to.
type ScopeInfo struct {
	Name      string `json:"name"`
	Artefacts int    `json:"artefacts"` // live ones
	// Space counts its stored page versions, by kind; nil unless ScanQuery.Space asks for it.
	Space []KindSpace `json:"space,omitempty"`
	// Bodies counts the bytes of the kept bodies of its audit leaves; 0 unless ScanQuery.Space
	// asks for it.
	Bodies int64 `json:"bodies,omitempty"`
}
