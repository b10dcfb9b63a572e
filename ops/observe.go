package ops

import "time"

// Observer is told what a database does, for metrics and traces. Observe is called by one goroutine, in the order of the events, under no
// lock of the database, and must not close it. Events that find no room while Observe is busy are dropped and counted.
type Observer interface {
	Observe(e Event)
}

// Event is something that a database did. It has no text and no ids.
type Event struct {
	// Kind is the type of the audit leaf, such as assemble, search, get, commit, held, refetch, pass or handoff; or fault (pages were read
	// from the store), checkpoint, gc, erase, backup, compact or check, if this process asked for it.
	Kind string
	// Scope is a keyed digest that stands for the scope; its name with Options.ObserveScopes. "": no scope, or several.
	Scope   string
	At      time.Time     // when it ended, by Options.Clock
	Took    time.Duration // by Options.Clock
	Pages   int           // shown, written or read
	Tokens  int           // of what a read served
	Bytes   int           // of the texts that were written or read
	Tier    int           // of an assembly
	LSN     uint64        // of the snapshot, or of the commit
	Failed  bool          // it returned an error; a conflict is one
	Dropped int           // events that were dropped since the event before
}
