// Package codec encodes rows: a hand-written encoder for what is read a million times at an open,
// guarded msgpack for the rest, checksums that cover the key, and times. A damaged row costs no
// memory: lengths are compared with the bytes that are left before anything is made.
package codec
