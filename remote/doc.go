// Package remote serves a store.Store over a unix socket to other processes of the same user.
// Server offers a store; Client is a store.Store that asks one. PROTOCOL.md describes what passes
// between them.
//
// The process that has the file locked serves it, so a second process can read and write the same
// database without opening its files. This package locks no file and does not decide which process
// serves: only the holder of the lock may call Listen and Serve.
//
// # What a lost connection means
//
// A client sends a call again when its connection fails. The server runs a call of one number once:
// a repeated Commit or Append gets the answer of the first. A server that started since does not
// know those numbers. The client then sends a Commit again under its batch id, which never applies
// twice. The outcome of an Append, a gc or a backup cannot be found out; they return
// store.ErrOutcomeUnknown.
//
// # Holds
//
// A client names itself in a handshake and gets a session, which has its holds. A session that is
// not heard of for longer than the lease ends, and its holds with it. A client renews its session
// while it has holds. When it finds its session gone it makes another one and takes its holds
// again: what gc dropped in between stays gone.
package remote
