// Package manifest describes the audit of ctxpage: one leaf for every read that
// returned page contents and for every end of a transaction, in the order of
// the log, under a Merkle tree whose head can be kept elsewhere.
//
// A leaf (Record) says who asked, at which LSN, under which budget, which page
// versions were served in which form and why, what was left out and why, and
// what a commit wrote. It has digests, never contents. FORMAT.md has its bytes.
//
// What the tree proves: any leaf that is edited, deleted, inserted or moved changes the root of
// every later head. So a head kept outside the machine also reveals a log that was rewritten from
// the start, or rolled back as a whole. Without such a head a complete, consistent older copy looks
// genuine.
//
// The package is plain data and pure functions.
package manifest
