// Package pgstore keeps a database on a PostgreSQL server, so that agents on several hosts share one memory.
//
// A server has one ordered log for each database. Each host that opens it is a follower: it reads the log and builds from it
// what an embedded file has, in memory and in a local cache that can be thrown away. Reads are local. A commit locks one row
// of the server, reads what other hosts committed meanwhile, is judged against it, and is written in the same transaction.
//
//	st, err := pgstore.Open(ctx, "postgres://…", pgstore.Options{Name: "support"})
//	db, err := ctxpage.Open("support", ctxpage.Options{Store: st})
//
// The schema is made by Migrate (dbctl postgres migrate URL) and never by Open.
//
// # What readers see
//
// Commits are linearizable. A read sees a prefix of the commits: all that this host made, and those of other hosts up to some
// milliseconds ago. Store.Refresh makes the reads after it see every commit that was answered before the call. A host that
// has not heard from the server for Options.MaxLag refuses to read (ErrBehind).
//
// # Failures
//
// A commit whose transaction did not reach the server is written again, or judged again if another host committed in between.
// If the answer to a COMMIT is lost, the store asks the server for the outcome; callers get store.ErrOutcomeUnknown only when
// their context ends or Options.Patience is over. A server that lost acknowledged commits, after a fail-over to a standby that
// was behind, is detected by the hash chain of the log, by hosts that run and by caches that were kept: *ForkedError.
//
// Hosts follow a fail-over by themselves if dsn leads to the new primary: name both servers and target_session_attrs=read-write.
package pgstore
