package store

// EmbedOptions say which pages get vectors. The zero value takes all scopes.
type EmbedOptions struct {
	// Scope is the one scope whose own pages are taken, without its ancestors; "": all scopes.
	Scope string
	// DryRun counts and makes no vectors of pages. The embedder is asked once, for the length of its vectors.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine. It must not call the database.
	Progress Progress
}

// EmbedReport says what was made.
type EmbedReport struct {
	Model  string         `json:"model"`
	Scopes []EmbeddedIn   `json:"scopes"` // those that had pages without a vector, by name
	Made   int            `json:"made"`
	Left   int            `json:"left"` // pages without a vector: those that failed, or all of them after a dry run
	Failed []EmbedFailure `json:"failed"`
	DryRun bool           `json:"dry_run,omitempty"`
}

// EmbeddedIn counts the vectors made in one scope.
type EmbeddedIn struct {
	Scope string `json:"scope"`
	Pages int    `json:"pages"` // without a vector, before
	Made  int    `json:"made"`
}

// EmbedFailure is a page whose vector could not be made.
type EmbedFailure struct {
	Ref Ref    `json:"ref"`
	Err string `json:"error"`
}

// Embedding is the progress of the vectors made in the background.
type Embedding struct {
	Model   string `json:"model"`
	Running bool   `json:"running,omitempty"`
	Made    int    `json:"made"`            // since the database was opened, in the background and ahead of questions
	Left    int    `json:"left"`            // pages without a vector that the last question saw
	Failure string `json:"error,omitempty"` // why the work in the background stopped; the next question starts it again
}
