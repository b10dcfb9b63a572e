// Package engine is the state machine of every store. It judges commits and numbers them. From
// their ordered stream it builds what readers ask for: the catalogue, the index, and the rows that
// are not yet in the store's tables. It knows nothing of sessions, directives or budgets.
//
// The package stands between two interfaces. Above it is store.Store, which Engine implements apart
// from opening, closing and files. Below it are Log, the durable order of commits, and Rows, the
// tables beside it; both belong to the store.
//
// Data flows one way:
//
//	Batch → prepare → judge → build → Log → (durable) → install → catalogue, index, overlay → checkpoint → Rows
//
// Readers see a commit once install has run. Only then does the caller of Commit get its answer.
// Recovery and followers enter the same path at install (Follow), so one function alone changes
// what readers see.
//
// # Numbers
//
// Each number counts one kind of thing and starts at 1 unless the list says otherwise. No number is
// used twice, except those of commits that were Lost, which no reader saw.
//
//	LSN      commits. A reader that reads "as of" an LSN sees that commit and all before it
//	Seq      records of the log: commits, leaves of reads, marks
//	Leaf     leaves of the audit, from 0. A commit has one, and so has each read
//	Art      artefacts. Scope, Group: scopes, and groups of neighbouring pages
//	Num      page versions. A page keeps its number while its content stays in its place
//	Version  versions of one artefact
//	times    microseconds since 1970 in UTC (codec.Micros); 0: none
//
// # Who guards what
//
// In lock order, outermost first. db.go has the order of all locks of a process:
//
//	gcMu                one gc, or the commits of one erase, at a time; other commits and reads go on
//	tail of the Log     the order of commits; sequencer.watch
//	sequencer.flight    commits and leaves in flight, and the names of scopes and groups with theirs
//	catalogue.mu        what readers see: catalogue, overlay and frozen, index, vectors in memory, quotas,
//	                    how many held batches wait
//	leaves              changes.mu, holds.mu, names.mu, sieves.mu, idList.mu, bodies.mu
//
// Three things may be read without a lock: a frozen overlay, a row taken from any overlay, and
// whatever the Rows show in a snapshot.
//
// # What a crash leaves
//
// The engine keeps everything in memory. A commit exists once its record is durable in the Log, as
// a whole or not at all. An open loads the rows and follows the Log from their LSN on. It arrives
// at the state that readers saw, plus commits that were durable and not yet answered. Only two
// things can be lost without a trace: leaves of reads of the last 100 ms, which were not synced yet
// (leaves.go), and vectors that no checkpoint had written, which are computed again (vector.go).
//
// # What a host calls
//
// A host is a store that owns a Log and Rows. Besides the methods of store.Store it calls:
//
//	open         New, Attach, Identify, then LoadRows or LoadColumns (IndexAnew if only the index is damaged), Follow, Start;
//	             LimitPages bounds the page numbers that are accepted, Followed counts the leaves that Follow got
//	the order    Position, Counters, Follow, Durable, Lost: the engine as its Log sees it (Follower);
//	             AppendLeafHead and OutcomeIn for what the Log writes and answers
//	commits      Submit: a batch with instructions of the host (Request); Note: leaves of the database itself
//	checkpoint   Waiting and Unflushed say when, then Checkpoint, FlushTail; Columns for a snapshot of the columns
//	gc           Collect, OldestHold
//	erase        Erase, then for each run: Purge, Purging, EraseOutcomes, EraseDone; EraseRest for runs that were interrupted;
//	             ErasedTag and DestroyedHead for rows whose key is destroyed
//	check        Check, MarkIndexDamaged, IndexDamaged; SumRows and NewestOutcome for what the host keeps about its rows
//	figures      Count, Undecided
//	errors       Corrupt, AuditError
//	end          Fail and Failure, Shut, Closed and Stopped; Readable and Writable say why a call is refused
//	tests        At
package engine
