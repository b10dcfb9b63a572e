package ops

import "time"

// RefreshOptions say what a refresh does. The zero value probes every source of the scope and fetches what changed.
type RefreshOptions struct {
	// DryRun probes and reports. It fetches and writes nothing.
	DryRun bool
	// Delete deletes artefacts of recorded directories whose file is gone, or is no longer taken. Without it they stay
	// in the store, and those whose file is gone are left out of every context with that reason. Before it deletes, it
	// looks a second time, 250 ms later. Artefacts of a directory that cannot be read are never deleted.
	Delete bool
	// FilesOnly skips sources other than file:, which may be a network.
	FilesOnly bool
	// Check skips sources whose last probe is younger; 0: none. Below 0 it is an *InvalidError.
	Check time.Duration
	// Progress, if not nil, is called from the calling goroutine. It must not call the database.
	Progress func(what string, done, total uint64)
}

// RefreshReport says what a refresh found. Its lists of ids are sorted.
type RefreshReport struct {
	Scope     string           `json:"scope"`
	Sources   int              `json:"sources"` // artefacts whose source was probed
	Unchanged int              `json:"unchanged"`
	Elsewhere int              `json:"elsewhere,omitempty"` // file: sources of other hosts, which were not probed
	Changed   []string         `json:"changed"`             // fetched again
	New       []string         `json:"new"`                 // new files of recorded directories
	Vanished  []string         `json:"vanished"`            // the source is gone
	NotTaken  []string         `json:"not_taken"`           // the file exists, but the rules of its directory exclude it
	Deleted   []string         `json:"deleted"`
	Failed    []RefreshFailure `json:"failed"`
	DryRun    bool             `json:"dry_run,omitempty"`
}

// RefreshFailure is a source, or a recorded directory, that could not be read.
type RefreshFailure struct {
	ID  string `json:"id,omitempty"`  // artefact; "": a directory
	Dir string `json:"dir,omitempty"` // recorded directory
	Err string `json:"error"`
}
