package store

import (
	"time"
)

// Validator identifies the state of a source.
type Validator struct {
	Stamp string    `json:"stamp,omitempty"` // cheap: size and mtime, ETag, version
	Hash  uint64    `json:"hash,omitempty"`  // xxhash64 of the content; 0 unknown. Fast, not cryptographic
	At    time.Time `json:"at,omitzero"`     // when it was taken
}

// hostMark ends the stamp of a file where a host is recorded; its name follows.
const hostMark = "\nhost "

// StampOf is the stamp of a file of a host; with host "" it is the stamp alone.
func StampOf(stamp, host string) string {
	if host == "" {
		return stamp
	}
	return stamp + hostMark + host
}
