// Package remote serves a store.Store over a unix socket to other processes of the same user.
// Server offers a store. Client is a store.Store whose calls go to a Server. PROTOCOL.md describes
// the messages between them.
//
// The process that holds the lock of a database serves it, so a second process can read and write
// the database without opening its files. This package locks no file and does not decide which
// process serves: only the holder of the lock may call Listen and Serve.
//
// # What a lost connection means
//
// A client sends a call again when its connection fails. Each call has a number, and a server runs
// a number once: a repeated Commit or Append gets the answer of the first. A server that started in
// between does not know the number. Then a Commit is sent again under its batch id, which never
// applies twice, and the audit shows whether an Append was done. The outcome of a gc, an erase,
// a compaction or a backup is not known; they return store.ErrOutcomeUnknown and are not sent again.
//
// # Holds
//
// A client names itself in a handshake and gets a session, which has its holds. If the server hears
// nothing of a session for longer than the lease, the session and its holds end. A client renews
// its session while it has holds. When it finds its session gone, it makes another one and takes
// its holds again, but what gc dropped in between stays gone.
package remote
