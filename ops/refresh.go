package ops

import (
	"context"
	"time"
)

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

// Observer is told what a database does, for metrics and traces. Observe is called by one goroutine, in the order of the events, under no
// lock of the database, and must not close it. Events that find no room while Observe is busy are dropped and counted.
//
// ctx has the values of the context of the call, a trace among them. It does not end with the call.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is something that a database did. It has no text and no ids of the database.
type Event struct {
	// Kind is the type of the audit leaf, such as assemble, search, get, commit, held, refetch, pass or handoff; or fault (pages were read
	// from the store), erase, backup, compact or check, if this process asked for it; or checkpoint and sync (of the log), if this process
	// owns the files.
	Kind string
	// Scope is a keyed digest that stands for the scope; its name with Options.ObserveScopes. "": no scope, or several.
	Scope string
	At    time.Time // when it ended, by Options.Clock
	// Took is the duration by Options.Clock: of a read, a pass or a hand-over, until its leaf was made, or was durable (Options.AuditSync);
	// of a refetch, from when the source was asked; of a commit, until it was durable and visible.
	Took   time.Duration
	Pages  int            // shown, written or read
	Left   map[string]int // pages that an assembly left out, by reason; Observe must not change it
	Tokens int            // of what a read served
	Budget int            // of an assembly, in tokens
	Bytes  int            // of the texts that were written or read; of a checkpoint, of its rows; of a backup, of the copy
	Tier   int            // of an assembly
	Match  string         // of an assembly: none, weak or good; "": the question has no words of its own
	LSN    uint64         // of the snapshot, or of the commit
	// Error is the kind of the error that it returned, such as conflict, not_found or canceled; other: none of the known ones; "": none.
	Error string
	// Traceparent is the W3C trace context that came with the call over the socket or MCP; "": none, or not well-formed.
	Traceparent string
	Dropped     int // events that were dropped since the event before
}
