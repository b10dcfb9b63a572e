// Package manifest is the audit of ctxpage: one leaf for every read that
// returned page contents and for every end of a transaction, in the order of
// the log, under a Merkle tree whose head can be kept elsewhere.
//
// A leaf (Record) says who asked, at which LSN, under which budget, which page
// versions were served in which form and why, what was left out and why, and
// what a commit wrote. It has digests, never contents. Encode and Decode are
// its byte form. The engine writes that form into the log and gives it to a
// Log, which keeps the newest leaves in memory (the tail) and copies them into
// the archive directory at a checkpoint.
//
//	leaf durable in the log    Log.AddNew: into the tail and the tree
//	checkpoint                 Log.Archive: the head of the tail into the archive, synced
//	log cut                    the archive is now the only copy of those leaves
//	open                       the archive up to its mark, then Log.Add for every leaf that the log has
//
// What the tree proves: any leaf that is edited, deleted, inserted or moved changes the root of
// every later head. So a head kept outside the machine also reveals a log that was rewritten from
// the start, or rolled back as a whole. Without such a head a complete, consistent older copy looks
// genuine.
//
// The package knows neither pages nor bbolt. It opens files only below the
// directory it is given and only through FS, starts no goroutine and reads no
// clock.
package manifest
