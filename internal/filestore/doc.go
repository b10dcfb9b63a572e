// Package filestore is the embedded store: an engine over a log of segments (package wal) and rows
// in bbolt, in one file with its log and audit beside it. It opens, recovers, checkpoints, backs
// up, restores and salvages.
//
// A database is four files and directories. Only the process that holds the lock file writes them:
//
//	agent.ctx             rows in bbolt, as of the applied LSN
//	agent.ctx-wal/        the log: every commit above that LSN, and one checkpoint more
//	agent.ctx-manifest/   the archive of the audit: leaves that checkpoints moved out of the log
//	agent.ctx.lock        names the process that has the database open
//
// Two more stand beside some databases:
//
//	agent.ctx.keys        the keyring of an encrypted database; without it nothing can be read
//	agent.ctx.columns     beside a large unencrypted database: what an open would build from the rows.
//	                      It is derived, and used only if the audit has its digest
//
// Other names exist for a while only: agent.ctx.compact (a new file while the rows are written
// anew), agent.ctx.columns.new, agent.ctx.keys.tmp, and agent.ctx.restoring, agent.ctx.replaced and
// agent.ctx.swap (a restore). If a crash leaves one, the next open for writing finishes the work or
// removes it.
//
// # How the parts follow each other
//
// The number of a record of the log orders them. Rows are behind the log, never ahead of it, and
// the archive is between the two:
//
//	log        ------------------------------->|        last record, durable
//	archive    -------------------------->|             leaves up to a checkpoint; never behind the rows
//	rows       ------------------>|                     the record that carries the applied LSN (sysRow.Seq)
//	kept log                 |---------------->|        begins at or before the previous checkpoint
//
// So every open can close the gap by reading the log from there on. A log that begins above
// sysRow.Seq + 1, or ends below sysRow.Seq, belongs to another file or lacks segments.
//
// # Who guards what
//
//	path.lock          the files: one process for writing, or several for reading
//	ckptMu             bbolt's file, the front of the log, the system row, the keyring: one job at a time
//	fileLog.tail       the end of the log: who commits next
//	fileLog.mu         entries in flight and the order in which they enter the log's buffer
//	bbolt's locks      a transaction; taken last, and never nested
//
// A job on whole files (checkpoint, backup, check, purge, compaction) holds ckptMu from beginning to
// end. It holds the other locks for moments only, so commits and reads go on while it works.
package filestore
