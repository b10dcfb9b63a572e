// Package engine is the state machine of every store. It judges commits, numbers them, and builds
// what readers ask for from their ordered stream: the catalogue, the index, and the rows that are
// not yet in the store's tables. It knows nothing of sessions, directives or budgets.
//
// The package stands between two interfaces. Above it is store.Store, which Engine implements apart
// from opening, closing and files. Below it are Log, the durable order of commits, and Rows, the
// tables beside it; both belong to the store.
//
// Data flows one way:
//
//	Batch → prepare → judge → build → Log → (durable) → install → catalogue, index, overlay → checkpoint → Rows
//
// A reader sees a commit when install has run, and its caller gets an answer after that. Recovery
// and followers enter the same path at install (Follow), so there is one function that changes what
// readers see.
//
// # What a host calls
//
// A host is a store that owns a Log and Rows. Besides the methods of store.Store it calls:
//
//	open         New, Attach, Identify, then LoadRows or LoadColumns (IndexAnew if only the index is damaged), Follow, Start
//	the order    Position, Counters, Follow, Durable, Lost: the engine as its Log sees it (Follower)
//	checkpoint   Waiting, Freeze, Numbers, FlushIndex, Flush, FlushTail, Thaw; Columns for a snapshot of the columns
//	gc           Collect, OldestHold
//	erase        Erase, then for each run: Purge, Purging, EraseOutcomes, EraseDone; EraseRest after an open
//	check        Check, MarkIndexDamaged, IndexDamaged
//	end          Fail and Failure, Shut, Closed and Stopped; Readable and Writable say why a call is refused
package engine
