// Package talk holds a session in memory: its turns, the rows that are kept of them, and what passes, the watcher and pins
// have decided about them. It is plain data and what follows from it. Whoever has a store loads the rows and the heads of the
// members, hands them in, asks, and commits what Writes has collected; the package opens no file, reads no clock, starts no
// goroutine and takes no lock.
//
// How a turn stands in the window (Shown), and what moves it:
//
//	          Incoming.Stage            Adopt: page                Adopt: evict
//	 (new) ─────────────────▶ live ──────────────────▶ stub ──────────────────▶ cold
//	                          │  ▲                      ▲  │                      │
//	        CarryOut: compact │  │ Undo, Reinstate      │  │ Undo, Reinstate      │
//	                          ▼  │                      │  ▼                      │
//	                        trimmed ─▶ summary ─────────┘ (the level before) ◀────┘
//
//	recalled: read whole wherever it stands; it stays where it is, and the next commit notes when it was read (Reads)
//	pinned:   shown whole whatever the others say, until the pin gives way to the newest turn (yield) and comes back (repin)
//	deleted:  its page is no member any more, and Take drops it; its rows are gc's
//
// Nothing is lost on the way: every level is a view, and the text stays where it is stored.
//
// What holds between all calls:
//
//   - A call and its results are one unit. They go through the levels together: no provider takes one without the other.
//   - Blocks stand in the order of the conversation, each names its unit, and each unit names its members.
//   - A block that is stored has the numbers of its pages; one that is staged has none, and the staged are the newest.
//   - A row is never changed in place: a change makes a new one (SetRow), so that the old one can be put back (Undo).
//   - What is derived remembers the revision it was made at, and is made again where that is not the revision now.
//
// Two ways were tried and given up. Six counters, one for each derived value, had to be moved on by hand at every change;
// forgetting one served a stale window. And a turn for which room is made stood in the window under a number that no page has
// until the commit: it had to be taken out again on every way out, and came in a second time with its real number.
package talk
