package store

// StateRow is a row of state that travels with a batch. In a batch a nil Value deletes the row, and
// LSN is ignored; a row that is read has the LSN of the commit that last wrote it. If the file
// does not record it, the row has LSN 1, which is above 0 (absent) and below the LSN of every later
// write.
type StateRow struct {
	Key   string
	Value []byte
	LSN   uint64
}

// StatePre expects that a state row still has this LSN; 0: that it does not exist. So two writers
// cannot overwrite each other's row. To protect a set of rows, every writer also writes one common
// row with a precondition.
type StatePre struct {
	Key string
	LSN uint64
}

// StateKind tells a store about the state rows under a prefix. The pipeline writes those
// rows and registers their kinds when it opens a store; the store does not know their formats.
type StateKind struct {
	Prefix string
	// Names returns the numbers of the page versions that a row names; gc keeps those. Nil: rows
	// name none. It must not call the store.
	Names func(value []byte) ([]uint64, error)
	// Past returns since when a row is needed only to read the past: a time in microseconds since
	// 1970, or an artefact, which means since that artefact was deleted. GC drops the row when that
	// is long enough ago. If Past is nil, or returns 0 and no artefact, the row stays.
	Past func(key string) (at int64, of Ref)
	// Journal describes rows that are numbered as they come, each replacing the previous one; nil:
	// none. GC drops those that were replaced long enough ago.
	Journal *StateJournal
	// Scope returns the scope that a row is about, from its key; "": none. GC keeps the names of
	// those scopes. Nil: the rows are about none.
	Scope func(key string) string
	// Copy lets Salvage copy the rows to another database. Rows that name pages by number cannot be
	// copied.
	Copy bool
	// Unit returns the set of rows that a row belongs to. Nil: each row is independent. Salvage
	// copies a unit whole or not at all.
	Unit func(key string) StateUnit
	// Stays excludes the rows from exports, because they are useless in another database.
	Stays bool
	// Renumber returns a row with the page numbers of another database. Numbers that are not in
	// the map are left out. Nil: rows name no pages by number.
	Renumber func(value []byte, to map[uint64]uint64) ([]byte, error)
	// Paths is set for rows of which an import takes a part: those that let the database read files of the machine, and those
	// that close a scope. It returns the row narrowed to the directories that keep accepts, nil for none, and what it left out.
	Paths func(key string, value []byte, keep func(dir string) bool) (kept []byte, left []string, err error)
	// Check refuses a row that could not be read, so that an import brings none; nil: any row can be read, or Renumber, Paths
	// or Past look at it.
	Check func(key string, value []byte) error
	// Policy marks rows that make a database drop what it holds, or refuse writes. An import takes them only if asked.
	Policy bool
	// Told has Store.Changes return rows of this kind when a commit writes them.
	Told bool
	// Lost and Why are the entry in the list of losses for rows that Salvage does not copy; "": no
	// entry.
	Lost, Why string
}

// StateJournal describes rows that are numbered as they come, such as the steps that led to a
// state. GC drops a row when the next one was written longer than GCJob.KeepFor ago, unless it is
// among the newest max(Keep, GCJob.KeepVersions) of its journal, or the head row names it. The
// functions must not call the store.
type StateJournal struct {
	// Entry returns the journal of a row and its number in it; 0: the row belongs to none.
	Entry func(key string) (journal string, number uint64)
	// At returns when a row was written, in microseconds.
	At func(value []byte) (int64, error)
	// Head is the key of the row that changes with every row of the journal. GC drops nothing of a
	// journal whose head row changed since it looked.
	Head func(journal string) (key string)
	// Needs returns the numbers of the rows that the head row names; nil: it names none.
	Needs func(head []byte) ([]uint64, error)
	Keep  int // how many of the newest rows stay whatever their age; at least one stays
}

// StateUnit is a set of state rows that belong together.
type StateUnit struct {
	Name string // in the list of losses
	Key  string // of the row without which the others say nothing
	Page Ref    // the artefact that shows what the rows say
}
