// Package filestore is the embedded store: an engine over a log of segments (package wal) and rows
// in bbolt, in one file with its log and audit beside it. It opens, recovers, checkpoints, backs
// up, restores and salvages.
//
// A database is four names. One process writes them, the one that holds the lock file:
//
//	agent.ctx             rows in bbolt, as of the applied LSN
//	agent.ctx-wal/        the log: every commit above that LSN, and one checkpoint more
//	agent.ctx-manifest/   the archive of the audit: leaves that checkpoints moved out of the log
//	agent.ctx.lock        names the process that has the database open
//
// Other names exist for a while only: agent.ctx.compact (an erase writes a new file),
// agent.ctx.restoring, agent.ctx.replaced and agent.ctx.swap (a restore). If a crash leaves one,
// the next open for writing finishes the work or removes it.
package filestore
