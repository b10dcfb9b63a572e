// Package session has what a user of a conversation writes and reads: the
// configuration of its window (Config), passes over it (PassQuery, StoredPass,
// Plan), what happened to it (Event, PassInfo), how it looks (Window), and the
// packet that hands it to another agent (Packet).
//
// Everything here is plain data and pure functions of it. Every decision about
// a turn is a view: its text stays stored, and a paged or evicted turn is one
// recall away.
//
// Values are not safe for concurrent use unless they are only read.
package session
