// Package manifest is the audit of ctxpage: one leaf for every read that
// returned page contents and for every end of a transaction, in the order of
// the log, under a Merkle tree whose head can be kept elsewhere.
//
// A leaf (Record) says who asked, at which LSN, under which budget, which page
// versions were served in which form and why, what was left out and why, and
// what a commit wrote. It holds digests, never contents. Encode and Decode are
// its byte form; the root package writes that form into the log, and hands it
// to a Log, which keeps the newest leaves in memory (the tail) and copies them
// into the archive directory at a checkpoint.
//
// What the tree proves: any leaf edited, deleted, inserted or moved changes the
// root of every later head. A head kept outside the machine therefore also
// finds a log that was rewritten from the start, and one that was set back as a
// whole; without such a head a complete, consistent older copy looks genuine.
//
// The package knows no pages and no bbolt. It opens files only below the
// directory it is given and only through the FS seam, starts no goroutine and
// reads no clock.
package manifest
