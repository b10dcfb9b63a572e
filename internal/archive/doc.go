// Package archive keeps the audit: the bytes of leaves, their log in memory, and the archive
// directory that a checkpoint copies them into. Package manifest has what users see of it: records,
// heads and proofs.
//
//	leaf durable in the log    Log.AddNew: into the tail and the tree
//	checkpoint                 Log.Archive: the head of the tail into the archive, synced
//	log cut                    the archive is now the only copy of those leaves
//	open                       the archive up to its mark, then Log.Add for every leaf that the log has
//
// The package knows neither pages nor bbolt. It opens files only below the directory it is given and
// only through wal.FS, starts no goroutine and reads no clock.
package archive
