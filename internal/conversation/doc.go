// Package conversation holds the sessions that a process uses in memory. Turns is the plain data of one session: its turns,
// their rows, and the decisions of passes, the watcher and pins about them, with the rules that follow from these. Its
// methods do no I/O, read no clock and take no lock; their changes are collected in Writes. Conversation ties Turns to a
// store: it loads the rows, has one lock for each session, commits what was collected, and runs the watcher.
// The rules of a window stand in files of their own (window*.go but for window.go): what a pass retains, pages or evicts (Judge), and how
// headroom is kept by plans (State, Plan, Machine). Every decision is a view: the text of a turn stays stored, and a paged or
// evicted turn is one recall away. These rules are pure: they read no clock, open no file and start no goroutine, and nothing
// depends on the order of a map. They keep no reference to their arguments except where a comment says so.
//
// The level at which the window shows a turn (Shown), and what changes it:
//
//	          Incoming.Stage            Adopt: page                Adopt: evict
//	 (new) ─────────────────▶ live ──────────────────▶ stub ──────────────────▶ cold
//	                          │  ▲                      ▲  │                      │
//	        CarryOut: compact │  │ Undo, Reinstate      │  │ Undo, Reinstate      │
//	                          ▼  │                      │  ▼                      │
//	                        trimmed ─▶ summary ─────────┘ (the level before) ◀────┘
//
//	recalled: read whole at any level; the level does not change, and the next commit records when it was read (Reads)
//	pinned:   shown whole at any level, until the pin yields to the newest turn (yield); it comes back later (repin)
//	found:    a cold turn that a question finds competes for that context (Offer); its level does not change
//	deleted:  its page is not a member any more, and Take drops the turn; gc removes its rows
//
// Every level is a view: the whole text stays in the store.
//
// Invariants between calls:
//
//   - A call and its results are one unit and change levels together, because no provider accepts one without the other.
//   - Blocks are in the order of the conversation. Each names its unit, and each unit names its members.
//   - A stored block has the numbers of its pages. A staged block has none, and staged blocks are the newest.
//   - A row is never changed in place. A change makes a new one (SetRow), so that Undo can put the old one back.
//   - A derived value has the revision at which it was made. It is made again when that is not the current revision.
//
// Rejected: six counters, one for each derived value, that every change had to increment by hand; forgetting one served a
// stale window. Also rejected: inserting a new turn under a made-up page number while room is made for it; every return had
// to remove it, and the commit inserted it a second time under its real number.
package conversation
