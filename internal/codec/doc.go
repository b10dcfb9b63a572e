// Package codec encodes rows: records whose fields have numbers, and the values they are made of,
// guarded msgpack for the rest, checksums that cover the key, and times. A damaged row costs no
// memory: lengths are compared with the bytes that are left before anything is made.
package codec
