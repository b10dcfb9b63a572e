package store

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
