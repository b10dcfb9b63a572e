package store

// Carried is a version of an artefact from another database. An import keeps its version number,
// time and writer, and the salts and digests of its pages. The store assigns its own numbers (Art,
// LSN, GroupNum, and those in Rows).
type Carried struct {
	// Head is the version. Deleted: the artefact was deleted with it. Gone: its content is not
	// kept; with ErasedBy it has no Rows either. Floor: earlier versions are not kept; otherwise
	// version numbers are consecutive.
	Head Head
	// Texts holds the texts of Rows, by index. A page that the previous version already has (same
	// salt and digest) keeps its number and needs no text.
	Texts []string
}

// CarriedHold makes ActHold store a batch that another database held, decided or not, as it was
// there. Expect and Context are not checked: the reviewer who approves the batch does that.
type CarriedHold struct {
	Stale   []Ref
	Decided string // as in HeldBatch
	By      string
	Note    string
	Outcome Outcome // of the decision; LSN and Leaf count in the other database, 0 where they mean nothing here
}
