// Package session holds the rules of a conversation's window: what a pass
// retains, pages or evicts (Pass), how that is written down (CompatExport,
// Ledger), how a session is handed to another agent (Packet), and how headroom
// is kept by plan and apply (State, Plan, Machine).
//
// Everything here is a pure function of its arguments: no clock is read, no
// file opened, no goroutine started, and nothing depends on the order of a
// map. All that a function decides is a view; the text of a block stays where
// it is stored, and a paged or evicted block is one recall away.
//
// Values are not safe for concurrent use unless they are only read. Functions
// keep no reference to their arguments except where a comment says so.
package session
